// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// A source that no longer names a service account cannot delete what it applied as one, and reports that.
func TestWhatGaveRightsIsToldWhereNobodyMayDeleteIt(t *testing.T) {
	role, pool := id{roleKind, "a-hooks"}, id{poolKind, "a"}
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "us"}}
	source.Status.Inventory = inventory("ci", sets.New(role, pool, id{accountKind, "a-hooks"}))
	for name, tc := range map[string]struct {
		account string
		events  int
	}{"as the controller": {"", 2}, "as an account": {"deployer", 0}} {
		recorder := events.NewFakeRecorder(10)
		p := &pass{
			Reconciler: &Reconciler{Reporter: kube.Reporter{Events: recorder}}, source: source,
			actor: actor{account: types.NamespacedName{Namespace: "ci", Name: tc.account}},
		}
		p.reportRightsLeft(revision{})
		if len(recorder.Events) != tc.events {
			t.Errorf("%s: %d events", name, len(recorder.Events))
		}
		for len(recorder.Events) > 0 {
			if told := <-recorder.Events; !strings.Contains(told, "RightsLeft") || !strings.Contains(told, "a-hooks stays as it is") {
				t.Errorf("%s: told is %s", name, told)
			}
		}
	}
}

func TestInventoryHasTheGroupsOfItsKinds(t *testing.T) {
	ids := sets.New(id{roleKind, "a-hooks"}, id{accountKind, "a-hooks"}, id{poolKind, "a"})
	source := &v1alpha1.PoolSource{}
	source.Status.Inventory = inventory("ci", ids)
	var got []string
	for _, entry := range source.Status.Inventory.Entries {
		got = append(got, entry.ID+" "+entry.Version)
	}
	want := []string{"ci_a-hooks__ServiceAccount v1", "ci_a-hooks_rbac.authorization.k8s.io_Role v1", "ci_a_corral.dev_RunnerPool v1alpha1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if read := readInventory(source); !read.Equal(ids) {
		t.Errorf("read back is %v", read)
	}
}

// asDeployer returns a world whose source acts as an account with all rights, and has applied the pools a and b. Pool a
// has hooks.
func asDeployer(t *testing.T, policy v1alpha1.DeletionPolicy, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, append(objects, us(func(s *v1alpha1.PoolSource) {
		s.Spec.ServiceAccountName, s.Spec.DeletionPolicy = "deployer", policy
	}))...)
	w.reconciler.Impersonate = func(account types.NamespacedName) (client.Client, error) {
		if account.Name != "deployer" {
			t.Errorf("acts as %s", account)
		}
		return w.client, nil
	}
	w.push("main@sha1:1", pool("a"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.reconcile()
	w.expectReady("True Succeeded")
	return w
}

// withHooks returns a runner whose hooks act as an account.
func withHooks(account string) *v1alpha1.Runner {
	r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a-1"}}
	r.Spec.HooksAccount = account
	return r
}

// rights lists the kinds of existing objects that grant rights to a's hooks, and marks those that the source owns.
func (w *world) rights() []string {
	w.t.Helper()
	var got []string
	for _, kind := range []string{accountKind, roleKind, bindingKind} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(groupVersion(kind).WithKind(kind))
		err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "ci", Name: "a-hooks"}, object)
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		if len(object.OwnerReferences) > 0 {
			kind += " owned"
		}
		if err == nil {
			got = append(got, kind)
		}
	}
	return got
}

func (w *world) expectRights(when string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.rights()); diff != "" {
		w.t.Errorf("%s: %s", when, diff)
	}
}

func TestRightsStayUntilTheRunnersThatNeedThemAreGone(t *testing.T) {
	elsewhere, others := withHooks("a-hooks"), withHooks("b-hooks")
	elsewhere.Namespace, others.Name = "other", "b-1"
	runner := withHooks("a-hooks")
	w := asDeployer(t, v1alpha1.DeletionOrphan, runner, elsewhere, others)
	w.push("main@sha1:2", pool("b"))
	if got := w.reconcile(); got.RequeueAfter != stillNeeded {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	w.expectReady("True Succeeded", "RoleBinding a-hooks was removed from the source and is kept until", "ServiceAccount a-hooks was removed")
	w.expectObjects(map[string]string{"RunnerPool b": "us"})
	w.expectRights("with a runner", accountKind, roleKind, bindingKind)
	if err := w.client.Delete(t.Context(), runner); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.expectRights("without")
	if n := len(w.source().Status.Inventory.Entries); n != 1 {
		t.Errorf("the inventory has %d entries", n)
	}
}

// The status may be lost between two revisions. Only the first of them grants rights.
func TestRightsAreFoundAfterAFailedStatusWrite(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.push("main@sha1:2", pool("b"))
	w.reconcile()
	w.expectRights("removed")
	w.push("main@sha1:3", pool("a"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.applying = func(string) { w.statusErr = errors.New("the API server is restarting") }
	if _, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(us())}); !errors.Is(err, w.statusErr) {
		t.Fatalf("the status was written: %v", err)
	}
	w.expectRights("applied", accountKind, roleKind, bindingKind)
	w.applying, w.statusErr = nil, nil
	w.push("main@sha1:4", pool("b"))
	w.reconcile()
	w.expectRights("not declared any more")
}

// An answer of the API server may be lost although it stored the object.
func TestRightsAreFoundAfterALostAnswer(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.push("main@sha1:2", pool("b"))
	w.reconcile()
	w.push("main@sha1:3", pool("a"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.answerErr["a-hooks"] = apierrors.NewTimeoutError("the connection was lost", 1)
	w.reconcile()
	w.expectReady("False ApplyFailed Reconciling")
	w.expectRights("applied", accountKind, roleKind, bindingKind)
	w.answerErr = nil
	w.push("main@sha1:4", pool("b"))
	w.reconcile()
	w.expectRights("not declared any more")
}

func TestRightsAreAppliedOnlyIfTheStatusCanBeWritten(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.push("main@sha1:2", pool("b"))
	w.reconcile()
	w.push("main@sha1:3", pool("a"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.before = func() { w.statusErr = errors.New("the API server is restarting") }
	if _, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(us())}); !errors.Is(err, w.statusErr) {
		t.Fatalf("the status was written: %v", err)
	}
	w.expectRights("the status could not be written")
}

// A source that has no account for a while cannot read such objects, and must not forget them before it reports them.
func TestRightsAreKeptInTheInventoryWithoutAnAccount(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.newEvents()
	w.change(func(s *v1alpha1.PoolSource) { s.Spec.ServiceAccountName = "" })
	w.pushBroken("main@sha1:2", 1)
	w.reconcile()
	w.change(func(s *v1alpha1.PoolSource) { s.Spec.ServiceAccountName = "deployer" })
	w.push("main@sha1:3", pool("b"))
	w.reconcile()
	w.expectReady("True Succeeded")
	w.expectRights("with the account again")
}

func TestRightsThatStayAreToldAfterABrokenRevision(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.change(func(s *v1alpha1.PoolSource) { s.Spec.ServiceAccountName = "" })
	w.pushBroken("main@sha1:2", 1)
	w.reconcile()
	w.newEvents()
	w.push("main@sha1:3", pool("b"))
	w.reconcile()
	w.reconcile()
	left := slices.DeleteFunc(w.newEvents(), func(e string) bool { return e != "Normal "+leftEvent })
	if len(left) != 3 {
		t.Errorf("%d objects were reported, want each of the 3 once", len(left))
	}
}

func TestRightsOutliveTheirSourceWhileTheyAreNeeded(t *testing.T) {
	for policy, want := range map[v1alpha1.DeletionPolicy][]string{v1alpha1.DeletionDelete: nil, v1alpha1.DeletionOrphan: {accountKind, roleKind, bindingKind}} {
		runner := withHooks("a-hooks")
		w := asDeployer(t, policy, runner)
		w.expectRights("not for garbage collection", accountKind, roleKind, bindingKind)
		if err := w.client.Delete(t.Context(), w.source()); err != nil {
			t.Fatal(err)
		}
		after := w.reconcile().RequeueAfter
		if isWaiting := policy == v1alpha1.DeletionDelete; (after == stillNeeded) != isWaiting {
			t.Errorf("%s: looks again after %s", policy, after)
		}
		w.expectRights("with a runner", accountKind, roleKind, bindingKind)
		if err := w.client.Delete(t.Context(), runner); err != nil {
			t.Fatal(err)
		}
		w.reconcile()
		w.expectRights(string(policy), want...)
	}
}

// An account that may delete rights-granting objects may have lost that right with the source.
func TestWhatStaysOfASourceThatIsGoneIsTold(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionDelete)
	w.newEvents()
	if err := w.client.Delete(t.Context(), w.source()); err != nil {
		t.Fatal(err)
	}
	w.deleteErr = apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "a-hooks", errors.New("User x cannot delete resource"))
	for range 2 {
		if after := w.reconcile().RequeueAfter; after != 0 {
			t.Errorf("looks again after %s", after)
		}
	}
	if diff := cmp.Diff([]string{"Normal RightsLeft", "Normal RightsLeft", "Normal RightsLeft"}, w.newEvents()); diff != "" {
		t.Error(diff)
	}
}

func TestNoPoolIsAppliedWithoutTheRightsOfItsHooks(t *testing.T) {
	w := asDeployer(t, v1alpha1.DeletionOrphan)
	w.applyErr["a-hooks"] = apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "a-hooks", errors.New("attempting to grant RBAC permissions"))
	var asked []string
	w.applying = func(name string) { asked = append(asked, name) }
	w.push("main@sha1:2", pool("a"), pool("c"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.reconcile()
	w.expectReady("False AccessDenied Reconciling", "Role a-hooks", "RunnerPool a: not applied", "pruned nothing")
	if diff := cmp.Diff([]string{"a-hooks", "a-hooks", "a-hooks", "b", "c"}, asked); diff != "" {
		t.Error(diff)
	}
	delete(w.applyErr, "a-hooks")
	w.reconcile()
	w.expectReady("True Succeeded")
}

func TestNoPoolIsAppliedWhereTheControllerMayNotGiveItsHooksRights(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"), pool("b"), giving(accountKind), giving(roleKind), giving(bindingKind))
	w.reconcile()
	w.expectReady("False ApplyFailed Stalled", "ServiceAccount a-hooks", "spec.serviceAccountName", "RunnerPool a: not applied")
	w.expectObjects(map[string]string{"RunnerPool b": "us"})
}
