// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/sshgit"
)

// signedRepository is served over SSH. The PoolSource accepts only commits that Alice signed.
type signedRepository struct {
	*harness.Repository
	server *sshgit.Server
	key    string // file with Alice's private key
}

func newSignedRepository(t *testing.T, path string) *signedRepository {
	t.Helper()
	r := &signedRepository{Repository: harness.NewRepository(t), server: sshgit.Start(t), key: filepath.Join(t.TempDir(), "alice")}
	r.server.Root = t.TempDir()
	link := filepath.Join(r.server.Root, path)
	must(t, os.MkdirAll(filepath.Dir(link), 0o700))
	must(t, os.Symlink(strings.TrimPrefix(r.URL(), "file://"), link))
	_, key := sshgit.Key(t, 21)
	must(t, os.WriteFile(r.key, sshgit.Identity(t, key, ""), 0o600))
	return r
}

func (r *signedRepository) secrets(namespace string) []client.Object {
	signer, _ := sshgit.Key(r.T, 21)
	made := func(name string, data map[string][]byte) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
	}
	return []client.Object{
		made("git", map[string][]byte{"identity": r.server.Identity, "known_hosts": r.server.KnownHosts}),
		made("signers", map[string][]byte{"alice.pub": ssh.MarshalAuthorizedKey(signer.PublicKey())}),
	}
}

// pushSigned pushes a commit that Alice signed.
func (r *signedRepository) pushSigned(message string) string {
	r.T.Helper()
	public := r.key + ".pub"
	signer, _ := sshgit.Key(r.T, 21)
	must(r.T, os.WriteFile(public, ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600))
	tree := r.Path(".")
	r.Git(tree, "add", "--all")
	r.Git(tree, "-c", "gpg.format=ssh", "-c", "user.signingKey="+r.key, "-c", "user.name=Alice", "-c", "user.email=alice@acme.example",
		"commit", "--quiet", "-S", "-m", message)
	r.Git(tree, "push", "--quiet", "origin", "HEAD:main")
	return r.Git(tree, "rev-parse", "HEAD")
}

// connectApp creates a connection with an App that may report statuses of commits.
func (w *story) connectApp(t *testing.T, namespace, organization string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	w.GitHub.AddApp(githubsim.App{
		ID: 31, InstallationID: 310, Account: organization, PublicKey: &private.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write", "statuses": "write", "checks": "write"},
	})
	w.GitHub.AddOrg(organization)
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace))
	must(t, w.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"},
		Data: map[string][]byte{
			v1alpha1.AppIDKey: []byte("31"), v1alpha1.AppInstallationIDKey: []byte("310"),
			v1alpha1.AppPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}),
		},
	}))
	must(t, w.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: w.GitHub.ConfigURL(organization), SecretRef: &v1alpha1.LocalObjectReference{Name: "acme"}},
	}))
}

// GitHub shows the result of each commit to its author: a commit with an unknown signature, a commit with an error
// and its line, and an applied commit.
func TestACommitReadsWhatBecameOfIt(t *testing.T) {
	w := newStory(t, "told")
	ctx := t.Context()
	must(t, w.GitHub.AddRepository(githubsim.Repository{FullName: "told-org/pools"}))
	w.connectApp(t, "told", "told-org")
	r := newSignedRepository(t, "told-org/pools.git")
	for _, secret := range r.secrets("told") {
		must(t, w.Client.Create(ctx, secret))
	}
	r.Write("pools.cue", definitions(3, "linux", "runner:1", false))
	unsigned := r.Push("Without a signature")
	must(t, w.Client.Create(ctx, &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "told", Name: "pools"},
		Spec: v1alpha1.PoolSourceSpec{
			Git: &v1alpha1.GitSource{
				URL: r.server.URL("/told-org/pools.git"), SecretRef: &v1alpha1.LocalObjectReference{Name: "git"},
				Verify: &v1alpha1.GitVerification{SecretRef: v1alpha1.LocalObjectReference{Name: "signers"}},
			},
			Interval:     metav1.Duration{Duration: time.Second},
			CommitStatus: &v1alpha1.CommitStatus{ConnectionRef: v1alpha1.LocalObjectReference{Name: "acme"}},
		},
	}))
	w.elect(t, "told-lease")
	night := recorderOf(t, "told", "", w.controller(t, "--post-status", "--cluster-id=here"))
	night.Open(t, w.World.World)
	night.Warnings = 2

	// run waits for the only check run of a commit, and for the matching status.
	run := func(commit, conclusion string) githubsim.CheckRun {
		t.Helper()
		eventually(t, func(context.Context) error {
			runs, statuses := w.GitHub.CheckRuns("told-org/pools", commit), w.GitHub.CommitStatuses("told-org/pools", commit)
			if len(runs) != 1 || len(statuses) != 1 || runs[0].Conclusion != conclusion || statuses[0].State != conclusion || statuses[0].Context != "corral/here/told/pools" {
				return fmt.Errorf("%s is told of by %+v and %+v", commit, runs, statuses)
			}
			return nil
		})
		return w.GitHub.CheckRuns("told-org/pools", commit)[0]
	}
	if told := run(unsigned, "failure"); !strings.Contains(told.Output.Title, `by "Platform" <platform@acme.example> is not signed`) {
		t.Errorf("of the unsigned commit, told is %+v", told)
	}
	source := &v1alpha1.PoolSource{}
	night.Cause = "is not signed"
	night.Look("nobody signed it", func(ctx context.Context) error { return w.Client.Get(ctx, key("told", "pools"), source) })
	if c := conditions.Get(source, v1alpha1.ReadyCondition); c.Reason != v1alpha1.VerificationFailedReason || !conditions.IsStalled(source) {
		t.Errorf("ready is %+v", c)
	}

	r.Write("pools.cue", strings.Replace(definitions(3, "linux", "runner:1", false), "max: 3", "max: -3", 1))
	broken := run(r.pushSigned("Broken"), "failure")
	if len(broken.Output.Annotations) == 0 || broken.Output.Annotations[0].Path != "pools.cue" || broken.Output.Annotations[0].StartLine != 9 {
		t.Errorf("of the broken commit, told is %+v", broken)
	}
	night.Cause = "pools.cue:9:"
	night.Look("it doesn't compile", func(context.Context) error { return nil })

	r.Write("pools.cue", definitions(4, "linux", "runner:1", false))
	fine := r.pushSigned("Fixed")
	run(fine, "success")
	must(t, w.Client.Get(ctx, key("told", "pools"), source))
	if source.Status.LastAppliedRevision != "main@sha1:"+fine {
		t.Errorf("applied is %s", source.Status.LastAppliedRevision)
	}
	night.End(ctx, "in the end")
	night.Close()
	w.cleanUp(t, "told")
}
