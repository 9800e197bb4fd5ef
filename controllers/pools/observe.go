// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// observation is everything that one pass knows about its pool when it decides.
type observation struct {
	pool *v1alpha1.RunnerPool // as read
	now  time.Time
	// denied is why the pool may not use its connection; nil if it may.
	denied       error
	policies     appliedPolicies
	template     templateState
	revisions    storedRevisions
	registration registration
	github       scaleset.Snapshot
	runners      runnerList
	counts       v1alpha1.RunnerCounts
	health       health
	cache        poolCache
	demand       poolDemand
	scale        currentScale
	// memory is the state for the next pass, as determined so far.
	memory poolMemory
}

func (o observation) key() types.NamespacedName { return client.ObjectKeyFromObject(o.pool) }

// observe gathers all facts that a decision needs. On the way it stores what runners require: the ControllerRevision of the
// template and the record of the scale set. On an error it returns what it has gathered so far.
func (r *Reconciler) observe(ctx context.Context, pool *v1alpha1.RunnerPool, memory poolMemory) (o observation, err error) {
	o = observation{pool: pool, now: r.Now(), memory: memory}
	o.template = templateState{revision: pool.Status.Revision, verdict: pool.Status.Policy}
	if o.denied, err = r.authorize(ctx, pool); err != nil {
		return o, err
	}
	isNew := o.lastLimits() == nil && !memory.policiesRead // the cache may show a pool before an older policy
	o.memory.policiesRead = o.memory.policiesRead || isNew
	if o.policies, err = r.resolvePolicies(ctx, isNew, pool, o.denied); err != nil {
		return o, err
	}
	o.policies.areLate, o.memory.loadingSince = isLate(o)
	if pool.Spec.Observes() {
		o.registration = r.registrationOf(ctx, pool)
	} else if o, err = r.observeRunners(ctx, o); err != nil {
		return o, err
	}
	if o.denied == nil {
		if o.registration, err = r.look(ctx, pool, o.registration); err != nil {
			return o, err
		}
	}
	if r.Versions != nil {
		o.template.version = r.Versions.Of(o.key())
	}
	o.counts = countRunners(o)
	o.demand = r.readDemand(o)
	o.scale = scaleNow(o)
	o.memory.lastJob, o.memory.planned = o.scale.lastJob, o.scale.planned
	former := memory.trial
	if o.health.retries { // earlier successes prove nothing about a retry
		former = trial{}
	}
	o.memory.trial = former.after(o.template.revision, o.runners)
	return o, nil
}

// observeRunners adds what only a pool with its own runners has.
func (r *Reconciler) observeRunners(ctx context.Context, o observation) (_ observation, err error) {
	o.template, err = r.storeTemplate(ctx, o.pool, o.policies, o.memory)
	if o.memory.hiddenRevisions = o.template.hidden; err != nil {
		return o, err
	}
	o.memory.template = o.template.accepted
	if o.registration, err = r.record(ctx, o.pool, o.denied); err != nil {
		return o, err
	}
	// Corral takes the snapshot of GitHub before it lists the runners. The list then also contains runners that were created
	// after the snapshot, and the state of a runner takes into account that GitHub reported its job as completed.
	o.now = r.Now()
	o.github, _ = r.Sessions.Snapshot(o.key())
	there, err := r.list(ctx, o)
	if err != nil {
		return o, err
	}
	o.runners, o.memory.held = there.runners, r.reportHeld(o, there.held)
	if o.revisions, err = r.readRevisions(ctx, o.pool, o.policies, o.template); err != nil {
		return o, err
	}
	if o.cache, err = r.readCache(ctx, o); err != nil {
		return o, err
	}
	results := r.Results.SinceLastPass(o.key()) // last: results taken here are reported in this pass or never
	o.cache.missed(results.Missed)
	o.memory.expectations.avoid(results.Failures)
	o.health = checkHealth(o, results)
	o.health.pods = keptTooLong(o.pool, there.kept, o.now)
	o.memory.health, o.runners = o.health.memory, o.runners.with(o.health.failed)
	return o, nil
}

// observed is one runner with its state.
type observed struct {
	runner  *v1alpha1.Runner
	verdict poolstatus.Assessment
	// node is the node of its pod; empty if there is none.
	node   string
	hasPod bool
	retirement
}

// isEnding reports whether the runner is being deleted.
func (o observed) isEnding() bool { return !o.runner.DeletionTimestamp.IsZero() }

// waits reports whether the runner is starting or idle, and so has no job.
func (o observed) waits() bool {
	return o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle
}

// runnerList has a pool's runners, sorted by name.
type runnerList []observed

// count returns how many runners are in one of the states.
func (l runnerList) count(states ...v1alpha1.RunnerState) int32 {
	var n int32
	for _, o := range l {
		if slices.Contains(states, o.verdict.State) {
			n++
		}
	}
	return n
}

// live counts the runners that are starting, idle or busy.
func (l runnerList) live() int32 {
	return l.count(v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
}

// with returns a copy of the list in which the runners that states names have the given states.
func (l runnerList) with(states map[string]poolstatus.Assessment) runnerList {
	list := slices.Clone(l)
	for i, o := range list {
		if v, ok := states[o.runner.Name]; ok {
			list[i].verdict = v
		}
	}
	return list
}

// listed is the result of list.
type listed struct {
	runners runnerList
	// kept are the kept pods of failed runners, and held the ended Runners that other controllers keep.
	kept []*corev1.Pod
	held []*v1alpha1.Runner
}

// list returns the pool's runners with their states, including new ones that the cache does not show yet. All objects
// belong to the cache and must not be changed. list also drops what sessions and jobs remember about other runners.
func (r *Reconciler) list(ctx context.Context, o observation) (there listed, err error) {
	shown := &v1alpha1.RunnerList{}
	mine := []client.ListOption{client.InNamespace(o.key().Namespace), client.MatchingLabels{v1alpha1.PoolLabel: o.pool.Name}, client.UnsafeDisableDeepCopy}
	if err := r.Client.List(ctx, shown, mine...); err != nil {
		return there, fmt.Errorf("listing runners: %w", err)
	}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, mine...); err != nil {
		return there, fmt.Errorf("listing pods: %w", err)
	}
	podOf := make(map[string]*corev1.Pod, len(pods.Items))
	names := podspec.NameStem(o.pool.Name, o.pool.UID)
	for i := range pods.Items {
		pod := &pods.Items[i]
		podOf[pod.Name] = pod
		o.memory.expectations.skip(names, pod.Name) // including pods of runners that are gone
		if pod.Annotations[v1alpha1.KeptUntilAnnotation] != "" {
			there.kept = append(there.kept, pod)
		}
	}
	var all []*v1alpha1.Runner
	others := 0 // of an earlier pool with the name
	for i := range shown.Items {
		switch x := &shown.Items[i]; {
		case metav1.IsControlledBy(x, o.pool):
			all = append(all, x)
		case !x.IsReleased():
			others++
		}
	}
	setLeft(o.key(), others)
	hidden, err := r.hidden(ctx, o, all) // the names of held runners are taken, too
	if err != nil {
		return there, err
	}
	all = slices.DeleteFunc(append(all, hidden...), func(x *v1alpha1.Runner) bool {
		if x.IsReleased() {
			there.held = append(there.held, x)
		}
		return x.IsReleased()
	})
	slices.SortFunc(all, func(a, b *v1alpha1.Runner) int { return strings.Compare(a.Name, b.Name) })
	present := make(map[string]bool, len(all))
	for _, runner := range all {
		present[runner.Name] = true
		x := observed{runner: runner, verdict: r.stateOf(runner, podOf[runner.Name], o), retirement: r.retirementOf(runner, o)}
		if pod := podOf[runner.Name]; pod != nil {
			x.node, x.hasPod = pod.Spec.NodeName, podspec.BelongsTo(pod, runner)
		}
		there.runners = append(there.runners, x)
	}
	keep := func(name string) bool { return present[name] }
	r.Sessions.Retain(o.key(), keep)
	r.Jobs.Retain(o.key(), keep)
	return there, nil
}

// hidden returns the runners that this process created and the cache does not show. If the cache has not shown some for a
// while, hidden asks the API server. If they exist, the watch may be silent although requests work, so hidden restarts it.
func (r *Reconciler) hidden(ctx context.Context, o observation, shown []*v1alpha1.Runner) ([]*v1alpha1.Runner, error) {
	names := podspec.NameStem(o.pool.Name, o.pool.UID)
	missing, overdue := o.memory.expectations.missing(names, shown, o.now)
	if !overdue {
		return missing, nil
	}
	list := &v1alpha1.RunnerList{}
	if err := r.Live.List(ctx, list, client.InNamespace(o.key().Namespace), client.MatchingLabels{v1alpha1.PoolLabel: o.pool.Name}); err != nil {
		return nil, fmt.Errorf("listing runners that the watch doesn't show: %w", err)
	}
	there := make(map[string]*v1alpha1.Runner, len(list.Items))
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], o.pool) {
			there[list.Items[i].Name] = &list.Items[i]
		}
	}
	if n := o.memory.expectations.confirm(missing, there, o.now); n > 0 && r.Watches.Restart("runners") {
		r.Event(o.pool, corev1.EventTypeWarning, runners.WatchSilent,
			fmt.Sprintf("the Runner watch did not show %s for %s although API requests succeed: restarting the watch", wording.Count(n, "runner"), askAfter))
		kube.Warn(ctx, "A watch is silent", "resource", "runners", "missing", n)
	}
	missing, _ = o.memory.expectations.missing(names, shown, o.now)
	return missing, nil
}

// stateOf determines a runner's state from its object, its pod and GitHub's last reports.
func (r *Reconciler) stateOf(runner *v1alpha1.Runner, pod *corev1.Pod, o observation) poolstatus.Assessment {
	if pod != nil && !podspec.BelongsTo(pod, runner) {
		pod = nil
	}
	seen := *runner // a copy, because it is changed below
	seen.Status.Job, _ = r.Results.LastJob(runner)
	id := runner.Status.RunnerID
	if id == 0 && pod != nil {
		id = podspec.RegistrationOf(pod)
	}
	for _, events := range []map[string]scaleset.JobEvent{o.github.Started, o.github.Completed} {
		if e, ok := events[runner.Name]; ok && e.IsAbout(id) {
			seen.Status.Job = runners.Merge(seen.Status.Job, e)
		}
	}
	if at, over := r.Results.Completion(client.ObjectKeyFromObject(runner), runner.UID); over && runner.Spec.REST != nil {
		job := v1alpha1.JobReference{ID: v1alpha1.UnknownJob}
		switch {
		case seen.Status.Job != nil:
			job = *seen.Status.Job
		case pod != nil && poolstatus.JobOf(pod) != nil:
			job = *poolstatus.JobOf(pod)
		}
		job.CompletedAt = &metav1.Time{Time: at}
		seen.Status.Job = &job
	}
	x := r.awaitRecord(runner, poolstatus.Observe(&seen, pod, o.pool.Spec.Deadlines.GetStartup(), o.now), o.now)
	return r.awaitCount(runner, poolstatus.Assess(x, o.now), o.now)
}

// awaitRecord uses now as the time of ends and restarts that the runner controller has not recorded yet. The clock of the
// node may be wrong, and the runner controller will record when it first saw them.
func (r *Reconciler) awaitRecord(runner *v1alpha1.Runner, x poolstatus.Observation, now time.Time) poolstatus.Observation {
	if runner.Status.EndedAt == nil {
		x.Noticed = now
	}
	if !x.Restarting.IsZero() && !r.Results.HasFailed(client.ObjectKeyFromObject(runner), runner.UID) {
		x.Restarting = now
	}
	return x
}

// awaitCount marks a runner that just failed as settling until the runner controller has recorded the failure, for a few
// seconds at most. The pool does not replace the runner before that, because this failure may open the circuit.
func (r *Reconciler) awaitCount(runner *v1alpha1.Runner, verdict poolstatus.Assessment, now time.Time) poolstatus.Assessment {
	counts := verdict.State == v1alpha1.RunnerFailed && verdict.Cause != "" && now.Sub(verdict.Since).Abs() < passing
	if counts && !r.Results.HasFailed(client.ObjectKeyFromObject(runner), runner.UID) {
		verdict.Settling = true
	}
	return verdict
}

// countRunners counts the runners by state. Outdated runners are those that differ from new runners.
func countRunners(o observation) v1alpha1.RunnerCounts {
	var c v1alpha1.RunnerCounts
	for _, x := range o.runners {
		poolstatus.Count(&c, x.verdict.State, x.runner.Spec.Revision != o.template.revision || o.isStray(x.runner))
	}
	return c
}

// soonest returns the shortest positive delay, or 0 if there is none.
func soonest(waits ...time.Duration) time.Duration {
	var least time.Duration
	for _, w := range waits {
		if w > 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return least
}
