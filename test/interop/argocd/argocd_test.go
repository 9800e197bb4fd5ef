// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package argocd runs Corral against Argo CD's own code: the config management plugin server and its client, the
// Lua VM that runs health scripts, and the diff engine. It is a separate module because Argo CD is slow to build.
// `make interop` runs it.
package argocd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/cmpserver/apiclient"
	"github.com/argoproj/argo-cd/v3/util/app/discovery"
	"github.com/argoproj/argo-cd/v3/util/cmp"
	"github.com/golang/protobuf/ptypes/empty"
)

// top is the root of the repository.
const top = "../../.."

// cache is the directory for binaries that take long to build.
var cache = filepath.Join(top, ".cache", "interop", "argocd")

// build compiles a Go package to the given path. The go command skips the work if the binary is up to date.
func build(t *testing.T, folder, pkg, binary string) string {
	t.Helper()
	path, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", path, pkg)
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return path
}

// plugin is a running argocd-cmp-server with the plugin from examples/argocd.
type plugin struct {
	t *testing.T
	// corral is the path of the corral binary that the plugin calls.
	corral string
	log    *bytes.Buffer
}

// startPlugin starts the server the way the sidecar container does: with the plugin.yaml of the example and corral
// on its PATH.
func startPlugin(t *testing.T) *plugin {
	t.Helper()
	p := &plugin{t: t, log: &bytes.Buffer{}}
	server := build(t, ".", "github.com/argoproj/argo-cd/v3/cmd", filepath.Join(cache, "argocd-cmp-server"))
	p.corral = build(t, top, "./cmd/corral", filepath.Join(cache, "bin", "corral"))
	sockets, err := os.MkdirTemp("", "cmp") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	t.Setenv("ARGOCD_PLUGINSOCKFILEPATH", sockets)
	config, err := filepath.Abs(filepath.Join(top, "examples", "argocd", "install"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(server, "--config-dir-path", config)
	c.Env = []string{
		"PATH=" + filepath.Dir(p.corral), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(),
		"ARGOCD_PLUGINSOCKFILEPATH=" + sockets, "ARGOCD_CMP_WORKDIR=" + t.TempDir(),
	}
	c.Stdout, c.Stderr = p.log, p.log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // the server ignores SIGTERM
		_ = c.Wait()
		if t.Failed() {
			t.Logf("argocd-cmp-server output:\n%s", p.log)
		}
	})
	p.wait(filepath.Join(sockets, "corral.sock"))
	return p
}

// wait blocks until the server answers on its socket.
func (p *plugin) wait(socket string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		_, err := os.Stat(socket)
		if err == nil {
			err = ask(ctx, socket)
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("argocd-cmp-server doesn't answer: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, socket string) error {
	closer, client, err := apiclient.NewConfigManagementPluginClientSet(socket).NewConfigManagementPluginClient()
	if err != nil {
		return err
	}
	defer closer.Close()
	_, err = client.CheckPluginConfiguration(ctx, &empty.Empty{})
	return err
}

// detect finds the plugin that handles a folder, as Argo CD's repo server does. An empty name matches any plugin.
func (p *plugin) detect(name, repository, folder string, env ...string) (apiclient.ConfigManagementPluginServiceClient, error) {
	closer, client, err := discovery.DetectConfigManagementPlugin(p.t.Context(), filepath.Join(repository, folder), repository, name, env, nil)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { closer.Close() })
	return client, nil
}

// generate returns the manifests of a folder, obtained from the plugin as Argo CD's repo server does.
func (p *plugin) generate(repository, folder string, env ...string) ([]string, error) {
	p.t.Helper()
	env = append(env, "ARGOCD_APP_NAME=runners", "ARGOCD_APP_NAMESPACE=runners", "ARGOCD_APP_SOURCE_PATH="+folder)
	client, err := p.detect("corral", repository, folder, env...)
	if err != nil {
		return nil, err
	}
	stream, err := client.GenerateManifest(p.t.Context())
	if err != nil {
		return nil, fmt.Errorf("asking for manifests: %w", err)
	}
	if err := cmp.SendRepoStream(p.t.Context(), filepath.Join(repository, folder), repository, stream, env, nil); err != nil {
		return nil, fmt.Errorf("sending the repository: %w", err)
	}
	answer, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	return answer.Manifests, nil
}

// run executes corral in a folder and returns its standard output.
func (p *plugin) run(folder string, args ...string) string {
	p.t.Helper()
	c := exec.CommandContext(p.t.Context(), p.corral, args...)
	c.Dir = folder
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		p.t.Fatalf("corral %v: %v\n%s", args, err, exit.Stderr)
	}
	return string(out)
}

// examples copies the examples to a temporary directory, which serves as a repository with a module and an
// Application's folder.
func examples(t *testing.T) string {
	t.Helper()
	repository := t.TempDir()
	if err := os.CopyFS(repository, os.DirFS(filepath.Join(top, "examples"))); err != nil {
		t.Fatal(err)
	}
	return repository
}

// write creates a file in a repository.
func write(t *testing.T, repository, name, text string) {
	t.Helper()
	file := filepath.Join(repository, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestThePluginGeneratesWhatCorralBuilds(t *testing.T) {
	p := startPlugin(t)
	repository := examples(t)
	folders, err := fs.Glob(os.DirFS(repository), "*/objects.yaml")
	if err != nil || len(folders) < 10 {
		t.Fatalf("%d examples, %v", len(folders), err)
	}
	for _, name := range folders {
		folder := filepath.Dir(name)
		t.Run(folder, func(t *testing.T) {
			got, err := p.generate(repository, folder)
			if err != nil {
				t.Fatal(err)
			}
			same(t, p.run(filepath.Join(repository, folder), "build"), got)
		})
	}
	t.Run("with parameters", func(t *testing.T) {
		got, err := p.generate(repository, "argocd", `ARGOCD_APP_PARAMETERS=[{"name":"tags","map":{"url":"https://github.com/other"}},{"name":"namespace","string":"runners"}]`)
		if err != nil {
			t.Fatal(err)
		}
		same(t, p.run(filepath.Join(repository, "argocd"), "build", "--tag", "url=https://github.com/other", "-n", "runners"), got)
	})
	t.Run("with variables", func(t *testing.T) {
		got, err := p.generate(repository, "argocd", "ARGOCD_ENV_CORRAL_TAGS=url=https://github.com/other")
		if err != nil {
			t.Fatal(err)
		}
		same(t, p.run(filepath.Join(repository, "argocd"), "build", "--tag", "url=https://github.com/other"), got)
	})
}

func TestThePluginSaysWhatIsWrong(t *testing.T) {
	p := startPlugin(t)
	repository := examples(t)
	const name = "argocd/broken.cue"
	for title, tc := range map[string]struct {
		text string
		env  []string
		want []string
	}{
		"a rule": {text: "package pools\n\npools: linux: spec: scale: {min: 30, max: 20}\n",
			want: []string{"argocd/broken.cue:3:29: pools.linux.spec.scale.min: min 30 is above max 20", "exit status 1"}},
		"syntax": {text: "package pools\n\npools: {\n", want: []string{"argocd/broken.cue:"}},
		"a name": {text: "package pools\n\npools: linux: spec: runnerLables: [\"x\"]\n",
			want: []string{"argocd/broken.cue:3:21: pools.linux.spec.runnerLables: field not allowed; did you mean runnerLabels?"}},
		"without end": {text: "package pools\n\nimport \"list\"\n\nr: list.Range(0, 60, 1)\nx: [for a in r for b in r for c in r for d in r {a + b + c + d}]\n",
			want: []string{"compiling takes more than ", " of CPU time, the most that is allowed"}},
		"an unknown tag":   {text: "package pools\n", env: []string{"ARGOCD_ENV_CORRAL_TAGS=ulr=x"}, want: []string{`tag "ulr" is set, but no field is marked @tag(ulr)`}},
		"a bad parameter":  {text: "package pools\n", env: []string{`ARGOCD_APP_PARAMETERS=[{"name":"tag","map":{}}]`}, want: []string{`parameter "tag" of the Application: unknown parameter`}},
		"a broken setting": {text: "package pools\n", env: []string{`ARGOCD_APP_PARAMETERS={`}, want: []string{"reading ARGOCD_APP_PARAMETERS"}},
	} {
		t.Run(title, func(t *testing.T) {
			write(t, repository, name, tc.text)
			got, err := p.generate(repository, "argocd", tc.env...)
			if err == nil {
				t.Fatalf("no error, %d manifests", len(got))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant %q in it", err, want)
				}
			}
		})
	}
}

// If the plugin returned no manifests and no error, Argo CD would prune everything.
func TestThePluginNeverAnswersWithNothing(t *testing.T) {
	p := startPlugin(t)
	repository := examples(t)
	write(t, repository, "none/connections.cue", "package pools\n\nimport \"corral.dev/schema@v0\"\n\nconnections: schema.#Connections\n")
	got, err := p.generate(repository, "none")
	if err == nil || !strings.Contains(err.Error(), "no pools found in none") {
		t.Errorf("got %v, %d manifests", err, len(got))
	}
	write(t, repository, "empty/README.md", "nothing")
	if got, err := p.generate(repository, "empty"); err == nil {
		t.Errorf("no error, %d manifests", len(got))
	}
}

func TestThePluginIsFoundWithoutItsName(t *testing.T) {
	p := startPlugin(t)
	repository := examples(t)
	write(t, repository, "web/Chart.yaml", "name: web\n")
	for folder, want := range map[string]bool{"argocd": true, "first-pool": true, ".": true, "web": false} {
		if _, err := p.detect("", repository, folder); (err == nil) != want {
			t.Errorf("%s: %v", folder, err)
		}
	}
	// The plugin must ignore CUE that is unrelated to Corral.
	other := t.TempDir()
	write(t, other, "deploy.cue", "package deploy\n\nreplicas: 3\n")
	if _, err := p.detect("", other, "."); err == nil {
		t.Error("the plugin matches CUE that is unrelated to Corral")
	}
}
