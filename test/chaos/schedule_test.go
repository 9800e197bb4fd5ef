// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

const (
	duration       = 60 * time.Second
	pools          = 20
	connections    = 4
	jobsPerSecond  = 2.0
	githubFaults   = 130
	podFaults      = 60
	instants       = 30
	nodesPerStorm  = 3
	longestJob     = 3 * time.Second
	longestGitHub  = 12 * time.Second // of a fault
	longestOutage  = 8 * time.Second  // of a revoked token
	longestNodeOut = 15 * time.Second
	maxRunners     = 6  // per pool
	spareAttempts  = 24 // per pool and storm, for faults that hit no pods
	// steady is the number of pools without faults that look like a template's fault. updates is the number of
	// template updates of each of them.
	steady, updates = 3, 2
)

func poolName(i int) string { return fmt.Sprintf("pool-%02d", i) }

// labelOf returns the label of jobs for a pool index. Jobs beyond the last index are for the pool of persistent
// runners.
func labelOf(i int) string {
	if i >= pools {
		return staying
	}
	return poolName(i)
}

func connectionName(i int) string { return fmt.Sprintf("org-%d", i%connections) }

// step is one entry of a schedule.
type step struct {
	at   time.Duration
	what string
	do   func(ctx context.Context, s *storm)
}

// arrival is a job that arrives at a given time.
type arrival struct {
	at  time.Duration
	job githubsim.Job
}

// schedule contains all events of a storm. It depends only on the seed.
type schedule struct {
	steps    []step
	arrivals []arrival
}

// planner builds a schedule.
type planner struct {
	*rand.Rand
	namespace string
	replicas  int
	schedule
}

func plan(seed uint64, namespace string, replicas int) schedule {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 42)), namespace: namespace, replicas: replicas}
	for range githubFaults {
		p.githubFault()
	}
	for range podFaults {
		p.podFault()
	}
	for range instants {
		p.instant()
	}
	p.nodes()
	p.kills()
	p.jobs()
	p.updates()
	for range apiFaults {
		p.apiFault()
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p.schedule
}

func (p *planner) add(at time.Duration, do func(ctx context.Context, s *storm), format string, args ...any) {
	p.steps = append(p.steps, step{at: at.Round(time.Millisecond), what: fmt.Sprintf(format, args...), do: do})
}

// between returns a random duration in a range.
func (p *planner) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(p.Int64N(int64(to-from)+1))).Round(time.Millisecond)
}

// moment returns a random start time for an event.
func (p *planner) moment() time.Duration { return p.between(0, duration-2*time.Second) }

func pick[T any](p *planner, from []T) T { return from[p.IntN(len(from))] }

// replica returns the index of a random replica.
func (p *planner) replica() int {
	if p.replicas == 1 {
		return 0
	}
	return p.IntN(p.replicas)
}

func (p *planner) pool() string { return poolName(p.IntN(pools)) }

// calls lists the endpoints that the controller calls, most frequent first.
var calls = []githubsim.Endpoint{
	githubsim.EndpointGetMessage, githubsim.EndpointJITConfig, githubsim.EndpointDeleteMessage, githubsim.EndpointDeleteAgent,
	githubsim.EndpointCreateSession, githubsim.EndpointRefreshSession, githubsim.EndpointGetScaleSet, githubsim.EndpointFindAgent,
	githubsim.EndpointGetAgent, githubsim.EndpointFindScaleSet, githubsim.EndpointCreateScaleSet, githubsim.EndpointUpdateScaleSet,
	githubsim.EndpointDeleteSession, githubsim.EndpointRegistrationToken, githubsim.EndpointDeleteRunner, githubsim.EndpointRunnerRegistration, githubsim.EndpointRunners,
}

// changes lists the calls whose answer may be lost after GitHub made the change.
var changes = []githubsim.Endpoint{
	githubsim.EndpointJITConfig, githubsim.EndpointJITConfig, githubsim.EndpointCreateSession, githubsim.EndpointCreateScaleSet,
	githubsim.EndpointDeleteAgent, githubsim.EndpointDeleteMessage, githubsim.EndpointRefreshSession, githubsim.EndpointDeleteSession,
}

// runnerCalls lists the calls of runners, which retry a few times.
var runnerCalls = []githubsim.Endpoint{
	githubsim.EndpointRunnerSession, githubsim.EndpointRunnerMessage, githubsim.EndpointRunnerAcknowledge,
	githubsim.EndpointRunnerRenew, githubsim.EndpointRunnerComplete,
}

// alterations lists the possible faults in an answer, by endpoint.
var alterations = []githubsim.Fault{
	{Endpoint: githubsim.EndpointCreateSession, Alter: githubsim.AlterEmptyQueueURL},
	{Endpoint: githubsim.EndpointRefreshSession, Alter: githubsim.AlterEmptyQueueURL},
	{Endpoint: githubsim.EndpointCreateSession, Alter: githubsim.AlterNoStatistics},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterNoStatistics},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterZeroStatistics},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterUnknownOuterType},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterUnknownInnerType},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterReorder},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterDuplicate},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterRedeliver},
	{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterOutOfOrder, Delay: time.Second},
	{Endpoint: githubsim.EndpointDeleteMessage, Alter: githubsim.AlterDuplicate},
	{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning},
	{Endpoint: githubsim.EndpointJITConfig, Alter: githubsim.AlterByteOrderMark},
}

// githubFault schedules a temporary fault of an endpoint, for one pool or for all.
func (p *planner) githubFault() {
	f := githubsim.Fault{Endpoint: calls[min(p.IntN(len(calls)), p.IntN(len(calls)))]}
	switch p.IntN(8) {
	case 0, 1:
		f.Status = pick(p, []int{500, 502, 503})
	case 2:
		f.Status, f.RetryAfter = 429, time.Duration(1+p.IntN(3))*time.Second
	case 3:
		f = githubsim.SecondaryLimit(f.Endpoint, time.Duration(1+p.IntN(3))*time.Second)
	case 4:
		f.Delay = p.between(100*time.Millisecond, 3*time.Second)
		f.Hang = p.IntN(3) == 0
	case 5:
		f = githubsim.Fault{Endpoint: pick(p, changes), DropAnswer: true, Status: pick(p, []int{0, 502})}
	case 6:
		f = pick(p, alterations)
	case 7:
		if p.IntN(3) > 0 {
			f = pick(p, alterations)
			break
		}
		f = githubsim.Fault{Endpoint: pick(p, runnerCalls), DropAnswer: p.IntN(2) == 0, Status: 503, Times: 1 + p.IntN(2)}
	}
	if p.IntN(3) > 0 && f.Times == 0 {
		f.ScaleSet = p.pool()
	}
	if p.IntN(2) == 0 {
		f.Probability = float64(1+p.IntN(9)) / 10
	}
	from, lasts := p.moment(), p.between(time.Second, longestGitHub)
	p.add(from, func(_ context.Context, s *storm) {
		remove := s.github.AddFault(f)
		s.later(min(lasts, duration-from), remove)
	}, "GitHub for %s: %s", lasts, f)
}

// blaming lists the faults that look like the template's, including those that do so only if GitHub reports a job
// late.
var blaming = []nodeplay.FaultKind{nodeplay.ImageRefused, nodeplay.CrashBeforeConnecting, nodeplay.CrashConnected, nodeplay.ListenerKilled}

// external lists the faults that nodes and external actors cause.
var external = []nodeplay.FaultKind{
	nodeplay.NodeEvicts, nodeplay.NodeShutsDown, nodeplay.CriticalPodComes, nodeplay.ContainerLost, nodeplay.OutOfMemory, nodeplay.NodeTainted, nodeplay.Refused,
	nodeplay.SchedulerPreempts, nodeplay.EvictedByAPI, nodeplay.ForceDeleted, nodeplay.DeletedAtOnce, nodeplay.Evicted,
}

// podFault schedules temporary pod faults, mostly in one pool.
func (p *planner) podFault() {
	others := []nodeplay.FaultKind{nodeplay.Unschedulable, nodeplay.KilledInJob, nodeplay.HangsAfterJob, nodeplay.NeverConnects, nodeplay.ClockWrong}
	f := nodeplay.Fault{
		Kind:      pick(p, slices.Concat(blaming, others, external)),
		Namespace: p.namespace, Times: 1 + p.IntN(4), After: p.between(0, time.Second),
	}
	whose := p.pool()
	switch {
	case slices.Contains(blaming, f.Kind):
		whose = poolName(p.IntN(pools - steady))
	case p.IntN(4) == 0:
		whose = "any pool"
	}
	if whose != "any pool" {
		f.Labels = map[string]string{v1alpha1.PoolLabel: whose}
	}
	if p.IntN(2) == 0 {
		f.Probability = float64(1+p.IntN(9)) / 10
	}
	if p.IntN(2) == 0 {
		f.For = p.between(500*time.Millisecond, 10*time.Second)
	}
	if slices.Contains(external, f.Kind) {
		f.InJob = p.IntN(2) == 0
	}
	if f.Kind == nodeplay.ClockWrong {
		f.Clock = p.between(-time.Hour, time.Hour)
	}
	if f.Kind == nodeplay.Refused {
		f.Reason = pick(p, slices.DeleteFunc(nodeplay.Refusals(), func(reason string) bool { return reason == "SysctlForbidden" })) // that one is caused by the template
	}
	from, lasts := p.moment(), p.between(time.Second, longestGitHub)
	p.add(from, func(_ context.Context, s *storm) {
		remove := s.node.Inject(f)
		s.later(min(lasts, duration-from), remove)
	}, "pods of %s for %s: %s %s, at most %d, p=%.1f, after %s, for %s, in a job: %t", whose, lasts, f.Kind, f.Reason, f.Times, f.Probability, f.After, f.For, f.InJob)
}

// isSteady reports whether a pool gets template updates.
func isSteady(pool string) bool {
	return pool >= poolName(pools-steady) && pool < poolName(pools)
}

// updates schedules template updates. The new templates work as well as the previous ones.
func (p *planner) updates() {
	for i := pools - steady; i < pools; i++ {
		for range updates {
			name, version := poolName(i), fmt.Sprintf("v%x", p.Uint32())
			p.add(p.moment(), func(ctx context.Context, s *storm) { s.update(ctx, name, version) }, "%s gets another template", name)
		}
	}
}

// instant schedules an event that GitHub itself initiates.
func (p *planner) instant() {
	at, pool, org, choice := p.moment(), p.pool(), p.IntN(connections), p.Uint64()
	lasts := p.between(time.Second, longestOutage)
	switch p.IntN(8) {
	case 0:
		p.add(at, func(_ context.Context, s *storm) { s.github.ExpireAdminTokens() }, "GitHub ends all admin tokens")
	case 1:
		p.add(at, func(_ context.Context, s *storm) { s.github.ExpireQueueTokens() }, "GitHub ends all queue tokens")
	case 2:
		p.add(at, func(_ context.Context, s *storm) {
			s.github.RevokeToken(token(org))
			s.github.ExpireAdminTokens()
			s.later(min(lasts, duration-at), func() { s.github.AddToken(token(org)) })
		}, "GitHub revokes the token of %s for %s", connectionName(org), lasts)
	case 3:
		p.add(at, func(_ context.Context, s *storm) { s.onScaleSet(pool, s.github.ExpireSession) }, "GitHub ends the session of %s", pool)
	case 4:
		p.add(at, func(_ context.Context, s *storm) {
			s.onScaleSet(pool, func(id int) bool { return s.github.StealSession(id, "elsewhere") })
		}, "another takes the session of %s", pool)
	case 5:
		p.add(at, func(_ context.Context, s *storm) { s.onScaleSet(pool, s.github.ForgetScaleSet) }, "GitHub forgets the scale set of %s", pool)
	case 6:
		p.add(at, func(_ context.Context, s *storm) { s.purge(choice) }, "GitHub purges a registration without a job")
	case 7:
		p.add(at, func(_ context.Context, s *storm) { s.cancelJob(choice) }, "somebody cancels a job")
	}
}

// nodes schedules the loss of one or two nodes, one after the other.
func (p *planner) nodes() {
	at := p.between(3*time.Second, duration/2)
	for range 1 + p.IntN(2) {
		number, lasts := p.IntN(nodesPerStorm), p.between(3*time.Second, longestNodeOut)
		loss := nodeplay.Loss{}
		switch p.IntN(3) {
		case 0:
			loss.EvictAfter = p.between(time.Second, 3*time.Second)
		case 1:
			loss.RemoveAfter = p.between(time.Second, 3*time.Second)
		}
		if at+lasts > duration {
			return
		}
		p.add(at, func(ctx context.Context, s *storm) { s.loseNode(ctx, number, loss, lasts) },
			"node %d is lost for %s, its pods evicted after %s, removed after %s", number+1, lasts, loss.EvictAfter, loss.RemoveAfter)
		at += lasts + p.between(2*time.Second, 10*time.Second)
	}
}

// kills schedules up to two kills of a controller.
func (p *planner) kills() {
	for range p.IntN(3) {
		away := p.between(100*time.Millisecond, 3*time.Second)
		at, replica := p.between(2*time.Second, duration-5*time.Second), p.replica()
		p.add(at, func(_ context.Context, s *storm) { s.kill(s.replicas[replica], away) }, "controller %d is killed and away for %s", replica, away)
	}
}

// jobs schedules the jobs as a Poisson process.
func (p *planner) jobs() {
	for at := time.Duration(0); ; {
		at += time.Duration(p.ExpFloat64() / jobsPerSecond * float64(time.Second))
		if at > duration {
			return
		}
		i := p.IntN(pools + 2)
		result := githubsim.ResultSucceeded
		if p.IntN(10) == 0 {
			result = githubsim.ResultFailed
		}
		p.arrivals = append(p.arrivals, arrival{at: at, job: githubsim.Job{
			Repository: connectionName(min(i, pools)) + "/app", Labels: []string{labelOf(i)}, Name: fmt.Sprintf("job-%03d", len(p.arrivals)),
			Duration: p.between(100*time.Millisecond, longestJob), Result: result,
		}})
	}
}

func TestScheduleDependsOnItsSeedAlone(t *testing.T) {
	text := func(s schedule) (lines []string) {
		for _, x := range s.steps {
			lines = append(lines, x.at.String()+" "+x.what)
		}
		for _, x := range s.arrivals {
			lines = append(lines, fmt.Sprint(x))
		}
		return lines
	}
	if diff := gocmp.Diff(text(plan(1, "n", 2)), text(plan(1, "n", 2))); diff != "" {
		t.Errorf("one seed gave two schedules:\n%s", diff)
	}
	if gocmp.Equal(text(plan(1, "n", 2)), text(plan(2, "n", 2))) {
		t.Error("two seeds gave the same schedule")
	}
}

func TestSeedsAreListsAndRanges(t *testing.T) {
	for text, want := range map[string][]uint64{"7": {7}, "1-3": {1, 2, 3}, "3, 5,8-9": {3, 5, 8, 9}, "": nil, "3-1": nil, "1-100000": nil, "x": nil} {
		got, err := seeds(text)
		if !gocmp.Equal(want, got) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
