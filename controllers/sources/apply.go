// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// Event reasons about objects.
const (
	adoptedEvent = "Adopted"
	prunedEvent  = "Pruned"
)

// policyWait is the delay before policies that are being loaded are checked again.
const policyWait = 200 * time.Millisecond

// stillNeeded is the delay before an object that is still needed is checked again.
const stillNeeded = 30 * time.Second

// apply applies the objects of a plan in this order: connections, policies, rights-granting objects and, once policies are
// in force, pools. It returns the applied objects. If an object cannot be applied, apply skips only the pools that need it,
// and returns an error, so that nothing is pruned.
func (p *pass) apply(ctx context.Context, rev revision, plan plan) (applied []id, err error) {
	failed, unruled, withheld := failures{texts: slices.Clone(plan.refused), held: plan.contested}, plan.unruled, plan.withheld.Clone()
	for n, o := range plan.apply {
		i := idOf(o)
		if i.kind == poolKind && (n == 0 || idOf(plan.apply[n-1]).kind != poolKind) {
			if failed.unruled = unruled; unruled {
				break // apply no pool of the revision without its policies
			}
			if err := p.awaitPolicies(ctx, rev, applied); err != nil {
				return applied, err
			}
		}
		if i.kind == poolKind && withheld.Has(i.name) {
			failed.texts = append(failed.texts, at(o, "not applied, because the permissions of its hooks are missing"))
			continue
		}
		err := p.applyOne(ctx, rev, o, slices.Contains(plan.adopted, i))
		if ctx.Err() != nil || errors.Is(err, errBusy) {
			return applied, cmp.Or(ctx.Err(), err)
		}
		if err != nil {
			failed.add(o, err, p.actor.isRefused(err))
			unruled = unruled || i.kind == policyKind
			withheld.Insert(poolNeeding(o)...)
			continue
		}
		applied = append(applied, i)
	}
	failed.applied = len(applied)
	return applied, p.failed(failed, rev.name)
}

// failures are objects that could not be applied.
type failures struct {
	texts     []string
	denied    error // the first error due to missing rights
	transient bool  // a retry may succeed for some of them
	applied   int   // number of applied objects
	unruled   bool  // pools were skipped because policies failed
	held      bool  // another source holds one of them
}

func (f *failures) add(o compile.Object, err error, isDenied bool) {
	f.texts = append(f.texts, at(o, err.Error()))
	f.transient = f.transient || !isPermanent(err)
	if f.denied == nil && isDenied {
		f.denied = err
	}
}

// failed returns the outcome for the failures; nil if there are none.
func (p *pass) failed(all failures, revision string) error {
	switch {
	case len(all.texts) == 0:
		return nil
	case all.denied != nil:
		return kube.Wait(p.rightsRetry(), catalog.RoleNeeded.With(all.problems()), all.others(revision), p.actor.advice(all.denied))
	case all.transient:
		return kube.Wait(p.retryAfter(), catalog.ObjectsRefused.With(all.problems()), all.others(revision))
	case all.held:
		return kube.Stall(catalog.ObjectHeld.With(all.problems()), all.others(revision))
	}
	return kube.Stall(catalog.ObjectsRefusedForGood.With(all.problems()), all.others(revision))
}

// awaitPolicies waits until the revision's policies are in force, so that its pools never exist without them.
func (p *pass) awaitPolicies(ctx context.Context, rev revision, applied []id) error {
	hasPolicies := false
	for _, i := range applied {
		if i.kind != policyKind {
			continue
		}
		hasPolicies = true
		policy := &v1alpha1.RunnerPolicy{}
		if err := p.request(); err != nil {
			return err
		}
		if err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.source.Namespace, Name: i.name}, policy); err != nil {
			return fmt.Errorf("looking at %s: %w", i, err)
		}
		isLoaded := conditions.IsReady(policy) || conditions.IsStalled(policy)
		if policy.Status.ObservedGeneration != policy.Generation || !isLoaded {
			return kube.Progress(policyWait, catalog.PolicyLoading.With(i, rev.name))
		}
	}
	if !hasPolicies || !conditions.IsUnknown(p.source, v1alpha1.ReadyCondition) {
		return nil
	}
	return p.attempt.Progress(ctx, catalog.Applying.With(rev.name))
}

// applyOne applies an object, and makes it follow spec.deletionPolicy. If nothing changes, the API server writes nothing.
func (p *pass) applyOne(ctx context.Context, rev revision, o compile.Object, isAdopted bool) error {
	object := p.desired(o)
	if err := p.request(); err != nil {
		return err
	}
	if err := kube.ApplyAs(ctx, p.actor, object, fieldOwner); err != nil {
		return err
	}
	if isAdopted {
		p.event(rev, adoptedEvent, fmt.Sprintf("Took over %s, which no source held", idOf(o)))
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(object.GroupVersionKind())
	metadata.Namespace, metadata.Name = object.GetNamespace(), object.GetName()
	metadata.ResourceVersion, metadata.OwnerReferences = object.GetResourceVersion(), object.GetOwnerReferences()
	metadata.Annotations = object.GetAnnotations()
	return p.bindOne(ctx, metadata)
}

// desired returns the object to apply. It omits metadata that the author may not set.
func (p *pass) desired(o compile.Object) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(o.Manifest.GroupVersionKind())
	object.SetNamespace(p.source.Namespace)
	object.SetName(o.Manifest.GetName())
	annotations := o.Manifest.GetAnnotations()
	delete(annotations, v1alpha1.DeletionPolicyAnnotation) // spec.deletionPolicy sets it
	object.SetAnnotations(annotations)
	labels := o.Manifest.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.SourceLabel] = p.source.Name
	object.SetLabels(labels)
	for _, field := range []string{"spec", "rules", "roleRef", "subjects"} {
		if value, ok := o.Manifest.Object[field]; ok {
			object.Object[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	return object
}

// isPermanent reports whether the API server refused an object in a way that a retry is not expected to change. A 403 is not
// permanent, because it depends on the state of the cluster rather than on the object: a quota, the namespace's admission
// policies, or permissions. All of these can change without a push.
func isPermanent(err error) bool {
	return kube.IsRefused(err) && !apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// problems returns a text with the first failures, and the number of the others.
func (all *failures) problems() string {
	shown := slices.Clone(all.texts[:min(len(all.texts), maxMessageDiagnostics)])
	if rest := len(all.texts) - len(shown); rest > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(shown, "\n")
}

// others returns a cause that says what happened to the other objects of the revision.
func (all *failures) others(revision string) catalog.Cause {
	switch {
	case all.applied == 0:
		return catalog.NoneApplied.With(revision)
	case all.unruled:
		return catalog.PoolsWithheld.With(revision)
	}
	return catalog.OthersApplied.With(revision)
}

// prune deletes objects that the source no longer contains. It returns the deleted objects, and the objects that must wait
// because runners need them: a connection is needed to deregister runners, and rights-granting objects are needed by
// runners' hooks.
func (p *pass) prune(ctx context.Context, rev revision, plan plan) (gone, waiting []id, err error) {
	var failures []string
	var denied error
	var deleted []id
	defer func() { p.reportPruned(rev, plan, deleted) }()
	for _, i := range plan.remove {
		needed, err := p.isNeeded(ctx, i)
		if err != nil {
			return gone, waiting, err
		}
		if needed {
			waiting = append(waiting, i)
			continue
		}
		wasThere, err := p.delete(ctx, rev.name, i, "removed from the source")
		if wasThere {
			deleted = append(deleted, i)
		}
		if errors.Is(err, errBusy) {
			return gone, waiting, err
		}
		if err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", i, err))
			if denied == nil && p.actor.isRefused(err) {
				denied = err
			}
			continue
		}
		gone = append(gone, i)
	}
	if denied != nil {
		err = kube.Wait(p.rightsRetry(), catalog.PruneRightMissing.With(strings.Join(failures, "; ")), p.actor.advice(denied))
	} else if len(failures) > 0 {
		err = kube.Wait(p.retryAfter(), catalog.PruningFailed.With(strings.Join(failures, "; ")))
	}
	return gone, waiting, err
}

// isNeeded reports whether runners or scale sets still need an object, even if their pool no longer exists.
func (p *pass) isNeeded(ctx context.Context, i id) (bool, error) {
	switch {
	case i.kind == connectionKind:
		return p.isConnectionNeeded(ctx, i)
	case i.givesRights():
		return p.areRightsNeeded(ctx, i)
	}
	return false, nil
}

// isConnectionNeeded reports whether a connection is still needed for clean-up on GitHub.
func (p *pass) isConnectionNeeded(ctx context.Context, i id) (bool, error) {
	conn := &v1alpha1.GitHubConnection{}
	if err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.source.Namespace, Name: i.name}, conn); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	scaleSets, runners := &v1alpha1.RunnerScaleSetList{}, &v1alpha1.RunnerList{}
	for _, objects := range []client.ObjectList{scaleSets, runners} {
		if err := p.Client.List(ctx, objects, kube.OnConnection(client.ObjectKeyFromObject(conn)), client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("checking whether %s is still needed: %w", i, err)
		}
	}
	// Objects in namespaces that the connection does not allow do not count.
	return slices.ContainsFunc(scaleSets.Items, func(s v1alpha1.RunnerScaleSet) bool { return conn.Allows(s.Namespace) }) ||
		slices.ContainsFunc(runners.Items, func(r v1alpha1.Runner) bool { return conn.Allows(r.Namespace) && !r.IsReleased() }), nil
}

// maxNamed is the maximum number of deleted objects that an event names.
const maxNamed = 20

// reportPruned emits one event that names the objects that a revision removed, pools first.
func (p *pass) reportPruned(rev revision, plan plan, deleted []id) {
	pools := len(poolsOf(deleted))
	var parts []string
	if pools > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", pools, wording.Count(len(poolsOf(plan.held)), "pool")))
	}
	if others := len(deleted) - pools; others > 0 {
		parts = append(parts, wording.Count(others, "other object"))
	}
	if len(parts) > 0 {
		p.event(rev, prunedEvent, fmt.Sprintf("Revision %s removed %s: %s", rev.name, strings.Join(parts, " and "), named(deleted)))
	}
}

// named returns the names of objects, at most maxNamed.
func named(ids []id) string {
	names := make([]string, 0, len(ids))
	for _, i := range ids {
		names = append(names, i.String())
	}
	return wording.List(names, maxNamed)
}

// delete deletes an object if it has the source's label at that moment, and reports whether it existed.
func (p *pass) delete(ctx context.Context, revision string, i id, why string) (wasThere bool, err error) {
	if err := p.request(); err != nil {
		return false, err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(groupVersion(i.kind).WithKind(i.kind))
		err := p.reader(i.kind).Get(ctx, client.ObjectKey{Namespace: p.source.Namespace, Name: i.name}, object)
		if err != nil || object.Labels[v1alpha1.SourceLabel] != p.source.Name {
			return client.IgnoreNotFound(err)
		}
		same := client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
		if err := p.actor.Delete(ctx, object, same); err != nil {
			return client.IgnoreNotFound(err)
		}
		wasThere = true
		kube.LogDeleted(ctx, p.Client, object, revision, why)
		return nil
	})
	return wasThere, err
}

// sourceGone is the reason in the log for the deletion of a deleted source's objects.
const sourceGone = "its source was deleted, whose deletionPolicy was Delete"

// reportCleared emits one event that names the objects that were deleted after their source.
func (p *pass) reportCleared(deleted []id) {
	if len(deleted) > 0 {
		p.event(revision{}, prunedEvent, fmt.Sprintf("Deleted after the source, as deletionPolicy was Delete: %s", named(deleted)))
	}
}
