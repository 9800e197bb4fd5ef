// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// fluxProbe is the interval between checks whether a missing kind is installed now.
const fluxProbe = 10 * time.Second

// fluxWatch watches the kinds of Flux that sources refer to. It begins to watch a kind when a source needs the kind and the
// kind is installed. Without such sources, Flux need not be installed, and the controller needs no permission to watch it.
type fluxWatch struct {
	begin     func(kind string) error // starts to watch a kind; if nil, watch does nothing
	installed func(kind string) bool
	every     time.Duration

	mu      sync.Mutex
	watched map[string]bool
	wanted  map[string]bool // kinds that were not installed when they were needed
}

func newFluxWatch() *fluxWatch {
	return &fluxWatch{every: fluxProbe, watched: map[string]bool{}, wanted: map[string]bool{}}
}

// watch starts to watch an installed kind, unless it is already watched.
func (w *fluxWatch) watch(kind string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begin == nil || w.watched[kind] {
		return nil
	}
	if err := w.begin(kind); err != nil {
		return err
	}
	w.watched[kind] = true
	delete(w.wanted, kind)
	return nil
}

// want records a kind that is not installed, so that Start watches the kind once it is installed.
func (w *fluxWatch) want(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.watched[kind] {
		w.wanted[kind] = true
	}
}

func (w *fluxWatch) missing() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.wanted))
}

// Start checks periodically whether missing kinds are installed, until the context ends. Like the controllers, it runs only
// on the leader.
func (w *fluxWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look(ctx)
		}
	}
}

func (w *fluxWatch) look(ctx context.Context) {
	for _, kind := range w.missing() {
		if !w.installed(kind) {
			continue
		}
		if err := w.watch(kind); err != nil {
			log.FromContext(ctx).Error(err, "Watching a kind of Flux", "kind", kind)
			continue
		}
		log.FromContext(ctx).Info("Watching a kind of Flux that is now installed", "kind", kind)
	}
}

// Indices of PoolSources in the cache.
const (
	originIndex     = ".spec.sourceRef"
	dependencyIndex = ".spec.dependsOn"
)

// setupFlux makes changes of Flux objects trigger the reconciliation of the sources that refer to them.
func (r *Reconciler) setupFlux(mgr ctrl.Manager, c controller.Controller) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.PoolSource{}, originIndex, indexOrigin); err != nil {
		return err
	}
	r.flux.installed = func(kind string) bool {
		_, err := mgr.GetRESTMapper().RESTMapping(sourcev1.GroupVersion.WithKind(kind).GroupKind(), sourcev1.GroupVersion.Version)
		return err == nil
	}
	r.flux.begin = func(kind string) error {
		waiting := ctrlsource.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			for _, request := range r.naming(ctx, kind) {
				queue.Add(request)
			}
			return nil
		})
		woken := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.fedBy(ctx, origin{kind, client.ObjectKeyFromObject(object)})
		})
		// This watches unstructured objects: with Go types, a single object that cannot be decoded would hide all others of
		// its kind.
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(kind))
		if err := c.Watch(ctrlsource.Kind[client.Object](mgr.GetCache(), object, woken, artifactChanged)); err != nil {
			return err
		}
		return c.Watch(waiting)
	}
	return mgr.Add(r.flux)
}

func indexOrigin(object client.Object) []string {
	source := object.(*v1alpha1.PoolSource)
	if source.Spec.SourceRef == nil {
		return nil
	}
	return []string{originOf(source).String()}
}

// fedBy lists the sources that refer to an object of Flux.
func (r *Reconciler) fedBy(ctx context.Context, from origin) []reconcile.Request {
	sources := &v1alpha1.PoolSourceList{}
	if err := r.Client.List(ctx, sources, client.MatchingFields{originIndex: from.String()}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing the sources of an artifact", "object", from)
		return nil // they check again at their interval
	}
	return requestsOf(sources, func(*v1alpha1.PoolSource) bool { return true })
}

// naming lists the sources that refer to any object of a Flux kind.
func (r *Reconciler) naming(ctx context.Context, kind string) []reconcile.Request {
	sources := &v1alpha1.PoolSourceList{}
	if err := r.Client.List(ctx, sources, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing the sources that use a kind of Flux", "kind", kind)
		return nil
	}
	return requestsOf(sources, func(s *v1alpha1.PoolSource) bool { return s.Spec.SourceRef != nil && s.Spec.SourceRef.Kind == kind })
}

func requestsOf(sources *v1alpha1.PoolSourceList, wanted func(*v1alpha1.PoolSource) bool) []reconcile.Request {
	var requests []reconcile.Request
	for i := range sources.Items {
		if wanted(&sources.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sources.Items[i])})
		}
	}
	return requests
}

// artifactChanged passes changes that matter to a source: another artifact, its removal and, while there is none, another
// message of Flux's Ready condition.
var artifactChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, errBefore := statusOf(e.ObjectOld)
		now, errNow := statusOf(e.ObjectNew)
		if errBefore != nil || errNow != nil {
			return true
		}
		was, is := before.GetArtifact(), now.GetArtifact()
		switch {
		case was == nil && is == nil:
			return conditions.GetMessage(before, meta.ReadyCondition) != conditions.GetMessage(now, meta.ReadyCondition)
		case was == nil || is == nil:
			return true
		}
		return !was.HasRevision(is.Revision) || !was.HasDigest(is.Digest) || was.URL != is.URL
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// statusOf reads the status of an object of Flux.
func statusOf(object client.Object) (fluxSource, error) {
	raw, ok := object.(*unstructured.Unstructured)
	if !ok || fluxKinds[raw.GetKind()] == nil {
		return nil, fmt.Errorf("%T is not an object of Flux", object)
	}
	source := fluxKinds[raw.GetKind()]()
	return source, runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": raw.Object["status"]}, source)
}
