// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/kube"
)

// consent asks whether the pool may use its connection. While it may not, it takes in nothing and starts nothing, what works goes on to
// its end, and what waits is ended.
func (x *run) consent(ctx context.Context) error {
	if x.denied = x.Access.Check(ctx, x.connectionKey(), x.key.Namespace); x.denied != nil && !kube.IsStalled(x.denied) {
		return x.denied
	}
	return nil
}

// connectionKey names the pool's connection.
func (x *run) connectionKey() client.ObjectKey {
	return x.pool.Spec.ConnectionRef.From(x.key.Namespace)
}

// record keeps the pool's ScaleSet as the pool declares it. One that belongs to
// another connection, or to a former pool of the same name, has to go first. A pool whose
// runners register by the REST API has none.
func (x *run) record(ctx context.Context) error {
	if x.isREST() {
		return x.locate(ctx)
	}
	set := &v1alpha1.ScaleSet{}
	err := x.Client.Get(ctx, x.key, set)
	switch {
	case apierrors.IsNotFound(err) && x.denied != nil:
		return nil
	case apierrors.IsNotFound(err):
		return x.apply(ctx)
	case err != nil:
		return fmt.Errorf("reading the scale set's record: %w", err)
	}
	x.set = set
	if x.denied != nil {
		return nil // what there is stays as it is, for consent may come back
	}
	if x.moving() {
		return x.retire(ctx)
	}
	if equality.Semantic.DeepEqual(set.Spec, x.wantedSet()) {
		return nil
	}
	return x.apply(ctx)
}

// moving is true while the record on hand is not this pool's on its connection.
func (x *run) moving() bool {
	return x.set != nil && (!x.set.DeletionTimestamp.IsZero() ||
		x.set.Spec.ConnectionRef.From(x.key.Namespace) != x.connectionKey() || x.set.Spec.PoolUID != string(x.pool.UID))
}

// retire deletes a record that is this pool's no more; its finalizer waits for the runners.
func (x *run) retire(ctx context.Context) error {
	if !x.set.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := x.Client.Delete(ctx, x.set.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the former scale set's record: %w", err)
	}
	return nil
}

// locate finds out where runners without a scale set register.
func (x *run) locate(ctx context.Context) error {
	conn := &v1alpha1.GitHubConnection{}
	if x.denied != nil {
		return nil
	}
	if err := x.Client.Get(ctx, x.connectionKey(), conn); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the connection: %w", err)
	}
	x.url = conn.Spec.URL
	return nil
}

// isREST says whether the pool's runners register by the REST API.
func (x *run) isREST() bool { return x.pool.Spec.GetRegistration() == v1alpha1.RegisterREST }

// registration is what a new runner belongs to on GitHub; nil while none can be registered.
func (x *run) registration() *v1alpha1.RunnerSpec {
	spec := &v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: x.pool.Name}}
	switch {
	case x.denied != nil, x.isREST() && x.url == "":
		return nil
	case x.isREST():
		spec.ConnectionRef, spec.REST = x.pool.Spec.ConnectionRef, x.wantedREST()
	case x.set == nil || x.set.Status.ID == 0 || x.moving():
		return nil
	default:
		spec.ConnectionRef, spec.ScaleSetID = x.set.Spec.ConnectionRef, x.set.Status.ID
	}
	return spec
}

// wantedREST is how runners register by the REST API: with the labels that jobs ask for, and one
// by which those are found that were left behind.
func (x *run) wantedREST() *v1alpha1.RESTRegistration {
	return &v1alpha1.RESTRegistration{
		URL:         x.url,
		RunnerGroup: x.pool.Spec.GetRunnerGroup(),
		Labels:      x.pool.GetMarkedLabels(x.Cluster),
	}
}

// isStray says whether a runner belongs to a scale set that GitHub has no more, or is registered
// otherwise than the pool declares by now: a change of labels, group or connection reaches no
// runner that has registered. Nor is it of use if it is of another template than its revision.
func (x *run) isStray(r *v1alpha1.Runner) bool {
	if r.Spec.Revision == x.adopted && r.Spec.TemplateDigest != "" && r.Spec.TemplateDigest != x.digest {
		return true // somebody put another template in the place of its revision
	}
	if x.isREST() {
		want := x.wantedREST()
		if x.url == "" && r.Spec.REST != nil { // the connection may be on its way
			want.URL = r.Spec.REST.URL
		}
		return r.Spec.ConnectionRef.From(r.Namespace) != x.connectionKey() || !equality.Semantic.DeepEqual(r.Spec.REST, want)
	}
	return x.set != nil && x.set.Status.ID != 0 && r.Spec.ScaleSetID != x.set.Status.ID
}

// mirrorREST tells what keeps runners from being registered by the REST API, as far as it is known
// without one that tries. Credentials that served once go on to serve while their connection isn't ready.
func (x *run) mirrorREST(ctx context.Context) error {
	key := x.connectionKey()
	if x.REST == nil {
		return nil
	}
	if _, ok := x.REST.Get(connections.Key(key)); ok {
		return nil
	}
	return connections.NotReady(ctx, x.Client, key)
}

func (x *run) wantedSet() v1alpha1.ScaleSetSpec {
	return v1alpha1.ScaleSetSpec{
		PoolRef: v1alpha1.LocalObjectReference{Name: x.pool.Name}, PoolUID: string(x.pool.UID),
		ConnectionRef: x.pool.Spec.ConnectionRef, Name: x.pool.GetScaleSetName(),
		RunnerGroup: x.pool.Spec.GetRunnerGroup(), Labels: x.pool.GetRunnerLabels(),
	}
}

func (x *run) apply(ctx context.Context) error {
	set := &v1alpha1.ScaleSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.key.Namespace, Name: x.key.Name,
			Labels:     map[string]string{v1alpha1.PoolLabel: x.pool.Name},
			Finalizers: []string{v1alpha1.ScaleSetFinalizer},
		},
		Spec: x.wantedSet(),
	}
	if err := controllerutil.SetControllerReference(x.pool, set, x.Client.Scheme()); err != nil {
		return fmt.Errorf("owning the scale set's record: %w", err)
	}
	return kube.Apply(ctx, x.Client, set)
}
