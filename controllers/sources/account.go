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

// Kinds that are written for pools whose jobs run as pods: rights in the namespace, which a source gives only as a service account, that
// has them. The controller has none to give.
const (
	accountKind = "ServiceAccount"
	roleKind    = "Role"
	bindingKind = "RoleBinding"
)

// needing is who may still need an object of a kind that left a source.
func needing(kind string) string {
	if kind == connectionKind {
		return "its scale sets and runners"
	}
	return "the runners whose hooks need it"
}

// poolNeeding is the pool that may not be applied without an object: one whose hooks it gives rights.
func poolNeeding(o compile.Object) []string {
	if !idOf(o).givesRights() {
		return nil
	}
	return []string{o.Manifest.GetLabels()[v1alpha1.PoolLabel]}
}

// areRightsNeeded reports whether hooks of a runner act with the rights that an object gives: they bear the name of the account.
func (p *pass) areRightsNeeded(ctx context.Context, i id) (bool, error) {
	runners := &v1alpha1.RunnerList{}
	if err := p.Client.List(ctx, runners, client.InNamespace(p.source.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking who needs %s: %w", i, err)
	}
	return slices.ContainsFunc(runners.Items, func(r v1alpha1.Runner) bool { return r.Spec.HooksAccount == i.name && !r.IsReleased() }), nil
}

// rememberRights keeps, of a source whose objects go with it, what gives rights and as whom it was applied. The controller may neither
// list such objects nor delete them, so that a restart between the source's end and that of its runners leaves them behind.
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

// clearRights deletes what gave rights for a source that is gone, where its deletionPolicy was Delete, once no runner needs it. What its
// account may not delete is told, and forgotten: its own rights may have gone with the source.
func (r *Reconciler) clearRights(ctx context.Context, gone client.ObjectKey) (result ctrl.Result, err error) {
	known, ok := r.withRights.Load(gone)
	if !ok {
		return result, nil
	}
	p := &pass{Reconciler: r, source: known.(*v1alpha1.PoolSource)}
	if p.actor, err = r.identify(p.source); err != nil {
		return result, err
	}
	left := readInventory(p.source)
	var deleted []id
	defer func() { p.tellCleared(deleted) }()
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
	p.source.Status.Inventory = inventory(gone.Namespace, left)
	r.rememberRights(p.source)
	return result, nil
}

// leftEvent is the reason of an event about objects that a source can't delete any more.
const leftEvent = "RightsLeft"

var rightsGroups = map[string]schema.GroupVersion{
	accountKind: corev1.SchemeGroupVersion, roleKind: rbacv1.SchemeGroupVersion, bindingKind: rbacv1.SchemeGroupVersion,
}

// givesRights reports whether an object is of these kinds.
func (i id) givesRights() bool { return rightsGroups[i.kind].Version != "" }

// groupVersion is that of a kind that a source may apply.
func groupVersion(kind string) schema.GroupVersion {
	if known, ok := rightsGroups[kind]; ok {
		return known
	}
	return v1alpha1.GroupVersion
}

// reader is who looks at an object: the controller may not see what gives rights.
func (p *pass) reader(kind string) client.Reader {
	if (id{kind: kind}).givesRights() {
		return p.actor
	}
	return p.Live
}

// lookAtRights adds what stands of some objects that give rights. Without an account nobody may look.
func (p *pass) lookAtRights(ctx context.Context, now *existing, ids sets.Set[id]) error {
	now.byAccount = p.actor.account.Name != ""
	if !now.byAccount {
		return nil
	}
	for i := range ids {
		if !i.givesRights() {
			continue
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

// declaredIDs are what a revision declares, and what the source applied before.
func (p *pass) declaredIDs(b built) sets.Set[id] {
	ids := readInventory(p.source)
	for _, o := range b.result.Objects {
		ids.Insert(idOf(o))
	}
	return ids
}

// tellRightsLeft says what stays of a source that has an account no more: nobody who works for it may delete it.
func (p *pass) tellRightsLeft(rev revision) {
	if p.actor.account.Name != "" {
		return
	}
	for i := range readInventory(p.source) {
		if i.givesRights() {
			p.event(rev, leftEvent, fmt.Sprintf("%s stays as it is: it was applied as a ServiceAccount, and spec.serviceAccountName names none now; delete it if nothing needs it", i))
		}
	}
}
