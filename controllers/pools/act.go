// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/wording"
)

// parallel limits how many runners of one pool are created or ended concurrently.
const parallel = 32

// act carries out a decision. It announces capacity first, because GitHub's assignment of jobs must not wait for pods. For
// a pool that only observes, it does nothing.
func (r *Reconciler) act(ctx context.Context, o observation, d decision) error {
	if o.pool.Spec.Observes() {
		return nil
	}
	r.Sessions.Announce(o.key(), int(max(0, d.plan.Announce-o.elsewhere()))) // GitHub counts only the jobs of this scale set
	if o.health.refresh {
		r.Sessions.Refresh(o.key())
	}
	for _, s := range o.health.suspects {
		r.Results.SuspectSome(o.key().Namespace, s, o.health.memory.connected, o.now)
	}
	r.markFailed(o)
	countFailed(o)
	logFailed(ctx, o)
	r.reportRetired(o, d)
	ends := slices.Concat(d.step.End, d.plan.Drain)
	spec := o.registration.newRunner(o.pool, o.denied)
	if spec == nil { // no runner can register now, for example because the scale set is not known yet
		d.plan.Create = 0
	}
	if d.plan.Create > 0 || len(ends) > 0 {
		log.FromContext(ctx).Info("Scaling", "desired", d.plan.Desired, "supply", d.plan.Supply,
			"create", d.plan.Create, "drain", len(ends), "announce", d.plan.Announce, "reason", d.plan.Reason)
	}
	endErr := o.memory.health.undeleted.err
	if isDue := o.now.Sub(o.memory.health.undeleted.at) >= runners.EndRetry; isDue || len(ends)+len(o.health.failed) == 0 {
		endErr = errors.Join(r.drain(ctx, o, d), r.endFailed(ctx, o))
	}
	return errors.Join(r.create(ctx, o, d, spec), endErr, r.deletePods(ctx, o.health.pods), r.sweepRevisions(ctx, o, d.step.State), r.Claims.Remove(ctx, o.pool, r.Reporter, o.cache.claims, o.cache.useless))
}

// create creates the missing runners.
func (r *Reconciler) create(ctx context.Context, o observation, d decision, spec *v1alpha1.RunnerSpec) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range d.plan.Create {
		g.Go(func() error { return r.createOne(ctx, o, *spec.DeepCopy(), d.step.Of(i)) })
	}
	return g.Wait()
}

// createOne creates one runner of a revision. It records the runner as expected before it sends the request, so that no
// later pass creates the runner again while the cache does not show it. Only if the API server refuses the request does it
// stop expecting the runner.
func (r *Reconciler) createOne(ctx context.Context, o observation, spec v1alpha1.RunnerSpec, revision string) error {
	var err error
	spec.Revision = revision
	if spec.TemplateDigest, err = podspec.Digest(o.revisions.templates[revision]); err != nil {
		return fmt.Errorf("building a runner of revision %s: %w", revision, err)
	}
	declared := o.pool.Spec.Deadlines.GetStartup()
	if deadline := o.memory.health.circuits[revision].Rounds.Patience(declared); deadline > declared {
		spec.StartupDeadline = &metav1.Duration{Duration: deadline}
	}
	spec.HooksAccount = podspec.HooksAccount(o.revisions.templates[revision])
	spec.WorkFolder = podspec.WorkFolder(o.revisions.templates[revision])
	expected := o.memory.expectations
	name := podspec.NameStem(o.pool.Name, o.pool.UID) + strconv.FormatInt(expected.next(), 10)
	runner := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.key().Namespace, Name: name, Finalizers: []string{v1alpha1.RunnerFinalizer},
			Labels:      podspec.Labels(podspec.Runner{Name: name, Pool: o.pool.Name, Revision: revision}, o.pool.Spec.LabelsOfObjects()),
			Annotations: o.pool.Spec.AnnotationsOfObjects(),
		},
		Spec: spec,
	}
	if err := controllerutil.SetControllerReference(o.pool, runner, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of a runner: %w", err)
	}
	shown := runner.DeepCopy()
	shown.CreationTimestamp = metav1.Time{Time: r.Now()}
	expected.expect(shown)
	switch err := r.Client.Create(ctx, runner); {
	case apierrors.IsAlreadyExists(err):
		return nil // the cache is stale: the runner exists, and stays expected until the cache shows it
	case err != nil:
		// After any other error, the runner may exist: the cache will show it, or a later pass asks the API server.
		if isRefusal(err) {
			expected.forget(name)
		}
		switch {
		case runners.IsQuota(err):
			return kube.Wait(createRetry, catalog.RunnerQuota.With().Wrap(err))
		case kube.IsRefused(err):
			return kube.Wait(createRetry, catalog.RunnerCreationRefused.With().Wrap(err))
		}
		return fmt.Errorf("creating a runner: %w", err)
	}
	createdTotal.WithLabelValues(o.key().Namespace, o.key().Name).Inc()
	return nil
}

// isRefusal reports whether the API server answered that it did not perform the request.
func isRefusal(err error) bool {
	isAnswer := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	return isAnswer && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err)
}

// drainedEvent is the event reason for runners without a job that a pool ended.
const drainedEvent = "RunnersEnded"

// maxNamed limits how many runners an event names.
const maxNamed = 10

// drain ends stray runners, surplus runners, and runners that an update replaces. One event names all runners that end for
// the same reason.
func (r *Reconciler) drain(ctx context.Context, o observation, d decision) error {
	why := map[string]string{}
	for _, name := range d.plan.Drain {
		why[name] = "surplus: " + d.plan.Reason
	}
	for _, name := range d.step.End {
		why[name] = replacedFor(d.step.State, o.template.revision)
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	ended := make([]string, len(o.runners)) // reason, by index of the runner
	for i, x := range o.runners {
		reason, ends := why[x.runner.Name]
		if !ends {
			continue
		}
		reason = cmp.Or(x.why, o.whyStray(x.runner), reason)
		g.Go(func() error {
			isThere, err := r.end(ctx, x.runner, reason)
			if err == nil && isThere && !x.retires() { // reportRetired emits an event for a runner that retires
				ended[i] = reason
			}
			return err
		})
	}
	err := g.Wait()
	names := map[string][]string{}
	for i, reason := range ended {
		if reason != "" {
			names[reason] = append(names[reason], o.runners[i].runner.Name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		list := names[reason]
		r.Event(o.pool, corev1.EventTypeNormal, drainedEvent, fmt.Sprintf("%s without a job: %s; %s", wording.Count(len(list), "runner"), wording.List(list, maxNamed), reason))
	}
	return err
}

// end deletes a Runner, and reports whether the API server still had it. If not, the watch may have missed its deletion. If
// the cache keeps showing the Runner, Corral reads all objects again.
func (r *Reconciler) end(ctx context.Context, runner *v1alpha1.Runner, why string) (isThere bool, err error) {
	isThere, err = runners.End(ctx, r.Client, runner, why)
	if err == nil && !isThere && runner.UID != "" && r.Watches.Ghost(runner.UID) {
		kube.Warn(ctx, "The API server does not have a Runner that the cache shows: all objects are read again", "runner", runner.Name)
	}
	return isThere, err
}

// replacedFor returns why an update ends a runner.
func replacedFor(u *v1alpha1.UpdateStatus, to string) string {
	if u != nil && u.Phase == v1alpha1.UpdateRolledBack {
		return "the update to revision " + to + " was rolled back"
	}
	return "update to revision " + to
}

// markFailed records the runners that this pass gave up in the memory of the runner controller, so that it does not count
// them again.
func (r *Reconciler) markFailed(o observation) {
	for _, x := range o.givenUp() {
		r.Results.MarkFailed(client.ObjectKeyFromObject(x.runner), x.runner.UID, x.verdict)
		reason, message := string(v1alpha1.RunnerFailed), fmt.Sprintf("%s: %s", x.verdict.Cause, x.verdict.Reason)
		if x.verdict.Cause == v1alpha1.CauseRefused {
			reason, message = v1alpha1.PolicyDeniedReason, x.verdict.Reason
		}
		r.Event(x.runner, corev1.EventTypeNormal, reason, message) // another runner replaces it, and the pool warns if none can
	}
}

// endFailed deletes the Runners that this pass gave up. The runner controller deregisters them before it stops their pods,
// so none of them can have a job then.
func (r *Reconciler) endFailed(ctx context.Context, o observation) error {
	var errs []error
	for _, x := range o.givenUp() {
		_, err := r.end(ctx, x.runner, x.verdict.Reason)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
