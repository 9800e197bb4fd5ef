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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// dependencyRetry is the delay before an unready dependency is checked again, unless a watch reports a change earlier.
	dependencyRetry = 30 * time.Second
	// maxDependencies is the maximum number of sources in the search for a circular dependency.
	maxDependencies = 100
)

// refer refuses references to other namespaces if they are not allowed.
func (p *pass) refer() error {
	if p.CrossNamespace {
		return nil
	}
	if ref := p.source.Spec.SourceRef; ref != nil {
		if err := p.sameNamespace("spec.sourceRef", ref.Namespace); err != nil {
			return err
		}
	}
	for i, dependency := range p.source.Spec.DependsOn {
		if err := p.sameNamespace(fmt.Sprintf("spec.dependsOn[%d]", i), dependency.Namespace); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) sameNamespace(field, namespace string) error {
	if namespace == "" || namespace == p.source.Namespace {
		return nil
	}
	return kube.Stall(catalog.CrossNamespace.With(field, namespace))
}

// depend waits until the sources in spec.dependsOn are ready.
func (p *pass) depend(ctx context.Context, revision string) error {
	for i, dependency := range p.source.Spec.DependsOn {
		key := types.NamespacedName{Namespace: namespaceOr(dependency.Namespace, p.source), Name: dependency.Name}
		if key == client.ObjectKeyFromObject(p.source) {
			return kube.Stall(catalog.DependsOnItself.With(i))
		}
		on := &v1alpha1.PoolSource{}
		err := p.Live.Get(ctx, key, on)
		if apierrors.IsNotFound(err) {
			return kube.Wait(p.dependencyRetry(), catalog.DependencyMissing.With(key))
		}
		if err != nil {
			return fmt.Errorf("reading PoolSource %s: %w", key, err)
		}
		why, passes := p.unready(revision, key, on)
		why = why.About("PoolSource", key.Namespace, key.Name)
		if why.Code == "" || passes && p.isSettled(revision) {
			continue
		}
		if circle := p.circle(ctx, on); circle != "" {
			return kube.Stall(catalog.DependencyCircle.With(circle))
		}
		if passes {
			return kube.Progress(p.dependencyRetry(), why)
		}
		return kube.Wait(p.dependencyRetry(), why)
	}
	return nil
}

func (p *pass) dependencyRetry() time.Duration {
	return min(p.retryAfter(), p.jitter(dependencyRetry))
}

// unready returns why a dependency is not ready; the zero value if it is ready. passes is true if the dependency is
// progressing, so that it may become ready without a change by a user.
func (p *pass) unready(revision string, key types.NamespacedName, on *v1alpha1.PoolSource) (why catalog.Cause, passes bool) {
	switch {
	case on.Status.ObservedGeneration != on.Generation:
		return catalog.DependencyChanged.With(key), true
	case !conditions.IsReady(on):
		message := wording.FirstLine(conditions.GetMessage(on, v1alpha1.ReadyCondition))
		return catalog.DependencyUnready.With(key).Detailed(message), conditions.IsUnknown(on, v1alpha1.ReadyCondition)
	case p.isTwin(on) && on.Status.LastAppliedRevision != revision:
		return catalog.DependencyBehind.With(key, revision), true
	}
	return why, false
}

// isSettled reports whether the revision is already applied. A progressing dependency is then no reason to become unready.
func (p *pass) isSettled(revision string) bool {
	return p.source.Status.LastAppliedRevision == revision && p.source.Status.ObservedGeneration == p.source.Generation && conditions.IsReady(p.source)
}

// isTwin reports whether another source reads the same files.
func (p *pass) isTwin(on *v1alpha1.PoolSource) bool {
	if p.source.Spec.SourceRef != nil {
		return on.Spec.SourceRef != nil && originOf(on) == originOf(p.source)
	}
	mine, theirs := p.source.Spec.Git, on.Spec.Git
	return theirs != nil && mine.URL == theirs.URL && equality.Semantic.DeepEqual(mine.GetRef(), theirs.GetRef())
}

// circle returns the path from the source through a dependency back to itself, such as "a → b → a"; "" if there is none.
func (p *pass) circle(ctx context.Context, on *v1alpha1.PoolSource) string {
	type step struct {
		source *v1alpha1.PoolSource
		way    []string
	}
	start := client.ObjectKeyFromObject(p.source)
	seen := map[types.NamespacedName]bool{}
	for todo := []step{{on, []string{start.String()}}}; len(todo) > 0 && len(seen) < maxDependencies; todo = todo[1:] {
		at := todo[0]
		key := client.ObjectKeyFromObject(at.source)
		way := append(slices.Clone(at.way), key.String())
		for _, dependency := range at.source.Spec.DependsOn {
			next := types.NamespacedName{Namespace: namespaceOr(dependency.Namespace, at.source), Name: dependency.Name}
			if next == start {
				return strings.Join(append(way, start.String()), " → ")
			}
			source := &v1alpha1.PoolSource{}
			if seen[next] || p.Client.Get(ctx, next, source) != nil {
				continue // the search cannot continue at a source that cannot be read
			}
			seen[next] = true
			todo = append(todo, step{source, way})
		}
	}
	return ""
}

func indexDependencies(object client.Object) []string {
	source := object.(*v1alpha1.PoolSource)
	var keys []string
	for _, dependency := range source.Spec.DependsOn {
		keys = append(keys, namespaceOr(dependency.Namespace, source)+"/"+dependency.Name)
	}
	return keys
}

// dependents lists the sources that depend on a source.
func (r *Reconciler) dependents(ctx context.Context, on client.Object) []reconcile.Request {
	sources := &v1alpha1.PoolSourceList{}
	if err := r.Client.List(ctx, sources, client.MatchingFields{dependencyIndex: client.ObjectKeyFromObject(on).String()}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing the sources that depend on another", "source", client.ObjectKeyFromObject(on))
		return nil // they retry after dependencyRetry
	}
	return requestsOf(sources, func(*v1alpha1.PoolSource) bool { return true })
}

// dependencyChanged passes changes of a source's status, except while the source is progressing. Such a change may make
// dependents ready.
var dependencyChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.PoolSource)
		now, also := e.ObjectNew.(*v1alpha1.PoolSource)
		return ok && also && !conditions.IsUnknown(now, v1alpha1.ReadyCondition) && !equality.Semantic.DeepEqual(before.Status, now.Status)
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}
