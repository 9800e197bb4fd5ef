// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/sim/githubsim"
)

// sharing returns a bench with a connection that all namespaces may use.
func sharing(t *testing.T, options ...githubsim.Options) *bench {
	b := newBenchOn(t, append(options, githubsim.Options{})[0])
	must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("acme"), AllowedNamespaces: []string{v1alpha1.AllNamespaces}},
	}))
	b.Access = &connections.Access{Connections: b.Client, Now: b.clock.Now}
	return b
}

// tenant adds a pool's record of an age in a namespace. All use the same name for their scale set.
func (b *bench) tenant(namespace string, age time.Duration) types.NamespacedName {
	b.t.Helper()
	return b.tenantOn(v1alpha1.ConnectionReference{Name: "acme", Namespace: "platform"}, namespace, age)
}

// tenantOn is tenant with another connection.
func (b *bench) tenantOn(connection v1alpha1.ConnectionReference, namespace string, age time.Duration) types.NamespacedName {
	b.t.Helper()
	must(b.t, b.Client.Create(b.t.Context(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "linux", UID: types.UID("pool-" + namespace)}}))
	must(b.t, b.Client.Create(b.t.Context(), &v1alpha1.RunnerScaleSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "linux", UID: types.UID("set-" + namespace), Generation: 1,
			CreationTimestamp: metav1.Time{Time: b.clock.Now().Add(-age)}, Finalizers: []string{v1alpha1.ScaleSetFinalizer},
		},
		Spec: v1alpha1.RunnerScaleSetSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, PoolUID: "pool-" + namespace,
			ConnectionRef: connection, Name: "shared", RunnerGroup: "default", Labels: []string{"linux"},
		},
	}))
	return types.NamespacedName{Namespace: namespace, Name: "linux"}
}

// until reconciles one record each time that its session wakes it, until Ready has the reason; empty to wait until it is
// gone.
func (b *bench) until(key types.NamespacedName, reason string) {
	b.t.Helper()
	for {
		_, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
		must(b.t, err)
		s := &v1alpha1.RunnerScaleSet{}
		if err := b.Client.Get(b.t.Context(), key, s); err != nil && reason == "" {
			return
		}
		session, isThere := b.Sessions.Snapshot(key) // while it is being opened, the earlier message stays
		isOpening := isThere && session.Err == nil && session.State != scaleset.Listening && session.State != scaleset.Refused && session.State != scaleset.OwnedElsewhere
		if reason != "" && !isOpening && conditions.GetReason(s, v1alpha1.ReadyCondition) == reason {
			return
		}
		item, _ := b.queue.Get()
		b.queue.Done(item)
	}
}

func (b *bench) end(key types.NamespacedName) {
	b.t.Helper()
	must(b.t, b.Client.Delete(b.t.Context(), &v1alpha1.RunnerScaleSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	b.until(key, "")
}

func TestThePoolThatEndsLeavesTheScaleSetToTheOneThatHasIt(t *testing.T) {
	b := sharing(t)
	victim, thief := b.tenant("victim", time.Hour), b.tenant("thief", 0)
	b.until(victim, v1alpha1.SucceededReason)
	b.until(thief, v1alpha1.OwnedElsewhereReason)
	b.Sessions.Stop(t.Context(), victim) // as in a restart
	b.end(thief)
	if sets := b.remote(); len(sets) != 1 {
		t.Fatalf("on GitHub: %+v", sets)
	}
	b.until(victim, v1alpha1.SucceededReason)
	b.end(victim)
	if sets := b.remote(); len(sets) != 0 {
		t.Errorf("on GitHub: %+v", sets)
	}
}

func TestOfTwoNamespacesOneKeepsTheScaleSet(t *testing.T) {
	b := sharing(t)
	older, younger := b.tenant("older", time.Hour), b.tenant("younger", 0)
	b.until(younger, v1alpha1.SucceededReason)
	b.until(older, v1alpha1.OwnedElsewhereReason)
	for range 3 { // each time, the state on GitHub is read again
		b.clock.Step(verifyInterval)
		b.until(older, v1alpha1.OwnedElsewhereReason)
		b.until(younger, v1alpha1.SucceededReason)
	}
	b.Sessions.Stop(t.Context(), younger) // as in a restart
	b.Sessions.Stop(t.Context(), older)
	b.clock.Step(verifyInterval)
	b.until(older, v1alpha1.OwnedElsewhereReason)
	if _, open := b.Sessions.Snapshot(older); open {
		t.Error("who may not have it waits for its session")
	}
	b.until(younger, v1alpha1.SucceededReason)
	b.Sessions.Stop(t.Context(), younger)
	b.loseStatus(younger)
	b.clock.Step(verifyInterval)
	b.until(older, v1alpha1.SucceededReason) // nothing shows that the younger one had it
	b.until(younger, v1alpha1.OwnedElsewhereReason)
}

// loseStatus simulates a restore without the status.
func (b *bench) loseStatus(key types.NamespacedName) {
	b.t.Helper()
	s := &v1alpha1.RunnerScaleSet{}
	must(b.t, b.Client.Get(b.t.Context(), key, s))
	s.Status = v1alpha1.RunnerScaleSetStatus{}
	must(b.t, b.Client.Status().Update(b.t.Context(), s))
}

// A tenant with credentials of the organization could create its own connection and take over another namespace's scale set
// by its name while the session is closed.
func TestAConnectionOfOnesOwnTakesNoOthersScaleSet(t *testing.T) {
	for name, lost := range map[string]bool{"a restart": false, "a restore without status": true} {
		t.Run(name, func(t *testing.T) {
			b := sharing(t)
			must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: "thief", Name: "own"}, Spec: v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("ACME")},
			}))
			victim := b.tenant("victim", time.Hour)
			b.until(victim, v1alpha1.SucceededReason)
			age := 2 * time.Hour
			if lost { // only the age shows the owner
				age = 0
			}
			thief := b.tenantOn(v1alpha1.ConnectionReference{Name: "own"}, "thief", age)
			b.Sessions.Stop(t.Context(), victim)
			if lost {
				b.loseStatus(victim)
			}
			b.clock.Step(verifyInterval)
			b.until(thief, v1alpha1.OwnedElsewhereReason)
			if _, open := b.Sessions.Snapshot(thief); open {
				t.Error("the thief opened the victim's session")
			}
			b.end(thief)
			if sets := b.remote(); len(sets) != 1 {
				t.Fatalf("on GitHub: %+v", sets)
			}
			b.until(victim, v1alpha1.SucceededReason)
		})
	}
}

// A namespace gets its scale set back with another record, after a restore or when a pool is created again.
func TestANamespaceAdoptsItsOwnScaleSet(t *testing.T) {
	b := sharing(t)
	key := b.tenant("team", time.Hour)
	b.until(key, v1alpha1.SucceededReason)
	id := b.remote()[0].ID
	b.Sessions.Stop(t.Context(), key)
	gone := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, gone))
	gone.Finalizers = nil
	must(t, b.Client.Update(t.Context(), gone))
	must(t, b.Client.Delete(t.Context(), gone))
	must(t, b.Client.Delete(t.Context(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "linux"}}))
	b.until(b.tenantOn(v1alpha1.ConnectionReference{Name: "acme", Namespace: "platform"}, "team", 0), v1alpha1.SucceededReason)
	if sets := b.remote(); len(sets) != 1 || sets[0].ID != id {
		t.Errorf("on GitHub: %+v", sets)
	}
}

// A connection to another place does not interfere, although the IDs are the same there.
func TestScaleSetsOfOtherPlacesAreNotCompared(t *testing.T) {
	b := sharing(t)
	must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "own"}, Spec: v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("umbrella")},
	}))
	other := b.tenantOn(v1alpha1.ConnectionReference{Name: "own"}, "other", 2*time.Hour)
	key := b.tenant("team", time.Hour)
	b.until(key, v1alpha1.SucceededReason)
	s := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), other, s))
	s.Status.ID = int64(b.remote()[0].ID)
	must(t, b.Client.Status().Update(t.Context(), s))
	b.Sessions.Stop(t.Context(), key)
	b.clock.Step(verifyInterval)
	b.until(key, v1alpha1.SucceededReason)
}

// The ID in a record's status can be forged, unlike the name on GitHub and the session that GitHub grants.
func TestAForgedIDHoldsNothing(t *testing.T) {
	b := sharing(t)
	thief, victim := b.tenant("thief", time.Hour), b.tenant("victim", 0)
	b.until(victim, v1alpha1.SucceededReason)
	on := types.NamespacedName{Namespace: "platform", Name: "acme"}
	id := int64(b.remote()[0].ID)
	if !b.Sessions.Holds(victim, on, "pool-victim", id) {
		t.Fatal("the victim doesn't hold its own")
	}
	for name, holds := range map[string]bool{
		"another uid":        b.Sessions.Holds(victim, on, "pool-thief", id),
		"another id":         b.Sessions.Holds(victim, on, "pool-victim", id+1),
		"another connection": b.Sessions.Holds(victim, types.NamespacedName{Namespace: "victim", Name: "acme"}, "pool-victim", id),
		"no id":              b.Sessions.Holds(thief, on, "pool-thief", 0),
	} {
		if holds {
			t.Errorf("%s: it holds the scale set", name)
		}
	}
	forge := func() {
		s := &v1alpha1.RunnerScaleSet{}
		must(t, b.Client.Get(t.Context(), thief, s))
		s.Spec.Name, s.Status.ID = "mine", id
		status := s.Status
		must(t, b.Client.Update(t.Context(), s))
		s.Status = status
		must(t, b.Client.Status().Update(t.Context(), s))
	}
	forge()
	b.until(thief, v1alpha1.OwnedElsewhereReason)
	if b.Sessions.Holds(thief, on, "pool-thief", id) {
		t.Error("the thief holds the scale set")
	}
	b.Sessions.Stop(t.Context(), victim) // as in a restart; the thief's record is the older one
	b.Sessions.Stop(t.Context(), thief)
	b.clock.Step(verifyInterval)
	b.until(thief, v1alpha1.OwnedElsewhereReason)
	if _, open := b.Sessions.Snapshot(thief); open || b.Sessions.Holds(thief, on, "pool-thief", id) {
		t.Error("the thief opened the victim's session")
	}
	b.until(victim, v1alpha1.SucceededReason)
}

// Anyone who can write a status could claim to have held any session, and GitHub does not name the owner.
func TestAForgedSessionIsNobodys(t *testing.T) {
	b := sharing(t)
	thief := b.tenant("thief", 0)
	had, err := b.Clients.(*registry).client.Create(t.Context(), scaleset.Set{Name: "shared", GroupID: 1, Labels: []string{"theirs"}})
	must(t, err)
	b.github.StealSession(int(had.ID), "another program")
	for _, forged := range []string{"0b6b6d0e-0e0f-4e0a-8d2c-0123456789ab", "0b6b6d0e-0e0f-4e0a-8d2c-0123456789ab." + strings.Repeat("0", 32), "../../2"} {
		s := &v1alpha1.RunnerScaleSet{}
		must(t, b.Client.Get(t.Context(), thief, s))
		s.Status.ID, s.Status.SessionID = had.ID, forged
		must(t, b.Client.Status().Update(t.Context(), s))
		b.until(thief, v1alpha1.OwnedElsewhereReason)
		if b.Sessions.Holds(thief, types.NamespacedName{Namespace: "platform", Name: "acme"}, "pool-thief", had.ID) {
			t.Errorf("by %q the thief holds the scale set", forged)
		}
		b.Sessions.Stop(t.Context(), thief)
		b.Sessions.forget(thief) // as in a restart
	}
	if n := b.github.Report().Requests[githubsim.EndpointRefreshSession]; n != 0 {
		t.Errorf("%d attempts to resume", n)
	}
}

// The session of a deleted pool is waited for, as after a restore. Meanwhile any pool could claim it.
func TestTheSessionOfAPoolThatIsGoneIsNobodys(t *testing.T) {
	b := sharing(t, githubsim.Options{SessionOwners: true})
	heir := b.tenant("heir", 0)
	b.until(heir, v1alpha1.SucceededReason)
	on, id := types.NamespacedName{Namespace: "platform", Name: "acme"}, b.remote()[0].ID
	for owner, holds := range map[string]bool{"here/gone": false, "here/pool-heir": true} {
		b.Sessions.Stop(t.Context(), heir)
		b.github.StealSession(id, owner)
		b.until(heir, v1alpha1.SessionRefusedReason)
		if got := b.Sessions.Holds(heir, on, "pool-heir", int64(id)); got != holds {
			t.Errorf("it holds the scale set while %s has the session: %t", owner, got)
		}
	}
}

// clientsByKey returns clients by the key of a connection.
type clientsByKey map[string]*scaleset.Client

func (c clientsByKey) Get(key string) (*scaleset.Client, bool) {
	client, ok := c[key]
	return client, ok
}

// A tenant's connection has the URL of another tenant's organization, and a proxy that leads to the tenant's own server.
// That server returns the same IDs and sessions as GitHub. After a restart, the other tenant keeps its scale set.
func TestAServerOfATenantsOwnProvesNothing(t *testing.T) {
	b := sharing(t)
	b.Sessions.lease = leads{former: b.clock.Now(), key: "the leaders'"}
	must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thief", Name: "own"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("acme"), Proxy: &v1alpha1.ConnectionProxy{HTTP: &v1alpha1.ProxyServer{URL: "http://thief.example.com"}}},
	}))
	hostile, err := githubsim.Start(githubsim.Options{})
	must(t, err)
	t.Cleanup(hostile.Close)
	hostile.AddToken("nothing")
	hostile.AddOrg("acme")
	to, err := url.Parse(hostile.ConfigURL("acme"))
	must(t, err)
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	proxy := promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host, r.Host = to.Host, r.URL.Host // its answers contain the requested host
		return network.RoundTrip(r)
	})
	own, err := scaleset.NewClient(github.Credentials{ConfigURL: b.github.ConfigURL("acme"), Token: "nothing"}, github.Options{Transport: proxy})
	must(t, err)
	good, _ := b.Clients.Get("")
	b.Clients = clientsByKey{"platform/acme": good, "thief/own": own}
	thief := b.tenantOn(v1alpha1.ConnectionReference{Name: "own"}, "thief", time.Hour)
	b.until(thief, v1alpha1.SucceededReason)
	victim := b.tenant("victim", 0)
	b.until(victim, v1alpha1.SucceededReason)
	b.Sessions.Stop(t.Context(), victim)
	b.Sessions.Stop(t.Context(), thief)
	b.clock.Step(verifyInterval)
	_, err = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: victim})
	must(t, err)
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), victim, set))
	if why := conditions.GetReason(set, v1alpha1.ReadyCondition); why != v1alpha1.SucceededReason {
		t.Errorf("the victim's scale set: %s", why)
	}
}

// Anyone with edit rights in a namespace can create a record that names the connection of another one.
func TestARecordWithoutConsentDoesNotBlockAScaleSet(t *testing.T) {
	b := newBenchOn(t, githubsim.Options{})
	must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("acme"), AllowedNamespaces: []string{"allowed"}},
	}))
	b.Access = &connections.Access{Connections: b.Client, Now: b.clock.Now}
	_, err := b.Clients.(*registry).client.Create(t.Context(), scaleset.Set{Name: "shared", GroupID: github.DefaultRunnerGroupID, Labels: []string{"linux"}})
	must(t, err)
	acme := v1alpha1.ConnectionReference{Name: "acme", Namespace: "platform"}
	b.tenantOn(acme, "stranger", time.Hour)
	b.until(b.tenantOn(acme, "allowed", 0), v1alpha1.SucceededReason)
}

func TestADeletedRecordIsForgotten(t *testing.T) {
	b := newBenchOn(t, githubsim.Options{})
	key := types.NamespacedName{Namespace: "ci", Name: "gone"}
	b.verified.Store(key, verification{})
	_, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	must(t, err)
	if _, known := b.verified.Load(key); known {
		t.Error("it is remembered")
	}
}
