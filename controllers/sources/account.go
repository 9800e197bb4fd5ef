// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Kinds that are written for pools whose jobs run as pods: rights in the namespace, which a source gives only as a service account, that
// has them. The controller has none to give.
const (
	accountKind = "ServiceAccount"
	roleKind    = "Role"
	bindingKind = "RoleBinding"
)

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
