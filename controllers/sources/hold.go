// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// claim waits until no other source of the namespace applies or prunes, and returns the function that ends the claim.
// Because the waiting pass occupies a worker, claim returns errBusy after claimWait. The source then waits in line for a
// turn as a long pass, so that it is reconciled when another long pass ends.
func (p *pass) claim() (release func(), err error) {
	known, _ := p.claims.LoadOrStore(p.source.Namespace, make(chan struct{}, 1))
	turn := known.(chan struct{})
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-time.After(claimWait):
		if p.long == nil {
			p.long, _ = p.hosts.enter(client.ObjectKeyFromObject(p.source), longPasses)
		}
		return nil, errBusy
	}
}

// look reads the objects in the source's namespace. It reads only metadata. It does not use a cache, because a cache may not
// show yet that another source has just taken over an object. It reads rights-granting objects only if they are in ids.
func (p *pass) look(ctx context.Context, ids sets.Set[id]) (existing, error) {
	now := existing{live: map[id]*metav1.PartialObjectMetadata{}, sources: sets.New[string]()}
	if err := p.lookAtRights(ctx, &now, ids); err != nil {
		return existing{}, err
	}
	for _, kind := range kinds {
		if (id{kind: kind}).givesRights() {
			continue
		}
		objects, err := p.list(ctx, kind)
		if err != nil {
			return existing{}, err
		}
		for i := range objects {
			now.live[id{kind, objects[i].Name}] = &objects[i]
		}
	}
	sources, err := p.list(ctx, "PoolSource")
	if err != nil {
		return existing{}, err
	}
	for _, source := range sources {
		now.sources.Insert(source.Name)
	}
	return now, nil
}

func (p *pass) list(ctx context.Context, kind string) ([]metav1.PartialObjectMetadata, error) {
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := p.Live.List(ctx, objects, client.InNamespace(p.source.Namespace)); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind, err)
	}
	for i := range objects.Items {
		objects.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	}
	return objects.Items, nil
}

// bind makes the objects that the source holds follow spec.deletionPolicy, and returns them if they can be read. A pass
// calls it before all other steps on objects, because it also applies to a suspended source and to a broken revision.
func (p *pass) bind(ctx context.Context) (sets.Set[id], error) {
	now, err := p.look(ctx, readInventory(p.source))
	if err != nil {
		return nil, err
	}
	held := now.heldBy(p.source.Name)
	holds := sets.New(held...).Union(p.unreadable())
	for _, i := range held {
		if err := p.bindOne(ctx, now.live[i]); err != nil {
			return holds, p.refusal(err)
		}
	}
	return holds, nil
}

// bindOne adds or removes the owner reference, or a connection's annotation, if needed. Other writers may change the object
// at the same time, so it retries on conflicts.
func (p *pass) bindOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := p.tryBind(ctx, object)
		if !apierrors.IsConflict(err) {
			return err
		}
		if unread := p.reader(object.Kind).Get(ctx, client.ObjectKeyFromObject(object), object); unread != nil {
			return unread
		}
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the owner of %s %s: %w", object.Kind, object.Name, err)
	}
	return nil
}

func (p *pass) tryBind(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	isDeleted := p.source.Spec.GetDeletionPolicy() == v1alpha1.DeletionDelete
	after := object.DeepCopy()
	switch {
	case object.Kind == connectionKind:
		// The garbage collector would delete the connection before its runners are deregistered, so clear deletes it
		// instead.
		p.own(after, false)
		markForDeletion(after, isDeleted)
	case (id{kind: object.Kind}).givesRights():
		p.own(after, false) // garbage collection would take rights from running jobs; clearRights deletes it instead
	default:
		p.own(after, isDeleted)
	}
	if equality.Semantic.DeepEqual(object, after) {
		return nil
	}
	if err := p.request(); err != nil {
		return err
	}
	return p.actor.Patch(ctx, after, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}), fieldOwner)
}

// own adds or removes the source's owner reference.
func (p *pass) own(object *metav1.PartialObjectMetadata, want bool) {
	isOurs := func(o metav1.OwnerReference) bool { return o.UID == p.source.UID }
	if slices.ContainsFunc(object.OwnerReferences, isOurs) == want {
		return
	}
	object.OwnerReferences = slices.DeleteFunc(object.OwnerReferences, isOurs)
	if want {
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "PoolSource", Name: p.source.Name, UID: p.source.UID,
		})
	}
}

func markForDeletion(object *metav1.PartialObjectMetadata, want bool) {
	if want {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.DeletionPolicyAnnotation, string(v1alpha1.DeletionDelete))
	} else {
		delete(object.Annotations, v1alpha1.DeletionPolicyAnnotation)
	}
}

// isMarked reports whether a connection must be deleted after the source that holds it.
func isMarked(object client.Object) bool {
	return object.GetLabels()[v1alpha1.SourceLabel] != "" && object.GetAnnotations()[v1alpha1.DeletionPolicyAnnotation] == string(v1alpha1.DeletionDelete)
}

// clear deletes the connections and the rights-granting objects of a deleted source, if its deletionPolicy was Delete, once
// no runner and no scale set needs them. The garbage collector deletes the source's other objects.
func (r *Reconciler) clear(ctx context.Context, gone client.ObjectKey) (ctrl.Result, error) {
	p := &pass{Reconciler: r, actor: actor{Client: r.Client}, source: &v1alpha1.PoolSource{}}
	p.source.Namespace, p.source.Name = gone.Namespace, gone.Name
	defer p.leaveLong()
	if err := p.resume(); err != nil {
		return ctrl.Result{}, err
	}
	release, err := p.claim()
	if err != nil {
		return ctrl.Result{}, err
	}
	defer release()
	isWaiting, err := p.clearConnections(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	result, err := p.clearRights(ctx)
	if isWaiting {
		result.RequeueAfter = stillNeeded
	}
	return result, err
}

// clearConnections deletes the connections of a deleted source. It reports whether some must wait because runners or scale
// sets need them.
func (p *pass) clearConnections(ctx context.Context) (isWaiting bool, err error) {
	connections, err := p.list(ctx, connectionKind)
	if err != nil {
		return false, err
	}
	var deleted []id
	defer func() { p.reportCleared(deleted) }()
	for i := range connections {
		if c := &connections[i]; c.Labels[v1alpha1.SourceLabel] != p.source.Name || !isMarked(c) {
			continue
		}
		one := id{connectionKind, connections[i].Name}
		needed, err := p.isNeeded(ctx, one)
		if err != nil {
			return false, err
		}
		if needed {
			isWaiting = true
			continue
		}
		wasThere, err := p.delete(ctx, "", one, sourceGone)
		if wasThere {
			deleted = append(deleted, one)
		}
		if err != nil {
			return false, err
		}
	}
	return isWaiting, nil
}

// inventory formats IDs in the same way as Flux. Labels on the objects record which source holds them, so Corral finds them
// even if the status is lost. The only exceptions are rights-granting objects that the source no longer declares: Corral
// finds them only in the inventory, so intend adds them before they are applied.
func inventory(namespace string, holds sets.Set[id]) *v1alpha1.Inventory {
	inventory := &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{}}
	for i := range holds {
		inventory.Entries = append(inventory.Entries, v1alpha1.InventoryEntry{
			ID:      strings.Join([]string{namespace, i.name, groupVersion(i.kind).Group, i.kind}, "_"),
			Version: groupVersion(i.kind).Version,
		})
	}
	slices.SortFunc(inventory.Entries, func(a, b v1alpha1.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	return inventory
}

// readInventory parses the inventory. Neither names nor kinds contain an underscore.
func readInventory(source *v1alpha1.PoolSource) sets.Set[id] {
	ids := sets.New[id]()
	if source.Status.Inventory == nil {
		return ids
	}
	for _, entry := range source.Status.Inventory.Entries {
		if parts := strings.Split(entry.ID, "_"); len(parts) == 4 {
			ids.Insert(id{kind: parts[3], name: parts[1]})
		}
	}
	return ids
}
