// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
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
	// Found are jobs of the run that runners here have.
	Found []FoundJob `json:"found,omitempty"`
	// Pools that may serve the repository, those that offer what the job asks for first.
	Pools []Candidate `json:"pools,omitempty"`
	// Others counts the pools that serve other accounts.
	Others int `json:"otherPools"`
	// Beyond is what can't be known without asking GitHub.
	Beyond []string `json:"notKnownFromHere,omitempty"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	title  string
	runsOn []string
	now    time.Time
}

// FoundJob is a job of the run that a runner here has.
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
	// Serves is what its connection points to, and Certain false if the repository may not be
	// part of that.
	Serves  string `json:"serves"`
	Certain bool   `json:"certain"`
	// Labels that it offers, and RunnerGroup that says who may use it.
	Labels      []string `json:"labels"`
	RunnerGroup string   `json:"runnerGroup"`
	// Matches says whether it offers all that the job asks for, and Missing what it doesn't;
	// absent if that isn't known.
	Matches *bool    `json:"matches,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Ready is the pool's condition.
	Ready     *Condition            `json:"ready,omitempty"`
	Jobs      int32                 `json:"jobs"`
	Announced int32                 `json:"announced"`
	Runners   v1alpha1.RunnerCounts `json:"runners"`
	// Situation says whether it takes in jobs, and why not.
	Situation string `json:"situation"`
	// Changes say what would change that.
	Changes []string `json:"changes,omitempty"`

	open bool // takes in jobs
}

// Job explains why a job waits.
func Job(f JobFacts) JobAnswer {
	a := JobAnswer{
		Repository: f.URL.Repository(), RunID: f.URL.RunID, JobID: f.URL.JobID, Unknown: f.Unknown,
		title: f.URL.String(), runsOn: f.RunsOn, now: f.Now,
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
		a.Summary = fmt.Sprintf("It isn't waiting: runner %s of RunnerPool %s has it.", a.Found[0].Runner, a.Found[0].Pool)
		return a
	}
	for i := range f.Pools {
		pool := &f.Pools[i]
		c, ok := f.Connections[pool.Pool.Namespace+"/"+pool.Pool.Spec.ConnectionRef.Name]
		covers, certain := c.covers(f.URL)
		switch {
		case !ok:
			a.Unknown = append(a.Unknown, fmt.Sprintf("where RunnerPool %s serves: its GitHubConnection %s can't be read", pool.name(), pool.Pool.Spec.ConnectionRef.Name))
		case !covers:
			a.Others++
		default:
			a.Pools = append(a.Pools, pool.candidate(c, certain, f.RunsOn))
		}
	}
	slices.SortStableFunc(a.Pools, func(x, y Candidate) int { return x.rank() - y.rank() })
	a.Summary = a.summary()
	a.Beyond = a.beyond()
	return a
}

// covers says whether runners of a connection may serve a repository, and whether that is
// certain.
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

// candidate looks at a pool from a job's side.
func (f *PoolFacts) candidate(connection Connection, certain bool, runsOn []string) Candidate {
	p := f.Pool
	c := Candidate{
		Pool: f.name(), Serves: connection.String(), Certain: certain, Labels: p.GetRunnerLabels(), RunnerGroup: p.Spec.GetRunnerGroup(),
		Ready: ConditionOf(p.Status.Conditions, v1alpha1.ReadyCondition), Jobs: p.Status.Jobs, Runners: p.Status.Runners,
	}
	if d := p.Status.Decision; d != nil {
		c.Announced = d.Announced
	}
	if len(runsOn) > 0 {
		for _, label := range runsOn {
			if !slices.ContainsFunc(c.Labels, func(l string) bool { return strings.EqualFold(l, label) }) {
				c.Missing = append(c.Missing, label)
			}
		}
		c.Matches = new(len(c.Missing) == 0)
	}
	if c.isOut() {
		c.Situation = "doesn't offer " + strings.Join(c.Missing, ", ")
		return c
	}
	c.open, c.Situation = f.situation()
	if !c.open || c.Jobs > c.Runners.Busy {
		c.Changes = slices.Concat(f.blockers(), f.starting())
	}
	if !c.open && (c.Announced > 0 || !c.Ready.isFalse()) {
		c.Changes = append(c.Changes, f.bounds()...)
	}
	return c
}

// isOut says whether the pool can't serve the job for its labels.
func (c *Candidate) isOut() bool { return c.Matches != nil && !*c.Matches }

// rank orders those that may serve the job before those that can't, and those that are certain
// first.
func (c *Candidate) rank() int {
	rank := 0
	if c.isOut() {
		rank += 2
	}
	if !c.Certain {
		rank++
	}
	return rank
}

// situation says whether a pool takes in jobs, and in words why not, or how it is with those it has.
func (f *PoolFacts) situation() (open bool, words string) {
	s := &f.Pool.Status
	d, ready := s.Decision, ConditionOf(s.Conditions, v1alpha1.ReadyCondition)
	why := ""
	if ready.isFalse() {
		why = ready.words()
	}
	switch {
	case d == nil:
		return false, with("takes in no jobs: nothing was decided on it yet", why)
	case d.Announced == 0 && why != "":
		return false, "takes in no jobs: " + why
	case d.Announced == 0:
		return false, "takes in no jobs: " + d.Reason
	case s.Jobs >= d.Announced:
		return false, fmt.Sprintf("is full: it has %s of the %d that it takes in", count(s.Jobs, "job"), d.Announced) + f.maxWords()
	}
	words = fmt.Sprintf("has %s and room for any number", count(s.Jobs, "job"))
	if d.Announced != v1alpha1.UnboundedMax {
		words = fmt.Sprintf("has %s and room for %d more", count(s.Jobs, "job"), d.Announced-s.Jobs)
	}
	if waiting := s.Jobs - s.Runners.Busy; waiting > 0 {
		words += fmt.Sprintf("; %d without a runner yet (%s)", waiting, runnersWords(s.Runners))
	}
	if why != "" {
		words += "; it isn't ready: " + why
	}
	return true, words
}

// maxWords says what bounds the pool.
func (f *PoolFacts) maxWords() string {
	d := f.Pool.Status.Decision
	if d.Limits == nil {
		return ""
	}
	for _, b := range d.Limits.Bounds {
		if b.Field == "max" {
			return fmt.Sprintf(". Its max is %d, declared %s, by the rule %s", b.Value, number(b.Declared), with(ruleWords(b.Rule), b.Reason))
		}
	}
	return fmt.Sprintf(". Its max is %s", number(d.Limits.Max))
}

// summary answers in a sentence or two.
func (a *JobAnswer) summary() string {
	fit := slices.DeleteFunc(slices.Clone(a.Pools), func(c Candidate) bool { return c.isOut() })
	switch {
	case len(a.Found) > 0:
		return a.foundWords()
	case len(a.Pools) == 0 && len(a.Unknown) > 0:
		return fmt.Sprintf("No pool that can be seen serves %s, and not everything could be read: see below.", a.Repository)
	case len(a.Pools) == 0:
		return fmt.Sprintf("No pool that can be seen serves %s: no GitHubConnection with a pool points to it.", a.Repository)
	case len(fit) == 0:
		return fmt.Sprintf("No pool that serves %s offers all of %s: GitHub has nobody to give it to.", a.Repository, strings.Join(a.runsOn, ", "))
	case len(a.runsOn) == 0 && len(fit) > 1:
		return fmt.Sprintf("No runner here has it. %d pools serve %s; which of them it waits for depends on its runs-on (--labels).", len(fit), a.Repository)
	}
	if i := slices.IndexFunc(fit, func(c Candidate) bool { return c.open }); i >= 0 {
		return fmt.Sprintf("No runner here has it, and RunnerPool %s %s. So GitHub has not assigned it there, or did a moment ago.", fit[i].Pool, fit[i].Situation)
	}
	only := ""
	if len(a.runsOn) == 0 {
		only = " if it asks for nothing but " + strings.Join(fit[0].Labels, ", ")
	}
	return fmt.Sprintf("It waits for RunnerPool %s%s: it %s.", fit[0].Pool, only, fit[0].Situation)
}

// foundWords say that runners here have jobs of the run.
func (a *JobAnswer) foundWords() string {
	jobs := count(int32(len(a.Found)), "job") //nolint:gosec // far below
	if a.JobID == 0 {
		return fmt.Sprintf("Runners here have %s of this run.", jobs)
	}
	return fmt.Sprintf("Runners here have %s of its run. Whether this one is among them can't be told from here.", jobs)
}

// beyond is what only GitHub knows.
func (a *JobAnswer) beyond() []string {
	var all []string
	if len(a.runsOn) == 0 {
		all = append(all, "which labels the job asks for: give its runs-on with --labels")
	}
	groups := map[string]bool{}
	for _, c := range a.Pools {
		if !c.Certain {
			all = append(all, fmt.Sprintf("whether %s belongs to %s", strings.Split(a.Repository, "/")[0], c.Serves))
		}
		if !strings.HasPrefix(c.Serves, repository) && !groups[c.RunnerGroup] {
			groups[c.RunnerGroup] = true
			all = append(all, fmt.Sprintf("whether %s may use the runner group %q", a.Repository, c.RunnerGroup))
		}
	}
	all = append(all, "whether the job still waits, and whether it waits for an approval, a concurrency group or another job rather than for a runner")
	slices.Sort(all)
	return slices.Compact(all)
}

// Text tells the answer in plain words.
func (a JobAnswer) Text() string {
	p := &page{now: a.now}
	p.line(0, "%s", strings.ToUpper(a.title[:1])+a.title[1:])
	p.gap()
	p.line(0, "%s", a.Summary)
	if len(a.Found) > 0 {
		p.section("Jobs of this run that runners have")
		for _, j := range a.Found {
			p.line(2, "- %s of RunnerPool %s: %s", j.Runner, j.Pool, jobWords(p, &j.Job))
		}
	}
	if len(a.Pools) > 0 {
		p.section("Pools that may serve " + a.Repository)
		for _, c := range a.Pools {
			c.text(p)
		}
	}
	if a.Others > 0 {
		p.line(2, "%s.", otherWords(a.Others))
	}
	p.list("Only GitHub knows", a.Beyond)
	p.list("Not known", a.Unknown)
	return p.String()
}

func otherWords(n int) string {
	if n == 1 {
		return "1 other pool serves another account"
	}
	return fmt.Sprintf("%d other pools serve other accounts", n)
}

func (c *Candidate) text(p *page) {
	ready := "not looked at yet"
	switch {
	case c.Ready == nil:
	case c.Ready.Status == metav1.ConditionTrue:
		ready = "ready"
	default:
		ready = "not ready"
	}
	maybe := ""
	if !c.Certain {
		maybe = ", if the repository belongs to it"
	}
	p.line(2, "- %s (%s%s; labels %s; runner group %s): %s", c.Pool, c.Serves, maybe, strings.Join(c.Labels, ", "), c.RunnerGroup, ready)
	if c.Matches != nil && *c.Matches {
		p.line(6, "offers all that the job asks for")
	}
	p.line(6, "%s", c.Situation)
	for _, change := range c.Changes {
		p.line(6, "* %s", change)
	}
}
