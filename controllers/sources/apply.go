// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
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

// Reasons of events about objects.
const (
	adoptedEvent = "Adopted"
	prunedEvent  = "Pruned"
)

// policyWait is how soon policies that are being loaded are looked at again.
const policyWait = 200 * time.Millisecond

// stillNeeded is how soon an object that can't go yet is looked at again.
const stillNeeded = 30 * time.Second

// apply applies the objects of a plan, and returns those that were: connections, policies, what gives rights, and once policies are in
// force, pools. One that can't be applied keeps only the pools from it that need it, but nothing is pruned then.
func (p *pass) apply(ctx context.Context, rev revision, plan plan) (applied []id, err error) {
	failed, unruled, withheld := failures{said: slices.Clone(plan.refused), held: plan.contested}, plan.unruled, plan.withheld.Clone()
	for n, o := range plan.apply {
		i := idOf(o)
		if i.kind == poolKind && (n == 0 || idOf(plan.apply[n-1]).kind != poolKind) {
			if failed.unruled = unruled; unruled {
				break // no pool of the revision without its policies
			}
			if err := p.awaitPolicies(ctx, rev, applied); err != nil {
				return applied, err
			}
		}
		if i.kind == poolKind && withheld.Has(i.name) {
			failed.said = append(failed.said, at(o, "not applied, for want of the rights of its hooks"))
			continue
		}
		err := p.applyOne(ctx, rev, o, slices.Contains(plan.adopted, i))
		if ctx.Err() != nil {
			return applied, ctx.Err()
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
	said      []string
	denied    error // the first that rights are missing for
	transient bool  // some may go well without a change
	applied   int   // others
	unruled   bool  // pools were left out for want of policies
	held      bool  // another source has one of them
}

func (f *failures) add(o compile.Object, err error, isDenied bool) {
	f.said = append(f.said, at(o, err.Error()))
	f.transient = f.transient || !isPermanent(err)
	if f.denied == nil && isDenied {
		f.denied = err
	}
}

// failed is how applying ended.
func (p *pass) failed(all failures, revision string) error {
	switch {
	case len(all.said) == 0:
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

// awaitPolicies waits until the revision's policies are in force: no pool of it is seen without them.
func (p *pass) awaitPolicies(ctx context.Context, rev revision, applied []id) error {
	hasPolicies := false
	for _, i := range applied {
		if i.kind != policyKind {
			continue
		}
		hasPolicies = true
		policy := &v1alpha1.RunnerPolicy{}
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

// applyOne applies an object. The API server writes nothing when nothing changes.
func (p *pass) applyOne(ctx context.Context, rev revision, o compile.Object, isAdopted bool) error {
	object := p.desired(o)
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

// desired is what is applied of an object: nothing of its metadata that is not the author's to say.
func (p *pass) desired(o compile.Object) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(o.Manifest.GroupVersionKind())
	object.SetNamespace(p.source.Namespace)
	object.SetName(o.Manifest.GetName())
	annotations := o.Manifest.GetAnnotations()
	delete(annotations, v1alpha1.DeletionPolicyAnnotation) // spec.deletionPolicy says it
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

// isPermanent reports whether the API server refused an object for what it is.
func isPermanent(err error) bool {
	return kube.IsRefused(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// problems lists what failed.
func (all *failures) problems() string {
	shown := slices.Clone(all.said[:min(len(all.said), maxMessageDiagnostics)])
	if rest := len(all.said) - len(shown); rest > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(shown, "\n")
}

// others reports what became of the rest.
func (all *failures) others(revision string) catalog.Cause {
	switch {
	case all.applied == 0:
		return catalog.NoneApplied.With(revision)
	case all.unruled:
		return catalog.PoolsWithheld.With(revision)
	}
	return catalog.OthersApplied.With(revision)
}

// prune deletes what left the source, and returns what it deleted, and what waits for the runners that need it: connections, to
// deregister them, and what gives rights to their hooks.
func (p *pass) prune(ctx context.Context, rev revision, plan plan) (gone, waiting []id, err error) {
	var failures []string
	var denied error
	var deleted []id
	defer func() { p.tellPruned(rev, plan, deleted) }()
	for _, i := range plan.remove {
		needed, err := p.isNeeded(ctx, i)
		if err != nil {
			return gone, waiting, err
		}
		if needed {
			waiting = append(waiting, i)
			continue
		}
		wasThere, err := p.delete(ctx, rev.name, i, "it left the source")
		if wasThere {
			deleted = append(deleted, i)
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

// isNeeded reports whether a runner needs an object, pool or no pool.
func (p *pass) isNeeded(ctx context.Context, i id) (bool, error) {
	switch {
	case i.kind == connectionKind:
		return p.isConnectionNeeded(ctx, i)
	case i.givesRights():
		return p.areRightsNeeded(ctx, i)
	}
	return false, nil
}

// isConnectionNeeded reports whether something is still to be done on GitHub with a connection.
func (p *pass) isConnectionNeeded(ctx context.Context, i id) (bool, error) {
	conn := &v1alpha1.GitHubConnection{}
	if err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.source.Namespace, Name: i.name}, conn); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	scaleSets, runners := &v1alpha1.RunnerScaleSetList{}, &v1alpha1.RunnerList{}
	for _, objects := range []client.ObjectList{scaleSets, runners} {
		if err := p.Client.List(ctx, objects, kube.OnConnection(client.ObjectKeyFromObject(conn)), client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("looking who needs %s: %w", i, err)
		}
	}
	// What is of a namespace that the connection doesn't allow keeps nobody from anything.
	return slices.ContainsFunc(scaleSets.Items, func(s v1alpha1.RunnerScaleSet) bool { return conn.Allows(s.Namespace) }) ||
		slices.ContainsFunc(runners.Items, func(r v1alpha1.Runner) bool { return conn.Allows(r.Namespace) && !r.IsReleased() }), nil
}

// maxNamed is how many objects an event names that were deleted.
const maxNamed = 20

// tellPruned names in one event what a revision removed, pools first.
func (p *pass) tellPruned(rev revision, plan plan, deleted []id) {
	pools := len(poolsOf(deleted))
	var what []string
	if pools > 0 {
		what = append(what, fmt.Sprintf("%d of %s", pools, wording.Count(len(poolsOf(plan.held)), "pool")))
	}
	if others := len(deleted) - pools; others > 0 {
		what = append(what, wording.Count(others, "other object"))
	}
	if len(what) > 0 {
		p.event(rev, prunedEvent, fmt.Sprintf("Revision %s removed %s: %s", rev.name, strings.Join(what, " and "), named(deleted)))
	}
}

// named lists objects.
func named(ids []id) string {
	names := make([]string, 0, len(ids))
	for _, i := range ids {
		names = append(names, i.String())
	}
	return wording.List(names, maxNamed)
}

// delete removes an object that carries the source's label at that very moment, and reports whether there was one.
func (p *pass) delete(ctx context.Context, revision string, i id, why string) (wasThere bool, err error) {
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

// sourceGone is why objects are deleted of a source that was.
const sourceGone = "its source was deleted, whose deletionPolicy was Delete"

// tellCleared names in one event what was deleted after its source.
func (p *pass) tellCleared(deleted []id) {
	if len(deleted) > 0 {
		p.event(revision{}, prunedEvent, fmt.Sprintf("Deleted after the source, as deletionPolicy was Delete: %s", named(deleted)))
	}
}
