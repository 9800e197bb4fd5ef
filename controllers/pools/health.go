// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/scaling"
)

// healthy is how long a runner must have been idle to count as healthy. While an update tries its template, the connect
// deadline of the pool applies instead.
const healthy = 10 * time.Second

// passing is how long GitHub may fail to register a runner before the pool's status reports it, and how long a failed
// runner counts as settling until the runner controller has recorded the failure.
const passing = 5 * time.Second

// health is one pass's evaluation of the runners' states.
type health struct {
	// failed maps the names of the runners that this pass gives up to their new state.
	failed map[string]poolstatus.Assessment
	// failures has the failures since the last pass, including the runners that this pass gives up.
	failures []runners.Failure
	// retries is true in the pass that acts on a retry request.
	retries bool
	// suspects are groups of runners with registrations that need a check.
	suspects []poolstatus.Suspects
	// pods are the kept pods of failed runners whose time has expired.
	pods []*corev1.Pod
	// refresh is true if GitHub should be asked for newer counts.
	refresh  bool
	holds    []scaling.Hold
	notReady notReady
	memory   healthMemory
	// lookAgain is the delay after which health may change; 0 for none.
	lookAgain time.Duration
}

// healthMemory is what this process remembers about the runners' health.
type healthMemory struct {
	// connected has the runners that GitHub certainly counted as online.
	connected map[string]bool
	// unsettled is the last time at which a runner was ending, or had ended and still existed.
	unsettled time.Time
	// counts is true once GitHub counted a runner of the pool. Some servers never count any.
	counts bool
	// circuits has the circuits of the revisions that new runners may use.
	circuits map[string]scaling.Circuit
	// failures has the last failures, newest first; nil before the first pass.
	failures []v1alpha1.RunnerFailure
	// retried is the last handled value of the retry annotation.
	retried string
	// notReady is the reason that last prevented a runner from getting a pod.
	notReady notReady
	// refusal is the last refusal of a new Runner by the API server. It is reset when a Runner is created or none is missing.
	refusal refusal
	// undeleted is the last refusal by the API server to delete Runners. It is reset when no deletion is refused.
	undeleted undeleted
	// interruption describes how external causes end runners.
	interruption interruption
}

// refusal is when and why the API server refused to create a Runner; the zero value for never.
type refusal struct {
	at     time.Time
	causes []catalog.Cause
}

// createRetry is the delay before the next attempt to create a Runner after the API server refused one.
const createRetry = 10 * time.Second

// hold limits the pool after a refusal to as many jobs as it has runners, and to one attempt to create another runner per
// createRetry. It also returns the time until that attempt; 0 when it is due.
func (r refusal) hold(live int32, now time.Time) (scaling.Hold, time.Duration) {
	h := scaling.Hold{Announce: live, Reason: fmt.Sprintf("the API server admits %d Runners", live)}
	if left := r.at.Add(createRetry).Sub(now); left > 0 {
		return h, left
	}
	h.Create = 1
	return h, 0
}

// after returns the refusal to remember after a pass. err is the error of the pass.
func (r refusal) after(o observation, d *decision, err error) refusal {
	switch reason := kube.ReasonOf(err, ""); {
	case reason == v1alpha1.QuotaExceededReason, reason == v1alpha1.RunnerRefusedReason:
		return refusal{o.now, kube.CausesOf(err)}
	case err == nil && d != nil && (d.plan.Create > 0 || d.plan.Supply >= d.plan.Desired):
		return refusal{}
	}
	return r
}

// notReady is why a pool is not ready although its connection and template are valid; the zero value for no reason.
type notReady struct {
	causes []catalog.Cause
	// runner is the name of the runner that has the problem; empty if no runner does.
	runner string
}

// carry returns n while the runner that had the problem is being replaced and its replacement has no pod yet. Otherwise
// Ready would turn True each time that a runner is given up.
func (n notReady) carry(list runnerList) notReady {
	shows := slices.IndexFunc(list, func(x observed) bool { return x.runner.Name == n.runner })
	if len(n.causes) == 0 || shows >= 0 && list[shows].waits() && !list[shows].isEnding() {
		return notReady{} // the runner made progress
	}
	next := slices.IndexFunc(list, func(x observed) bool {
		return x.verdict.State == v1alpha1.RunnerPending && !x.isEnding() && !x.hasPod
	})
	switch {
	case next >= 0:
		n.runner = list[next].runner.Name
	case shows < 0:
		return notReady{}
	}
	return n
}

// denied is the hold of a pool whose template policies deny.
var denied = scaling.Hold{Reason: "policies deny the template"}

// checkHealth gives up runners that policies now deny, suspects runners that GitHub may not see, and counts consecutive
// failures. It holds the pool back while runners wait for a quota or for cache claims.
func checkHealth(o observation, results runners.Results) health {
	h := health{failed: evictDenied(o.runners, o.revisions.denied, o.now), retries: o.isToRetry(), memory: o.memory.health}
	h.failures = append(slices.Clip(results.Failures), failuresOf(o, h.failed)...)
	h.memory.failures = lastFailures(o, h.failures)
	if o.revisions.denied[o.template.revision] != "" {
		h.holds = append(h.holds, denied)
	}
	o.runners = o.runners.with(h.failed)
	s := o.github.Statistics
	h.memory.counts = h.memory.counts || o.github.Known && s.RegisteredRunners+s.IdleRunners+s.BusyRunners > 0
	if slices.ContainsFunc(o.runners, func(x observed) bool { return x.isEnding() || !x.waits() && x.verdict.State != v1alpha1.RunnerBusy }) {
		h.memory.unsettled = o.now
	}
	c := checkConnections(o, h.memory)
	h.suspects, h.refresh, h.memory.connected = []poolstatus.Suspects{c.suspects}, c.refresh, c.connected
	if o.github.Known && h.memory.counts { // these runners may be busy only according to Corral
		h.suspects = append(h.suspects, poolstatus.Overdue(o.staying(v1alpha1.RunnerBusy), s.BusyRunners, o.github.Counted))
	}
	left := o.leftBehind()
	h.suspects = append(h.suspects, poolstatus.Overdue(left, 0, o.now))
	o.memory.health.connected = c.connected
	if h.retries {
		o.memory.health.circuits, h.memory.retried = map[string]scaling.Circuit{}, o.pool.Annotations[v1alpha1.RetryAnnotation]
	}
	h.memory.circuits = countFailures(o, results)
	h.memory.interruption = o.memory.health.interruption.after(o, results, h.failures)
	hold, quota := checkQuota(o.runners, o.sources(o.pool.Status.Update))
	h.holds = append(h.holds, hold...)
	admitted, claims := checkClaims(o.pool, o.runners, o.sources(o.pool.Status.Update))
	h.holds = append(h.holds, admitted...)
	registration, wait := checkRegistration(o.runners, o.now)
	h.notReady = registration.or(quota).or(claims)
	h.notReady = h.notReady.or(o.memory.health.notReady.carry(o.runners))
	h.memory.notReady = h.notReady
	h.lookAgain = soonest(c.next, wait)
	if r := h.memory.refusal; !r.at.IsZero() {
		hold, next := r.hold(o.runners.live(), o.now)
		h.holds, h.lookAgain = append(h.holds, hold), soonest(h.lookAgain, next)
		h.notReady = h.notReady.or(notReady{causes: r.causes})
	}
	if len(left) > 0 {
		h.lookAgain = soonest(h.lookAgain, runners.SuspectInterval)
	}
	return h
}

// or returns the first of the two that has a reason.
func (n notReady) or(other notReady) notReady {
	if len(n.causes) == 0 {
		return other
	}
	return n
}

// evictDenied gives up runners without a job whose template policies now deny. planUpdate ensures that no new runners use a
// denied template.
func evictDenied(list runnerList, denied map[string]string, now time.Time) map[string]poolstatus.Assessment {
	failed := map[string]poolstatus.Assessment{}
	for _, x := range list {
		if why := denied[x.runner.Spec.Revision]; why != "" && x.waits() && !x.isEnding() {
			failed[x.runner.Name] = poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: why, Since: now, Cause: v1alpha1.CauseRefused}
		}
	}
	return failed
}

// connectionCheck is the result of comparing GitHub's count of online runners with the pool's idle runners.
type connectionCheck struct {
	suspects  poolstatus.Suspects
	refresh   bool
	connected map[string]bool
	next      time.Duration
}

// checkConnections finds runners that GitHub may not see. GitHub's counts have no names and are sometimes wrong, so they
// only raise suspicion and never end a runner.
func checkConnections(o observation, m healthMemory) connectionCheck {
	if !o.github.Known || o.github.Counted.IsZero() || o.github.State != scaleset.Listening {
		return connectionCheck{connected: m.connected}
	}
	s := o.github.Statistics
	online := poolstatus.Online{Count: s.IdleRunners + s.BusyRunners, At: o.github.Counted, Unsettled: m.unsettled}
	seen := poolstatus.Connections(o.staying(v1alpha1.RunnerIdle), len(o.staying(v1alpha1.RunnerBusy)), online, o.pool.Spec.Deadlines.GetConnect(), o.now)
	c := connectionCheck{suspects: seen.Suspects, refresh: seen.Ask, next: seen.Next, connected: map[string]bool{}}
	if seen.Suspects.Missing > 0 {
		c.next = soonest(c.next, runners.SuspectInterval)
	}
	for _, x := range o.runners {
		if m.connected[x.runner.Name] {
			c.connected[x.runner.Name] = true
		}
	}
	for _, r := range seen.Sure {
		c.connected[r.Name] = true
	}
	return c
}

// givenUp returns the runners that this pass gives up.
func (o observation) givenUp() (list runnerList) {
	for _, x := range o.runners {
		if _, ok := o.health.failed[x.runner.Name]; ok {
			list = append(list, x)
		}
	}
	return list
}

// staying returns the runners of the current scale set that are in a state and are not being deleted.
func (o observation) staying(state v1alpha1.RunnerState) []poolstatus.Runner {
	var list []poolstatus.Runner
	set := o.registration.set
	for _, x := range o.runners {
		isHere := set == nil || x.runner.Spec.ScaleSetID == set.Status.ID // GitHub's counts are per scale set
		if isHere && x.verdict.State == state && !x.isEnding() {
			list = append(list, poolstatus.Runner{Name: x.runner.Name, Since: x.verdict.Since})
		}
	}
	return list
}

// leftBehind returns the runners with a job in an earlier scale set of the pool. If GitHub has lost that scale set, it
// neither counts these runners nor reports the end of their jobs.
func (o observation) leftBehind() []poolstatus.Runner {
	var list []poolstatus.Runner
	for _, x := range o.runners {
		if o.isElsewhere(x) && !x.isEnding() {
			list = append(list, poolstatus.Runner{Name: x.runner.Name, Since: x.verdict.Since})
		}
	}
	return list
}

// isElsewhere reports whether a runner has a job of an earlier scale set of the pool. GitHub's counts for the current scale
// set do not include that job.
func (o observation) isElsewhere(x observed) bool {
	set := o.registration.set
	return set != nil && set.Status.ID != 0 && x.runner.Spec.ScaleSetID != set.Status.ID && x.verdict.State == v1alpha1.RunnerBusy
}

// elsewhere counts the runners that have jobs of an earlier scale set of the pool.
func (o observation) elsewhere() int32 {
	var n int32
	for _, x := range o.runners {
		if o.isElsewhere(x) {
			n++
		}
	}
	return n
}

// countFailures opens and closes the circuits of the revisions that new runners may use.
func countFailures(o observation, results runners.Results) map[string]scaling.Circuit {
	circuits := map[string]scaling.Circuit{}
	for _, revision := range o.sources(o.pool.Status.Update) {
		circuits[revision] = recalled(o, revision)
		if c, ok := o.memory.health.circuits[revision]; ok {
			circuits[revision] = c
		}
	}
	names, issued := podspec.NameStem(o.pool.Name, o.pool.UID), o.memory.expectations.issued()
	for _, f := range results.Failures {
		if c, ok := circuits[f.Revision]; ok && !f.HadJob && o.isCertain(f) {
			if f.Clean && podspec.CommandMissing(o.revisions.templates[f.Revision]) != "" {
				f.Message += `: GitHub's image starts nothing by itself; set command: ["/home/runner/run.sh"]`
			}
			c = c.Failed(f.Cause, f.Message, f.Began, f.At)
			c.Rounds = c.Rounds.Failed(podspec.NumberOf(names, f.Runner), issued, f.Cause, f.Message, f.At)
			circuits[f.Revision] = c
		}
	}
	for revision, c := range circuits {
		circuits[revision] = o.afterSuccesses(c, results.Worked[revision])
	}
	return circuits
}

// recalled returns the circuit of a revision from the status, if this process has not reconciled the pool yet. The circuit
// is closed if the specification has changed since, because that may have been the fix.
func recalled(o observation, revision string) scaling.Circuit {
	s := &o.pool.Status
	if o.memory.health.circuits != nil || s.ObservedGeneration != o.pool.Generation || s.Update != nil {
		return scaling.Circuit{Revision: revision}
	}
	return scaling.Recall(revision, s.Health)
}

// afterSuccesses resets a circuit and its rounds if runners of its revision succeeded. worked is the last runner of the
// revision that got a job.
func (o observation) afterSuccesses(c scaling.Circuit, worked runners.Worked) scaling.Circuit {
	if podspec.NumberOf(podspec.NameStem(o.pool.Name, o.pool.UID), worked.Runner) > c.Rounds.Issued || o.hasNewSuccess(c) {
		c.Rounds = scaling.Rounds{}
	}
	if !worked.Began.IsZero() && c.IsNewer(worked.Began) || o.succeeded(c) {
		c = c.Succeeded()
	}
	return c
}

// hasNewSuccess reports whether a runner created after the last failed round has a job, or has waited for one long enough.
func (o observation) hasNewSuccess(c scaling.Circuit) bool {
	names := podspec.NameStem(o.pool.Name, o.pool.UID)
	return slices.ContainsFunc(o.runners, func(x observed) bool {
		return podspec.NumberOf(names, x.runner.Name) > c.Rounds.Issued && o.hasSucceeded(c, x)
	})
}

// hasSucceeded reports whether a runner of the circuit's revision has a job, or has waited for one long enough.
func (o observation) hasSucceeded(c scaling.Circuit, x observed) bool {
	state := x.verdict.State
	return x.runner.Spec.Revision == c.Revision && (state == v1alpha1.RunnerBusy || state == v1alpha1.RunnerIdle && o.isWell(c, x))
}

// succeeded reports whether a runner of the circuit's revision got a job since the last failure, or waits for one in good
// health.
func (o observation) succeeded(c scaling.Circuit) bool {
	return slices.ContainsFunc(o.runners, func(x observed) bool {
		return o.hasSucceeded(c, x) && c.IsNewer(x.verdict.Since)
	})
}

// isWell reports whether an idle runner has passed the point at which other runners failed.
func (o observation) isWell(c scaling.Circuit, x observed) bool {
	if c.Cause == v1alpha1.CauseNeverConnected && !o.memory.health.counts {
		// This server counts no runners. If the runner does not connect, the next list of runners after the deadline shows it.
		return o.now.Sub(x.verdict.Since) >= o.pool.Spec.Deadlines.GetConnect()+runners.ListedWithin
	}
	if c.Cause == v1alpha1.CauseNeverConnected {
		return o.memory.health.connected[x.runner.Name]
	}
	if u := o.pool.Status.Update; u != nil && u.To == c.Revision {
		return o.now.Sub(x.verdict.Since) >= o.pool.Spec.Deadlines.GetConnect() // an update does not trust a runner earlier
	}
	return o.now.Sub(x.verdict.Since) >= healthy
}

// isCertain reports whether a failure is certain. A runner that exited with code 0 may have had a job, unless the session
// had been open for the time Settle when the runner ended.
func (o observation) isCertain(f runners.Failure) bool {
	return !f.Clean || o.github.State == scaleset.Listening && f.At.Sub(o.github.Since) >= poolstatus.Settle
}

// hold returns what an open circuit allows, and the delay until its next probe.
func (o observation) hold(c scaling.Circuit) (scaling.Hold, time.Duration) {
	free := len(o.staying(v1alpha1.RunnerIdle)) + len(o.staying(v1alpha1.RunnerPending)) // these may still get a job
	return c.Hold(o.runners.count(v1alpha1.RunnerBusy), int32(free), o.probes(c), o.now) //nolint:gosec // far below
}

// probes counts the runners whose success or failure the circuit still awaits.
func (o observation) probes(c scaling.Circuit) int32 {
	var n int32
	for _, x := range o.runners {
		mayTell := x.verdict.State == v1alpha1.RunnerPending || x.verdict.State == v1alpha1.RunnerIdle && c.IsNewer(x.verdict.Since)
		if mayTell && x.runner.Spec.Revision == c.Revision && !x.isEnding() {
			n++
		}
	}
	return n
}

// checkQuota limits the pool to the runners that a ResourceQuota admits while a runner waits for the quota.
func checkQuota(list runnerList, sources []string) ([]scaling.Hold, notReady) {
	return checkWaiting(list, sources, v1alpha1.CauseQuota, v1alpha1.QuotaExceededReason, "the namespace's quota admits %d of its runners")
}

// checkWaiting limits the pool to the runners that have a certain resource, while a runner of one of the revisions waits
// for that resource.
func checkWaiting(list runnerList, sources []string, cause v1alpha1.RunnerCause, reason, admits string) ([]scaling.Hold, notReady) {
	admitted := list.live()
	var waiting *v1alpha1.Runner
	for _, x := range list {
		if x.runner.Status.Cause == cause && x.verdict.State == v1alpha1.RunnerPending && !x.isEnding() && slices.Contains(sources, x.runner.Spec.Revision) {
			waiting = x.runner
			admitted--
		}
	}
	if waiting == nil {
		return nil, notReady{}
	}
	return []scaling.Hold{{Announce: admitted, Reason: fmt.Sprintf(admits, admitted)}},
		shownBy(waiting, reason)
}

// shownBy returns the causes in a runner's status if they have the given reason, and otherwise a cause with this reason and
// the runner's text. It adds the name of the runner.
func shownBy(r *v1alpha1.Runner, reason string) notReady {
	causes := kube.CausesAt(r, v1alpha1.ReadyCondition)
	if len(causes) == 0 || catalog.Of(causes[0].Code).Reason != reason {
		causes = []catalog.Cause{catalog.Text(reason, r.Status.Reason)}
	}
	return notReady{append(causes, catalog.OfRunner.With(r.Name)), r.Name}
}

// checkRegistration returns why GitHub registers no runners, or the delay after which the status reports it.
func checkRegistration(list runnerList, now time.Time) (notReady, time.Duration) {
	var wait time.Duration
	for _, x := range list {
		if x.runner.Status.Cause != v1alpha1.CauseGitHub || x.verdict.State != v1alpha1.RunnerPending || x.isEnding() {
			continue
		}
		if age := now.Sub(x.runner.CreationTimestamp.Time); age < passing {
			wait = soonest(wait, passing-age)
			continue
		}
		reason := conditions.GetReason(x.runner, v1alpha1.ReadyCondition)
		switch reason {
		case v1alpha1.ProgressingReason:
			continue // temporary
		case v1alpha1.ProgressingWithRetryReason:
			reason = v1alpha1.GitHubUnavailableReason
		}
		return shownBy(x.runner, reason), wait
	}
	return notReady{}, wait
}
