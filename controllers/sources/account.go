// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// Kinds of the objects that the compiler adds for pools whose jobs run in pods. They grant rights in the namespace, so
// Corral applies them only as a service account that has these rights. The controller itself does not have them.
const (
	accountKind = "ServiceAccount"
	roleKind    = "Role"
	bindingKind = "RoleBinding"
)

// needing describes the objects that may still need an object of a kind after the source has removed it.
func needing(kind string) string {
	if kind == connectionKind {
		return "its scale sets and runners"
	}
	return "the runners whose hooks need it"
}

// poolNeeding returns the pool that must not be applied without an object, because the object grants rights to the pool's
// hooks; nil if there is none.
func poolNeeding(o compile.Object) []string {
	if !idOf(o).givesRights() {
		return nil
	}
	return []string{o.Manifest.GetLabels()[v1alpha1.PoolLabel]}
}

// areRightsNeeded reports whether the hooks of a runner use the rights that an object grants. Such objects have the name of
// the ServiceAccount.
func (p *pass) areRightsNeeded(ctx context.Context, i id) (bool, error) {
	runners := &v1alpha1.RunnerList{}
	if err := p.Client.List(ctx, runners, client.InNamespace(p.source.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("checking whether %s is still needed: %w", i, err)
	}
	return slices.ContainsFunc(runners.Items, func(r v1alpha1.Runner) bool { return r.Spec.HooksAccount == i.name && !r.IsReleased() }), nil
}

// rememberRights remembers the rights-granting objects of a source with deletionPolicy Delete, and the account that applied
// them, so that clearRights can delete them after the source. The controller may neither list nor delete such objects
// itself. Therefore they stay if the controller restarts after the source was deleted and before clearRights has deleted
// them.
func (r *Reconciler) rememberRights(source *v1alpha1.PoolSource) {
	key := client.ObjectKeyFromObject(source)
	rights := sets.New[id]()
	for i := range readInventory(source) {
		if i.givesRights() {
			rights.Insert(i)
		}
	}
	if len(rights) == 0 || source.Spec.GetDeletionPolicy() != v1alpha1.DeletionDelete {
		r.withRights.Delete(key)
		return
	}
	kept := &v1alpha1.PoolSource{}
	kept.Namespace, kept.Name, kept.UID = source.Namespace, source.Name, source.UID
	kept.Spec.ServiceAccountName, kept.Spec.DeletionPolicy = source.Spec.ServiceAccountName, source.Spec.DeletionPolicy
	kept.Status.Inventory = inventory(source.Namespace, rights)
	r.withRights.Store(key, kept)
}

// clearRights deletes the rights-granting objects of a deleted source, if its deletionPolicy was Delete, once no runner
// needs them. If the account may not delete an object, clearRights reports that in an event and does not retry: the
// account's own rights may have been deleted together with the source.
func (p *pass) clearRights(ctx context.Context) (result ctrl.Result, err error) {
	known, ok := p.withRights.Load(client.ObjectKeyFromObject(p.source))
	if !ok {
		return result, nil
	}
	p.source = known.(*v1alpha1.PoolSource)
	if p.actor, err = p.identify(p.source); err != nil {
		return result, err
	}
	left := readInventory(p.source)
	var deleted []id
	defer func() { p.reportCleared(deleted) }()
	for i := range left.Clone() {
		if needed, err := p.areRightsNeeded(ctx, i); err != nil {
			return result, err
		} else if needed {
			result.RequeueAfter = stillNeeded
			continue
		}
		wasThere, err := p.delete(ctx, "", i, sourceGone)
		if wasThere {
			deleted = append(deleted, i)
		}
		if apierrors.IsForbidden(err) {
			p.event(revision{}, leftEvent, fmt.Sprintf("%s stays: %v; delete it if nothing needs it", i, err))
		} else if err != nil {
			return result, err
		}
		left.Delete(i)
	}
	p.source.Status.Inventory = inventory(p.source.Namespace, left)
	p.rememberRights(p.source)
	return result, nil
}

// leftEvent is the event reason for objects that a source can no longer delete.
const leftEvent = "RightsLeft"

var rightsGroups = map[string]schema.GroupVersion{
	accountKind: corev1.SchemeGroupVersion, roleKind: rbacv1.SchemeGroupVersion, bindingKind: rbacv1.SchemeGroupVersion,
}

// givesRights reports whether an object grants rights.
func (i id) givesRights() bool { return rightsGroups[i.kind].Version != "" }

// groupVersion returns the group and version of a kind that a source may apply.
func groupVersion(kind string) schema.GroupVersion {
	if known, ok := rightsGroups[kind]; ok {
		return known
	}
	return v1alpha1.GroupVersion
}

// reader returns the client that reads objects of a kind. The controller itself may not read objects that grant rights.
func (p *pass) reader(kind string) client.Reader {
	if (id{kind: kind}).givesRights() {
		return p.actor
	}
	return p.Live
}

// lookAtRights adds the existing rights-granting objects among ids to now. Without a service account, they cannot be read.
func (p *pass) lookAtRights(ctx context.Context, now *existing, ids sets.Set[id]) error {
	now.byAccount = p.actor.account.Name != ""
	if !now.byAccount {
		return nil
	}
	for i := range ids {
		if !i.givesRights() {
			continue
		}
		if err := p.request(); err != nil {
			return err
		}
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(groupVersion(i.kind).WithKind(i.kind))
		err := p.actor.Get(ctx, client.ObjectKey{Namespace: p.source.Namespace, Name: i.name}, object)
		if client.IgnoreNotFound(err) != nil {
			return p.refusal(fmt.Errorf("looking at %s: %w", i, err))
		}
		if err == nil {
			now.live[i] = object
		}
	}
	return nil
}

// declaredIDs returns the objects that a revision declares, and the objects in the source's inventory.
func (p *pass) declaredIDs(b built) sets.Set[id] {
	ids := readInventory(p.source)
	for _, o := range b.result.Objects {
		ids.Insert(idOf(o))
	}
	return ids
}

// intend adds the rights-granting objects that a plan applies to the inventory, before they are applied. Corral finds such
// an object only in the inventory once the source no longer declares it. If the status were written only after the objects,
// a failed write would leave them in the cluster for good. It returns the IDs that holds and the inventory then have, because
// the API server may store an object although its application fails. The next pass drops objects that do not exist.
func (p *pass) intend(ctx context.Context, plan plan, holds sets.Set[id]) (sets.Set[id], error) {
	known, next := readInventory(p.source), holds.Clone()
	for _, o := range plan.apply {
		if i := idOf(o); i.givesRights() {
			next.Insert(i)
		}
	}
	isNew := func(i id) bool { return i.givesRights() && !known.Has(i) }
	if !slices.ContainsFunc(next.UnsortedList(), isNew) {
		return next, nil
	}
	p.source.Status.Inventory = inventory(p.source.Namespace, next)
	return next, p.attempt.Save(ctx)
}

// unreadable returns the rights-granting objects in the inventory of a source that no longer has a service account: Corral
// can neither read nor delete them. They stay in the inventory until reportRightsLeft has reported them, so that Corral finds
// them if the source gets an account again before that.
func (p *pass) unreadable() sets.Set[id] {
	unreadable := sets.New[id]()
	if p.actor.account.Name != "" {
		return unreadable
	}
	for i := range readInventory(p.source) {
		if i.givesRights() {
			unreadable.Insert(i)
		}
	}
	return unreadable
}

// reportRightsLeft reports the rights-granting objects of a source that no longer has a service account, because Corral can
// no longer delete them.
func (p *pass) reportRightsLeft(rev revision) {
	for i := range p.unreadable() {
		p.event(rev, leftEvent, fmt.Sprintf("%s stays as it is: it was applied as a ServiceAccount, and spec.serviceAccountName names none now; delete it if nothing needs it", i))
	}
}
