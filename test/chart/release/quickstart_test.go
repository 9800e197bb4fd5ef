// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/test/quickstart"
)

const (
	root         = "../../.."
	organization = "quick-org"
	pool         = "linux-small"
)

// played lists the commands that cannot run in this test, by prefix, with what replaces them. All other commands
// run exactly as the page shows them.
var played = map[string]string{
	"git clone https://github.com/": "git, from local folders instead of GitHub",
	"kind create cluster":           "a running API server, because kind needs Docker",
	"kind load image-archive":       "nothing: the test runs the archive's binary as the controller, because there is no kubelet",
	"helm install":                  "Helm's Go library",
	"kubectl ":                      "kubectl, built from the same sources as the API server",
}

// values replaces the page's placeholders.
var values = strings.NewReplacer("YOUR_ORG", organization, "APP_ID", "7", "INSTALLATION_ID", "70")

// reader follows the page in a folder of its own.
type reader struct {
	*testing.T
	dir, page string
	env       []string
	github    *githubsim.Running // not shared, because the page shows the ID of the first scale set
}

// quickStart runs every command of docs/quickstart.md on a cluster without Corral.
func quickStart(t *testing.T) {
	r := newReader(t)
	r.app()
	for _, block := range quickstart.Blocks(r.page) {
		for _, step := range block.Steps() {
			r.do(step)
		}
		if block.Language == "rego" {
			r.write(block.Text)
		}
	}
	r.jobRuns()
	r.ruleIsTold()
}

func newReader(t *testing.T) *reader {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "quickstart.md"))
	harness.Must(t, err)
	github, err := githubsim.Start(githubsim.Options{SessionExpiry: 3 * time.Second})
	harness.Must(t, err)
	t.Cleanup(github.Close)
	r := &reader{T: t, dir: t.TempDir(), page: string(text), github: github}
	kubectl, err := localcluster.Kubectl(t.Context(), io.Discard)
	harness.Must(t, err)
	self, err := os.Executable()
	harness.Must(t, err)
	bin := filepath.Join(t.TempDir(), "bin")
	harness.Must(t, os.Mkdir(bin, 0o755))
	for name, script := range map[string]string{
		"kind":    "echo kind $*",
		"kubectl": "exec " + kubectl + ` "$@"`,
		"helm":    helmVariable + "=1 exec " + self + ` "$@"`,
	} {
		harness.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	remotes := r.remotes()
	config := filepath.Join(bin, "gitconfig")
	harness.Must(t, os.WriteFile(config, fmt.Appendf(nil, "[url %q]\n\tinsteadOf = https://github.com/\n", "file://"+remotes+"/"), 0o600))
	r.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+w.Cluster.Kubeconfig(),
		"GIT_CONFIG_GLOBAL="+config, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	return r
}

// remotes creates the repositories that the page clones: a copy of the working tree, and the organization's
// repository with a README.
func (r *reader) remotes() string {
	r.Helper()
	remotes := r.TempDir()
	corral, runners := filepath.Join(remotes, "corral-dev", "corral"), filepath.Join(remotes, organization, "runners")
	list := r.run(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted but not yet committed
		}
		harness.Must(r.T, err)
		r.put(filepath.Join(corral, name), text)
	}
	r.put(filepath.Join(runners, "README.md"), []byte("# Our runners\n"))
	for _, repository := range []string{corral, runners} {
		r.run(repository, "git", "init", "--quiet")
		r.run(repository, "git", "add", "--force", ".")
		r.run(repository, "git", "-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "--quiet", "--message=Begin")
	}
	return remotes
}

func (r *reader) put(name string, text []byte) {
	r.Helper()
	harness.Must(r.T, os.MkdirAll(filepath.Dir(name), 0o755))
	harness.Must(r.T, os.WriteFile(name, text, 0o644))
}

func (r *reader) run(dir, name string, args ...string) string {
	r.Helper()
	c := exec.CommandContext(r.Context(), name, args...)
	c.Dir, c.Env = dir, r.env
	out, err := c.CombinedOutput()
	if err != nil {
		r.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// app creates the GitHub App as the page describes, with only the first of its permissions.
func (r *reader) app() {
	r.Helper()
	if !strings.Contains(r.page, "| Organization: Self-hosted runners | Read and write |") {
		r.Fatal("the page's table of permissions doesn't begin with that of this test")
	}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	harness.Must(r.T, err)
	r.github.AddOrg(organization)
	r.github.AddApp(githubsim.App{
		ID: 7, InstallationID: 70, Account: organization, PublicKey: &private.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write", "metadata": "read"},
	})
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	harness.Must(r.T, os.WriteFile(filepath.Join(r.dir, "app.pem"), text, 0o600))
}

// do runs a step, compares its output with the page's, and performs the actions that the page describes in prose
// after it.
func (r *reader) do(step quickstart.Step) {
	r.Helper()
	command := values.Replace(step.Command)
	r.Log("$", command)
	try := func(context.Context) error {
		out := r.run(r.dir, "bash", "-euo", "pipefail", "-c", command)
		if missing := unprinted(step.Output, out); missing != "" {
			return fmt.Errorf("%s: the page promises the line %q; the output was\n%s", command, missing, out)
		}
		return nil
	}
	if strings.HasPrefix(command, "kubectl get ") {
		harness.Eventually(r.T, try) // the page promises the output within seconds
	} else {
		harness.Must(r.T, try(r.Context()))
	}
	switch {
	case strings.HasPrefix(step.Command, "kind load image-archive "):
		r.known("corral/dist/corral.tar")
	case strings.HasPrefix(step.Command, "helm install "):
		r.controller()
	case strings.HasPrefix(step.Command, "corral/bin/corral init "):
		r.replace("runners/pools/connections.cue", "https://github.com/"+organization, r.github.ConfigURL(organization))
	}
}

// unprinted returns the first line of want that out does not contain, or "" if it contains all of them in order.
// White space does not matter. The line "…" matches any lines, and a line that ends in " …" matches lines with
// that prefix.
func unprinted(want []string, out string) string {
	lines := strings.Split(out, "\n")
	for _, line := range want {
		if line == "…" {
			continue
		}
		want := strings.Fields(line)
		begin, goesOn := strings.CutSuffix(line, " …")
		if goesOn {
			want = strings.Fields(begin)
		}
		at := slices.IndexFunc(lines, func(printed string) bool {
			got := strings.Fields(printed)
			return slices.Equal(got[:min(len(want), len(got))], want) && (goesOn || len(got) == len(want))
		})
		if at < 0 {
			return line
		}
		lines = lines[at+1:]
	}
	return ""
}

func (r *reader) known(name string) {
	r.Helper()
	if _, err := os.Stat(filepath.Join(r.dir, name)); err != nil {
		r.Fatal(err)
	}
}

// replace makes an edit that the page asks for.
func (r *reader) replace(name, old, text string) {
	r.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, name))
	harness.Must(r.T, err)
	if !strings.Contains(string(content), old) {
		r.Fatalf("%s has no %q", name, old)
	}
	r.put(filepath.Join(r.dir, name), []byte(strings.ReplaceAll(string(content), old, text)))
}

// write creates the file that the first line of a block names.
func (r *reader) write(text string) {
	r.Helper()
	first, _, _ := strings.Cut(text, "\n")
	name, found := strings.CutPrefix(first, "# ")
	if !found {
		r.Fatalf("no file is named in %q", first)
	}
	r.put(filepath.Join(r.dir, name), []byte(text))
}

// controller runs the binary from the image, as the ServiceAccount that the chart created.
func (r *reader) controller() {
	r.Helper()
	binary := filepath.Join(r.TempDir(), "corral")
	harness.Must(r.T, os.WriteFile(binary, executable(r.T, filepath.Join(r.dir, "corral", "dist", "corral.tar")), 0o755))
	c, err := w.RunController(r.Context(), binary)
	harness.Must(r.T, err)
	r.Cleanup(func() {
		if err := c.Stop(); err != nil {
			r.Error(err)
		}
		harness.ShowLog(r.T, c)
	})
}

// jobRuns has a runner of the pool run a job, within the limits of the policy.
func (r *reader) jobRuns() {
	r.Helper()
	harness.Eventually(r.T, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, harness.Key("runners", pool), p); err != nil {
			return err
		}
		if !conditions.IsReady(p) || p.Status.Decision == nil {
			return fmt.Errorf("the pool is not ready: %+v", p.Status.Conditions)
		}
		return nil
	})
	ids := harness.AddJobs(r.T, r.github, organization, pool, 8, time.Second)
	harness.AllDone(r.T, r.github, ids)
	if broken := r.github.Invariants(); len(broken) > 0 {
		r.Errorf("broken promises: %v", broken)
	}
}

// ruleIsTold runs the explain command that the page mentions in prose, and checks that its output contains the
// lines shown there.
func (r *reader) ruleIsTold() {
	r.Helper()
	const command = "corral/bin/corral explain pool/linux-small --namespace runners"
	if !strings.Contains(r.page, "`"+command+"`") {
		r.Fatalf("the page doesn't have %s", command)
	}
	out := r.run(r.dir, "sh", "-c", command)
	var promised []string
	for _, block := range quickstart.Blocks(r.page) {
		promised = append(promised, block.Output()...)
	}
	if missing := unprinted(promised, out); len(promised) == 0 || missing != "" {
		r.Errorf("%s: the page promises the line %q of %q; printed was\n%s", command, missing, promised, out)
	}
}

// Every command in played occurs in the page; otherwise the list is stale.
func TestEachPlayedCommandIsInThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "quickstart.md"))
	harness.Must(t, err)
	var commands []string
	for _, block := range quickstart.Blocks(string(text)) {
		for _, step := range block.Steps() {
			commands = append(commands, step.Command)
		}
	}
	for begins := range played {
		if !slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, begins) || strings.Contains(c, "| "+begins) }) {
			t.Errorf("no command of the page begins with %q", begins)
		}
	}
}
