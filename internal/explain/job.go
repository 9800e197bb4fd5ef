// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Scopes of a Connection.
const (
	organization = "organization"
	repository   = "repository"
)

// JobAnswer explains why a job waits, or which runner has it.
type JobAnswer struct {
	// Repository as OWNER/NAME.
	Repository string `json:"repository"`
	RunID      int64  `json:"runID"`
	// JobID in GitHub's REST API; 0 for a whole run.
	JobID int64 `json:"jobID,omitempty"`
	// Summary is one or two sentences.
	Summary string `json:"summary"`
	// Found lists the jobs of the run that have or had a runner in this cluster.
	Found []FoundJob `json:"found,omitempty"`
	// Pools that may serve the repository. Pools that offer the requested labels come first.
	Pools []Candidate `json:"pools,omitempty"`
	// Others is the number of pools that cannot serve the repository.
	Others int `json:"otherPools"`
	// Beyond lists what only GitHub knows.
	Beyond []string `json:"notKnownFromHere,omitempty"`
	// Unknown lists what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	// RunsOn lists the labels that the job requests, if known. Unseen is true if not all runners of the cluster were read.
	RunsOn []string `json:"-"`
	Unseen bool     `json:"-"`

	now time.Time
}

// FoundJob is a job that has or had a runner in this cluster.
type FoundJob struct {
	Runner string                `json:"runner"`
	Pool   string                `json:"pool"`
	Job    v1alpha1.JobReference `json:"job"`
	// Certain is true if it is the job that the question is about.
	Certain bool `json:"certain"`
}

// Candidate is a pool that may serve the job.
type Candidate struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Serves is the scope of its connection. Certain is false if it is unknown whether the repository belongs to that scope.
	Serves  string `json:"serves"`
	Certain bool   `json:"certain"`
	Offer
	// Ready is the pool's condition.
	Ready     *Condition            `json:"ready,omitempty"`
	Jobs      *int32                `json:"jobs,omitempty"` // absent if unknown
	Announced int32                 `json:"announced"`
	Runners   v1alpha1.RunnerCounts `json:"runners"`
	// Events is what the pool knows about the job from GitHub's events; absent if it does not use them.
	Events *JobEvents `json:"events,omitempty"`
	// Situation describes whether the pool accepts jobs, and why not.
	Situation string `json:"situation"`
	// Changes describe what would make it accept jobs.
	Changes []string `json:"changes,omitempty"`

	Unserved
	// Sources of the pool's demand.
	Sources []Source `json:"-"`
}

// Unserved describes the jobs of a pool that wait.
type Unserved struct {
	// Open reports whether the pool accepts jobs. Brief is Situation without the reason why a pool that accepts jobs is not ready.
	Open  bool   `json:"-"`
	Brief string `json:"-"`
	// Waiting counts its jobs without a runner, and Stuck its runners that do not start.
	Waiting int32 `json:"-"`
	Stuck   int   `json:"-"`
}

// Offer has the labels and the group of a pool's runners, compared with the labels of the job.
type Offer struct {
	// Registration of its runners. A pool that observes starts no runners.
	Registration v1alpha1.Registration `json:"registration"`
	Observes     bool                  `json:"observes,omitempty"`
	// Labels of its runners, and the RunnerGroup that determines which repositories may use them.
	Labels      []string `json:"labels"`
	RunnerGroup string   `json:"runnerGroup"`
	// Matches reports whether the pool offers all labels that the job requests, and Missing lists the labels that it does
	// not offer; absent if the job's labels are unknown.
	Matches *bool    `json:"matches,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Job explains why a job waits, or which runner has it.
func Job(f JobFacts) JobAnswer {
	a := JobAnswer{
		Repository: f.URL.Repository(), RunID: f.URL.RunID, JobID: f.URL.JobID, Unknown: f.Unknown,
		RunsOn: f.RunsOn, Unseen: f.Unseen, now: f.Now,
	}
	for _, p := range f.Pods {
		if p.Job.RunID == f.URL.RunID && strings.EqualFold(p.Job.Repository, a.Repository) {
			a.Found = append(a.Found, FoundJob{
				Runner: p.Namespace + "/" + p.Runner, Pool: p.Namespace + "/" + p.Pool, Job: p.Job,
				Certain: f.URL.JobID != 0 && p.Job.ID == strconv.FormatInt(f.URL.JobID, 10),
			})
		}
	}
	if i := slices.IndexFunc(a.Found, func(j FoundJob) bool { return j.Certain }); i >= 0 {
		a.Found = a.Found[i : i+1]
		a.Summary = phrase("has-job", a.Found[0])
		return a
	}
	for pool := range pointers(f.Pools) {
		c, ok := f.Connections[pool.Pool.Spec.ConnectionRef.From(pool.Pool.Namespace).String()]
		covers, certain := c.covers(f.URL)
		switch {
		case !ok:
			a.Unknown = append(a.Unknown, fmt.Sprintf("which account RunnerPool %s serves: its GitHubConnection %s cannot be read", pool.name(), pool.Pool.Spec.ConnectionRef.Name))
		case !covers:
			a.Others++
		default:
			a.Pools = append(a.Pools, pool.candidate(c, certain, f))
		}
	}
	slices.SortStableFunc(a.Pools, func(x, y Candidate) int { return x.rank() - y.rank() })
	a.Summary = a.summary()
	if !a.isSettled() {
		a.Beyond = a.beyond()
	}
	if f.URL.JobID == 0 && slices.ContainsFunc(a.Pools, func(c Candidate) bool { return c.Events != nil && c.Events.receives() }) {
		a.Unknown = append(a.Unknown, "which jobs of the run the pools know: use the URL of the job, which ends in /job/JOB_ID")
	}
	return a
}

// covers reports whether runners of a connection may serve a repository, and whether that is certain. For an enterprise it is uncertain,
// because its organizations are unknown.
func (c Connection) covers(j JobURL) (covers, certain bool) {
	isHost := hostOf(c.Host) == j.Host
	if c.Scope != organization && c.Scope != repository {
		return isHost, !isHost
	}
	return isHost && strings.EqualFold(c.Owner, j.Owner) && (c.Scope == organization || strings.EqualFold(c.Path, j.Name)), true
}

func (c Connection) String() string { return phrase("serves", c) }

// candidateFacts is a candidate and the facts about its pool.
type candidateFacts struct {
	*Candidate
	Facts *PoolFacts
}

// candidate describes whether the pool may serve a job, and whether it accepts jobs.
func (f *PoolFacts) candidate(connection Connection, certain bool, job JobFacts) Candidate {
	p := f.Pool
	c := Candidate{
		Pool: f.name(), Serves: connection.String(), Certain: certain, Offer: f.offer(job.RunsOn), Sources: f.sources(),
		Ready: ConditionOf(p, v1alpha1.ReadyCondition), Jobs: Known(&p.Status), Runners: p.Status.Runners,
		Announced: cmp.Or(p.Status.Decision, &v1alpha1.Decision{}).Announced, Events: job.Events[f.name()],
		Unserved: Unserved{Waiting: unserved(&p.Status), Stuck: len(slices.Concat(f.stuck()...))},
	}
	if c.isOut() {
		c.Situation = "doesn't offer " + strings.Join(c.Missing, ", ")
		return c
	}
	f.situate(&c)
	if !c.Observes {
		c.Changes = book.Sentences("candidate-changes", candidateFacts{&c, f})
	}
	return c
}

// offer compares the pool's labels with the labels that the job requests, if known.
func (f *PoolFacts) offer(runsOn []string) Offer {
	spec := &f.Pool.Spec
	o := Offer{Registration: spec.GetRegistration(), Observes: f.Pool.Spec.Observes(), Labels: f.labels(), RunnerGroup: spec.GetRunnerGroup()}
	if len(runsOn) > 0 {
		o.Missing = slices.DeleteFunc(slices.Clone(runsOn), func(label string) bool {
			return slices.ContainsFunc(o.Labels, func(l string) bool { return strings.EqualFold(l, label) })
		})
		o.Matches = new(len(o.Missing) == 0)
	}
	return o
}

// isOut reports whether the runners do not have all labels that the job requests.
func (o *Offer) isOut() bool { return o.Matches != nil && !*o.Matches }

// rank returns the sort order of a candidate, best first. Last are pools that do not offer a requested label. Before them
// are pools that only observe, then pools to whose scope the repository may not belong, then pools that lose the job to
// another pool.
func (c *Candidate) rank() int {
	rank := 0
	for i, worse := range []bool{c.loses(), !c.Certain, c.Observes, c.isOut()} {
		if worse {
			rank += 1 << i
		}
	}
	return rank
}

// situate sets Open, Brief and Situation of a candidate: whether the pool accepts jobs, and why not, or how many more.
// Without a scale set, GitHub assigns jobs to the runners directly, and the pool announces no capacity.
func (f *PoolFacts) situate(c *Candidate) {
	s := struct {
		*Candidate
		Decision        *v1alpha1.Decision
		Verdict         *v1alpha1.TemplateVerdict
		Bound           *v1alpha1.LimitBound
		Shut            string // why it accepts no jobs
		Known, Room     int32
		IsFull, Accepts bool
		Schedule        string
	}{Candidate: c, Decision: f.Pool.Status.Decision, Verdict: f.Pool.Status.Policy, Known: f.Pool.Status.GetJobs(), Schedule: f.decider("max")}
	if s.Decision != nil && c.Announced > 0 && !c.Observes {
		taken := s.Known
		if f.Pool.Spec.IsREST() {
			taken = max(taken, s.Decision.Desired)
		}
		s.IsFull, s.Room = taken >= c.Announced, c.Announced-s.Known
		s.Bound = boundOfMax(cmp.Or(s.Decision.Limits, &v1alpha1.DecidedLimits{}))
		s.Shut = f.closed().Reason
		s.Accepts = s.Shut == ""
	}
	c.Open = s.Accepts && !s.IsFull
	c.Brief, c.Situation = phrase("situation", s), phrase("whole-situation", s)
}

// summary answers in one or two sentences.
func (a *JobAnswer) summary() string {
	running := slices.DeleteFunc(slices.Clone(a.Found), func(j FoundJob) bool { return j.Job.CompletedAt != nil })
	s := struct {
		*JobAnswer
		Fit      []*Candidate // pools that offer all labels of the job
		Open     *Candidate   // the first of them that accepts jobs
		Has, Had int          // jobs of the run that have a runner now, and jobs that had one
	}{JobAnswer: a, Has: len(running), Had: len(a.Found) - len(running)}
	for c := range pointers(a.Pools) {
		if c.isOut() || c.Observes {
			continue
		}
		s.Fit = append(s.Fit, c)
		if s.Open == nil && c.Open {
			s.Open = c
		}
	}
	return cmp.Or(a.byEvents(), phrase("summary", s))
}

// beyond lists what only GitHub knows.
func (a *JobAnswer) beyond() []string {
	worked := map[string]bool{} // runner groups that served jobs of this run, so the repository may use them
	for _, c := range a.Pools {
		worked[c.RunnerGroup] = worked[c.RunnerGroup] || slices.ContainsFunc(a.Found, func(j FoundJob) bool { return j.Pool == c.Pool })
	}
	all := book.Sentences("beyond", struct {
		*JobAnswer
		Worked   map[string]bool
		IsQueued bool
	}{a, worked, a.isIn(JobQueued)})
	return sets.List(sets.New(all...)) // several pools may share a line
}

// Text renders the answer for people.
func (a JobAnswer) Text() string { return answerText("job", a.now, &a) }
