// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// busyRetry is the time to the next attempt to deregister a runner that has a job.
	// The end of its pod is noticed at once; this is for what no watch shows.
	busyRetry = 15 * time.Second
	// lingering is how long a runner's container may go on after its job is over.
	lingering = time.Minute
	// podGone is how long a pod may take to go, beyond its grace period: longer, and its
	// node is gone with it. Kubernetes removes it when the node comes back or is deleted.
	podGone = 2 * time.Minute
	// orphanAfter is how long deregistering waits for a connection or rights that are gone.
	orphanAfter = 5 * time.Minute
	// untoldAfter is that of a runner of which nobody can tell whether it has a job: as long as GitHub
	// gives a job by default.
	untoldAfter = 6 * time.Hour
)

// finalize ends a runner: GitHub forgets it first, so that no job can reach it,
// then its pod goes, then its finalizer. A runner with a job is waited for.
func (x *run) finalize(ctx context.Context) error {
	if err := x.observe(ctx); err != nil {
		return err
	}
	if x.terminated() != "" { // GitHub lets go of a runner with a job only when that is gone
		if err := x.deletePod(ctx); err != nil {
			return err
		}
	}
	if left := x.lingers(); left > 0 {
		return kube.Progress(left, "its job is over; waiting for its container to end")
	}
	if err := x.deregister(ctx); err != nil {
		return err
	}
	if err := x.deletePod(ctx); err != nil {
		return err
	}
	base := x.runner.DeepCopy()
	controllerutil.RemoveFinalizer(x.runner, v1alpha1.RunnerFinalizer)
	if err := x.Client.Patch(ctx, x.runner.DeepCopy(), client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting go of the runner: %w", err)
	}
	x.gone, x.note.released = true, true
	return nil
}

// jobOver says whether GitHub told that the runner's job completed.
func (x *run) jobOver() bool {
	job := x.runner.Status.Job
	completed, _ := x.completion()
	return job != nil && job.CompletedAt != nil || !completed.IsZero()
}

// lingers returns how much longer a container may go on whose job is over: it may have
// things to put away. GitHub's word is often quicker than that of the node, so it may
// not be seen running, or at all, yet.
func (x *run) lingers() time.Duration {
	hasPod := x.pod != nil || x.note.podMade
	if !hasPod || x.runner.Status.EndedAt != nil || !x.jobOver() {
		return 0
	}
	since := x.runner.DeletionTimestamp.Time
	if completed, _ := x.completion(); completed.After(since) {
		since = completed
	}
	return lingering - x.Now().Sub(since)
}

// completion is when GitHub said that the job was over, the zero time if it wasn't noted,
// and whether the runner's registration ended with it.
func (x *run) completion() (time.Time, bool) {
	return x.Notes.completion(client.ObjectKeyFromObject(x.runner), x.runner.UID)
}

// forgotten says whether GitHub has no registration to remove: it forgets an ephemeral
// runner itself when that reports the end of its job. An exit without an error makes sure
// that the runner had no trouble with that.
func (x *run) forgotten() bool {
	_, forgotten := x.completion()
	return x.note.deregistered || x.runner.Status.DeregisteredAt != nil || x.runner.Status.EndedClean && forgotten
}

// deregister removes the registration, once.
func (x *run) deregister(ctx context.Context) error {
	if x.forgotten() {
		return nil
	}
	gh, ok := x.client(ctx)
	if !ok {
		return x.orphan(ctx)
	}
	id, err := x.registration(ctx, gh)
	if err != nil || id == 0 {
		return err
	}
	switch err := gh.remove(ctx, id); {
	case github.IsUnauthorized(err), github.IsForbidden(err):
		return x.giveUp(github.Summary(err))
	case github.IsJobStillRunning(err):
		x.note.busy = true // which the session may not tell any more
		return kube.Progress(busyRetry, "its job goes on; the runner ends after it")
	case err != nil:
		return x.githubOutcome(err)
	}
	x.note.deregistered = true
	x.runner.Status.DeregisteredAt = &metav1.Time{Time: x.Now()}
	return nil
}

// registration finds the id of the registration; 0 when there is none, or none that is the runner's. What this process did not
// make itself is read back from GitHub: an id in a status, a Secret or on a pod may be that of another's runner.
func (x *run) registration(ctx context.Context, gh registrar) (int64, error) {
	x.recall()
	if x.note.made {
		return x.note.registration, nil
	}
	known, err := gh.find(ctx, x.runner.Status.RunnerID)
	if err != nil {
		return 0, x.githubOutcome(err)
	}
	if known == nil || known.foreign != "" {
		return 0, nil
	}
	x.runner.Status.RunnerID = known.id
	if own, err := x.isOwn(ctx); err != nil || !own {
		x.unproven = err == nil
		return 0, cmp.Or(err, x.giveUp(fmt.Sprintf("nothing shows that RunnerPool %q registered it", x.runner.Spec.PoolRef.Name)))
	}
	return known.id, nil
}

// isOwn says whether a registration with the runner's name, and with its scale set or one of its labels, is its own: its pool holds
// the scale set, or no pool of another namespace marks runners with one of the labels.
func (x *run) isOwn(ctx context.Context) (bool, error) {
	var uids []types.UID
	if owner := metav1.GetControllerOf(x.runner); owner != nil {
		uids = append(uids, owner.UID)
	}
	pools := &v1alpha1.RunnerPoolList{}
	if err := x.Client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking whose the runner is: %w", err)
	}
	for i := range pools.Items {
		switch p := &pools.Items[i]; {
		case p.Namespace != x.runner.Namespace:
			if rest := x.runner.Spec.REST; rest != nil && slices.Contains(rest.Labels, v1alpha1.OwnerLabel(x.Cluster, string(p.UID))) {
				return false, nil
			}
		case p.Name == x.runner.Spec.PoolRef.Name:
			uids = append(uids, p.UID) // its owner's is another after a restore
		}
	}
	return x.runner.Spec.REST != nil || slices.ContainsFunc(uids, func(uid types.UID) bool {
		return x.Sets.Holds(x.poolKey(), x.connectionKey(), uid, x.runner.Spec.ScaleSetID)
	}), nil
}

// orphan waits for a connection that isn't ready; one that is gone, or was replaced, is given up.
func (x *run) orphan(ctx context.Context) error {
	if x.elsewhere {
		return x.giveUp(fmt.Sprintf("GitHubConnection %q isn't for %s any more", x.runner.Spec.ConnectionRef.Name, x.runner.Spec.REST.URL))
	}
	if x.denied {
		return x.giveUp(x.Access.Denial(x.connectionKey(), x.runner.Namespace))
	}
	gone, err := connections.Gone(ctx, x.Client, x.connectionKey())
	if err != nil {
		return err
	}
	if !gone {
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "deregistering needs GitHubConnection %q", x.runner.Spec.ConnectionRef.Name)
	}
	return x.giveUp(fmt.Sprintf("GitHubConnection %q is gone", x.runner.Spec.ConnectionRef.Name))
}

// giveUp waits a bounded time for rights that were taken away; then the registration is
// left to GitHub, which purges it after about a day. A runner known to have a job is
// waited for all the same, and one that may have a job for long: it ends with it.
func (x *run) giveUp(why string) error {
	patience := orphanAfter
	if x.isUntold() {
		patience = untoldAfter
	}
	busy := x.verdict.State == v1alpha1.RunnerBusy && !x.jobOver() || x.note.busy && x.runs()
	if busy || x.Now().Sub(x.runner.DeletionTimestamp.Time) < patience {
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "deregistering: %s", why)
	}
	orphansTotal.Inc()
	x.Event(x.runner, corev1.EventTypeWarning, v1alpha1.ConnectionNotReadyReason,
		fmt.Sprintf("runner %d may still be registered on GitHub: %s", x.runner.Status.RunnerID, why))
	return nil
}

// isUntold says whether a runner's container runs, and only GitHub could tell whether it has a job. The
// session of a scale set tells of jobs as they begin, but is closed without consent, or another's; webhooks may be late or not used at all.
func (x *run) isUntold() bool {
	return (x.runner.Spec.REST != nil || x.denied || x.unproven) && x.runs()
}

// runs says whether the container runs, and nothing tells of a job.
func (x *run) runs() bool {
	s := &x.runner.Status
	return s.StartedAt != nil && s.EndedAt == nil && s.Job == nil && !x.jobOver()
}

// deletePod deletes the pod, within its grace period, and waits for one that still
// runs to go. It is never a busy one: its registration could not have been removed.
func (x *run) deletePod(ctx context.Context) error {
	if err := x.findPod(ctx); err != nil || x.pod == nil {
		return err
	}
	if x.pod.DeletionTimestamp.IsZero() && !x.Notes.isEnding(client.ObjectKeyFromObject(x.pod), x.pod.UID) {
		uid := x.pod.UID
		if err := x.Client.Delete(ctx, x.pod, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the pod: %w", err)
		}
		x.note.podEnded = uid
	}
	if x.runner.Status.EndedAt != nil {
		return nil
	}
	if over := x.pod.DeletionTimestamp; over != nil && x.Now().After(over.Add(podGone)) {
		x.Event(x.runner, corev1.EventTypeWarning, string(v1alpha1.CauseRemoved),
			fmt.Sprintf("pod %s was deleted and doesn't go: its node %q is likely gone; the runner is let go, Kubernetes removes the pod with the node", x.pod.Name, x.pod.Spec.NodeName))
		return nil
	}
	return kube.Progress(poolstatus.Settle, "waiting for the pod to end")
}

// findPod looks for a pod that the cache may not show yet: one that was created just
// before the runner was ended would stay behind for ever.
func (x *run) findPod(ctx context.Context) error {
	if x.pod != nil || x.runner.Status.StartedAt != nil {
		return nil
	}
	pod := &corev1.Pod{}
	if err := x.Live.Get(ctx, client.ObjectKeyFromObject(x.runner), pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("looking for the pod: %w", err)
	}
	if podspec.BelongsTo(pod, x.runner) {
		x.pod = pod
	}
	return nil
}
