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

// registration describes where the pool's runners register on GitHub.
type registration struct {
	// set is the record of the pool's scale set; nil until it is in the cache, and for pools without a scale set.
	set *v1alpha1.RunnerScaleSet
	// moving is true while that record belongs to another connection or an earlier pool, and must be deleted first.
	moving bool
	// rest is how runners register through the REST API. Its URL is empty while the connection does not exist.
	rest *v1alpha1.RESTRegistration
	// former is true while the pool uses credentials that its connection no longer has.
	former bool
	// connection is the condition Ready of the connection; nil if there is none.
	connection *metav1.Condition
	// foreign is true for a connection in another namespace, whose events the pool's owner does not see.
	foreign bool
	// gone is true while there is no connection.
	gone bool
	// notReady is what prevents runners without a scale set from registering; nil for nothing.
	notReady error
}

// authorize returns why the pool may not use its connection. Until it may, the pool accepts no jobs and starts no runners.
// Runners with a job finish it, and idle runners are ended.
func (r *Reconciler) authorize(ctx context.Context, pool *v1alpha1.RunnerPool) (denied, err error) {
	denied = r.Access.Check(ctx, connectionKey(pool), pool.Namespace)
	if denied != nil && !kube.IsStalled(denied) {
		return nil, denied
	}
	return denied, nil
}

// look adds the state of the pool's connection to g.
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

// connectionKey returns the name of the pool's connection.
func connectionKey(pool *v1alpha1.RunnerPool) client.ObjectKey {
	return pool.Spec.ConnectionRef.From(pool.Namespace)
}

// record keeps the pool's RunnerScaleSet as the pool declares it. A record that belongs to another connection, or to an
// earlier pool with the same name, must be deleted first. A pool whose runners register through the REST API has none.
func (r *Reconciler) record(ctx context.Context, pool *v1alpha1.RunnerPool, denied error) (registration, error) {
	if pool.Spec.IsREST() {
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
	case denied != nil: // the record stays unchanged, because the pool may be allowed again
	case g.moving:
		return g, r.retire(ctx, set)
	case !equality.Semantic.DeepEqual(set.Spec, wantedSet(pool)), !hasMetadata(set, pool):
		return g, r.applyScaleSet(ctx, pool)
	}
	return g, nil
}

// isMoving reports whether a record is being deleted, or belongs to another connection or to an earlier pool with the same
// name.
func isMoving(set *v1alpha1.RunnerScaleSet, pool *v1alpha1.RunnerPool) bool {
	return !set.DeletionTimestamp.IsZero() || set.Spec.ConnectionRef.From(pool.Namespace) != connectionKey(pool) || set.Spec.PoolUID != string(pool.UID)
}

// retire deletes a record that no longer belongs to the pool. The record's finalizer keeps it until its runners have ended.
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

// locate returns where runners without a scale set register: with the labels that jobs request, and a label that identifies
// leaked registrations.
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

// registrationOf returns what prevents runners from registering through the REST API, if that is known before an attempt.
// Credentials that worked once stay in use while their connection is not ready.
func (r *Reconciler) registrationOf(ctx context.Context, pool *v1alpha1.RunnerPool) registration {
	key := connectionKey(pool)
	if r.REST != nil {
		if _, ok := r.REST.Get(connections.Key(key)); !ok {
			return registration{notReady: connections.NotReady(ctx, r.Client, key)}
		}
	}
	return registration{}
}

// newRunner returns the GitHub part of a new runner's spec; nil while none can register.
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

// isStray reports whether a runner does not match the pool's current declaration.
func (o observation) isStray(r *v1alpha1.Runner) bool { return o.whyStray(r) != "" }

// whyStray returns why a runner does not match the pool: it belongs to an earlier scale set, its registration differs from
// what the pool declares now, or its template differs from its revision. A change of labels, group or connection does not
// reach registered runners. It returns "" if the runner matches.
func (o observation) whyStray(r *v1alpha1.Runner) string {
	if r.Spec.Revision == o.template.adopted && r.Spec.TemplateDigest != "" && r.Spec.TemplateDigest != o.template.digest {
		return "another template replaced revision " + r.Spec.Revision
	}
	if o.registration.rest != nil {
		want := *o.registration.rest
		if want.URL == "" && r.Spec.REST != nil { // the connection may not be visible yet
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

// copyCondition returns a problem of the scale set, or of the registration without a scale set, as the pool's own outcome;
// nil if there is none.
func (g registration) copyCondition(pool *v1alpha1.RunnerPool) error {
	if pool.Spec.IsREST() || pool.Spec.Observes() {
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

// afterlife returns why a pool is not ready after its connection was deleted. Credentials that were already read stay
// usable for a while, for clean-up.
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

// metadataKeys lists the keys of spec.objectMetadata that apply.
func metadataKeys(pool *v1alpha1.RunnerPool) string {
	keys := slices.Concat(slices.Sorted(maps.Keys(pool.Spec.LabelsOfObjects())), slices.Sorted(maps.Keys(pool.Spec.AnnotationsOfObjects())))
	return strings.Join(keys, " ")
}

// hasMetadata reports whether a record has the labels and annotations that the pool declares, and none that it declared
// before.
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
		return fmt.Errorf("setting the owner of the scale set's record: %w", err)
	}
	return kube.Apply(ctx, r.Client, set)
}
