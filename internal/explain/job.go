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

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Scopes of a Connection.
const (
	organization = "organization"
	repository   = "repository"
)

// JobAnswer says why a job waits, or who has it.
type JobAnswer struct {
	// Repository as OWNER/NAME.
	Repository string `json:"repository"`
	RunID      int64  `json:"runID"`
	// JobID in GitHub's REST API; 0 for a whole run.
	JobID int64 `json:"jobID,omitempty"`
	// Summary in a sentence or two.
	Summary string `json:"summary"`
	// Found lists the jobs of the run that have a runner here.
	Found []FoundJob `json:"found,omitempty"`
	// Pools that may serve the repository, those that offer what the job asks for first.
	Pools []Candidate `json:"pools,omitempty"`
	// Others counts the pools that serve other accounts.
	Others int `json:"otherPools"`
	// Beyond lists what only GitHub knows.
	Beyond []string `json:"notKnownFromHere,omitempty"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	title  string
	runsOn []string
	unseen bool
	now    time.Time
}

// FoundJob is a job that has a runner here.
type FoundJob struct {
	Runner string                `json:"runner"`
	Pool   string                `json:"pool"`
	Job    v1alpha1.JobReference `json:"job"`
	// Certain is true if it is the job asked about.
	Certain bool `json:"certain"`
}

// Candidate is a pool that may serve the job.
type Candidate struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Serves is the scope of its connection. Certain is false if the repository may not be part of it.
	Serves  string `json:"serves"`
	Certain bool   `json:"certain"`
	Offer
	// Ready is the pool's condition.
	Ready     *Condition            `json:"ready,omitempty"`
	Jobs      *int32                `json:"jobs,omitempty"` // absent if how many isn't known
	Announced int32                 `json:"announced"`
	Runners   v1alpha1.RunnerCounts `json:"runners"`
	// Events is what it knows of the job by GitHub's events; absent if it doesn't count them.
	Events *JobEvents `json:"events,omitempty"`
	// Situation says whether it accepts jobs, and why not.
	Situation string `json:"situation"`
	// Changes say what would make it accept jobs.
	Changes []string `json:"changes,omitempty"`

	open  bool   // accepts jobs
	brief string // its situation, without why it is not ready though it accepts jobs
	unserved
	sources []string // of a REST pool that counts no events: what sets the number of its runners
}

// unserved are a pool's jobs that wait for a runner, and its runners that don't start.
type unserved struct {
	waiting int32
	stuck   int
}

// Offer has the labels and the group of a pool's runners, compared with the labels of the job.
type Offer struct {
	// Registration of its runners. A pool that observes starts none.
	Registration v1alpha1.Registration `json:"registration"`
	Observes     bool                  `json:"observes,omitempty"`
	// Labels of its runners, and the RunnerGroup that says which repositories may use them.
	Labels      []string `json:"labels"`
	RunnerGroup string   `json:"runnerGroup"`
	// Matches reports whether it offers all labels that the job asks for, and Missing lists the others;
	// absent if the job's labels aren't known.
	Matches *bool    `json:"matches,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Job explains why a job waits.
func Job(f JobFacts) JobAnswer {
	a := JobAnswer{
		Repository: f.URL.Repository(), RunID: f.URL.RunID, JobID: f.URL.JobID, Unknown: f.Unknown,
		title: f.URL.String(), runsOn: f.RunsOn, unseen: f.Unseen, now: f.Now,
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
		a.Summary = a.Found[0].text()
		return a
	}
	for i := range f.Pools {
		pool := &f.Pools[i]
		c, ok := f.Connections[pool.Pool.Spec.ConnectionRef.From(pool.Pool.Namespace).String()]
		covers, certain := c.covers(f.URL)
		switch {
		case !ok:
			a.Unknown = append(a.Unknown, fmt.Sprintf("where RunnerPool %s serves: its GitHubConnection %s can't be read", pool.name(), pool.Pool.Spec.ConnectionRef.Name))
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
		a.Unknown = append(a.Unknown, "which jobs of the run pools know of: ask with the address of the job, which ends in /job/JOB_ID")
	}
	return a
}

// text says that the runner has the job, or had it.
func (j *FoundJob) text() string {
	if j.Job.CompletedAt != nil {
		return fmt.Sprintf("It isn't waiting: it has ended. Runner %s of RunnerPool %s had it.", j.Runner, j.Pool)
	}
	return fmt.Sprintf("It isn't waiting: runner %s of RunnerPool %s has it.", j.Runner, j.Pool)
}

// covers reports whether runners of a connection may serve a repository, and whether that is certain.
func (c Connection) covers(j JobURL) (covers, certain bool) {
	if hostOf(c.Host) != j.Host {
		return false, true
	}
	switch c.Scope {
	case organization:
		return strings.EqualFold(c.Owner, j.Owner), true
	case repository:
		return strings.EqualFold(c.Owner, j.Owner) && strings.EqualFold(c.Path, j.Name), true
	}
	return true, false
}

func (c Connection) String() string {
	switch c.Scope {
	case organization:
		return "organization " + c.Owner
	case repository:
		return "repository " + c.Owner + "/" + c.Path
	}
	return "enterprise " + c.Path
}

// candidate says whether the pool may serve a job, and whether it accepts jobs.
func (f *PoolFacts) candidate(connection Connection, certain bool, job JobFacts) Candidate {
	p := f.Pool
	c := Candidate{
		Pool: f.name(), Serves: connection.String(), Certain: certain, Offer: f.offer(job.RunsOn),
		Ready: ConditionOf(p, v1alpha1.ReadyCondition), Jobs: Known(&p.Status), Runners: p.Status.Runners, unserved: unserved{waiting: f.waiting()},
	}
	if d := p.Status.Decision; d != nil {
		c.Announced = d.Announced
	}
	if e, ok := job.Events[c.Pool]; ok {
		c.Events = &e
	} else if c.isREST() {
		c.sources = f.otherSources()
	}
	if c.isOut() {
		c.Situation = "doesn't offer " + strings.Join(c.Missing, ", ")
		return c
	}
	var unready string
	c.open, c.brief, unready = f.situation()
	c.Situation = with(c.brief, unready)
	if c.Observes {
		return c
	}
	if !c.open || f.waiting() > 0 {
		stuck, starting := f.starting()
		c.stuck, c.Changes = stuck, slices.Concat(f.blockers(), starting)
	}
	if !c.open && (c.Announced > 0 || !c.Ready.isFalse()) {
		c.Changes = append(c.Changes, f.bounds(numbers...)...)
	}
	c.Changes = append(c.Changes, c.eventChanges(p.Namespace)...)
	return c
}

// offer compares the pool's labels with those that the job asks for, if they are known.
func (f *PoolFacts) offer(runsOn []string) Offer {
	spec := &f.Pool.Spec
	o := Offer{Registration: spec.GetRegistration(), Observes: f.observes(), Labels: f.labels(), RunnerGroup: spec.GetRunnerGroup()}
	if len(runsOn) > 0 {
		o.Missing = slices.DeleteFunc(slices.Clone(runsOn), func(label string) bool {
			return slices.ContainsFunc(o.Labels, func(l string) bool { return strings.EqualFold(l, label) })
		})
		o.Matches = new(len(o.Missing) == 0)
	}
	return o
}

// isREST reports whether the runners register without a scale set.
func (o *Offer) isREST() bool { return o.Registration == v1alpha1.RegisterREST }

// otherSources names what sets the number of runners of a pool that counts no events.
func (f *PoolFacts) otherSources() []string {
	all := []string{"min", "idle"}
	for _, s := range f.sources() {
		all = append(all, s.title())
	}
	return all
}

// isOut reports whether the runners lack a label that the job asks for.
func (o *Offer) isOut() bool { return o.Matches != nil && !*o.Matches }

// rank sorts candidates, the lowest first: pools that lack a label come last, before them those that observe, those that
// may not serve the repository, and those that lose the job to another pool.
func (c *Candidate) rank() int {
	rank := 0
	for i, worse := range []bool{c.loses(), !c.Certain, c.Observes, c.isOut()} {
		if worse {
			rank += 1 << i
		}
	}
	return rank
}

// situation reports whether a pool accepts jobs, and says why not, or how many more; unready is why one that accepts jobs, or is full, isn't ready.
func (f *PoolFacts) situation() (open bool, text, unready string) {
	d, none, why := f.Pool.Status.Decision, f.none(), ""
	if ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition); ready.isFalse() {
		why = ready.text()
	}
	switch {
	case f.observes():
		return false, "only observes: it starts no runners", ""
	case d == nil:
		return false, with(none+": "+undecided(f.Pool.Status.Policy), strings.TrimPrefix(why, v1alpha1.PolicyDeniedReason+": ")), ""
	case d.Announced == 0:
		return false, none + ": " + cmp.Or(why, d.Reason), ""
	}
	if closed := f.closed(); closed != nil {
		return false, none + ": " + closed.Reason, ""
	}
	isFull, text := f.room(d)
	if isFull {
		text += f.maxText()
	}
	if why != "" {
		text += "; it isn't ready"
	}
	return !isFull, text, why
}

// none says that a pool takes no more jobs, and how many it has that no runner works on.
func (f *PoolFacts) none() string {
	has := ""
	if n := f.waiting(); n > 0 {
		has = fmt.Sprintf("has %s without a runner yet, and ", wording.Count(n, "job"))
	}
	switch {
	case f.isREST():
		return has + "starts no runners"
	case has != "":
		return has + "accepts no more"
	}
	return "accepts no jobs"
}

// waiting is how many of the pool's jobs are known to have no runner.
func (f *PoolFacts) waiting() int32 {
	s := &f.Pool.Status
	if n := Known(s); n != nil {
		return max(0, *n-s.Runners.Busy)
	}
	return 0
}

// room says how many more jobs a pool accepts. Without a scale set, GitHub gives jobs to its runners, and no capacity is announced.
func (f *PoolFacts) room(d *v1alpha1.Decision) (isFull bool, text string) {
	s := &f.Pool.Status
	n := s.GetJobs()
	jobs := wording.Count(n, "job")
	switch {
	case f.isREST() && max(n, d.Desired) >= d.Announced:
		return true, fmt.Sprintf("has as many runners as it may have: %s for %s", wording.Max(d.Announced), jobs)
	case f.isREST():
		return false, fmt.Sprintf("knows of %s; desired: %s, max: %s (it has %s)",
			jobs, wording.Count(d.Desired, "runner"), wording.Max(d.Announced), RunnersText(s.Runners))
	case n >= d.Announced:
		return true, fmt.Sprintf("is full: it has %s of at most %d", jobs, d.Announced)
	case d.Announced == v1alpha1.UnboundedMax:
		text = fmt.Sprintf("has %s and room for any number", jobs)
	default:
		text = fmt.Sprintf("has %s and room for %d more", jobs, d.Announced-n)
	}
	if waiting := f.waiting(); waiting > 0 {
		text += fmt.Sprintf("; %d without a runner yet (%s)", waiting, RunnersText(s.Runners))
	}
	return false, text
}

// maxText says what set the pool's max.
func (f *PoolFacts) maxText() string {
	d := f.Pool.Status.Decision
	if d.Limits == nil {
		return ""
	}
	for _, b := range d.Limits.Bounds {
		if b.Field == "max" {
			return fmt.Sprintf(". Its max is %d, declared %s, by the rule %s", b.Value, wording.Max(b.Declared), b.Rule.Says(b.Reason))
		}
	}
	text := fmt.Sprintf(". Its max is %s", wording.Max(d.Limits.GetMax()))
	if by := f.decider("max"); by != "" {
		text += ", by the schedule " + by
	}
	return text
}

// summary answers in a sentence or two.
func (a *JobAnswer) summary() string {
	fit := slices.DeleteFunc(slices.Clone(a.Pools), func(c Candidate) bool { return c.isOut() || c.Observes })
	if text := a.byEvents(); text != "" {
		return text
	}
	switch {
	case len(a.Found) > 0:
		return a.foundText()
	case len(a.Pools) == 0 && len(a.Unknown) > 0:
		return fmt.Sprintf("No pool that can be seen serves %s, and not everything could be read: see below.", a.Repository)
	case len(a.Pools) == 0:
		return fmt.Sprintf("No pool that can be seen serves %s: no GitHubConnection with a pool points to it.", a.Repository)
	case len(fit) == 0 && len(a.runsOn) == 0:
		return fmt.Sprintf("All pools that serve %s only observe.", a.Repository)
	case len(fit) == 0:
		return fmt.Sprintf("No pool that serves %s offers all of %s: no runner can take it.", a.Repository, strings.Join(a.runsOn, ", "))
	case len(a.runsOn) == 0 && len(fit) > 1:
		return fmt.Sprintf("%s %d pools serve %s; which of them it can wait for depends on its runs-on (--labels).", a.nobody(), len(fit), a.Repository)
	}
	return a.waits(fit)
}

// nobody says that no runner has the job, as far as is known, and what that may mean.
func (a *JobAnswer) nobody() string {
	if a.unseen {
		return "No runner that can be seen has it; another one may, and it may be over."
	}
	return "No runner has it now; it may be over."
}

// waits says which of the pools that fit it waits for, if it does.
func (a *JobAnswer) waits(fit []Candidate) string {
	if text := fit[0].missed(); text != "" {
		return a.nobody() + " " + text
	}
	if i := slices.IndexFunc(fit, func(c Candidate) bool { return c.open }); i >= 0 && fit[i].isREST() {
		return fmt.Sprintf("%s If it waits, RunnerPool %s fits: it %s.", a.nobody(), fit[i].Pool, fit[i].Situation)
	} else if i >= 0 {
		where := "GitHub has not assigned it there, or did a moment ago"
		if c := &fit[i]; c.waiting > 0 {
			if where = "it may be one of those without a runner"; c.stuck > 0 {
				where += "; " + dontStart(c.stuck) + ": see below"
			}
		}
		return fmt.Sprintf("%s RunnerPool %s %s. If it waits, %s.", a.nobody(), fit[i].Pool, fit[i].brief, where)
	}
	only := ""
	if len(a.runsOn) == 0 {
		only = " and asks for nothing but " + strings.Join(fit[0].Labels, ", ")
	}
	return fmt.Sprintf("%s If it waits%s, it is for RunnerPool %s: it %s.", a.nobody(), only, fit[0].Pool, fit[0].Situation)
}

// foundText says how many jobs of the run have a runner here, or had one.
func (a *JobAnswer) foundText() string {
	has, had := 0, 0
	for i := range a.Found {
		if a.Found[i].Job.CompletedAt != nil {
			had++
		} else {
			has++
		}
	}
	of := "of this run"
	if a.JobID != 0 {
		of = "of its run"
	}
	text := fmt.Sprintf("Runners here have %s %s", wording.Count(has, "job"), of)
	if had > 0 {
		text += fmt.Sprintf(", and had %d that ended", had)
	}
	if a.JobID != 0 {
		text += ". Whether this one is among them isn't known here"
	}
	return text + "."
}

// beyond lists what only GitHub knows.
func (a *JobAnswer) beyond() []string {
	var all []string
	if len(a.runsOn) == 0 {
		all = append(all, "which labels the job asks for: give its runs-on with --labels")
	}
	groups := map[string]bool{}
	for _, c := range a.Pools {
		hasWorked := slices.ContainsFunc(a.Found, func(j FoundJob) bool { return j.Pool == c.Pool }) // so the repository may use its group
		groups[c.RunnerGroup] = groups[c.RunnerGroup] || hasWorked
	}
	for _, c := range a.Pools {
		isGone := c.Ready.isFalse() && c.Ready.Reason == v1alpha1.RunnerGroupNotFoundReason
		if !c.Certain {
			all = append(all, fmt.Sprintf("whether %s belongs to %s", strings.Split(a.Repository, "/")[0], c.Serves))
		}
		if !isGone && !strings.HasPrefix(c.Serves, repository) && !groups[c.RunnerGroup] {
			groups[c.RunnerGroup] = true
			all = append(all, fmt.Sprintf("whether %s may use the runner group %q", a.Repository, c.RunnerGroup))
		}
	}
	if !a.isIn(JobQueued) {
		all = append(all, "whether the job still waits, and whether it waits for an approval, a concurrency group or another job rather than for a runner")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Text writes the answer for people.
func (a JobAnswer) Text() string { return answerText("job", a.now, &a) }
