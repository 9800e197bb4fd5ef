// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

const dockerPool = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: docker}
spec:
  connectionRef: {name: acme}
  scale: {max: 1}
  containerMode: {type: Docker, docker: {image: "corral.test/dind:1"}}
  template:
    spec:
      containers:
      - name: runner
        image: corral.test/runner:1
        command: [/home/runner/run.sh]
`

// dockerSteps lists Docker commands of jobs, with their expected output. The image is built from scratch, because
// no registry is available.
var dockerSteps = []struct{ script, prints string }{
	{`echo "as $(id -un), with $(docker info --format 'Docker {{.ServerVersion}}, {{.Driver}}, cgroups {{.CgroupVersion}}')"`, "as runner, with Docker "},
	{`mkdir image && cp /bin/busybox image/
cat >image/Dockerfile <<'END'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN echo made in a build >/made
ENTRYPOINT ["/bin/sh", "-c"]
END
docker build --tag job image`, "Successfully tagged job:latest"},
	{`docker run --rm job 'cat /made'`, "made in a build"},
	// The job and its containers share the work folder.
	{`docker run --rm --volume "$PWD:/work" job 'echo written in a container >/work/seen' && cat seen`, "written in a container"},
	// The runner mounts the runtime of actions from this folder.
	{`docker run --rm --volume /home/runner/externals:/__e:ro job /__e/node20/bin/node`, "an action runs"},
	// A job's container can use the Docker socket if it is mounted, as it is for the container: of a workflow.
	{`docker run --rm --volume /var/run/docker.sock:/var/run/docker.sock --volume /usr/bin/docker:/usr/bin/docker:ro \
	--volume /lib:/lib:ro --volume /lib64:/lib64:ro job 'echo seen from inside: $(docker ps --quiet | wc -l) container'`, "seen from inside: 1 container"},
	// Containers reach services: by name on the job's network, and the outside world through the pod.
	{`docker network create job && docker run --detach --name web --network job job 'httpd -f -p 8080 -h /'
docker run --rm --network job job 'until wget -q -O /copy http://web:8080/made; do sleep 0.1; done; echo a service gave: $(cat /copy)'`, "a service gave: made in a build"},
	{`docker run --rm job 'wget -q -O - GITHUB/_sim/invariants'`, "[]"},
}

func (b *bed) aJobUsesDocker(t *testing.T) {
	b.pool(t, "docker", dockerPool)
	var script strings.Builder
	for _, step := range dockerSteps {
		script.WriteString("echo '#step'\n" + step.script + "\n")
	}
	github := strings.TrimSuffix(b.world.GitHub.ConfigURL("docker-org"), "/docker-org")
	job := b.job(t, "docker-org", "docker", strings.ReplaceAll(script.String(), "GITHUB", github))
	t.Logf("queued %s, worked %s:\n%s", job.Started.Sub(job.Queued).Round(time.Millisecond), job.Finished.Sub(job.Started).Round(time.Millisecond), job.Log)
	printed := strings.Split(job.Log, "#step\n")[1:]
	for i, step := range dockerSteps {
		if !strings.Contains(printed[i], step.prints) {
			t.Errorf("step %d printed %q, want %q", i, printed[i], step.prints)
		}
	}
	b.end(t, "docker", "docker")
}
