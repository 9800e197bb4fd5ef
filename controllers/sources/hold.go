// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// claim waits for its turn to decide who holds what in a namespace, and returns how to end it.
func (r *Reconciler) claim(namespace string) func() {
	turn, _ := r.claims.LoadOrStore(namespace, &sync.Mutex{})
	turn.(*sync.Mutex).Lock()
	return turn.(*sync.Mutex).Unlock
}

// look reads what stands in the source's namespace: the metadata alone, and not from a cache,
// which might not know yet what another source has just taken.
func (x *run) look(ctx context.Context) (scene, error) {
	now := scene{live: map[id]*metav1.PartialObjectMetadata{}, sources: sets.New[string]()}
	for _, kind := range kinds {
		objects, err := x.list(ctx, kind)
		if err != nil {
			return scene{}, err
		}
		for i := range objects {
			now.live[id{kind, objects[i].Name}] = &objects[i]
		}
	}
	sources, err := x.list(ctx, "PoolSource")
	if err != nil {
		return scene{}, err
	}
	for _, source := range sources {
		now.sources.Insert(source.Name)
	}
	return now, nil
}

func (x *run) list(ctx context.Context, kind string) ([]metav1.PartialObjectMetadata, error) {
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := x.Live.List(ctx, objects, client.InNamespace(x.source.Namespace)); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind, err)
	}
	for i := range objects.Items {
		objects.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	}
	return objects.Items, nil
}

// bind makes what the source holds follow spec.deletionPolicy. It comes first because
// it must hold for a suspended source and for a broken revision too.
func (x *run) bind(ctx context.Context) error {
	now, err := x.look(ctx)
	if err != nil {
		return err
	}
	held := now.heldBy(x.source.Name)
	x.holds = setOf(held)
	for _, i := range held {
		if err := x.bindOne(ctx, now.live[i]); err != nil {
			return x.refusal(err)
		}
	}
	return nil
}

// bindOne adds or removes the owner reference, or a connection's annotation, if that is needed. Others write
// to the object too, so it may take a second look.
func (x *run) bindOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := x.tryBind(ctx, object)
		if !apierrors.IsConflict(err) {
			return err
		}
		if unread := x.Live.Get(ctx, client.ObjectKeyFromObject(object), object); unread != nil {
			return unread
		}
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the owner of %s %s: %w", object.Kind, object.Name, err)
	}
	return nil
}

func (x *run) tryBind(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	isDeleted := x.source.Spec.GetDeletionPolicy() == v1alpha1.DeletionDelete
	after := object.DeepCopy()
	if object.Kind == connectionKind {
		// Garbage collection would take it from runners that have yet to be deregistered: clear deletes it.
		x.own(after, false)
		markForDeletion(after, isDeleted)
	} else {
		x.own(after, isDeleted)
	}
	if equality.Semantic.DeepEqual(object, after) {
		return nil
	}
	return x.actor.Patch(ctx, after, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}), fieldOwner)
}

// own adds or removes the source's owner reference.
func (x *run) own(object *metav1.PartialObjectMetadata, want bool) {
	isOurs := func(o metav1.OwnerReference) bool { return o.UID == x.source.UID }
	if slices.ContainsFunc(object.OwnerReferences, isOurs) == want {
		return
	}
	object.OwnerReferences = slices.DeleteFunc(object.OwnerReferences, isOurs)
	if want {
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "PoolSource", Name: x.source.Name, UID: x.source.UID,
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

// isMarked says whether a connection goes with the source that holds it.
func isMarked(object client.Object) bool {
	return object.GetLabels()[v1alpha1.SourceLabel] != "" && object.GetAnnotations()[v1alpha1.DeletionPolicyAnnotation] == string(v1alpha1.DeletionDelete)
}

// clear deletes the connections of a source that is gone, where its deletionPolicy was Delete, once nothing needs them.
// What else it held goes by its owner references.
func (r *Reconciler) clear(ctx context.Context, gone client.ObjectKey) (ctrl.Result, error) {
	defer r.claim(gone.Namespace)()
	x := &run{Reconciler: r, actor: r.Client, source: &v1alpha1.PoolSource{}}
	x.source.Namespace, x.source.Name = gone.Namespace, gone.Name
	connections, err := x.list(ctx, connectionKind)
	if err != nil {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{}
	for i := range connections {
		if c := &connections[i]; c.Labels[v1alpha1.SourceLabel] != gone.Name || !isMarked(c) {
			continue
		}
		one := id{connectionKind, connections[i].Name}
		needed, err := x.isNeeded(ctx, one)
		if needed {
			result.RequeueAfter = stillNeeded
		} else if err == nil {
			err = x.delete(ctx, one)
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return result, nil
}

// entryOf writes an id as Flux does.
func (x *run) entryOf(i id) v1alpha1.InventoryEntry {
	return v1alpha1.InventoryEntry{
		ID:      strings.Join([]string{x.source.Namespace, i.name, v1alpha1.GroupVersion.Group, i.kind}, "_"),
		Version: v1alpha1.GroupVersion.Version,
	}
}

// writeInventory tells what the source holds. It is told, not asked: labels say who holds an object,
// and so nothing is lost with the status.
func (x *run) writeInventory() {
	if x.holds == nil {
		return // it could not be seen
	}
	inventory := &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{}}
	for _, i := range slices.SortedFunc(maps.Keys(x.holds), compareIDs) {
		inventory.Entries = append(inventory.Entries, x.entryOf(i))
	}
	slices.SortFunc(inventory.Entries, func(a, b v1alpha1.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	x.source.Status.Inventory = inventory
}

// inventoryOf reads the inventory. Neither a name nor a kind holds an underscore.
func inventoryOf(source *v1alpha1.PoolSource) map[id]bool {
	ids := map[id]bool{}
	if source.Status.Inventory == nil {
		return ids
	}
	for _, entry := range source.Status.Inventory.Entries {
		if parts := strings.Split(entry.ID, "_"); len(parts) == 4 {
			ids[id{kind: parts[3], name: parts[1]}] = true
		}
	}
	return ids
}
