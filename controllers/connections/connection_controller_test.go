// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/fluxcd/pkg/runtime/conditions/check"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/webhook"
)

var key = types.NamespacedName{Namespace: "team", Name: "main"}

// stage is a cluster with one connection and its Secret, and a GitHub whose answer a test sets.
type stage struct {
	*testing.T
	cluster client.Client
	serving *github.Clients[github.Credentials] // input of the clients
	r       *Reconciler
	events  *events.FakeRecorder
	now     time.Time
	writes  int

	asked  []github.Credentials
	answer error

	server  string // its version
	expires time.Time
	probes  int
	missing []v1alpha1.MissingFeature
	unknown error

	signatures wrong
}

func newStage(t *testing.T) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{T: t, now: time.Now().Truncate(time.Second), events: events.NewFakeRecorder(100)}
	s.cluster = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.GitHubConnection{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			s.writes++
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		}}).
		WithObjects(
			&v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 1, UID: "uid"},
				Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "github"}},
			},
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "github"},
				Data:       map[string][]byte{v1alpha1.TokenKey: []byte("one\n")},
			}).Build()
	s.restart()
	return s
}

// restart creates a controller without memory.
func (s *stage) restart() {
	known := github.NewConnections(func() time.Time { return s.now })
	s.serving = github.NewClients(known, func(_ string, creds github.Credentials) (github.Credentials, error) { return creds, nil }, func(string) {})
	s.r = &Reconciler{
		Reporter: kube.Reporter{Client: s.cluster, Events: s.events}, Secrets: s.cluster, Connections: known,
		Now: func() time.Time { return s.now },
		Verify: func(_ context.Context, _ string, creds github.Credentials) (rest.Identity, error) {
			s.asked = append(s.asked, creds)
			return rest.Identity{Scope: github.Organization, Login: "octocat", ServerVersion: s.server, Expires: s.expires}, s.answer
		},
		Signatures: &s.signatures,
		Probe: func(context.Context, *v1alpha1.GitHubConnection) ([]v1alpha1.MissingFeature, error) {
			s.probes++
			return s.missing, s.unknown
		},
	}
}

func (s *stage) reconcile() (*v1alpha1.GitHubConnection, time.Duration) {
	s.Helper()
	result, err := s.r.Reconcile(s.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		s.Fatal(err)
	}
	conn := s.get()
	kstatus := check.NewChecker(s.cluster, &check.Conditions{NegativePolarity: []string{v1alpha1.StalledCondition, v1alpha1.ReconcilingCondition}})
	if fail, _ := kstatus.Check(s.Context(), conn); fail != nil {
		s.Errorf("not kstatus: %v", fail)
	}
	return conn, result.RequeueAfter
}

func (s *stage) get() *v1alpha1.GitHubConnection {
	s.Helper()
	conn := &v1alpha1.GitHubConnection{}
	if err := s.cluster.Get(s.Context(), key, conn); err != nil {
		s.Fatal(err)
	}
	return conn
}

func (s *stage) change(f func(*v1alpha1.GitHubConnection)) {
	s.Helper()
	conn := s.get()
	f(conn)
	if err := s.cluster.Update(s.Context(), conn); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) setSecret(data map[string]string) {
	s.Helper()
	secret := &corev1.Secret{}
	if err := s.cluster.Get(s.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "github"}, secret); err != nil {
		s.Fatal(err)
	}
	secret.Data = map[string][]byte{}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	if err := s.cluster.Update(s.Context(), secret); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) wantReady(conn *v1alpha1.GitHubConnection, status metav1.ConditionStatus, reason string, stalled bool) {
	s.Helper()
	ready := conditions.Get(conn, v1alpha1.ReadyCondition)
	if ready == nil || ready.Status != status || ready.Reason != reason || conditions.IsStalled(conn) != stalled {
		s.Errorf("got %+v; want Ready=%s %s, stalled %v", conn.Status.Conditions, status, reason, stalled)
	}
	if conn.Status.ObservedGeneration != conn.Generation {
		s.Errorf("observed generation %d of %d", conn.Status.ObservedGeneration, conn.Generation)
	}
}

// token returns the token of the client in use; empty if there is none.
func (s *stage) token() string {
	creds, _ := s.serving.Get(Key(key))
	return creds.Token
}

func TestVerifiedConnectionIsReadyAndServes(t *testing.T) {
	s := newStage(t)
	conn, after := s.reconcile()
	s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
	want := []github.Credentials{{ConfigURL: "https://github.com/acme", Token: "one"}}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("asked: -want +got:\n%s", diff)
	}
	if conn.Status.Identity != "octocat" || conn.Status.Scope != "organization" || conn.Status.CredentialsHash != s.asked[0].Hash() {
		t.Errorf("status %+v", conn.Status)
	}
	if after != rereadInterval || s.token() != "one" {
		t.Errorf("again after %s, serving %q", after, s.token())
	}
}

func TestGitHubIsAskedOnlyWhenSomethingChangedOrItIsTime(t *testing.T) {
	s := newStage(t)
	s.reconcile()
	writes := s.writes
	for name, tc := range map[string]struct {
		change func()
		asks   int
	}{
		"nothing changed":  {change: func() {}},
		"a minute passed":  {change: func() { s.now = s.now.Add(time.Minute) }},
		"the secret is as": {change: func() { s.setSecret(map[string]string{v1alpha1.TokenKey: "one"}) }},
	} {
		before := len(s.asked)
		tc.change()
		s.reconcile()
		if len(s.asked) != before || s.writes != writes {
			t.Errorf("%s: asked %d times, wrote %d times", name, len(s.asked)-before, s.writes-writes)
		}
	}
	for name, change := range map[string]func(){
		"time is over":   func() { s.now = s.now.Add(verifyInterval * 11 / 10) },
		"rotated secret": func() { s.setSecret(map[string]string{v1alpha1.TokenKey: "two"}) },
		"other url": func() {
			s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.URL, c.Generation = "https://github.com/other", 2 })
		},
		"on request": func() {
			s.change(func(c *v1alpha1.GitHubConnection) {
				c.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "now"}
			})
		},
	} {
		before := len(s.asked)
		change()
		s.reconcile()
		if len(s.asked) != before+1 {
			t.Errorf("%s: asked %d times; want once", name, len(s.asked)-before)
		}
	}
	if got := s.get().Status.LastHandledReconcileAt; got != "now" {
		t.Errorf("last handled %q", got)
	}
}

func TestRefusalStallsAndKeepsTheClientThatWorked(t *testing.T) {
	for _, reason := range []string{
		v1alpha1.CredentialsRefusedReason, v1alpha1.PermissionMissingReason, v1alpha1.ScopeNotFoundReason, v1alpha1.InvalidSpecReason,
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStage(t)
			s.reconcile()
			s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
			s.answer = &rest.Error{Reason: reason}
			conn, after := s.reconcile()
			s.wantReady(conn, metav1.ConditionFalse, reason, true)
			if after > rereadInterval {
				t.Errorf("again after %s: a mended Secret would go unnoticed", after)
			}
			if s.token() != "one" {
				t.Errorf("serving %q; want what worked", s.token())
			}
			s.answer = nil
			s.setSecret(map[string]string{v1alpha1.TokenKey: "three"})
			conn, _ = s.reconcile()
			s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
			if s.token() != "three" {
				t.Errorf("serving %q; want what was verified", s.token())
			}
		})
	}
}

// GitHub may answer 401 for some seconds although the credentials are valid.
func TestARefusalIsCheckedAgainWithinSeconds(t *testing.T) {
	s := newStage(t)
	s.reconcile()
	s.now = s.now.Add(2 * verifyInterval)
	s.answer = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}
	_, after := s.reconcile()
	if after > 2*refusalMin {
		t.Errorf("again after %s", after)
	}
	for range 100 { // while it lasts, less and less often
		s.now = s.now.Add(time.Minute)
		s.reconcile()
	}
	if n := len(s.asked); n > 20 {
		t.Errorf("GitHub was asked %d times in 100 minutes", n)
	}
	asked := len(s.asked)
	s.answer = nil
	s.r.Connections.Watch(github.Options{}, Key(key)).Note(t.Context(), "poll", &http.Response{StatusCode: http.StatusOK}, nil)
	s.now = s.now.Add(refusalMin)
	s.r.Connections.Watch(github.Options{}, Key(key)).Note(t.Context(), "poll", &http.Response{StatusCode: http.StatusOK}, nil)
	conn, _ := s.reconcile()
	s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
	if len(s.asked) != asked+1 {
		t.Errorf("asked %d times more", len(s.asked)-asked)
	}
}

func TestUnavailableGitHubIsWaitedForWithBackOff(t *testing.T) {
	s := newStage(t)
	s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason, Code: 500}
	conn, first := s.reconcile()
	if o := conn.Status.Outage; o == nil || o.Code != 500 || o.NextAttempt.Sub(s.now).Truncate(time.Second) != first.Truncate(time.Second) ||
		!conn.Status.Causes[0].NextAttempt.Equal(o.NextAttempt) {
		t.Errorf("%+v, %q; again after %s", o, conditions.GetMessage(conn, v1alpha1.ReadyCondition), first)
	}
	s.wantReady(conn, metav1.ConditionFalse, v1alpha1.GitHubUnavailableReason, false)
	if !conditions.IsReconciling(conn) {
		t.Error("not reconciling")
	}
	if first < retryMin*9/10 || first > retryMin*11/10 {
		t.Errorf("first after %s", first)
	}
	s.reconcile()
	if len(s.asked) != 1 {
		t.Error("asked before it was time")
	}
	for range 8 {
		s.now = s.now.Add(retryMax * 11 / 10)
		s.reconcile()
	}
	if len(s.asked) != 9 {
		t.Errorf("asked %d times; want 9", len(s.asked))
	}
	if n := len(s.events.Events); n != 1 {
		t.Errorf("%d events tell that GitHub is away", n)
	}
	s.now = s.now.Add(retryMax / 2)
	if s.reconcile(); len(s.asked) != 9 {
		t.Error("no back-off")
	}

	s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason, RetryAfter: time.Hour}
	s.now = s.now.Add(retryMax)
	s.reconcile()
	s.now = s.now.Add(time.Hour - time.Second)
	if s.reconcile(); len(s.asked) != 10 {
		t.Error("asked before GitHub wanted to be")
	}
}

func TestRestartServesAtOnceWhatWasVerifiedBefore(t *testing.T) {
	s := newStage(t)
	s.reconcile()
	s.restart()
	s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason}
	s.reconcile()
	if s.token() != "one" {
		t.Error("pools wait for a GitHub that needn't be asked")
	}
	s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
	s.restart()
	s.reconcile()
	if s.token() != "" {
		t.Errorf("serving %q, which was never verified", s.token())
	}
}

func TestPausedConnectionIsNotVerified(t *testing.T) {
	pause := func(c *v1alpha1.GitHubConnection) {
		c.Spec.Verification, c.Generation = v1alpha1.VerificationPaused, c.Generation+1
	}
	t.Run("verified before", func(t *testing.T) {
		s := newStage(t)
		s.reconcile()
		s.change(pause)
		s.restart()
		conn, _ := s.reconcile()
		s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
		if len(s.asked) != 1 || s.token() != "one" {
			t.Errorf("asked %d times, serving %q", len(s.asked), s.token())
		}
	})
	t.Run("never verified", func(t *testing.T) {
		s := newStage(t)
		s.change(pause)
		conn, _ := s.reconcile()
		s.wantReady(conn, metav1.ConditionFalse, v1alpha1.SuspendedReason, false)
		if len(s.asked) != 0 || s.token() != "" {
			t.Errorf("asked %d times, serving %q", len(s.asked), s.token())
		}
	})
}

func TestDeletedConnectionStillServesCleanUp(t *testing.T) {
	s := newStage(t)
	s.reconcile()
	if err := s.cluster.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if s.token() != "one" {
		t.Error("the client is gone before pools could clean up")
	}
	if len(s.r.verified) != 0 {
		t.Error("the verification is kept for ever")
	}
}

func TestMissingSecretIsNamed(t *testing.T) {
	s := newStage(t)
	s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.SecretRef.Name = "absent" })
	conn, after := s.reconcile()
	s.wantReady(conn, metav1.ConditionFalse, v1alpha1.CredentialsMissingReason, true)
	if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); !strings.Contains(message, "absent") || after != 10*time.Second {
		t.Errorf("%q, and it is looked for after %s", message, after)
	}
}

func TestMissingSecretOfTheWebhookIsNamedAndPoolsKeepWorking(t *testing.T) {
	s := newStage(t)
	s.change(func(c *v1alpha1.GitHubConnection) {
		c.Spec.Webhook = &v1alpha1.ConnectionWebhook{SecretRef: v1alpha1.LocalObjectReference{Name: "absent"}}
	})
	conn, _ := s.reconcile()
	s.wantReady(conn, metav1.ConditionFalse, v1alpha1.WebhookSecretMissingReason, true)
	want := "spec.webhook.secretRef: Secret absent not found: Corral refuses GitHub's events"
	if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); message != want || s.token() != "one" {
		t.Errorf("%q, serving %q", message, s.token())
	}
	s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.Webhook.SecretRef.Name = "github" })
	conn, _ = s.reconcile()
	want = "spec.webhook.secretRef: Secret github has no value for the key secret: Corral refuses GitHub's events"
	if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); message != want {
		t.Errorf("%q", message)
	}
	s.setSecret(map[string]string{v1alpha1.TokenKey: "one", v1alpha1.WebhookSecretKey: strings.Repeat("x", webhook.MaxSecretBytes+1)})
	conn, _ = s.reconcile()
	s.wantReady(conn, metav1.ConditionFalse, v1alpha1.WebhookSecretMissingReason, true)
	s.setSecret(map[string]string{v1alpha1.TokenKey: "one", v1alpha1.WebhookSecretKey: "x"})
	conn, _ = s.reconcile()
	s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
}

// Anyone can send events with a wrong signature, so the connection stays ready.
func TestEventsWithAWrongSignatureAreTold(t *testing.T) {
	s := newStage(t)
	s.setSecret(map[string]string{v1alpha1.TokenKey: "one", v1alpha1.WebhookSecretKey: "x"})
	s.change(func(c *v1alpha1.GitHubConnection) {
		c.Spec.Webhook = &v1alpha1.ConnectionWebhook{SecretRef: v1alpha1.LocalObjectReference{Name: "github"}}
	})
	for _, step := range []struct {
		compared string
		state    v1alpha1.VerificationState
		want     bool
	}{
		{}, {"x", v1alpha1.VerificationActive, true}, {"x", v1alpha1.VerificationActive, true}, {"x", v1alpha1.VerificationPaused, true},
		{"", v1alpha1.VerificationPaused, false}, {"x", v1alpha1.VerificationActive, true}, {"former", v1alpha1.VerificationActive, false},
	} {
		s.signatures = wrong(step.compared)
		s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.Verification = step.state })
		conn, _ := s.reconcile()
		s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
		want := ""
		if step.want {
			want = "incoming events aren't signed with the secret in Secret github"
		}
		if got := conn.EventsRefused(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); step.state != v1alpha1.VerificationPaused && strings.Contains(message, "; without Events: incoming events") != step.want {
			t.Errorf("%q", message)
		}
	}
}

// Events are judged independently of GitHub's answer about the credentials, and the message about them disappears.
func TestEventsAreTakenForWhatTheyAreWhileCredentialsAreRefused(t *testing.T) {
	s := newStage(t)
	s.setSecret(map[string]string{v1alpha1.TokenKey: "one", v1alpha1.WebhookSecretKey: "x\n"})
	s.change(func(c *v1alpha1.GitHubConnection) {
		c.Spec.Webhook = &v1alpha1.ConnectionWebhook{SecretRef: v1alpha1.LocalObjectReference{Name: "github"}}
	})
	for _, s.answer = range []error{
		&rest.Error{Reason: v1alpha1.CredentialsRefusedReason}, &rest.Error{Reason: v1alpha1.GitHubUnavailableReason, Code: 500}, &rest.Error{Reason: v1alpha1.GitHubUnavailableReason, Code: 429},
	} {
		for _, s.signatures = range []wrong{"x", ""} {
			s.now = s.now.Add(2 * verifyInterval)
			if conn, _ := s.reconcile(); (conn.EventsRefused() != "") != (s.signatures != "") || conditions.IsReady(conn) {
				t.Errorf("%v, %q: %q, %s", s.answer, s.signatures, conn.EventsRefused(), conditions.GetMessage(conn, v1alpha1.ReadyCondition))
			}
		}
	}
}

// wrong implements Signatures. It is the secret with which a wrong signature was compared; empty if there was none.
type wrong string

func (w *wrong) Wrong(types.NamespacedName, time.Time) ([sha256.Size]byte, bool) {
	return sha256.Sum256([]byte(*w)), *w != ""
}

func TestOneEventPerChange(t *testing.T) {
	s := newStage(t)
	for range 3 {
		s.reconcile()
	}
	s.answer = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}
	s.now = s.now.Add(2 * verifyInterval)
	for range 3 {
		s.reconcile()
	}
	var reasons []string
	for len(s.events.Events) > 0 {
		reasons = append(reasons, strings.Fields(<-s.events.Events)[1])
	}
	if diff := cmp.Diff([]string{v1alpha1.SucceededReason, v1alpha1.CredentialsRefusedReason}, reasons); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUntypedErrorIsRetriedByTheQueue(t *testing.T) {
	s := newStage(t)
	s.answer = errors.New("odd")
	if _, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("no error")
	}
}
