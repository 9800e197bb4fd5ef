// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// registration is where the pool's runners register on GitHub.
type registration struct {
	// set is the record of the pool's scale set; nil until it is in the cache, and without a scale set.
	set *v1alpha1.RunnerScaleSet
	// moving is true while that record is of another connection or of a former pool, and has to go first.
	moving bool
	// rest is how runners register by the REST API; its URL is empty while the connection isn't there.
	rest *v1alpha1.RESTRegistration
	// former is true while the pool goes on with credentials that are its connection's no more.
	former bool
	// connection is the condition Ready of the connection; nil if there is none.
	connection *metav1.Condition
	// foreign is true of a connection of another namespace: the pool's owner doesn't see its events.
	foreign bool
	// gone is true while there is no connection.
	gone bool
	// notReady is what keeps runners without a scale set from being registered; nil for nothing.
	notReady error
}

// authorize returns why the pool may not use its connection. While it may not, it takes in nothing and starts nothing, what works goes on to
// its end, and what waits is ended.
func (r *Reconciler) authorize(ctx context.Context, pool *v1alpha1.RunnerPool) (denied, err error) {
	denied = r.Access.Check(ctx, connectionKey(pool), pool.Namespace)
	if denied != nil && !kube.IsStalled(denied) {
		return nil, denied
	}
	return denied, nil
}

// look adds how the pool's connection is.
func (r *Reconciler) look(ctx context.Context, pool *v1alpha1.RunnerPool, g registration) (registration, error) {
	conn := &v1alpha1.GitHubConnection{}
	err := r.Client.Get(ctx, connectionKey(pool), conn, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return g, fmt.Errorf("reading the connection: %w", err)
	}
	g.former, g.connection = conn.Status.FormerCredentials, conditions.Get(conn, v1alpha1.ReadyCondition)
	g.foreign, g.gone = conn.Namespace != pool.Namespace, err != nil
	return g, nil
}

// connectionKey names the pool's connection.
func connectionKey(pool *v1alpha1.RunnerPool) client.ObjectKey {
	return pool.Spec.ConnectionRef.From(pool.Namespace)
}

// record keeps the pool's RunnerScaleSet as the pool declares it. One that belongs to
// another connection, or to a former pool of the same name, has to go first. A pool whose
// runners register by the REST API has none.
func (r *Reconciler) record(ctx context.Context, pool *v1alpha1.RunnerPool, denied error) (registration, error) {
	if isREST(pool) {
		return r.locate(ctx, pool, denied)
	}
	set := &v1alpha1.RunnerScaleSet{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(pool), set)
	switch {
	case apierrors.IsNotFound(err) && denied != nil:
		return registration{}, nil
	case apierrors.IsNotFound(err):
		return registration{}, r.applyScaleSet(ctx, pool)
	case err != nil:
		return registration{}, fmt.Errorf("reading the scale set's record: %w", err)
	}
	g := registration{set: set, moving: isMoving(set, pool)}
	switch {
	case denied != nil: // what there is stays as it is, for the pool may be allowed again
	case g.moving:
		return g, r.retire(ctx, set)
	case !equality.Semantic.DeepEqual(set.Spec, wantedSet(pool)), !hasMetadata(set, pool):
		return g, r.applyScaleSet(ctx, pool)
	}
	return g, nil
}

// isMoving reports whether a record is of another connection, or of a former pool of the same name.
func isMoving(set *v1alpha1.RunnerScaleSet, pool *v1alpha1.RunnerPool) bool {
	return !set.DeletionTimestamp.IsZero() || set.Spec.ConnectionRef.From(pool.Namespace) != connectionKey(pool) || set.Spec.PoolUID != string(pool.UID)
}

// retire deletes a record that is the pool's no more; its finalizer waits for the runners.
func (r *Reconciler) retire(ctx context.Context, set *v1alpha1.RunnerScaleSet) error {
	if !set.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.Client.Delete(ctx, set.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the record of the previous scale set: %w", err)
	}
	kube.LogDeleted(ctx, r.Client, set, "", "it belongs to another connection, or to a deleted pool with this name")
	return nil
}

// locate finds out where runners without a scale set register: with the labels that jobs ask for, and one
// by which those are found that were left behind.
func (r *Reconciler) locate(ctx context.Context, pool *v1alpha1.RunnerPool, denied error) (registration, error) {
	conn := &v1alpha1.GitHubConnection{}
	if denied == nil {
		if err := r.Client.Get(ctx, connectionKey(pool), conn); client.IgnoreNotFound(err) != nil {
			return registration{}, fmt.Errorf("reading the connection: %w", err)
		}
	}
	g := r.registrationOf(ctx, pool)
	g.rest = &v1alpha1.RESTRegistration{
		URL: conn.Spec.URL, RunnerGroup: pool.Spec.GetRunnerGroup(), Labels: pool.GetMarkedLabels(r.Cluster), Persistent: pool.Spec.Persists(),
	}
	return g, nil
}

// registrationOf finds what keeps runners from being registered by the REST API, as far as that is known
// before one tries. Credentials that served once go on to serve while their connection isn't ready.
func (r *Reconciler) registrationOf(ctx context.Context, pool *v1alpha1.RunnerPool) registration {
	key := connectionKey(pool)
	if r.REST != nil {
		if _, ok := r.REST.Get(connections.Key(key)); !ok {
			return registration{notReady: connections.NotReady(ctx, r.Client, key)}
		}
	}
	return registration{}
}

// newRunner is what a new runner belongs to on GitHub; nil while none can be registered.
func (g registration) newRunner(pool *v1alpha1.RunnerPool, denied error) *v1alpha1.RunnerSpec {
	spec := &v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: pool.Name}}
	switch {
	case denied != nil, g.rest != nil && g.rest.URL == "":
		return nil
	case g.rest != nil:
		spec.ConnectionRef, spec.REST = pool.Spec.ConnectionRef, g.rest
	case g.set == nil || g.set.Status.ID == 0 || g.moving:
		return nil
	default:
		spec.ConnectionRef, spec.ScaleSetID = g.set.Spec.ConnectionRef, g.set.Status.ID
	}
	return spec
}

// isStray reports whether a runner is of no use to the pool as it is declared.
func (o observation) isStray(r *v1alpha1.Runner) bool { return o.whyStray(r) != "" }

// whyStray says why a runner is of no use: it belongs to a scale set that GitHub has no more, or is registered
// otherwise than the pool declares by now, as a change of labels, group or connection reaches no
// runner that has registered; or it is of another template than its revision. "" if it is of use.
func (o observation) whyStray(r *v1alpha1.Runner) string {
	if r.Spec.Revision == o.template.adopted && r.Spec.TemplateDigest != "" && r.Spec.TemplateDigest != o.template.digest {
		return "another template replaced revision " + r.Spec.Revision
	}
	if o.registration.rest != nil {
		want := *o.registration.rest
		if want.URL == "" && r.Spec.REST != nil { // the connection may be on its way
			want.URL = r.Spec.REST.URL
		}
		if r.Spec.ConnectionRef.From(r.Namespace) != connectionKey(o.pool) || !equality.Semantic.DeepEqual(r.Spec.REST, &want) {
			return "registered otherwise than the pool declares"
		}
		return ""
	}
	set := o.registration.set
	switch {
	case set == nil || set.Status.ID == 0 || r.Spec.ScaleSetID == set.Status.ID:
		return ""
	case r.Spec.ScaleSetID == 0:
		return "registered otherwise than the pool declares"
	}
	return fmt.Sprintf("registered with scale set %d, and the pool has scale set %d by now", r.Spec.ScaleSetID, set.Status.ID)
}

// copyCondition is the outcome of what keeps the scale set from being ready, or runners from being registered.
func (g registration) copyCondition(pool *v1alpha1.RunnerPool) error {
	if isREST(pool) || observes(pool) {
		return g.notReady
	}
	if g.set == nil {
		return kube.Progress(recordRetry, catalog.ScaleSetPending.With())
	}
	if g.moving && !g.set.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(g.set, v1alpha1.ScaleSetFinalizer) {
		return kube.Wait(recordRetry, catalog.FormerScaleSetKept.With(strings.Join(g.set.Finalizers, ", ")))
	}
	if g.moving {
		return kube.Progress(recordRetry, catalog.FormerScaleSetFirst.With().Detailed(conditions.GetMessage(g.set, v1alpha1.ReadyCondition)))
	}
	ready := conditions.Get(g.set, v1alpha1.ReadyCondition)
	causes := append(kube.CausesAt(g.set, v1alpha1.ReadyCondition), catalog.OfScaleSet.With())
	switch {
	case ready == nil || g.set.Status.ObservedGeneration != g.set.Generation:
		return kube.Progress(recordRetry, catalog.ScaleSetPending.With())
	case conditions.IsStalled(g.set):
		return kube.Stall(causes...)
	case ready.Status == metav1.ConditionFalse:
		return kube.Wait(recordRetry, causes...)
	case ready.Status == metav1.ConditionUnknown:
		return kube.Progress(recordRetry, causes...)
	}
	return nil
}

// afterlife is why a pool isn't ready whose connection is gone, although credentials that were taken serve on for a while: for clean-up.
func (g registration) afterlife(pool *v1alpha1.RunnerPool) error {
	if !g.gone {
		return nil
	}
	return kube.Wait(recheck, catalog.ConnectionDeleted.With(pool.Spec.ConnectionRef.Name))
}

func wantedSet(pool *v1alpha1.RunnerPool) v1alpha1.RunnerScaleSetSpec {
	return v1alpha1.RunnerScaleSetSpec{
		PoolRef: v1alpha1.LocalObjectReference{Name: pool.Name}, PoolUID: string(pool.UID),
		ConnectionRef: pool.Spec.ConnectionRef, Name: pool.GetScaleSetName(),
		RunnerGroup: pool.Spec.GetRunnerGroup(), Labels: pool.GetRunnerLabels(),
	}
}

// metadataKeys lists the keys of spec.objectMetadata that hold.
func metadataKeys(pool *v1alpha1.RunnerPool) string {
	keys := slices.Concat(slices.Sorted(maps.Keys(pool.Spec.LabelsOfObjects())), slices.Sorted(maps.Keys(pool.Spec.AnnotationsOfObjects())))
	return strings.Join(keys, " ")
}

// hasMetadata reports whether a record has the labels and annotations that the pool declares, and none that it declared before.
func hasMetadata(set *v1alpha1.RunnerScaleSet, pool *v1alpha1.RunnerPool) bool {
	has := func(all, wanted map[string]string) bool {
		for key, value := range wanted {
			if found, ok := all[key]; !ok || found != value {
				return false
			}
		}
		return true
	}
	return set.Annotations[v1alpha1.ObjectMetadataAnnotation] == metadataKeys(pool) &&
		has(set.Labels, pool.Spec.LabelsOfObjects()) && has(set.Annotations, pool.Spec.AnnotationsOfObjects())
}

func (r *Reconciler) applyScaleSet(ctx context.Context, pool *v1alpha1.RunnerPool) error {
	set := &v1alpha1.RunnerScaleSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: pool.Name,
			Labels:      with(pool.Spec.LabelsOfObjects(), v1alpha1.PoolLabel, pool.Name),
			Annotations: pool.Spec.AnnotationsOfObjects(),
			Finalizers:  []string{v1alpha1.ScaleSetFinalizer},
		},
		Spec: wantedSet(pool),
	}
	if keys := metadataKeys(pool); keys != "" {
		set.Annotations = with(set.Annotations, v1alpha1.ObjectMetadataAnnotation, keys)
	}
	if err := controllerutil.SetControllerReference(pool, set, r.Client.Scheme()); err != nil {
		return fmt.Errorf("owning the scale set's record: %w", err)
	}
	return kube.Apply(ctx, r.Client, set)
}
