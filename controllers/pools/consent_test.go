// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
)

// share puts the pool on a connection of another namespace, and returns a function that sets the namespaces which the
// connection allows.
func (b *bench) share() func(namespaces ...string) {
	b.t.Helper()
	conn := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "main"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "github"}},
	}
	must(b.t, b.Client.Create(b.t.Context(), conn))
	b.Access = &connections.Access{Connections: b.Client, Now: func() time.Time { return b.now }}
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.ConnectionRef = v1alpha1.ConnectionReference{Namespace: "platform", Name: "main"}
	})
	return func(namespaces ...string) {
		b.t.Helper()
		conn.Spec.AllowedNamespaces = namespaces
		must(b.t, b.Client.Update(b.t.Context(), conn))
	}
}

func TestAPoolThatIsNotAllowedItsConnectionDoesNothing(t *testing.T) {
	b := newBench(t)
	b.share()
	b.snapshot.Assigned = 3
	b.reconcile()
	sets := &v1alpha1.RunnerScaleSetList{}
	must(t, b.Client.List(t.Context(), sets))
	if len(sets.Items)+len(b.runners()) != 0 {
		t.Errorf("%d scale sets, %d runners", len(sets.Items), len(b.runners()))
	}
	if !conditions.IsStalled(b.pool()) || !strings.HasPrefix(b.readyReason(), "False AccessDenied: there is no GitHubConnection platform/main") {
		t.Errorf("ready: %s", b.readyReason())
	}
}

// The owner of the pool does not see events in another namespace.
func TestAPoolWarnsOfAConnectionElsewhereThatIsNotReady(t *testing.T) {
	b := newRESTPool(t)
	b.REST = serving(false)
	b.share()("ci")
	conn := &v1alpha1.GitHubConnection{}
	must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "platform", Name: "main"}, conn))
	conditions.MarkFalse(conn, v1alpha1.ReadyCondition, v1alpha1.CredentialsRefusedReason, "401")
	must(t, b.Client.Update(t.Context(), conn))
	b.allEvents()
	b.reconcile()
	if told := strings.Join(b.allEvents(), "\n"); !strings.Contains(told, `Warning ConnectionNotReady GitHubConnection "main" is not ready: CredentialsRefused`) {
		t.Errorf("told %q", told)
	}
}

func TestWithdrawnConsentLetsRunnersFinish(t *testing.T) {
	b := newBench(t)
	allow := b.share()
	allow("ci")
	b.start()
	b.snapshot.Assigned = 3
	b.reconcile()
	if n := len(b.runners()); n != 3 {
		t.Fatalf("%d runners", n)
	}
	busy := b.runners()[0]
	busy.Status.Job = &v1alpha1.JobReference{ID: "1", StartedAt: &metav1.Time{Time: b.now}}
	b.run(busy)
	allow()
	b.now = b.now.Add(31 * time.Second) // past the protection
	b.reconcile()
	b.reconcile()
	var left []string
	for _, r := range b.runners() {
		if r.DeletionTimestamp.IsZero() {
			left = append(left, r.Name)
		}
	}
	if len(left) != 1 || left[0] != busy.Name {
		t.Errorf("left are %v; want %s", left, busy.Name)
	}
	if last := b.announced[len(b.announced)-1]; last != 0 {
		t.Errorf("announced %d", last)
	}
	if reason := b.pool().Status.Decision.Reason; reason != "the connection may not be used: serving 1 job" {
		t.Errorf("reason: %s", reason)
	}
	allow("ci")
	b.reconcile()
	if last := b.announced[len(b.announced)-1]; last != 5 || !conditions.IsReady(b.pool()) {
		t.Errorf("announced %d; %s", last, b.readyReason())
	}
}
