// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/podspec"
)

// parallel bounds how many runners of one pool are created or ended at once.
const parallel = 32

// act carries out the plan. Capacity is announced first: what GitHub may assign
// must not wait for pods.
func (x *run) act(ctx context.Context) error {
	x.Sessions.Announce(x.key, int(x.plan.Announce))
	ends := len(x.plan.Drain) + len(x.step.End)
	if x.plan.Create > 0 || ends > 0 {
		log.FromContext(ctx).Info("Scaling", "desired", x.plan.Desired, "supply", x.plan.Supply,
			"create", x.plan.Create, "drain", ends, "announce", x.plan.Announce, "reason", x.plan.Reason)
	}
	return errors.Join(x.create(ctx), x.drain(ctx), x.endLost(ctx), x.sweepRevisions(ctx))
}

func (x *run) create(ctx context.Context) error {
	spec := x.registration()
	if x.plan.Create == 0 || spec == nil {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range x.plan.Create {
		g.Go(func() error { return x.createOne(ctx, *spec, x.step.Of(i)) })
	}
	return g.Wait()
}

// createOne creates one runner of a revision. It is expected from before the request on, so that
// no later pass counts it as missing, whatever the cache shows and the answer was.
func (x *run) createOne(ctx context.Context, spec v1alpha1.RunnerSpec, revision string) error {
	var err error
	spec.Revision = revision
	if spec.TemplateDigest, err = podspec.Digest(x.known[revision]); err != nil {
		return fmt.Errorf("making a runner of revision %s: %w", revision, err)
	}
	name := stem(x.pool.Name, x.pool.UID) + strconv.FormatInt(x.recall.next(), 10)
	r := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.key.Namespace, Name: name, Finalizers: []string{v1alpha1.RunnerFinalizer},
			Labels: podspec.Labels(podspec.Runner{Name: name, Pool: x.pool.Name, Revision: revision}, nil),
		},
		Spec: spec,
	}
	if err := controllerutil.SetControllerReference(x.pool, r, x.Client.Scheme()); err != nil {
		return fmt.Errorf("owning a runner: %w", err)
	}
	r.CreationTimestamp = metav1.Time{Time: x.Now()}
	x.recall.expect(r.DeepCopy())
	r.CreationTimestamp = metav1.Time{}
	switch err := x.Client.Create(ctx, r); {
	case apierrors.IsAlreadyExists(err):
		return nil // the cache is stale: it is there, and stays expected until it shows
	case err != nil:
		x.recall.failed(name)
		return fmt.Errorf("creating a runner: %w", err)
	}
	createdTotal.WithLabelValues(x.key.Namespace, x.key.Name).Inc()
	return nil
}

// drain ends the runners that an update replaces, and those that are surplus.
func (x *run) drain(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, name := range slices.Concat(x.step.End, x.plan.Drain) {
		g.Go(func() error {
			r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: x.key.Namespace, Name: name}}
			if err := x.Client.Delete(ctx, r); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("ending runner %s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// endLost ends the runners that this pass has given up.
func (x *run) endLost(ctx context.Context) error {
	var errs []error
	for _, r := range x.lost {
		errs = append(errs, runners.End(ctx, x.Client, r))
	}
	return errors.Join(errs...)
}

// decision is what was decided, and what the decision before was.
func (x *run) decision() *v1alpha1.Decision {
	d := &v1alpha1.Decision{
		Time: metav1.Time{Time: x.Now()}, Desired: x.plan.Desired, Announced: x.plan.Announce, Reason: x.plan.Reason,
		ID: x.asked.ID, Digest: x.asked.Digest, Limits: x.limits,
	}
	last := x.pool.Status.Decision
	if len(x.failures) > 0 && last != nil {
		d.ID, d.Digest = last.ID, last.Digest // the limits are of that one
	}
	if x.limits != nil {
		if x.limits.Hard {
			d.Waiting = max(0, x.pool.Status.Jobs-x.plan.Desired)
		}
		d.Reason += because(x.limits.Bounds)
	}
	if last != nil {
		d.Before = &v1alpha1.DecidedNumbers{Desired: last.Desired, Announced: last.Announced}
		if last.Limits != nil {
			d.Before.Max = last.Limits.Max
		}
	}
	return d
}

// sameDecision says whether two decisions differ in nothing but their time, their id, what was before, and when
// they end: rules may say another time in each.
func sameDecision(a, b *v1alpha1.Decision) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	for _, d := range []*v1alpha1.Decision{&x, &y} {
		d.Time, d.ID, d.Before = metav1.Time{}, "", nil
		if d.Limits != nil {
			d.Limits = d.Limits.DeepCopy()
			d.Limits.Until = nil
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}
