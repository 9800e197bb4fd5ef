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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/kube"
)

// Reasons of events that tell of single objects.
const (
	adoptedEvent = "Adopted"
	prunedEvent  = "Pruned"
)

// policyWait is how soon policies that are being loaded are looked at again.
const policyWait = 200 * time.Millisecond

// stillNeeded is how soon a connection that can't go yet is looked at again.
const stillNeeded = 30 * time.Second

// apply makes the objects so: connections, policies, and once those are in force, pools. One that can't be applied does not keep the others from it,
// but nothing is pruned then.
func (x *run) apply(ctx context.Context) error {
	failed, unruled := failures{said: slices.Clone(x.plan.refused)}, x.refusesPolicies()
	for i, o := range x.plan.apply {
		if idOf(o).kind == poolKind && (i == 0 || idOf(x.plan.apply[i-1]).kind != poolKind) {
			if unruled {
				failed.unruled = true
				break // no pool of the revision without its policies
			}
			if err := x.awaitPolicies(ctx); err != nil {
				return err
			}
		}
		err := x.applyOne(ctx, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed.add(o, err, x.isRefused(err))
			unruled = unruled || idOf(o).kind == policyKind
			continue
		}
		x.holds[idOf(o)] = true
		failed.applied++
	}
	return x.failed(failed)
}

// failures are objects that could not be applied.
type failures struct {
	said      []string
	denied    error // the first that rights are missing for
	transient bool  // some may go well without a change
	applied   int   // others
	unruled   bool  // pools were left out for want of policies
}

func (f *failures) add(o compile.Object, err error, isDenied bool) {
	f.said = append(f.said, at(o, err.Error()))
	f.transient = f.transient || !isPermanent(err)
	if f.denied == nil && isDenied {
		f.denied = err
	}
}

// failed is how applying ended.
func (x *run) failed(all failures) error {
	switch {
	case len(all.said) == 0:
		return nil
	case all.denied != nil:
		return kube.Wait(v1alpha1.AccessDeniedReason, x.rightsRetry(), "%s\n%s", x.notAll(all), x.advice(all.denied.Error()))
	case all.transient:
		return kube.Wait(v1alpha1.ApplyFailedReason, x.retryAfter(), "%s", x.notAll(all))
	}
	return kube.Stall(v1alpha1.ApplyFailedReason, "%s", x.notAll(all))
}

// awaitPolicies waits until the revision's policies are in force: no pool of it is seen without them.
func (x *run) awaitPolicies(ctx context.Context) error {
	hasPolicies := false
	for _, o := range x.plan.apply {
		i := idOf(o)
		if i.kind != policyKind || !x.holds[i] {
			continue
		}
		hasPolicies = true
		p := &v1alpha1.RunnerPolicy{}
		if err := x.Live.Get(ctx, client.ObjectKey{Namespace: x.source.Namespace, Name: i.name}, p); err != nil {
			return fmt.Errorf("looking at %s: %w", i, err)
		}
		isJudged := conditions.IsReady(p) || conditions.IsStalled(p)
		if p.Status.ObservedGeneration != p.Generation || !isJudged {
			return kube.Progress(policyWait, "%s of revision %s is being loaded", i, x.revision)
		}
	}
	if !hasPolicies || !conditions.IsUnknown(x.source, v1alpha1.ReadyCondition) {
		return nil
	}
	return x.attempt.Progress(ctx, "Applying the pools of revision "+x.revision)
}

// refusesPolicies says whether a policy of the revision may not be applied.
func (x *run) refusesPolicies() bool {
	count := func(list []compile.Object) (n int) {
		for _, o := range list {
			if idOf(o).kind == policyKind {
				n++
			}
		}
		return n
	}
	return count(x.objects) != count(x.plan.apply)
}

// applyOne applies an object. The API server writes nothing when nothing changes.
func (x *run) applyOne(ctx context.Context, o compile.Object) error {
	object := x.desired(o)
	if err := kube.ApplyAs(ctx, x.actor, object, fieldOwner); err != nil {
		return err
	}
	if slices.Contains(x.plan.adopted, idOf(o)) {
		x.Event(x.source, corev1.EventTypeNormal, adoptedEvent, fmt.Sprintf("Took over %s, which no source held", idOf(o)))
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(object.GroupVersionKind())
	metadata.Namespace, metadata.Name = object.GetNamespace(), object.GetName()
	metadata.ResourceVersion, metadata.OwnerReferences = object.GetResourceVersion(), object.GetOwnerReferences()
	metadata.Annotations = object.GetAnnotations()
	return x.bindOne(ctx, metadata)
}

// desired is what is applied of an object: nothing of its metadata that is not the author's to say.
func (x *run) desired(o compile.Object) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(o.Manifest.GroupVersionKind())
	object.SetNamespace(x.source.Namespace)
	object.SetName(o.Manifest.GetName())
	annotations := o.Manifest.GetAnnotations()
	delete(annotations, v1alpha1.DeletionPolicyAnnotation) // spec.deletionPolicy says it
	object.SetAnnotations(annotations)
	labels := o.Manifest.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.SourceLabel] = x.source.Name
	object.SetLabels(labels)
	if spec, ok := o.Manifest.Object["spec"]; ok {
		object.Object["spec"] = runtime.DeepCopyJSONValue(spec)
	}
	return object
}

// isPermanent says whether the API server refused an object for what it is.
func isPermanent(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// notAll says what failed, and what became of the rest.
func (x *run) notAll(all failures) string {
	shown := slices.Clone(all.said[:min(len(all.said), maxMessageDiagnostics)])
	if rest := len(all.said) - len(shown); rest > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", rest))
	}
	others := fmt.Sprintf("The other objects of revision %s were applied", x.revision)
	switch {
	case all.applied == 0:
		others = fmt.Sprintf("Nothing of revision %s was applied", x.revision)
	case all.unruled:
		others = fmt.Sprintf("No pool of revision %s was applied, for want of its policies", x.revision)
	}
	return strings.Join(append(shown, others), "\n") + "; nothing was pruned"
}

// prune deletes what left the source. A connection waits for the runners that have to be
// deregistered with it.
func (x *run) prune(ctx context.Context) error {
	var failures []string
	var denied error
	for _, i := range x.plan.remove {
		needed, err := x.isNeeded(ctx, i)
		if err != nil {
			return err
		}
		if needed {
			x.waits += fmt.Sprintf("; %s left the source and stays until its scale sets and runners are gone", i)
			x.done.After = min(x.done.After, stillNeeded)
			continue
		}
		if err := x.delete(ctx, i); err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", i, err))
			if denied == nil && x.isRefused(err) {
				denied = err
			}
			continue
		}
		delete(x.holds, i)
	}
	if denied != nil {
		return kube.Wait(v1alpha1.AccessDeniedReason, x.rightsRetry(), "pruning: %s\n%s", strings.Join(failures, "; "), x.advice(denied.Error()))
	}
	if len(failures) > 0 {
		return kube.Wait(v1alpha1.PruneFailedReason, x.retryAfter(), "pruning: %s", strings.Join(failures, "; "))
	}
	return nil
}

// isNeeded says whether something is still to be done on GitHub with a connection.
func (x *run) isNeeded(ctx context.Context, i id) (bool, error) {
	if i.kind != connectionKind {
		return false, nil
	}
	conn := &v1alpha1.GitHubConnection{}
	if err := x.Client.Get(ctx, client.ObjectKey{Namespace: x.source.Namespace, Name: i.name}, conn); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	scaleSets, runners := &v1alpha1.ScaleSetList{}, &v1alpha1.RunnerList{}
	for _, objects := range []client.ObjectList{scaleSets, runners} {
		if err := x.Client.List(ctx, objects, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("looking who needs %s: %w", i, err)
		}
	}
	// What is of a namespace that the connection doesn't allow keeps nobody from anything.
	uses := func(namespace string, ref v1alpha1.ConnectionReference) bool {
		return ref.From(namespace) == client.ObjectKeyFromObject(conn) && conn.Allows(namespace)
	}
	return slices.ContainsFunc(scaleSets.Items, func(s v1alpha1.ScaleSet) bool { return uses(s.Namespace, s.Spec.ConnectionRef) }) ||
		slices.ContainsFunc(runners.Items, func(r v1alpha1.Runner) bool { return uses(r.Namespace, r.Spec.ConnectionRef) }), nil
}

// delete removes an object that carries the source's label at that very moment.
func (x *run) delete(ctx context.Context, i id) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(i.kind))
		err := x.Live.Get(ctx, client.ObjectKey{Namespace: x.source.Namespace, Name: i.name}, object)
		if err != nil || object.Labels[v1alpha1.SourceLabel] != x.source.Name {
			return client.IgnoreNotFound(err)
		}
		same := client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
		if err := x.actor.Delete(ctx, object, same); err != nil {
			return client.IgnoreNotFound(err)
		}
		x.Event(x.source, corev1.EventTypeNormal, prunedEvent, fmt.Sprintf("Deleted %s, which left the source", i))
		return nil
	})
}
