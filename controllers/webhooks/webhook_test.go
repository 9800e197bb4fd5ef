// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
)

var (
	key   = types.NamespacedName{Namespace: "team", Name: "main"}
	lease = types.NamespacedName{Namespace: "corral", Name: "corral.corral.dev"}
)

// stage is a cluster with a connection and its Secret. It counts reads of Secrets and leases.
type stage struct {
	*testing.T
	client.Client
	now   time.Time
	reads int
	down  error
}

func newStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{T: t, now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, cached := obj.(*v1alpha1.GitHubConnection); !cached {
				s.reads++
				if s.down != nil {
					return s.down
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	return s
}

func (s *stage) clock() time.Time { return s.now }

func connection(secret string) *v1alpha1.GitHubConnection {
	return &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme", Webhook: &v1alpha1.ConnectionWebhook{SecretRef: v1alpha1.LocalObjectReference{Name: secret}}},
	}
}

func secretOf(name string, data map[string]string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	return secret
}

// ask returns the secrets as text.
func (s *stage) ask(x *Secrets, fresh bool) ([]string, error) {
	secrets, err := x.Of(s.Context(), key, fresh)
	var texts []string
	for _, secret := range secrets {
		texts = append(texts, string(secret))
	}
	return texts, err
}

func (s *stage) wantSecrets(x *Secrets, fresh bool, reads int, want ...string) {
	s.Helper()
	got, err := s.ask(x, fresh)
	if err != nil {
		s.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || s.reads != reads {
		s.Errorf("%d reads; want %d; -want +got:\n%s", s.reads, reads, diff)
	}
}

func TestSecretIsReadOnceInAWhile(t *testing.T) {
	s := newStage(t, connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "new\n", v1alpha1.WebhookPreviousKey: "old"}))
	x := &Secrets{Connections: s, Live: s, Signatures: &webhook.Signatures{}, Now: s.clock}
	s.wantSecrets(x, false, 1, "new", "old")
	if err := s.Update(t.Context(), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "newer", v1alpha1.WebhookPreviousKey: "\n"})); err != nil {
		t.Fatal(err)
	}
	s.wantSecrets(x, false, 1, "new", "old")
	s.wantSecrets(x, true, 1, "new", "old")
	// A signature does not match: the Secret is read again, but not for each such event.
	s.now = s.now.Add(freshAfter)
	s.wantSecrets(x, true, 2, "newer")
	s.wantSecrets(x, true, 2, "newer")
	s.now = s.now.Add(secretFor)
	s.wantSecrets(x, false, 3, "newer")
}

func TestSecretThatIsNotThereIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []client.Object
		is      error
		want    string
	}{
		"no connection": {nil, webhook.ErrUnknownConnection, "no such GitHubConnection with spec.webhook"},
		"no webhook": {
			[]client.Object{&v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}},
			webhook.ErrUnknownConnection, "no such GitHubConnection with spec.webhook",
		},
		"no Secret": {[]client.Object{connection("hook")}, webhook.ErrNoSecret, "no secret: Secret hook not found"},
		"no key":    {[]client.Object{connection("hook"), secretOf("hook", map[string]string{"token": "x"})}, webhook.ErrNoSecret, "no secret: Secret hook has no value for the key secret"},
		"too long": {
			[]client.Object{connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "x", v1alpha1.WebhookPreviousKey: strings.Repeat("x", webhook.MaxSecretBytes+1)})},
			webhook.ErrNoSecret, "no secret: the key previous of Secret hook has 1025 bytes, more than 1024",
		},
		"only the former": {
			[]client.Object{connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookPreviousKey: "x"})},
			webhook.ErrNoSecret, "no secret: Secret hook has no value for the key secret",
		},
		"empty": {[]client.Object{connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "\n"})}, webhook.ErrNoSecret, "no secret: Secret hook has no value for the key secret"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, tc.objects...)
			x := &Secrets{Connections: s, Live: s, Signatures: &webhook.Signatures{}, Now: s.clock}
			if got, err := s.ask(x, false); len(got) != 0 || !errors.Is(err, tc.is) || err.Error() != tc.want {
				t.Errorf("got %q, %v; want %s", got, err, tc.want)
			}
			before := s.reads
			if _, err := s.ask(x, true); err == nil || s.reads != before {
				t.Errorf("read %d times more; %v", s.reads-before, err)
			}
		})
	}
}

func TestSecretHoldsWhileTheClusterDoesNotAnswer(t *testing.T) {
	s := newStage(t, connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "one"}), secretOf("other", map[string]string{v1alpha1.WebhookSecretKey: "two"}))
	x := &Secrets{Connections: s, Live: s, Signatures: &webhook.Signatures{}, Now: s.clock}
	s.wantSecrets(x, false, 1, "one")
	s.down, s.now = errors.New("timed out"), s.now.Add(secretFor)
	s.wantSecrets(x, false, 2, "one")
	// A cached value is not used for another Secret.
	conn := connection("other")
	if err := s.Get(t.Context(), key, conn); err != nil {
		t.Fatal(err)
	}
	conn.Spec.Webhook.SecretRef.Name = "other"
	if err := s.Update(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ask(x, false); err == nil {
		t.Errorf("got %q", got)
	}
	s.down, s.now = nil, s.now.Add(missingFor)
	s.wantSecrets(x, false, 4, "two")
	// A deleted Secret is gone.
	if err := s.Delete(t.Context(), secretOf("other", nil)); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(secretFor)
	if got, err := s.ask(x, false); !errors.Is(err, webhook.ErrNoSecret) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestConnectionThatIsGoneIsForgotten(t *testing.T) {
	s := newStage(t, connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "one"}))
	x := &Secrets{Connections: s, Live: s, Signatures: &webhook.Signatures{}, Now: s.clock}
	s.wantSecrets(x, false, 1, "one")
	if err := s.Delete(t.Context(), connection("hook")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ask(x, false); !errors.Is(err, webhook.ErrUnknownConnection) || len(x.known) != 0 {
		t.Errorf("%v; %d known", err, len(x.known))
	}
}

func TestConnectionsOfOtherNamespacesAreUnknown(t *testing.T) {
	s := newStage(t, connection("hook"), secretOf("hook", map[string]string{v1alpha1.WebhookSecretKey: "one"}))
	x := &Secrets{Connections: s, Live: s, Namespaces: []string{"other"}, Signatures: &webhook.Signatures{}, Now: s.clock}
	if _, err := s.ask(x, false); !errors.Is(err, webhook.ErrUnknownConnection) || s.reads != 0 {
		t.Errorf("%v after %d reads", err, s.reads)
	}
	x.Namespaces = []string{"other", key.Namespace}
	s.wantSecrets(x, false, 1, "one")
}

func TestAddressesSurviveTheLease(t *testing.T) {
	for _, text := range []string{"10.1.2.3:8081", "[fd00::1]:8081", "[::1]:65535", "[2001:db8:1:2:3:4:5:6]:1"} {
		address := netip.MustParseAddrPort(text)
		labels := Labels(address, "KEY")
		for _, value := range labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("%s: %q: %v", text, value, problems)
			}
		}
		if got, err := addressOf(labels); err != nil || got != address {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	if _, err := addressOf(Labels(netip.AddrPort{}, "KEY")); err == nil {
		t.Error("no error for a leader without a server")
	}
}

func TestAdvertisedIsWhatOthersReach(t *testing.T) {
	ip := netip.MustParseAddr("10.1.2.3")
	for name, tc := range map[string]struct {
		listens string
		ip      netip.Addr
		want    string
	}{
		"everywhere":          {"[::]:8081", ip, "10.1.2.3:8081"},
		"everywhere, unknown": {"0.0.0.0:8081", netip.Addr{}, "invalid AddrPort"},
		"one address":         {"127.0.0.1:8081", ip, "127.0.0.1:8081"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Advertised(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.listens)), tc.ip).String(); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func TestLeaderIsFoundByTheLease(t *testing.T) {
	held := func(holder string, labels map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name, Labels: labels}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	there := Labels(netip.MustParseAddrPort("10.1.2.3:8081"), "KEY")
	for name, tc := range map[string]struct {
		objects []client.Object
		want    string
		err     string
	}{
		"held":             {[]client.Object{held("one", there)}, "10.1.2.3:8081", ""},
		"released":         {[]client.Object{held("", there)}, "", "the lease has no holder"},
		"leader without":   {[]client.Object{held("one", Labels(netip.AddrPort{}, "KEY"))}, "", `reading the address of the leader: ParseAddr(""): unable to parse IP`},
		"leader of before": {[]client.Object{held("one", nil)}, "", `reading the address of the leader: ParseAddr(""): unable to parse IP`},
		"none":             {nil, "", `reading the lease: leases.coordination.k8s.io "corral.corral.dev" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, tc.objects...)
			l := &Leader{Elected: make(chan struct{}), Live: s, Lease: lease, Now: s.clock}
			got, err := l.Peer(t.Context())
			if got.Address != tc.want || (got.Key == "KEY") != (tc.want != "") || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %+v, %v; want %q, %s", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestLeaseIsReadOnceInAWhile(t *testing.T) {
	holder := "one"
	s := newStage(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name, Labels: Labels(netip.MustParseAddrPort("10.1.2.3:8081"), "KEY")},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	})
	elected := make(chan struct{})
	l := &Leader{Elected: elected, Live: s, Lease: lease, Now: s.clock}
	peer, err := l.Peer(t.Context())
	want := func(fails bool, reads int) {
		t.Helper()
		if _, err = l.Peer(t.Context()); (err != nil) != fails || s.reads != reads {
			t.Errorf("%v after %d reads", err, s.reads)
		}
	}
	want(false, 1)
	l.Failed("another")
	want(false, 1)
	l.Failed(peer.Address)
	want(true, 1)
	s.now = s.now.Add(failedFor)
	want(false, 2)
	s.now = s.now.Add(leaseFor)
	want(false, 3)
	if l.Leads() {
		t.Error("leads")
	}
	close(elected)
	if !l.Leads() {
		t.Error("doesn't lead")
	}
}
