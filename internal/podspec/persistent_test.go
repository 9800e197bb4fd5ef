// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/internal/podspec"
)

// stays returns a persistent runner.
func stays() podspec.Runner {
	r := runner
	r.Self = &podspec.SelfRegistration{URL: "https://github.com/acme", Group: "builders", Labels: []string{"gpu", "odd $(HOME)"}}
	return r
}

func TestAPersistentRunnersPod(t *testing.T) {
	pod, err := podspec.Build(stays(), []byte(`{
		"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "no"}},
		"spec": {"containers": [{"name": "runner", "image": "r", "env": [{"name": "ACTIONS_RUNNER_INPUT_JITCONFIG", "value": "mine"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	want := []string{"--url", "https://github.com/acme", "--name", "linux-abc", "--labels", "gpu,odd $$(HOME)", "--runnergroup", "builders"}
	if diff := cmp.Diff(want, c.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || len(c.Command) != 4 || c.Command[0] != "/bin/bash" {
		t.Errorf("restart policy %s, command %q", pod.Spec.RestartPolicy, c.Command)
	}
	token := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "linux-abc-jit"}, Key: podspec.RegistrationTokenKey}}
	if diff := cmp.Diff([]corev1.EnvVar{{Name: podspec.TokenEnv, ValueFrom: token}, {Name: podspec.ReturnOutdatedEnv, Value: "1"}}, c.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].EmptyDir == nil || len(c.VolumeMounts) != 1 {
		t.Errorf("volumes %+v", pod.Spec.Volumes)
	}
	if err := podspec.CheckSecrets(pod, nil); err != nil {
		t.Error(err)
	}
	wantIdle := map[string]any{podspec.SafeToEvictAnnotation: "true", podspec.DoNotDisruptAnnotation: "no"}
	if diff := cmp.Diff(wantIdle, podspec.IdleAnnotations(pod)); diff != "" {
		t.Errorf("without a job (-want +got):\n%s", diff)
	}
}

func TestATemplateMayRegisterByItself(t *testing.T) {
	pod, err := podspec.Build(stays(), []byte(`{"spec": {"restartPolicy": "Always", "containers": [{"name": "runner", "command": ["/my/entrypoint.sh"], "args": ["--once"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := pod.Spec.Containers[0]; c.Command[0] != "/my/entrypoint.sh" || len(c.Args) != 1 {
		t.Errorf("%q %q", c.Command, c.Args)
	}
}

func TestWhatKeepsARunnerFromStayingIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"never runs again":        {`"restartPolicy": "Never", "containers": [{"name": "runner"}]`, "spec.template.spec.restartPolicy: must be Always, because a persistent runner starts again; found Never"},
		"its container doesn't":   {`"containers": [{"name": "runner", "restartPolicy": "OnFailure"}]`, "spec.template.spec.containers[0].restartPolicy: must be Always, because a persistent runner starts again; found OnFailure"},
		"rules":                   {`"containers": [{"name": "runner", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}]`, "spec.template.spec.containers[0].restartPolicyRules: must not be set"},
		"only runs":               {`"containers": [{"name": "a"}, {"name": "runner", "command": ["/home/runner/run.sh"]}]`, "spec.template.spec.containers[1].command: leave it out: a persistent runner registers before it runs run.sh"},
		"arguments of nothing":    {`"containers": [{"name": "runner", "args": ["run.sh"]}]`, "spec.template.spec.containers[0].args: leave them out"},
		"the registration's name": {`"volumes": [{"name": "corral-registration"}], "containers": [{"name": "runner"}]`, "spec.template.spec.volumes[0].name: corral-registration is the volume that keeps a persistent runner's registration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := podspec.Build(stays(), []byte(`{"spec": {`+tc.spec+`}}`))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Runs the container's actual command, with a config.sh and a run.sh that record their arguments.
func TestTheRegistrationOutlivesItsContainer(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	pod, err := podspec.Build(stays(), []byte(`{"spec": {"containers": [{"name": "runner"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	kept := t.TempDir()
	run := func(token, config string) (notes string, err error) {
		t.Helper()
		home := t.TempDir() // a restarted container has no files of the previous one
		script(t, home, "config.sh", `echo "config $ACTIONS_RUNNER_INPUT_TOKEN $*" >> notes; `+config)
		script(t, home, "run.sh", `echo "run with $(cat .runner .credentials .env) and token '${ACTIONS_RUNNER_INPUT_TOKEN-none}', its first environment has $(tr '\0' '\n' < /proc/$$/environ | grep -c TOKEN)" >> notes; exit 3`)
		c := exec.CommandContext(t.Context(), bash, append(pod.Spec.Containers[0].Command[1:], pod.Spec.Containers[0].Args...)...)
		c.Dir, c.Env = home, []string{"PATH=" + os.Getenv("PATH"), "CORRAL_REGISTRATION_FOLDER=" + kept, podspec.TokenEnv + "=" + token}
		err = c.Run()
		text, _ := os.ReadFile(filepath.Join(home, "notes")) // without the file nothing ran
		return string(text), err
	}
	const registers = "echo id > .runner; echo key > .credentials; echo lang > .env"
	const configured = "config t1 --unattended --replace --disableupdate --no-default-labels --url https://github.com/acme --name linux-abc --labels gpu,odd $$(HOME) --runnergroup builders\n"
	const ran = "run with id\nkey\nlang and token 'none', its first environment has 0\n"
	for _, x := range []struct{ name, token, config, want string }{
		{"registering fails", "t1", "exit 1", configured},
		{"it is registered once", "t1", registers, configured + ran},
		{"it runs again, and the token has expired", "gone", "exit 1", ran},
	} {
		notes, err := run(x.token, x.config)
		if notes != x.want || err == nil {
			t.Errorf("%s: %v, and\n%s", x.name, err, notes)
		}
	}
}

func script(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/bash\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
