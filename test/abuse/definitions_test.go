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

// source makes a PoolSource that looks at a repository when it is asked to.
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

// declare is a definition of pools on the connection acme.
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

// vet runs `corral vet` in a folder. It returns what is said, without the sum, and the exit code.
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

// mistake is a definition that must not get into a cluster, and what is said of it.
type mistake struct {
	name, text string // of the file
	complaint  string
	costly     bool // corral vet compiles it the same way, and isn't asked
}

// known is one of the mistakes that all layers share, see testdata/refused.
func known(t *testing.T, folder string) mistake {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "refused", folder, name))
		must(t, err)
		return string(text)
	}
	complaint, _, _ := strings.Cut(read("refused.txt"), "\nError: ")
	return mistake{name: "pools.cue", text: read("pools.cue"), complaint: complaint}
}

// refuses shows that a mistake is refused, in the same words by `corral vet` and by a PoolSource,
// and that the commit before it stays in force.
func (s *fixture) refuses(m mistake) {
	s.Helper()
	r := repository(s.T)
	good := r.Push("Before")
	source := s.source("pools", r.URL())
	s.ready(source)
	r.Write(m.name, m.text)
	bad := r.Push("A mistake")
	s.request(source)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true,
		Message: m.complaint + "\nNothing of revision main@sha1:BAD was applied; main@sha1:GOOD stays in force",
	}, bad, "BAD", good, "GOOD")
	first, _, _ := strings.Cut(m.complaint, "\n")
	s.look(first, 1)
	if !m.costly {
		if said, code := vet(s.T, r.Path("")); said != m.complaint || code != 1 {
			s.Errorf("vet ended with %d and said:\n%s\nnot:\n%s", code, said, m.complaint)
		}
	}
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// repository declares one good pool.
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

// Each string is ten times the one before: 300 bytes that take gigabytes.
func TestDefinitionsThatExplodeInMemory(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("package growing\n\na0: \"0123456789\"\n")
	for i := 1; i <= 8; i++ {
		fmt.Fprintf(&text, "a%d: a%d%s\n", i, i-1, strings.Repeat(fmt.Sprintf("+a%d", i-1), 9))
	}
	newFixture(t).refuses(mistake{
		name: "team/growing.cue", text: text.String(),
		complaint: "team/growing.cue: compiling needs more than 1024 MiB of memory, the most that is allowed: " + compileAdvice,
	})
}

const compileAdvice = "look for lists that multiply (comprehensions in comprehensions), values that contain each other, or large `&` of alternatives"

func TestDefinitionsThatNeverEnd(t *testing.T) {
	newFixture(t).refuses(mistake{
		name: "team/endless.cue", text: `package endless

import "list"

r: list.Range(0, 60, 1)
x: len([for a in r for b in r for c in r for d in r if a+b+c+d < 0 {1}])
`,
		complaint: "team/endless.cue: compiling takes more than 15s of CPU time, the most that is allowed: " + compileAdvice,
		costly:    true,
	})
}

// rejects shows that a repository can't be used as it is, and that the commit before stays in force.
func (s *fixture) rejects(r *harness.Repository, complaint string, spoil func() (bad string)) {
	s.Helper()
	s.stalls(r, v1alpha1.ArtifactFailedReason, "fetching "+r.URL()+": "+complaint, spoil)
}

func (s *fixture) stalls(r *harness.Repository, reason, message string, spoil func() (bad string)) {
	s.Helper()
	good := r.Push("Before")
	source := s.source("pools", r.URL())
	s.ready(source)
	bad := spoil()
	s.request(source)
	s.says(source, verdict{
		Ready: metav1.ConditionFalse, Reason: reason, Stalled: true,
		Message: message + "\nNothing of revision main@sha1:BAD was applied; main@sha1:GOOD stays in force",
	}, bad, "BAD", good, "GOOD")
	s.look(message[strings.LastIndex(message, ".git: ")+1:], 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

func TestALinkOutOfTheTree(t *testing.T) {
	s, r := newFixture(t), repository(t)
	const refused = "stolen.cue: a link, which is not followed; commit the file itself"
	s.stalls(r, v1alpha1.BuildFailedReason, refused, func() string {
		must(t, os.Symlink("/etc/passwd", r.Path("stolen.cue")))
		return r.Push("Link")
	})
	if said, code := vet(t, r.Path("")); said != refused || code != 1 {
		t.Errorf("vet ended with %d and said:\n%s", code, said)
	}
}

func TestASubmodule(t *testing.T) {
	s, r := newFixture(t), repository(t)
	const refused = "policies/guard: a submodule, which is not fetched; commit the files themselves, or compile a folder without it"
	s.stalls(r, v1alpha1.BuildFailedReason, refused, func() string {
		r.Git(r.Path(""), "clone", "--quiet", r.URL(), "policies/guard")
		return r.Push("Submodule")
	})
}

// The list of a folder is one object: a thousand folders that are the same take no room.
func TestHalfAMillionFiles(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.rejects(r, "too large: the revision has more than 50000 files and folders; keep definitions in a repository of their own", func() string {
		return commitFiles(r, 1000, 500)
	})
	s.processIsWell()
}

func TestHalfAMillionFilesInOneFolder(t *testing.T) {
	s, r := newFixture(t), repository(t)
	s.rejects(r, "too large: the folder folder-0 has too many files: their list is 21500000 bytes, more than 8388608; keep definitions in a repository of their own", func() string {
		return commitFiles(r, 1, 500_000)
	})
	s.processIsWell()
}

// commitFiles commits folders with so many files each, all the same, without writing them to disk.
func commitFiles(r *harness.Repository, folders, files int) string {
	r.T.Helper()
	blob, err := hex.DecodeString(r.GitIn(r.Path(""), "package pools\n", "hash-object", "-w", "--stdin"))
	must(r.T, err)
	var tree, list strings.Builder
	for i := range files {
		fmt.Fprintf(&tree, "100644 file-%06d.cue\x00%s", i, blob)
	}
	folder := r.GitIn(r.Path(""), tree.String(), "hash-object", "-t", "tree", "-w", "--stdin") // mktree takes five seconds
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
	s.rejects(r, "too large: dump.bin is 209715200 bytes, more than 8388608 a file; keep definitions in a repository of their own", func() string {
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
	s.says(empty, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true,
		Message: "no pools found in docs: declare at least one RunnerPool, as `pools: schema.#Pools & {NAME: spec: …}`\nNothing of revision main@sha1:COMMIT was applied",
	}, commit, "COMMIT")
	if said, code := vet(t, r.Path("docs")); code != 1 || !strings.HasPrefix(said, "no pools found in docs: ") {
		t.Errorf("vet ended with %d and said:\n%s", code, said)
	}
	absent := s.source("absent", r.URL(), func(source *v1alpha1.PoolSource) { source.Spec.Path = "pool" })
	s.says(absent, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.BuildFailedReason, Stalled: true,
		Message: "there is no folder \"pool\" to compile\nNothing of revision main@sha1:COMMIT was applied",
	}, commit, "COMMIT")
	// A source that already holds pools does not give them up because its path is wrong now.
	source := s.source("pools", r.URL())
	s.ready(source)
	s.patch(source, `{"spec":{"path":"docs"}}`)
	s.says(source, refusedPrune(s, "Revision main@sha1:COMMIT would remove the only pool, linux\nWhat was applied of revision main@sha1:COMMIT stays in force"), commit, "COMMIT")
	s.look("would remove the only pool, linux", 3)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// refusedPrune is what the PoolSource pools says when too much would go.
func refusedPrune(s *fixture, why string) verdict {
	return verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PruneRefusedReason, Stalled: true,
		Message: why + "\nIf this is meant: " +
			"kubectl annotate poolsource -n " + s.namespace + " pools --overwrite corral.dev/allow-prune=main@sha1:COMMIT",
	}
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
	want := "Revision main@sha1:COMMIT would remove all 2 pools: linux, windows\nNothing of revision main@sha1:COMMIT was applied; main@sha1:GOOD stays in force"
	s.says(source, refusedPrune(s, want), empty, "COMMIT", good, "GOOD")
	s.look("would remove all 2 pools", 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.allDone(s.addJobs("windows", 1, time.Millisecond))
	s.patch(source, `{"metadata":{"annotations":{"corral.dev/allow-prune":"main@sha1:`+empty+`"}}}`)
	s.says(source, verdict{Ready: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason, Message: "Applied revision main@sha1:COMMIT: 0 pools, 0 connections"}, empty, "COMMIT")
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
	s.says(second, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ApplyFailedReason, Stalled: true,
		Message: "pools.cue:6:8: pools.linux: RunnerPool linux: PoolSource \"first\" holds it; remove it there first\n" +
			"Nothing of revision main@sha1:COMMIT was applied; nothing was pruned",
	}, commit, "COMMIT")
	s.look(`PoolSource "first" holds it`, 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}

// gitServer answers as it is told to, over TLS. The Secret git trusts it.
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

// More sources would hang, for a minute each, than are worked on at once.
func TestAGitServerThatHangs(t *testing.T) {
	s := newFixture(t)
	url, trusting := s.gitServer(func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	first := s.source("hangs", url+"/pools.git", trusting, func(source *v1alpha1.PoolSource) {
		source.Spec.Timeout = &metav1.Duration{Duration: time.Second}
	})
	s.says(first, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.ArtifactFailedReason,
		Message: "fetching URL/pools.git: timed out: the server did not answer in time; check that it can be reached, or allow more time (spec.timeout is 1s)",
	}, url, "URL")
	s.look("the server did not answer in time", 1)
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
			if verdictOf(&sources.Items[i]).Reason == v1alpha1.ArtifactFailedReason { // in turn, one of them has asked the server and failed
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
		Message: "spec.git: not allowed: the server redirects to another host, https://git.attacker.example; if that is right, name it in the URL",
	})
	s.look("redirects to another host", 1)
	s.othersGoOn()
}

// overSSH serves a repository at a path to who has the key in the Secret git, which knows the server's.
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

// Whoever stands between the controller and the server has another key than the Secret names.
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
		Message: "fetching ssh://git@HOST/acme/pools.git: server not trusted: HOST shows the ssh-ed25519 key HAS, " +
			"and line 2 of known_hosts has WANTED: the key was changed, or somebody stands between",
	}, server.Address, "HOST", ssh.FingerprintSHA256(server.Host.PublicKey()), "HAS", ssh.FingerprintSHA256(former.PublicKey()), "WANTED")
	s.look("server not trusted", 1, "pool/linux")
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
	s.patch(secret, fmt.Sprintf(`{"stringData":{"known_hosts":%q}}`, server.KnownHosts))
	s.request(source)
	s.ready(source)
}

// connectApp makes the connection app to the fixture's account, by an App that may manage runners and nothing else.
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
	s.hasEvent("pools", "Telling GitHub of revision main@sha1:"+commit+": the credentials may not write check runs: let the App have the permission \"checks\" with write access, and among its repositories this one: "+
		"reading the check runs of commit "+commit[:7]+" of "+s.namespace+"/pools: GitHub answered 403: Resource not accessible by integration")
	s.look("let the App have the permission \"checks\" with write access", 1)
	s.allDone(s.addJobs("linux", 1, time.Millisecond))
	s.othersGoOn()
}
