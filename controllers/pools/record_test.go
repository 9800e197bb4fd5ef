// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
)

// serving reports whether the connection has a REST client.
type serving bool

func (s serving) Get(string) (*rest.Client, bool) { return nil, bool(s) }

// newRESTPool is a bench whose pool registers through the REST API and has a demand of two jobs.
func newRESTPool(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.Cluster, b.REST = "cluster", serving(true)
	b.declare(func(s *v1alpha1.RunnerPoolSpec) {
		s.Registration, s.RunnerLabels, s.RunnerGroup = v1alpha1.RegisterREST, []string{"gpu"}, "builders"
	})
	b.reading = webhookReading(2, 0)
	b.reconcile()
	return b
}

func TestRESTRunnersBearTheLabelsAndTheMarkOfTheirPool(t *testing.T) {
	b := newRESTPool(t)
	mark := v1alpha1.OwnerLabel("cluster", "p1")
	want := &v1alpha1.RESTRegistration{URL: "https://github.com/acme", RunnerGroup: "builders", Labels: []string{"gpu", "self-hosted", "linux", "x64", mark}}
	for _, r := range b.runners() {
		if diff := cmp.Diff(want, r.Spec.REST); diff != "" || r.Spec.ConnectionRef.Name != "acme" {
			t.Errorf("on %s: %s", r.Spec.ConnectionRef.Name, diff)
		}
	}
	sets := &v1alpha1.RunnerScaleSetList{}
	must(t, b.Client.List(t.Context(), sets))
	if len(sets.Items) != 0 {
		t.Errorf("a scale set was made: %+v", sets.Items)
	}
	if got := b.readyReason(); !strings.HasPrefix(got, "True") {
		t.Errorf("ready: %s", got)
	}
}

func TestRESTRunnersThatAreRegisteredOtherwiseAreReplacedAfterTheirJob(t *testing.T) {
	pool := func(do func(*v1alpha1.RunnerPoolSpec)) func(*bench) {
		return func(b *bench) { b.change(func(p *v1alpha1.RunnerPool) { do(&p.Spec) }) }
	}
	connect := func(b *bench, name, url string) {
		must(b.t, b.Client.Create(b.t.Context(), &v1alpha1.GitHubConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}, Spec: v1alpha1.GitHubConnectionSpec{URL: url},
		}))
	}
	for name, change := range map[string]func(*bench){
		"labels": pool(func(s *v1alpha1.RunnerPoolSpec) { s.RunnerLabels = []string{"gpu", "large"} }),
		"group":  pool(func(s *v1alpha1.RunnerPoolSpec) { s.RunnerGroup = "" }),
		"connection": func(b *bench) {
			connect(b, "other", "https://github.com/acme")
			pool(func(s *v1alpha1.RunnerPoolSpec) { s.ConnectionRef.Name = "other" })(b)
		},
		"another connection of that name": func(b *bench) {
			must(b.t, b.Client.Delete(b.t.Context(), &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}}))
			b.reconcile()
			if n := len(b.runners()); n != 2 {
				b.t.Errorf("%d runners while the connection is on its way", n)
			}
			connect(b, "acme", "https://github.com/other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRESTPool(t)
			before := b.runners()
			busy := before[0]
			busy.Status.StartedAt = &metav1.Time{Time: b.now}
			busy.Status.Job = &v1alpha1.JobReference{ID: "7", StartedAt: &metav1.Time{Time: b.now}}
			must(t, b.Client.Status().Update(t.Context(), &busy))
			change(b)
			b.reconcile()
			var news int
			has := func(name string) bool {
				return slices.ContainsFunc(b.runners(), func(r v1alpha1.Runner) bool { return r.Name == name && r.DeletionTimestamp.IsZero() })
			}
			for _, r := range b.runners() {
				if r.Name != busy.Name && r.Name != before[1].Name && (r.Spec.ConnectionRef != busy.Spec.ConnectionRef || !cmp.Equal(r.Spec.REST, busy.Spec.REST)) {
					news++
				}
			}
			if !has(busy.Name) || has(before[1].Name) || news != 1 {
				t.Errorf("the busy one is there: %v; the other: %v; %d new ones", has(busy.Name), has(before[1].Name), news)
			}
		})
	}
}

func TestAPoolTellsThatItsConnectionDoesNotServe(t *testing.T) {
	b := newRESTPool(t)
	b.REST = serving(false)
	conn := &v1alpha1.GitHubConnection{}
	must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "acme"}, conn))
	conditions.MarkFalse(conn, v1alpha1.ReadyCondition, v1alpha1.CredentialsRefusedReason, "401")
	must(t, b.Client.Update(t.Context(), conn))
	b.reconcile()
	if got := b.readyReason(); !strings.HasPrefix(got, "False ConnectionNotReady") {
		t.Errorf("ready: %s", got)
	}
}

// A pool that still uses old credentials is ready. Its status warns before a restart would reveal that they are no longer
// valid.
func TestFormerCredentialsAreSaidByThePool(t *testing.T) {
	b := newBench(t)
	b.start()
	conn := &v1alpha1.GitHubConnection{}
	must(t, b.Client.Get(t.Context(), types.NamespacedName{Namespace: "ci", Name: "acme"}, conn))
	for former, want := range map[bool]string{
		true:  `True Succeeded: listening as scale set "linux" (id 7); using the previous credentials of GitHubConnection "acme": a restart of the controller would stop the pool`,
		false: `True Succeeded: listening as scale set "linux" (id 7)`,
	} {
		conn.Status.FormerCredentials = former
		must(t, b.Client.Update(t.Context(), conn))
		if b.reconcile(); b.readyReason() != want {
			t.Errorf("%t: %s", former, b.readyReason())
		}
	}
}

// If the check of new credentials is suspended before any were accepted, the connection emits no Warning, but its pools do.
func TestAConnectionThatIsSuspendedBeforeItServedIsAWarningOfItsPools(t *testing.T) {
	b := newRESTPool(t)
	b.REST = serving(false)
	conn := &v1alpha1.GitHubConnection{}
	must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "acme"}, conn))
	for reason, want := range map[string]bool{v1alpha1.SuspendedReason: true, v1alpha1.CredentialsRefusedReason: false} {
		conditions.MarkFalse(conn, v1alpha1.ReadyCondition, reason, "no")
		must(t, b.Client.Update(t.Context(), conn))
		b.allEvents()
		b.reconcile()
		told := strings.Join(b.allEvents(), "\n")
		if warns := strings.Contains(told, `Warning ConnectionNotReady GitHubConnection "acme" is not ready: `+reason); warns != want {
			t.Errorf("%s: told %q", reason, told)
		}
	}
}

// The credentials stay usable for an hour, for clean-up. The pools report the deletion before that ends or the controller
// restarts.
func TestAPoolWhoseConnectionWasDeletedSaysSo(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	must(t, b.Client.Delete(t.Context(), &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}}))
	b.allEvents()
	b.reconcile()
	const text = `ConnectionNotReady GitHubConnection "acme" not found: Corral keeps using its credentials for up to one hour, or until the controller restarts`
	if told := b.allEvents(); !slices.Contains(told, "Warning "+text) {
		t.Errorf("told %q, ready: %s", told, b.readyReason())
	}
	if n := len(b.runners()); n != 1 {
		t.Errorf("%d runners for the job that was accepted", n)
	}
}
