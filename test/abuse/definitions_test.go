// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/sshgit"
)

// source creates a PoolSource that in practice fetches its repository only on request.
func (s *fixture) source(name, url string, change ...func(*v1alpha1.PoolSource)) *v1alpha1.PoolSource {
	s.Helper()
	source := &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: url}, Interval: metav1.Duration{Duration: time.Hour}},
	}
	for _, c := range change {
		c(source)
	}
	s.create(source)
	return source
}

// declare returns CUE that declares pools on the connection acme.
func declare(names ...string) string {
	var b strings.Builder
	b.WriteString("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\n")
	for _, name := range names {
		fmt.Fprintf(&b, `pools: %s: spec: {
	connectionRef: name: "acme"
	runnerLabels: [%q]
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
`, name, name)
	}
	return b.String()
}

// vet runs `corral vet` in a folder. It returns its output without the last line, and the exit code.
func vet(t *testing.T, folder string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), w.Binary, "vet")
	c.Dir = folder
	out, err := c.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	said, _, _ := strings.Cut(string(out), "\nError: ")
	return said, c.ProcessState.ExitCode()
}

// mistake is a definition that must not get into a cluster.
type mistake struct {
	name, text string // of the file
	value      string // that the problem contains, such as the place
	complaint  string // the whole problem, if it is recorded
	costly     bool   // corral vet compiles it in the same way, and is not run
}

// known returns one of the mistakes that all layers share, see testdata/refused.
func known(t *testing.T, folder string) mistake {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "refused", folder, name))
		must(t, err)
		return string(text)
	}
	complaint, _, _ := strings.Cut(read("refused.txt"), "\nError: ")
	place, _, _ := strings.Cut(complaint, ": ")
	return mistake{name: "pools.cue", text: read("pools.cue"), value: place, complaint: complaint}
}

// refuses shows that `corral vet` and a PoolSource refuse a mistake with the same text, and that the previous commit stays in force.
func (s *fixture) refuses(m mistake) {
	s.Helper()
	r := repository(s.T)
	complaint := s.doesNotCompile(r, m.value, func() (bad string) {
		r.Write(m.name, m.text)
		return r.Push("A mistake")
	})
	if m.complaint != "" && complaint != m.complaint {
		s.Errorf("the source reports:\n%s\nnot:\n%s", complaint, m.complaint)
	}
	if !m.costly {
		s.vetReports(r, complaint)
	}
}

// vetReports fails the test unless `corral vet` refuses a repository with the same text as a PoolSource.
func (s *fixture) vetReports(r *harness.Repository, complaint string) {
	s.Helper()
	if said, code := vet(s.T, r.Path("")); said != complaint || code != 1 {
		s.Errorf("vet ended with %d and reported:\n%s\nnot:\n%s", code, said, complaint)
	}
}

// doesNotCompile shows that a source reports a problem that contains a value, and that the previous commit stays in force. It returns the problem.
func (s *fixture) doesNotCompile(r *harness.Repository, value string, spoil func() (bad string)) (problems string) {
	s.Helper()
	s.stalls(r, spoil, value, func(source *v1alpha1.PoolSource) verdict {
		problems = s.problems(source, "DefinitionsInvalid", value)
		return verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true, Causes: fmt.Sprintf("DefinitionsInvalid problems=%q", problems)}
	})
	return problems
}

// problems waits until a source is not ready because of a cause whose problems contain a value, and returns them.
func (s *fixture) problems(source *v1alpha1.PoolSource, code, value string) (problems string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(source), source); err != nil {
			return err
		}
		causes := v1alpha1.CausesOf(source.Status.Causes, v1alpha1.ReadyCondition)
		if len(causes) == 0 || causes[0].Code != code || !strings.Contains(causes[0].Parameter("problems"), value) {
			return fmt.Errorf("the causes are %+v, want %s with %s", causes, code, value)
		}
		problems = causes[0].Parameter("problems")
		return nil
	})
	return problems
}

// repository returns a repository that declares one valid pool.
func repository(t *testing.T) *harness.Repository {
	t.Helper()
	r := harness.NewRepository(t)
	r.Write("pools.cue", declare("linux"))
	return r
}

func TestATypoInAField(t *testing.T)        { newFixture(t).refuses(known(t, "typo")) }
func TestAFieldOfTheWrongType(t *testing.T) { newFixture(t).refuses(known(t, "wrong-type")) }
func TestMinAboveMax(t *testing.T)          { newFixture(t).refuses(known(t, "min-above-max")) }
func TestADuplicatePool(t *testing.T)       { newFixture(t).refuses(known(t, "duplicate")) }
func TestAnUnknownImport(t *testing.T)      { newFixture(t).refuses(known(t, "unknown-import")) }

// Each string is ten times as long as the previous one. 300 bytes of CUE expand to gigabytes.
func TestDefinitionsThatExplodeInMemory(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("package growing\n\na0: \"0123456789\"\n")
	for i := 1; i <= 8; i++ {
		fmt.Fprintf(&text, "a%d: a%d%s\n", i, i-1, strings.Repeat(fmt.Sprintf("+a%d", i-1), 9))
	}
	newFixture(t).refuses(mistake{
		name: "team/growing.cue", text: text.String(),
		value: "1024 MiB",
	})
}

func TestDefinitionsThatNeverEnd(t *testing.T) {
	newFixture(t).refuses(mistake{
		name: "team/endless.cue", text: `package endless

import "list"

r: list.Range(0, 60, 1)
x: len([for a in r for b in r for c in r for d in r if a+b+c+d < 0 {1}])
`,
		value:  "15s",
		costly: true,
	})
}

// rejects shows that a repository cannot be used, with values that the source reports, and that the previous commit stays in
// force.
func (s *fixture) rejects(r *harness.Repository, values []string, spoil func() (bad string)) {
	s.Helper()
	s.stalls(r, spoil, values[0], func(*v1alpha1.PoolSource) verdict {
		return verdict{
			Ready: metav1.ConditionFalse, Reason: v1alpha1.ArtifactFailedReason, Stalled: true,
			Causes: fmt.Sprintf("RepositoryRefused location=%q", r.URL()), Details: values,
		}
	})
}

// stalls changes a repository and shows that its source then has a verdict, that corral status reports a value, and that the
// previous commit stays in force.
func (s *fixture) stalls(r *harness.Repository, spoil func() (bad string), value string, want func(*v1alpha1.PoolSource) verdict) {
	s.Helper()
	good := r.Push("Before")
	source := s.source("pools", r.URL(), func(p *v1alpha1.PoolSource) {
		p.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute} // a slow machine takes more than the default for 50,000 files
	})
	s.ready(source)
	bad := spoil()
	s.request(source)
	expected := want(source)
	expected.Causes += "\n" + goodStays
	s.says(source, expected, bad, "BAD", good, "GOOD")
	s.look(value, 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// goodStays is the cause that reports which revision stays in force: GOOD, instead of BAD.
const goodStays = `OtherRevisionStays revision="main@sha1:BAD" inForce="main@sha1:GOOD"`

func TestALinkOutOfTheTree(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.vetReports(r, s.doesNotCompile(r, "stolen.cue", func() string {
		must(t, os.Symlink("/etc/passwd", r.Path("stolen.cue")))
		return r.Push("Link")
	}))
}

func TestASubmodule(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.doesNotCompile(r, "policies/guard: a submodule", func() string {
		r.Git(r.Path(""), "clone", "--quiet", r.URL(), "policies/guard")
		return r.Push("Submodule")
	})
}

// The repository stores each folder's list of files as one object. A thousand identical folders therefore take no
// additional space.
func TestHalfAMillionFiles(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.rejects(r, []string{"50000 files"}, func() string {
		return commitFiles(r, 1000, 500)
	})
	s.processIsWell()
}

func TestHalfAMillionFilesInOneFolder(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.rejects(r, []string{"folder-0", "21500000 bytes", "8388608"}, func() string {
		return commitFiles(r, 1, 500_000)
	})
	s.processIsWell()
}

// commitFiles commits identical folders with the given number of files each, without writing the files to disk.
func commitFiles(r *harness.Repository, folders, files int) string {
	r.T.Helper()
	blob, err := hex.DecodeString(r.GitIn(r.Path(""), "package pools\n", "hash-object", "-w", "--stdin"))
	must(r.T, err)
	var tree, list strings.Builder
	for i := range files {
		fmt.Fprintf(&tree, "100644 file-%06d.cue\x00%s", i, blob)
	}
	folder := r.GitIn(r.Path(""), tree.String(), "hash-object", "-t", "tree", "-w", "--stdin") // mktree would take five seconds
	for i := range folders {
		fmt.Fprintf(&list, "040000 tree %s\tfolder-%d\n", folder, i)
	}
	root := r.GitIn(r.Path(""), list.String(), "mktree")
	commit := r.GitIn(r.Path(""), "Many files\n", "-c", "user.name=Platform", "-c", "user.email=platform@acme.example", "commit-tree", root, "-p", "HEAD")
	r.Git(r.Path(""), "push", "--quiet", "origin", commit+":refs/heads/main")
	return commit
}

func TestAFileOf200Megabytes(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.rejects(r, []string{"dump.bin", "209715200 bytes", "8388608"}, func() string {
		r.Write("dump.bin", "")
		must(t, os.Truncate(r.Path("dump.bin"), 200<<20))
		return r.Push("A dump")
	})
	s.processIsWell()
}

func TestAFolderWithoutPools(t *testing.T) {
	s, r := newFixture(t), repository(t)
	r.Write("docs/README.md", "# Nothing to see here\n")
	commit := r.Push("A folder without pools")
	inDocs := func(source *v1alpha1.PoolSource) { source.Spec.Path = "docs" }
	empty := s.source("empty", r.URL(), inDocs)
	finds := func(source *v1alpha1.PoolSource, code, value string) (problems string) {
		problems = s.problems(source, code, value)
		s.says(source, verdict{
			Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true,
			Causes: fmt.Sprintf("%s problems=%q\nNothingOfRevisionApplied revision=\"main@sha1:COMMIT\"", code, problems),
		}, commit, "COMMIT")
		return problems
	}
	problems := finds(empty, "PoolsMissing", "docs")
	if said, code := vet(t, r.Path("docs")); code != 1 || said != problems {
		t.Errorf("vet ended with %d and reported:\n%s\nnot:\n%s", code, said, problems)
	}
	absent := s.source("absent", r.URL(), func(source *v1alpha1.PoolSource) { source.Spec.Path = "pool" })
	finds(absent, "FolderMissing", `"pool"`)
	// A PoolSource that already applied pools keeps them if its path becomes invalid.
	source := s.source("pools", r.URL())
	s.ready(source)
	s.patch(source, `{"spec":{"path":"docs"}}`)
	s.refusesToPrune(source, "linux", `RevisionStays revision="main@sha1:COMMIT"`, commit, "COMMIT")
	s.look("PruneTooMuch", 3)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// refusesToPrune waits until a source refuses revision COMMIT because it would remove pools, and reports which revision
// stays in force. Texts are the same as for says.
func (s *fixture) refusesToPrune(source *v1alpha1.PoolSource, pools, stays string, texts ...string) {
	s.Helper()
	var loss string
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(source), source); err != nil {
			return err
		}
		causes := v1alpha1.CausesOf(source.Status.Causes, v1alpha1.ReadyCondition)
		if len(causes) == 0 || !strings.HasSuffix(causes[0].Parameter("loss"), pools) {
			return fmt.Errorf("the causes are %+v, want the loss of %s", causes, pools)
		}
		loss = causes[0].Parameter("loss")
		return nil
	})
	how := fmt.Sprintf(`namespace=%q name=%q annotation="corral.dev/allow-prune" word="main@sha1:COMMIT"`, s.namespace, source.Name)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PruneRefusedReason, Stalled: true,
		Causes: fmt.Sprintf("PruneTooMuch revision=\"main@sha1:COMMIT\" loss=%q %s\n%s\nAllowPrune %s", loss, how, stays, how),
	}, texts...)
}

func TestARepositoryThatShrinksToNothing(t *testing.T) {
	s, r := newFixture(t), repository(t)
	r.Write("pools.cue", declare("linux", "windows"))
	good := r.Push("Two pools")
	source := s.source("pools", r.URL())
	s.ready(source)
	r.Remove("pools.cue")
	r.Remove("cue.mod")
	empty := r.Push("Remove everything")
	s.request(source)
	s.refusesToPrune(source, "linux, windows", `OtherRevisionStays revision="main@sha1:COMMIT" inForce="main@sha1:GOOD"`, empty, "COMMIT", good, "GOOD")
	s.look("PruneTooMuch", 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.allDone(s.addJobs("windows", 1, time.Millisecond))
	s.patch(source, `{"metadata":{"annotations":{"corral.dev/allow-prune":"main@sha1:`+empty+`"}}}`)
	s.says(source, verdict{Ready: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason})
	if applied := source.Status.LastAppliedRevision; !strings.HasSuffix(applied, empty) || len(source.Status.Inventory.Entries) > 0 {
		t.Errorf("%s is applied, with %+v", applied, source.Status.Inventory)
	}
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(s.namespace, "linux"), &v1alpha1.RunnerPool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pool may be there: %w", err)
		}
		return nil
	})
	s.othersGoOn()
}

func TestTwoSourcesClaimOnePool(t *testing.T) {
	s, r := newFixture(t), repository(t)
	commit := r.Push("A pool")
	s.ready(s.source("first", r.URL()))
	second := s.source("second", r.URL())
	const place = `pools.cue:6:8: pools.linux: RunnerPool linux: PoolSource "first"`
	s.says(second, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ApplyFailedReason, Stalled: true,
		Causes: fmt.Sprintf("ObjectHeld problems=%q\nNoneApplied revision=\"main@sha1:COMMIT\"", s.problems(second, "ObjectHeld", place)),
	}, commit, "COMMIT")
	s.look(place, 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// gitServer starts a TLS server with the given handler. trusting makes a source trust it through the Secret git.
func (s *fixture) gitServer(answer http.HandlerFunc) (url string, trusting func(*v1alpha1.PoolSource)) {
	s.Helper()
	server := httptest.NewTLSServer(answer)
	s.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "git"}, Data: map[string][]byte{
		"ca.crt": ca, "username": []byte("git"), "password": []byte("secret"),
	}})
	return server.URL, func(source *v1alpha1.PoolSource) {
		source.Spec.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
	}
}

// There are more hanging sources, with a timeout of a minute each, than workers.
func TestAGitServerThatHangs(t *testing.T) {
	s := newFixture(t)
	url, trusting := s.gitServer(func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	first := s.source("hangs", url+"/pools.git", trusting, func(source *v1alpha1.PoolSource) {
		source.Spec.Timeout = &metav1.Duration{Duration: time.Second}
	})
	s.says(first, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ArtifactFailedReason,
		Causes: `ServerUnanswered location="URL/pools.git"`, Details: []string{"spec.timeout is 1s"},
	}, url, "URL")
	s.look("spec.timeout is 1s", 1)
	s.lookedEnough()
	const others = 20
	for i := range others {
		s.source(fmt.Sprintf("hangs-%d", i), url+"/pools.git", trusting)
	}
	eventually(t, func(ctx context.Context) error {
		sources, waiting := &v1alpha1.PoolSourceList{}, 0
		if err := w.Client.List(ctx, sources, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range sources.Items {
			if conditions.GetReason(&sources.Items[i], v1alpha1.ReadyCondition) == v1alpha1.ArtifactFailedReason { // one of them has contacted the server and failed
				waiting++
			}
		}
		if waiting < others-1 {
			return fmt.Errorf("%d sources wait", waiting)
		}
		return nil
	})
	r := repository(t)
	r.Push("A pool")
	s.ready(s.source("pools", r.URL()))
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

func TestAGitServerThatRedirects(t *testing.T) {
	s := newFixture(t)
	url, trusting := s.gitServer(func(w http.ResponseWriter, request *http.Request) {
		http.Redirect(w, request, "https://git.attacker.example"+request.URL.String(), http.StatusFound)
	})
	source := s.source("pools", url+"/pools.git", trusting)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.InvalidSpecReason, Stalled: true,
		Causes: "GitNotAllowed", Details: []string{"https://git.attacker.example"},
	})
	s.look("https://git.attacker.example", 1)
	s.othersGoOn()
}

// overSSH serves a repository at a path. The Secret git contains the server's host key and the only key with
// access.
func (s *fixture) overSSH(r *harness.Repository, path string) (server *sshgit.Server, with func(*v1alpha1.PoolSource)) {
	s.Helper()
	server = sshgit.Start(s.T)
	server.Root = s.TempDir()
	link := filepath.Join(server.Root, path)
	must(s.T, os.MkdirAll(filepath.Dir(link), 0o700))
	must(s.T, os.Symlink(strings.TrimPrefix(r.URL(), "file://"), link))
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "git"}, Data: map[string][]byte{
		"identity": server.Identity, "known_hosts": server.KnownHosts,
	}})
	return server, func(source *v1alpha1.PoolSource) {
		source.Spec.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
	}
}

// The server's host key differs from the one in the Secret, as with a man in the middle.
func TestAGitServerWithAnotherHostKey(t *testing.T) {
	s, r := newFixture(t), repository(t)
	r.Push("A pool")
	server, trusting := s.overSSH(r, "acme/pools.git")
	source := s.source("pools", server.URL("/acme/pools.git"), trusting)
	s.ready(source)
	former, _ := sshgit.Key(t, 31)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "git"}}
	s.patch(secret, fmt.Sprintf(`{"stringData":{"known_hosts":%q}}`, "# ours\n"+knownhosts.Line([]string{server.Address}, former.PublicKey())))
	s.request(source)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ArtifactFailedReason,
		Causes: `HostKeyUnknown location="ssh://git@HOST/acme/pools.git"`, Details: []string{"HOST", "ssh-ed25519 key HAS", "line 2 of known_hosts", "WANTED"},
	}, server.Address, "HOST", ssh.FingerprintSHA256(server.Host.PublicKey()), "HAS", ssh.FingerprintSHA256(former.PublicKey()), "WANTED")
	s.look(server.Address, 1, "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
	s.patch(secret, fmt.Sprintf(`{"stringData":{"known_hosts":%q}}`, server.KnownHosts))
	s.request(source)
	s.ready(source)
}

// connectApp creates the connection app to the fixture's account, with an App that may only manage runners.
func (s *fixture) connectApp(id int64) {
	s.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(s.T, err)
	s.github.AddApp(githubsim.App{
		ID: id, InstallationID: 10 * id, Account: s.namespace, PublicKey: &private.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "app"}, Data: map[string][]byte{
		v1alpha1.AppIDKey: fmt.Append(nil, id), v1alpha1.AppInstallationIDKey: fmt.Append(nil, 10*id),
		v1alpha1.AppPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}),
	}})
	connection := s.connection()
	connection.Name = "app"
	connection.Spec = v1alpha1.GitHubConnectionSpec{URL: s.github.ConfigURL(s.namespace), SecretRef: &v1alpha1.LocalObjectReference{Name: "app"}}
	s.create(connection)
	s.ready(connection)
}

func TestAnAppThatMayNotWriteCommitStatuses(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.connectApp(41)
	must(t, s.github.AddRepository(githubsim.Repository{FullName: s.namespace + "/pools"}))
	commit := r.Push("A pool")
	server, trusting := s.overSSH(r, s.namespace+"/pools.git")
	source := s.source("pools", server.URL("/"+s.namespace+"/pools.git"), trusting)
	s.ready(source)
	s.patch(source, `{"spec":{"commitStatus":{"connectionRef":{"name":"app"}}}}`)
	s.hasEvent("pools", v1alpha1.CommitStatusFailedReason, "main@sha1:"+commit, `"checks"`, s.namespace+"/pools", "403: Resource not accessible by integration")
	s.look(`"checks"`, 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}
