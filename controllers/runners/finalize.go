// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// busyRetry is the delay before the next attempt to deregister a runner that has a job. The end of its pod triggers an
	// attempt at once; the delay covers changes that no watch shows.
	busyRetry = 15 * time.Second
	// lingering is how long a runner's container may keep running after its job is over.
	lingering = time.Minute
	// podGone is how long a pod may take to disappear beyond its grace period. After that its node is assumed to be gone.
	// Kubernetes removes the pod when the node comes back or is deleted.
	podGone = 2 * time.Minute
	// orphanAfter is how long the clean-up of a runner waits for a missing connection or missing rights.
	orphanAfter = 5 * time.Minute
	// jobUnknownAfter is how long deregistration waits for a runner that may or may not have a job. GitHub's default job
	// time-out is as long.
	jobUnknownAfter = 6 * time.Hour
)

// finalize cleans up after a Runner was deleted. It first removes the registration on GitHub, so that no job can reach the
// runner, and waits while the runner has a job. Then it deletes the pod and the objects that the runner's container hooks
// left behind. If a user terminates the runner, it deletes the pod first, together with the job.
func (p pass) finalize(ctx context.Context) error {
	o := p.observe(nil)
	state := decide(o, p.Now())
	p.project(o, state)
	if p.terminationReason() != "" { // GitHub deregisters a runner with a job only after the runner is gone
		if err := p.endPod(ctx, o, state); err != nil {
			return err
		}
	}
	if left := p.containerTime(); left > 0 {
		return kube.Progress(left, catalog.ContainerEnding.With(p.Now().Add(left).UTC().Format(wording.Clock)))
	}
	if err := p.deregister(ctx, state); err != nil {
		return err
	}
	if err := p.endPod(ctx, o, state); err != nil {
		return err
	}
	return p.deleteLeftovers(ctx)
}

// letGo removes the finalizer. If another controller's finalizer keeps the object, letGo first records in the status how
// the runner ended.
func (p pass) letGo(ctx context.Context, attempt *kube.Attempt) error {
	if others := slices.DeleteFunc(slices.Clone(p.runner.Finalizers), func(f string) bool { return f == v1alpha1.RunnerFinalizer }); len(others) > 0 {
		s := &p.runner.Status
		if s.State != v1alpha1.RunnerFinished && (s.State != v1alpha1.RunnerFailed || s.Cause == "") {
			s.State, s.Reason = v1alpha1.RunnerFinished, "ended"
		}
		s.ObservedGeneration = p.runner.Generation
		conditions.Delete(p.runner, v1alpha1.ReconcilingCondition)
		kube.Mark(p.runner, v1alpha1.ReadyCondition, causeOfEnd(s.State, s.Reason), catalog.FinalizerKeeps.With(strings.Join(others, ", ")))
		if err := attempt.Save(ctx); err != nil {
			return err
		}
	}
	base := p.runner.DeepCopy()
	controllerutil.RemoveFinalizer(p.runner, v1alpha1.RunnerFinalizer)
	if err := p.Client.Patch(ctx, p.runner.DeepCopy(), client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of the runner: %w", err)
	}
	p.memory.end.released = time.Now()
	return nil
}

// jobOver reports whether GitHub reported that the runner's job completed.
func (p pass) jobOver() bool {
	if p.runner.Persists() {
		return false // a persistent runner does not end with a job
	}
	job := p.runner.Status.Job
	return job != nil && job.CompletedAt != nil || !p.completion().at.IsZero()
}

// containerTime returns how much longer the container of a runner whose job is over may run, for example to clean up; 0 or
// less if finalize need not wait. GitHub often reports the end of a job before the node reports the end of the container,
// and the cache may not even show the pod yet.
func (p pass) containerTime() time.Duration {
	hasPod := p.pod != nil || !p.memory.pod.created.IsZero()
	if !hasPod || p.runner.Status.EndedAt != nil || !p.jobOver() {
		return 0
	}
	since := p.runner.DeletionTimestamp.Time
	if completed := p.completion().at; completed.After(since) {
		since = completed
	}
	return lingering - p.Now().Sub(since)
}

func (p pass) completion() completion {
	return p.Memory.completion(client.ObjectKeyFromObject(p.runner), p.runner.UID)
}

// isDeregistered reports whether GitHub has no registration left to remove. GitHub itself removes an ephemeral runner that
// reports the end of its job. A clean exit confirms that the runner was able to report it.
func (p pass) isDeregistered() bool {
	s := &p.runner.Status
	return p.memory.end.deregistered || s.DeregisteredAt != nil || s.EndedClean && p.completion().forgotten
}

// deregister removes the registration, unless it is already gone.
func (p pass) deregister(ctx context.Context, state poolstatus.Assessment) error {
	if p.isDeregistered() {
		return nil
	}
	gh, access := p.client(ctx)
	if access != allowed {
		return p.withoutClient(ctx, access, state)
	}
	known, err := p.ownRegistration(ctx, gh, state)
	switch {
	case err != nil:
		return err
	case known == nil:
		return p.awaitAbsence(ctx, gh, state)
	case known.foreign != "":
		p.recordOver()
		return nil
	}
	err = gh.remove(ctx, known.id)
	if github.IsNotFound(err) {
		if p.memory.absence.removal.IsZero() {
			p.memory.absence.removal = p.Now()
		}
		return p.awaitAbsence(ctx, gh, state)
	}
	p.memory.absence = absence{}
	switch {
	case github.IsJobStillRunning(err):
		p.memory.busy = true // the session may not report the job any more
		p.memory.claim.died = p.memory.claim.died || p.runner.Status.EndedAt != nil
		// The job is not recorded on the pod: GitHub also gives this answer for runners that never connected. Those runners
		// would look busy forever.
		return p.withJob()
	case err != nil:
		return p.withoutRights(state, err)
	}
	p.recordOver()
	p.setDeregistered()
	return nil
}

// withoutRights returns the outcome of a failed call. If GitHub refuses the credentials, it waits a limited time and then
// gives up the registration. After other errors, it waits and retries.
func (p pass) withoutRights(state poolstatus.Assessment, err error) error {
	switch {
	case github.IsUnauthorized(err):
		return p.giveUp(state, catalog.CredentialsRefused.With().Wrap(github.Summarize(err)))
	case github.IsForbidden(err):
		return p.giveUp(state, catalog.PermissionMissing.With().Wrap(github.Summarize(err)))
	}
	return p.githubOutcome(err)
}

// withJob returns the outcome while GitHub keeps the registration because the runner has a job.
func (p pass) withJob() error {
	switch {
	case p.jobOver():
		return kube.Progress(busyRetry, catalog.RegistrationHeld.With())
	case p.runner.Status.EndedAt != nil:
		return kube.Progress(busyRetry, catalog.JobFailing.With())
	case p.pool == nil || !p.pool.DeletionTimestamp.IsZero():
		return kube.Progress(busyRetry, catalog.JobOfDeletedPool.With())
	}
	return kube.Progress(busyRetry, catalog.JobRunning.With())
}

// recordOver records the end of a job that no event reported. Only GitHub's refusal to remove the registration showed the
// job, and GitHub does not refuse any more.
func (p pass) recordOver() {
	at := p.memory.absence.since
	if at.IsZero() {
		at = p.Now()
	}
	if p.memory.busy && !p.runner.Persists() && !p.jobOver() {
		p.Memory.recordCompletion(client.ObjectKeyFromObject(p.runner), p.runner.UID, completion{at: at, forgotten: true})
	}
}

// ownRegistration finds the registration to remove. It returns nil if GitHub does not know the registration, or a
// registration with foreign set if the registration must not be removed. If this process did not create the registration,
// it is first looked up on GitHub, because the ID in a status, in a Secret or on a pod may belong to another runner. If
// GitHub does not know the ID, the caller still tries to remove the registration, because only that call is proof.
func (p pass) ownRegistration(ctx context.Context, gh registrar, state poolstatus.Assessment) (*registered, error) {
	id, err := p.knownID(ctx)
	p.runner.Status.RunnerID = id
	if err == nil && p.runs() && !p.isJobReported() {
		err = p.awaitLook()
	}
	if err != nil || p.memory.registered && p.memory.absence.since.IsZero() {
		return &registered{id: id}, err
	}
	return p.findOwn(ctx, gh, state, id)
}

// findOwn finds the registration by its ID or by the runner's name.
func (p pass) findOwn(ctx context.Context, gh registrar, state poolstatus.Assessment, id int64) (*registered, error) {
	known, err := gh.find(ctx, id)
	absent := err == nil && p.isAbsent(known)
	if !absent && p.runs() {
		p.memory.absence = absence{}
	}
	switch {
	case err != nil:
		return nil, p.githubOutcome(err)
	case known == nil && id != 0:
		return p.vouched(ctx, gh, state, &registered{id: id}, true)
	case absent && (known == nil || p.runs()):
		return nil, nil
	case known.foreign != "":
		return known, p.waitForNamesake(known)
	}
	p.runner.Status.RunnerID = known.id
	return p.vouched(ctx, gh, state, known, false)
}

// vouched returns a registration if it certainly belongs to the runner, or if its scale set does not exist any more. If
// GitHub does not know the registration (absent), there is nothing to give up, and vouched returns nil. Otherwise it waits
// a limited time and then gives up the registration.
func (p pass) vouched(ctx context.Context, gh registrar, state poolstatus.Assessment, known *registered, absent bool) (*registered, error) {
	if p.memory.registered {
		return known, nil
	}
	own, err := p.isOwn(ctx)
	switch {
	case err != nil, own:
		return known, err
	case absent:
		return nil, nil
	case github.IsNotFound(gh.check(ctx)): // without its scale set, the registration belongs to no pool and gets no job
		return known, nil
	}
	why := catalog.RegistrationUnproved.With(p.runner.Spec.PoolRef.Name)
	return &registered{foreign: why.String()}, p.giveUp(state, why)
}

// knownID returns the ID of the runner's registration from this process's memory, the status or the pod, or else from the
// Secret; 0 if none of them contains it.
func (p pass) knownID(ctx context.Context) (int64, error) {
	if p.memory.registered && p.memory.unstored != nil {
		return p.memory.unstored.RunnerID, nil
	}
	if p.memory.registered {
		return p.memory.registration, nil
	}
	if id := p.registrationID(); id != 0 || p.runner.Persists() {
		return id, nil
	}
	err := p.readSecret(ctx)
	if apierrors.IsNotFound(err) || errors.As(err, new(*conflictError)) || kube.ReasonOf(err, "") != "" { // there is no Secret, or it does not belong to the runner
		err = nil
	}
	return p.memory.registration, err
}

// waitForNamesake waits while a registration with the runner's name but different labels has a job. As long as the runner's
// container runs, that registration may still belong to this runner.
func (p pass) waitForNamesake(known *registered) error {
	s := &p.runner.Status
	if p.runner.Spec.REST != nil && known.busy && p.pod != nil && s.StartedAt != nil && s.EndedAt == nil && p.terminationReason() == "" {
		return kube.Progress(busyRetry, catalog.OtherRegistrationBusy.With(known.id, known.foreign))
	}
	return nil
}

// isOwn reports whether a registration with the runner's name, in its scale set or with one of its labels, belongs to the
// runner. A runner with a scale set owns the registration if its pool holds the scale set. A runner without one owns it
// unless a pool of another namespace has one of the labels as its owner label.
func (p pass) isOwn(ctx context.Context) (bool, error) {
	if rest := p.runner.Spec.REST; rest != nil {
		return p.isUnmarked(ctx, rest.Labels)
	}
	var uids []types.UID
	if owner := metav1.GetControllerOf(p.runner); owner != nil {
		uids = append(uids, owner.UID)
	}
	pool := &v1alpha1.RunnerPool{}
	switch err := p.Client.Get(ctx, p.poolKey(), pool); {
	case err == nil:
		uids = append(uids, pool.UID) // after a restore, the owner's UID differs
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("looking for the pool of the runner: %w", err)
	}
	return slices.ContainsFunc(uids, func(uid types.UID) bool {
		return p.Sets.Holds(p.poolKey(), p.connectionKey(), uid, p.runner.Spec.ScaleSetID)
	}), nil
}

// isUnmarked reports whether none of the labels is the owner label of a pool in another namespace.
func (p pass) isUnmarked(ctx context.Context, labels []string) (bool, error) {
	for _, label := range slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return !v1alpha1.IsOwnerLabel(l) }) {
		pools := &v1alpha1.RunnerPoolList{}
		if err := p.Client.List(ctx, pools, client.MatchingFields{kube.OwnerField: label}, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("looking for the pool of the runner: %w", err)
		}
		if slices.ContainsFunc(pools.Items, func(pool v1alpha1.RunnerPool) bool { return pool.Namespace != p.runner.Namespace }) {
			return false, nil
		}
	}
	return true, nil
}

// withoutClient returns the outcome if the connection has no client that may be used. It waits for a connection that is not
// ready. If the connection is gone, leads to another place on GitHub or denies access, it waits a limited time and then
// gives up the registration.
func (p pass) withoutClient(ctx context.Context, access access, state poolstatus.Assessment) error {
	name := p.runner.Spec.ConnectionRef.Name
	switch access {
	case moved:
		return p.giveUp(state, catalog.ConnectionMoved.With(name, p.runner.Spec.REST.URL))
	case denied:
		return p.giveUp(state, p.Access.Denial(p.connectionKey(), p.runner.Namespace))
	}
	gone, err := connections.Gone(ctx, p.Client, p.connectionKey())
	if err != nil {
		return err
	}
	if !gone {
		return connections.NotReady(ctx, p.Client, p.connectionKey())
	}
	return p.giveUp(state, catalog.ConnectionGone.With(name))
}

// giveUp waits a limited time for lost rights, and then leaves the registration on GitHub, which removes it after about a
// day. While the runner is known to have a job, giveUp waits without limit. A runner whose container runs may have an
// unknown job, so giveUp waits longer for it: whatever prevents the removal of the registration also prevents the session
// from reporting jobs. giveUp reports and counts a registration that it leaves once.
func (p pass) giveUp(state poolstatus.Assessment, why catalog.Cause) error {
	timeout := orphanAfter
	if p.runsWithoutJob() {
		timeout = jobUnknownAfter
	}
	busy := state.State == v1alpha1.RunnerBusy && !p.jobOver() || p.memory.busy && p.runsWithoutJob()
	if busy || p.Now().Sub(p.runner.DeletionTimestamp.Time) < timeout {
		return kube.Wait(connectionRetry, why, catalog.Deregistering.With())
	}
	if p.memory.end.abandoned { // the passes that wait for the end of the pod do not report it again
		return nil
	}
	p.memory.end.abandoned = true
	orphansTotal.Inc()
	p.Event(p.runner, corev1.EventTypeWarning, catalog.Of(why.Code).Reason,
		fmt.Sprintf("runner %d may still be registered on GitHub: %s", p.runner.Status.RunnerID, why))
	return nil
}

// runsWithoutJob reports whether the container runs and no job is known.
func (p pass) runsWithoutJob() bool {
	s := &p.runner.Status
	return s.StartedAt != nil && s.EndedAt == nil && p.runner.CurrentJob() == nil && !p.jobOver()
}

// deletePod deletes the pod with its grace period. If the container has not ended, it waits until the pod is gone. Unless a
// user terminates the runner, the pod has no job, because GitHub does not remove the registration of a runner with a job.
func (p pass) deletePod(ctx context.Context) error {
	pod, err := p.findPod(ctx)
	if err != nil || pod == nil {
		return err
	}
	only := client.Preconditions{UID: &pod.UID}
	if p.mayStart(pod) {
		only.ResourceVersion = &pod.ResourceVersion
	}
	if pod.DeletionTimestamp.IsZero() && !p.Memory.isPodDeleted(client.ObjectKeyFromObject(pod), pod.UID) {
		err := p.Client.Delete(ctx, pod, only)
		if apierrors.IsConflict(err) {
			return kube.Progress(busyRetry, catalog.PodChanged.With()) // a change of the pod triggers an earlier attempt
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the pod: %w", err)
		}
		log.FromContext(ctx).V(1).Info("Deleted", "deleted", "Pod "+client.ObjectKeyFromObject(pod).String(), "revision", p.runner.Spec.Revision, "reason", "its Runner ended")
		p.memory.pod.deleted, p.memory.pod.asked = pod.UID, time.Now()
	}
	if p.runner.Status.EndedAt != nil {
		return nil
	}
	if over := pod.DeletionTimestamp; over != nil && p.Now().After(over.Add(podGone)) {
		p.reportStuck(pod)
		return nil
	}
	return kube.Progress(poolstatus.Settle, catalog.PodEnding.With())
}

// reportStuck emits an event about a pod that outlives its deletion, once.
func (p pass) reportStuck(pod *corev1.Pod) {
	if p.memory.pod.stuck {
		return
	}
	p.memory.pod.stuck = true
	p.Event(p.runner, corev1.EventTypeWarning, string(v1alpha1.CauseRemoved),
		fmt.Sprintf("pod %s was deleted but still exists, probably because its node %q is gone; Corral releases the runner, and Kubernetes removes the pod with the node", pod.Name, pod.Spec.NodeName))
}

// mayStart reports whether a persistent runner may register and get a job before the cache shows that its container
// started. In that case, deletePod deletes the pod only if the pod has not changed since it was read.
func (p pass) mayStart(pod *corev1.Pod) bool {
	return p.runner.Persists() && p.runner.Status.StartedAt == nil && !poolstatus.HasEnded(pod)
}

// findPod returns the runner's pod; nil if there is none. It also asks the API server for a pod that the cache may not show
// yet. Otherwise a pod that was created just before the Runner was deleted would stay forever.
func (p pass) findPod(ctx context.Context) (*corev1.Pod, error) {
	if p.pod != nil || p.runner.Status.StartedAt != nil {
		return p.pod, nil
	}
	pod := &corev1.Pod{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.runner), pod); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("looking for the pod: %w", err)
	} else if err != nil || !podspec.BelongsTo(pod, p.runner) {
		return nil, nil
	}
	return pod, nil
}
