# Registers a persistent runner once and runs it. What the registration leaves is kept on a volume: the token is good for an hour, and a
# container that runs again has nothing of the one before.
set -eu
kept=${CORRAL_REGISTRATION_FOLDER:-/opt/corral/registration}
[ -x ./config.sh ] || cd /home/runner
if [ -e "$kept/.runner" ]; then
  cp -p "$kept"/.[!.]* .
else
  if [ -n "${RUNNER_UPDATE_CA_CERTS:-}" ]; then # as run.sh does, which is too late for config.sh
    if [ -w /etc/ssl/certs ]; then update-ca-certificates; else sudo -n update-ca-certificates; fi || echo "The certificates can't be trusted." >&2
  fi
  ./config.sh --unattended --replace --disableupdate --no-default-labels "$@"
  for file in .env .path .credentials .credentials_rsaparams; do
    if [ -e "$file" ]; then cp -p "$file" "$kept/"; fi
  done
  cp -p .runner "$kept/.runner.new"
  mv "$kept/.runner.new" "$kept/.runner" # all is kept by now
fi
unset ACTIONS_RUNNER_INPUT_TOKEN
exec ./run.sh # in place of this process, in whose environment jobs could find the token
