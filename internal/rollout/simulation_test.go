// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// tick is the time between two passes of a simulation.
const tick = 5 * time.Second

// healthy is how long an idle runner has to last in a simulation to count as successful.
const healthy = 20 * time.Second

// fate of a revision's runners.
type fate struct {
	starts time.Duration        // from creation to a running container
	cause  v1alpha1.RunnerCause // of their failure; "" for none
	lasts  time.Duration        // until they fail, from creation
}

// machine is a runner of the toy cluster.
type machine struct {
	rollout.Runner
	fate    fate // of its revision at its creation
	created time.Time
	starts  time.Time // when it will start
	fails   time.Time // when it will fail; zero for never
	done    time.Time // when its job ends
	gone    time.Time // when it will be gone after its removal
}

// cluster is a toy: one pool, its runners, and a GitHub that assigns as many jobs as are announced.
type cluster struct {
	t      *testing.T
	random *rand.Rand // nil for the default order
	start  time.Time
	now    time.Time
	log    strings.Builder
	last   string

	spec      v1alpha1.UpdateSpec
	limits    v1alpha1.Scale
	to        string
	hold      string
	denied    []string
	fates     map[string]fate
	lengthens time.Duration // of jobs

	stored    string
	state     *v1alpha1.UpdateStatus
	machines  []*machine
	number    int
	queued    int // jobs that GitHub has not assigned
	assigned  int // jobs that are assigned and wait for a runner
	done      int
	announced int32
	circuits  map[string]scaling.Circuit
	ran       map[string]time.Time
	tried     map[string][]time.Time // by revision

	plan    scaling.Plan
	rollout rollout.Plan
}

func newCluster(t *testing.T, random *rand.Rand) *cluster {
	start := time.Unix(1_000_000, 0)
	return &cluster{
		t: t, random: random, start: start, now: start, to: "A", stored: "A", lengthens: 30 * time.Second,
		fates: map[string]fate{}, circuits: map[string]scaling.Circuit{}, tried: map[string][]time.Time{}, ran: map[string]time.Time{},
	}
}

// upTo returns a random time, or half of it in the default order.
func (c *cluster) upTo(d time.Duration) time.Duration {
	if c.random == nil {
		return d / 2
	}
	return time.Duration(c.random.Int64N(int64(d) + 1))
}

// create creates a runner of a revision.
func (c *cluster) create(revision string) {
	c.number++
	f := c.fates[revision]
	m := &machine{fate: f, created: c.now, starts: c.now.Add(cmp.Or(f.starts, 5*time.Second) + c.upTo(10*time.Second))}
	m.Runner = rollout.Runner{Name: fmt.Sprintf("%s%d", strings.ToLower(revision), c.number), Revision: revision, State: v1alpha1.RunnerPending, Since: c.now}
	if f.cause != "" {
		m.fails = c.now.Add(f.lasts)
	}
	c.machines = append(c.machines, m)
}

// end requests the removal of a runner; GitHub refuses to remove a runner with a job.
func (c *cluster) end(name string) {
	m := c.find(name)
	m.Deleting, m.gone = true, c.now.Add(c.upTo(20*time.Second))
}

func (c *cluster) find(name string) *machine {
	return c.machines[slices.IndexFunc(c.machines, func(m *machine) bool { return m.Name == name })]
}

// advance simulates one tick.
func (c *cluster) advance() {
	c.now = c.now.Add(tick)
	order := slices.Clone(c.machines)
	if c.random != nil {
		c.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, m := range order {
		c.live(m)
	}
	c.machines = slices.DeleteFunc(c.machines, func(m *machine) bool {
		return m.State == v1alpha1.RunnerFailed || m.State == v1alpha1.RunnerFinished || m.Deleting && m.State != v1alpha1.RunnerBusy && !c.now.Before(m.gone)
	})
	if c.queued > 0 { // GitHub assigns
		more := max(0, min(c.queued, int(c.announced)-c.jobs()))
		c.queued, c.assigned = c.queued-more, c.assigned+more
	}
}

// live simulates one tick of one runner.
func (c *cluster) live(m *machine) {
	switch {
	case m.State == v1alpha1.RunnerBusy && !c.now.Before(m.done):
		c.done++
		m.State = v1alpha1.RunnerFinished
		c.tried[m.Revision] = append(c.tried[m.Revision], m.Started)
	case m.State == v1alpha1.RunnerBusy:
	case !m.fails.IsZero() && !c.now.Before(m.fails) && !m.Deleting:
		m.State = v1alpha1.RunnerFailed
		c.circuits[m.Revision] = c.circuits[m.Revision].Failed(m.fate.cause, "broken", m.created, c.now)
	case m.State == v1alpha1.RunnerPending && !c.now.Before(m.starts) && !m.Deleting && (m.fails.IsZero() || m.fate.cause == v1alpha1.CauseNeverConnected):
		m.State, m.Since, m.Started = v1alpha1.RunnerIdle, c.now, c.now
	case m.State == v1alpha1.RunnerIdle && c.assigned > 0 && m.fate.cause == "" && (!m.Deleting || c.random != nil && c.random.IntN(2) == 0):
		c.assigned--
		m.State, m.Since, m.done = v1alpha1.RunnerBusy, c.now, c.now.Add(c.lengthens/2+c.upTo(c.lengthens))
	}
}

// jobs returns the number of assigned and unfinished jobs.
func (c *cluster) jobs() int {
	n := c.assigned
	for _, m := range c.machines {
		if m.State == v1alpha1.RunnerBusy {
			n++
		}
	}
	return n
}

func (c *cluster) count(revision string, states ...v1alpha1.RunnerState) int32 {
	var n int32
	for _, m := range c.machines {
		if (revision == "" || m.Revision == revision) && slices.Contains(states, m.State) && (!m.Deleting || m.State == v1alpha1.RunnerBusy) {
			n++
		}
	}
	return n
}

// usable returns the number of runners that have a job or may get one.
func (c *cluster) usable(revision string) int32 {
	return c.count(revision, v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
}

func (c *cluster) running() int32 { return c.count("", v1alpha1.RunnerIdle, v1alpha1.RunnerBusy) }

// pods counts all runners, including those that are being removed.
func (c *cluster) pods() int32 { return int32(len(c.machines)) }

// records judges the revisions by their runners, as the pool's controller does.
func (c *cluster) records() map[string]rollout.Record {
	records := map[string]rollout.Record{}
	for revision, circuit := range c.circuits {
		var probes int32
		for _, m := range c.machines {
			well := m.State == v1alpha1.RunnerBusy || m.State == v1alpha1.RunnerIdle && c.now.Sub(m.Since) >= healthy
			if m.Revision == revision && well && circuit.IsNewer(m.Since) {
				circuit = circuit.Succeeded()
			}
			if m.Revision == revision && circuit.IsNewer(m.created) && (m.State == v1alpha1.RunnerPending || m.State == v1alpha1.RunnerIdle) {
				probes++
			}
		}
		c.circuits[revision] = circuit
		hold, _ := circuit.Hold(0, 0, probes, c.now)
		records[revision] = rollout.Record{
			Owned: circuit.Owned, Open: circuit.Open(), Probe: circuit.Open() && hold.Create > 0, First: circuit.First, Last: circuit.Last,
			Message: fmt.Sprintf("%d runners failed (%s: %s)", circuit.Failures, circuit.Cause, circuit.Message),
		}
	}
	return records
}

// scalingInput returns the input for scaling, without an update.
func (c *cluster) scalingInput() scaling.Input {
	in := scaling.Input{Limits: c.limits, Jobs: int32(c.jobs()), Demand: demand.Demand{Known: true}, Now: c.now}
	for _, m := range c.machines {
		in.Runners = append(in.Runners, scaling.Runner{Name: m.Name, State: m.State, Deleting: m.Deleting, Since: m.Since})
	}
	return in
}

func (c *cluster) rolloutInput(desired int32) rollout.Input {
	in := rollout.Input{
		To: c.to, Stored: c.stored, State: c.state, Bounds: rollout.Declared(c.spec, desired), Hold: c.hold, Desired: desired, JobsKnown: true,
		Records: c.records(), Tried: c.tried[c.to], Well: healthy, Now: c.now,
	}
	for _, m := range c.machines {
		in.Runners = append(in.Runners, m.Runner)
	}
	for _, r := range []string{"A", "B", "C"} {
		if !slices.Contains(c.denied, r) {
			in.Usable = append(in.Usable, r)
		}
	}
	return in
}

// pass simulates one pass of a controller: it plans the update, decides the numbers, and applies both.
func (c *cluster) pass() {
	in := c.scalingInput()
	desired, _ := scaling.Desired(in)
	step := c.rolloutInput(desired)
	c.rollout = rollout.Next(step)
	in.Extra, in.Surge = c.rollout.Extra, c.rollout.Surge
	for i := range in.Runners {
		r := &in.Runners[i]
		r.Outdated = c.find(r.Name).Revision != c.rollout.InForce
		r.Deleting = r.Deleting || slices.Contains(c.rollout.End, r.Name)
	}
	if circuit := c.circuits[c.rollout.Rest]; circuit.Open() {
		hold, _ := circuit.Hold(c.count("", v1alpha1.RunnerBusy), c.usable("")-c.count("", v1alpha1.RunnerBusy), 0, c.now)
		if c.rollout.Try != "" {
			hold = hold.Trying(c.count("", v1alpha1.RunnerBusy))
		}
		in.Holds = append(in.Holds, hold)
	}
	c.plan = scaling.Decide(in)
	before := c.describe()
	c.check(step, in)
	c.state, c.stored, c.announced = c.rollout.State, c.to, c.plan.Announce
	for _, name := range slices.Concat(c.rollout.End, c.plan.Drain) {
		c.end(name)
	}
	made := map[string]int{}
	for i := range c.plan.Create {
		c.create(c.rollout.Of(i))
		made[c.rollout.Of(i)]++
	}
	c.note(before, made)
}

// check tests the promises for the next step.
func (c *cluster) check(step rollout.Input, in scaling.Input) {
	c.t.Helper()
	complain := func(isBroken bool, complaint string, args ...any) {
		c.t.Helper()
		if isBroken {
			c.t.Fatalf("%s: %s\n%s\nrollout %+v\nplan %+v\n%s", c.now.Sub(c.start), fmt.Sprintf(complaint, args...), c.describe(), c.rollout, c.plan, c.log.String())
		}
	}
	b, p := step.Bounds, c.plan
	busy, running, usable := c.count("", v1alpha1.RunnerBusy), c.running(), c.usable("")
	for i, name := range slices.Concat(c.rollout.End, p.Drain) {
		m := c.find(name)
		complain(m.State == v1alpha1.RunnerBusy || m.Deleting, "it ends %s, which is %s", name, m.State)
		complain(i >= len(c.rollout.End) && slices.Contains(c.rollout.End, name), "it ends %s twice", name)
		usable--
		if m.State == v1alpha1.RunnerIdle {
			running--
			recreated := b.Strategy == v1alpha1.Recreate && c.rollout.State != nil && c.rollout.State.Phase == v1alpha1.UpdateRolling
			complain(!recreated && running < p.Desired-b.MaxUnavailable, "%d runners are available, of %d desired", running, p.Desired)
		}
	}
	complain(p.Create > 0 && usable+p.Create > p.Desired+b.MaxSurge, "%d usable runners, %d desired, surge %d", usable+p.Create, p.Desired, b.MaxSurge)
	bound := max(in.Limits.Max, in.Jobs)
	complain(p.Create > 0 && c.pods()+p.Create > bound+b.MaxSurge, "%d pods, bound %d, surge %d", c.pods()+p.Create, bound, b.MaxSurge)
	complain(len(in.Holds) == 0 && usable+p.Create < in.Jobs && c.pods()+p.Create < bound, "%d runners for %d jobs", usable+p.Create, in.Jobs)
	plain := c.scalingInput()
	plain.Holds = in.Holds
	complain(p.Announce != scaling.Decide(plain).Announce, "the update changes what is announced")
	complain(len(in.Holds) == 0 && p.Announce < max(busy, in.Limits.Max), "it announces %d, of max %d", p.Announce, in.Limits.Max)
	c.checkPhase(step, complain)
}

func (c *cluster) checkPhase(step rollout.Input, complain func(bool, string, ...any)) {
	s := c.rollout.State
	if s == nil {
		return
	}
	fresh := min(c.plan.Create, c.rollout.New)
	switch {
	case c.rollout.Rest == c.to:
		fresh = c.plan.Create
	case c.rollout.Try == c.to:
		fresh = min(c.plan.Create, 1)
	}
	complain(s.To != c.to || s.Since.After(c.now) || s.Reason == "", "the state is %+v", s)
	canGoBack := s.From != s.To && slices.Contains(step.Usable, s.From)
	switch s.Phase {
	case v1alpha1.UpdateCanary:
		complain(fresh > 0 && c.usable(c.to)+fresh > step.Bounds.Canary, "%d canaries", c.usable(c.to)+fresh)
	case v1alpha1.UpdateHeld:
		complain(len(c.rollout.End) > 0 || canGoBack && fresh > 0, "it goes on though it is held")
	case v1alpha1.UpdateRolledBack:
		complain(fresh > 0 && !step.Records[s.From].Open, "it makes runners of a template that failed")
		complain(fresh > 1, "it makes %d runners of a template that failed", fresh)
	case v1alpha1.UpdateRolling:
		complain(step.Hold != "" && len(c.rollout.End) > 0, "it goes on though it is held")
	}
	complain(step.Bounds.Strategy == v1alpha1.OnIdle && s.Phase != v1alpha1.UpdateRolledBack && len(c.rollout.End) > 0, "it ends idle runners")
}

// run simulates a time, with a pass after each tick.
func (c *cluster) run(d time.Duration) {
	c.t.Helper()
	for end := c.now.Add(d); c.now.Before(end); {
		c.advance()
		c.pass()
	}
}

// describe lists the number of runners of each revision, by state.
func (c *cluster) describe() string {
	var parts []string
	for _, revision := range []string{"A", "B", "C"} {
		var texts []string
		for _, s := range []v1alpha1.RunnerState{v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy} {
			if n := c.count(revision, s); n > 0 {
				texts = append(texts, fmt.Sprintf("%d %s", n, strings.ToLower(string(s))))
			}
		}
		if len(texts) > 0 {
			parts = append(parts, revision+": "+strings.Join(texts, ", "))
		}
	}
	ending := 0
	for _, m := range c.machines {
		if m.Deleting && m.State != v1alpha1.RunnerBusy {
			ending++
		}
	}
	if ending > 0 {
		parts = append(parts, fmt.Sprintf("%d ending", ending))
	}
	return cmp.Or(strings.Join(parts, " | "), "no runners")
}

// note writes the log of a pass, unless nothing happened.
func (c *cluster) note(before string, made map[string]int) {
	var did []string
	for _, revision := range []string{"A", "B", "C"} {
		if made[revision] > 0 {
			did = append(did, fmt.Sprintf("make %d of %s", made[revision], revision))
		}
	}
	if len(c.rollout.End) > 0 {
		did = append(did, "end "+strings.Join(c.rollout.End, " "))
	}
	if len(c.plan.Drain) > 0 {
		did = append(did, "surplus "+strings.Join(c.plan.Drain, " "))
	}
	phase := "-"
	if s := c.rollout.State; s != nil {
		phase = fmt.Sprintf("%s→%s %s", s.From, s.To, s.Phase)
		did = append(did, "("+s.Reason+")")
	}
	line := fmt.Sprintf("%-15s jobs %d desired %d announced %d; %s; %s", phase, c.jobs(), c.plan.Desired, c.plan.Announce, before, cmp.Or(strings.Join(did, "; "), "nothing to do"))
	if line != c.last {
		fmt.Fprintf(&c.log, "%6s %s\n", c.now.Sub(c.start), line)
	}
	c.last = line
}

// say writes a separate line into the log.
func (c *cluster) say(format string, args ...any) {
	fmt.Fprintf(&c.log, "%6s ** %s\n", c.now.Sub(c.start), fmt.Sprintf(format, args...))
	c.last = ""
}
