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

// played are the commands that can't run here, by how they begin, and who plays them. All others run as they stand in the page.
var played = map[string]string{
	"git clone https://github.com/": "git itself, from folders instead of from GitHub",
	"kind create cluster":           "an API server that runs already; it takes Docker",
	"kind load image-archive":       "nobody: the binary of the archive is run as the controller, for there is no kubelet",
	"helm install":                  "Helm's own library",
	"kubectl ":                      "kubectl of the same sources as the API server",
}

// values are what the reader puts in.
var values = strings.NewReplacer("YOUR_ORG", organization, "APP_ID", "7", "INSTALLATION_ID", "70")

// reader is who follows the page, in a folder of his own.
type reader struct {
	*testing.T
	dir, page string
	env       []string
	github    *githubsim.Running // of his own: the page shows the id of its first scale set
}

// quickStart follows docs/quickstart.md to the letter, on a cluster without Corral.
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
	assets, err := localcluster.Assets(t.Context(), io.Discard)
	harness.Must(t, err)
	self, err := os.Executable()
	harness.Must(t, err)
	bin := filepath.Join(t.TempDir(), "bin")
	harness.Must(t, os.Mkdir(bin, 0o755))
	for name, script := range map[string]string{
		"kind":    "echo kind $*",
		"kubectl": "exec " + filepath.Join(assets, "kubectl") + ` "$@"`,
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

// remotes are the repositories that the page clones: the tree as it lies here, and one of the organization with a README.
func (r *reader) remotes() string {
	r.Helper()
	remotes := r.TempDir()
	corral, runners := filepath.Join(remotes, "corral-dev", "corral"), filepath.Join(remotes, organization, "runners")
	list := r.run(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
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

// app is made on GitHub as the page says, with the first of its permissions alone.
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

// do runs a step, holds its output against the page's, and does what stands in prose after it.
func (r *reader) do(step quickstart.Step) {
	r.Helper()
	command := values.Replace(step.Command)
	r.Log("$", command)
	try := func(context.Context) error {
		out := r.run(r.dir, "bash", "-euo", "pipefail", "-c", command)
		if missing := unprinted(step.Output, out); missing != "" {
			return fmt.Errorf("%s: the page promises the line %q; printed was\n%s", command, missing, out)
		}
		return nil
	}
	if strings.HasPrefix(command, "kubectl get ") {
		harness.Eventually(r.T, try) // the page says: within seconds
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

// unprinted is the first line of want that out has not, in this order and but for white space; a line "…" stands for any, and
// one that ends in " …" for those that begin so.
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

// replace is an edit that the page asks for.
func (r *reader) replace(name, old, text string) {
	r.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, name))
	harness.Must(r.T, err)
	if !strings.Contains(string(content), old) {
		r.Fatalf("%s has no %q", name, old)
	}
	r.put(filepath.Join(r.dir, name), []byte(strings.ReplaceAll(string(content), old, text)))
}

// write makes the file that a block is named after in its first line.
func (r *reader) write(text string) {
	r.Helper()
	first, _, _ := strings.Cut(text, "\n")
	name, found := strings.CutPrefix(first, "# ")
	if !found {
		r.Fatalf("no file is named in %q", first)
	}
	r.put(filepath.Join(r.dir, name), []byte(text))
}

// controller runs what was put into the image, as the ServiceAccount that the chart made.
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

// jobRuns has a job done by a runner of the pool, within the bounds of the policy.
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

// ruleIsTold runs what the page says in prose about explaining the numbers.
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

// What is played must be in the page: else the list is stale.
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
