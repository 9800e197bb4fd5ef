// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// numbers are the fields of spec.scale that limit a pool.
var numbers = []string{"min", "max", "idle"}

// recent is how many entries of the history an answer about now has at most.
const recent = 5

// PoolAnswer says why a pool's numbers are what they are.
type PoolAnswer struct {
	PoolHeader
	PoolNumbers
	// Template is the policies' verdict on it.
	Template *v1alpha1.TemplateVerdict `json:"template,omitempty"`
	// Update under way, or the last that was rolled back.
	Update *v1alpha1.UpdateStatus `json:"update,omitempty"`
	// RunnerVersion is the version of the runner program, and how long it is good, as far as GitHub tells.
	RunnerVersion *v1alpha1.RunnerVersionStatus `json:"runnerVersion,omitempty"`
	// Held lists what holds the pool back, and since when.
	Held []Held `json:"held,omitempty"`
	// Failures are the last runners that failed, the newest first.
	Failures []v1alpha1.RunnerFailure `json:"failures,omitempty"`
	// Kept is the pod of such a runner, as NAMESPACE/NAME, which is kept for its log.
	Kept string `json:"kept,omitempty"`
	// Changes say what would change the answer.
	Changes []string `json:"changes,omitempty"`
	// Policies that apply to the pool.
	Policies []Policy `json:"policies,omitempty"`
	// Recent decisions, the newest first; at most 5.
	Recent []Entry `json:"recent,omitempty"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	now time.Time
	// closed is true while no job is accepted, whatever was decided; isUpdated once all runners are of the template in force.
	closed, isUpdated bool
}

// PoolHeader says which pool an answer is about, at which time, and whether the pool is ready.
type PoolHeader struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Time that the answer is about.
	Time metav1.Time `json:"time"`
	// Past is true of an answer from the history, which has fewer fields.
	Past bool `json:"past,omitempty"`
	// Ready is the pool's condition.
	Ready *Condition `json:"ready,omitempty"`
	// Behind is true while the controller hasn't looked at the pool's spec as it is now.
	Behind bool `json:"behind,omitempty"`
	// Registration of its runners, and Mode, whether it acts. Of a time in the past the mode isn't known.
	Registration v1alpha1.Registration `json:"registration"`
	Mode         v1alpha1.PoolMode     `json:"mode,omitempty"`
}

// PoolNumbers are a pool's jobs and runners, the decision on them, and the demand, schedule and limits behind it.
type PoolNumbers struct {
	// Jobs of the pool that have not finished; absent if how many isn't known.
	Jobs *int32 `json:"jobs,omitempty"`
	// Runners by state.
	Runners v1alpha1.RunnerCounts `json:"runners"`
	// Decision in force.
	Decision *v1alpha1.Decision `json:"decision,omitempty"`
	// Demand lists the sources of demand; absent if the scale set is the only one.
	Demand *Demand `json:"demand,omitempty"`
	// Schedule has the numbers of spec.scale after schedules; absent without schedules.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Observation is what a pool with the mode Observe would do.
	Observation *v1alpha1.Observation `json:"observation,omitempty"`
	// Limits as declared and as decided.
	Limits []Limit `json:"limits,omitempty"`

	since *metav1.Time // the first of several decisions that the history has as one
}

// Limit is one of the three numbers of a pool.
type Limit struct {
	// Field is min, max or idle.
	Field string `json:"field"`
	// Declared number, after schedules; absent if it isn't known any more. 2147483647 stands for unbounded.
	Declared *int32 `json:"declared,omitempty"`
	// Spec is the number of spec.scale, where Schedule makes it another.
	Spec     *int32 `json:"spec,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Added is true if warm capacity or boosts changed it.
	Added bool `json:"added,omitempty"`
	// Decided number.
	Decided int32 `json:"decided"`
	// Rules that changed it.
	Rules []v1alpha1.LimitBound `json:"rules,omitempty"`
}

// Held is what holds a pool back.
type Held struct {
	// What is held: policy, update, health, intake.
	What   string       `json:"what"`
	Reason string       `json:"reason"`
	Since  *metav1.Time `json:"since,omitempty"`
}

// Pool explains a pool. It fails if nothing is known of the time asked about.
func Pool(f PoolFacts) (PoolAnswer, error) {
	if !f.At.IsZero() {
		return past(f)
	}
	s := &f.Pool.Status
	return PoolAnswer{
		PoolHeader: PoolHeader{
			Pool: f.name(), Time: metav1.Time{Time: f.Now}, Ready: ConditionOf(f.Pool, v1alpha1.ReadyCondition),
			Behind:       s.ObservedGeneration < f.Pool.Generation,
			Registration: f.Pool.Spec.GetRegistration(), Mode: f.Pool.Spec.GetMode(),
		},
		PoolNumbers: PoolNumbers{
			Jobs: Known(s), Runners: s.Runners, Decision: s.Decision,
			Demand: f.demand(), Schedule: f.schedule(), Observation: s.Observation, Limits: f.limits(s.Decision),
		},
		Template: s.Policy, Update: s.Update, RunnerVersion: s.RunnerVersion, Held: f.held(), Failures: s.Failures, Kept: f.Kept, Changes: f.changes(), Policies: f.Policies,
		Recent: f.History[:min(len(f.History), recent)], Unknown: f.Unknown, now: f.Now, closed: f.closed() != nil, isUpdated: meta.IsStatusConditionTrue(s.Conditions, v1alpha1.UpdatedCondition),
	}, nil
}

// Known are the jobs of a pool; nil where how many there are isn't known, though the status may have a former count.
func Known(s *v1alpha1.RunnerPoolStatus) *int32 { return known(s.Jobs, s.Decision) }

func known(jobs *int32, d *v1alpha1.Decision) *int32 {
	if d != nil && d.JobsUnknown {
		return nil
	}
	return jobs
}

func (f *PoolFacts) name() string { return f.Pool.Namespace + "/" + f.Pool.Name }

// past answers from the history.
func past(f PoolFacts) (PoolAnswer, error) {
	entry, ok := At(f.History, f.At)
	latest := f.Pool.Status.Decision
	if latest != nil && !latest.Time.After(f.At) && (!ok || latest.Time.After(entry.Time.Time)) {
		// The history is written once a minute: it may lack the last decision.
		entry, ok = Entry{Time: latest.Time, Jobs: f.Pool.Status.Jobs, Runners: f.Pool.Status.Runners, Decision: latest}, true
	}
	switch {
	case !ok && len(f.History) == 0:
		why := ""
		if len(f.Unknown) > 0 {
			why = " (" + strings.Join(f.Unknown, "; ") + ")"
		}
		return PoolAnswer{}, fmt.Errorf("nothing is known of RunnerPool %s at %s: it has no history%s", f.name(), stamp(f.At), why)
	case !ok:
		begin := f.History[len(f.History)-1]
		return PoolAnswer{}, fmt.Errorf("nothing is known of RunnerPool %s at %s: its history begins at %s", f.name(), stamp(f.At), stamp(begin.start()))
	}
	a := PoolAnswer{
		PoolHeader:  PoolHeader{Pool: f.name(), Time: metav1.Time{Time: f.At}, Past: true, Registration: f.Pool.Spec.GetRegistration()},
		PoolNumbers: PoolNumbers{Jobs: known(entry.Jobs, entry.Decision), Runners: entry.Runners, Decision: entry.Decision, Limits: pastLimits(entry.Decision), since: entry.Since},
		Unknown:     f.Unknown, now: f.Now,
	}
	for _, e := range f.History {
		if e.Template != nil && !e.start().After(f.At) {
			a.Template = e.Template
			break
		}
	}
	return a, nil
}

// limits returns the pool's numbers as declared and as decided.
func (f *PoolFacts) limits(d *v1alpha1.Decision) []Limit {
	spec, declared := f.Pool.Spec.Scale.Numbers(), f.declared()
	warm := f.Pool.Spec.Scale.IdlePercentOfBusy != nil || f.Pool.Spec.Scale.IdleTimeout != nil || len(f.Pool.Spec.Demand.Boosts) > 0
	limits := pastLimits(d)
	for i := range limits {
		l := &limits[i]
		l.Declared = declared.Number(l.Field)
		if n := spec.Number(l.Field); *n != *l.Declared {
			l.Spec, l.Schedule = n, f.decider(l.Field)
		}
		l.Added = warm && l.Field == "idle" && len(l.Rules) == 0 && l.Decided != *l.Declared
	}
	return limits
}

// pastLimits are the numbers as decided. What was declared is known only of those that a rule changed.
func pastLimits(d *v1alpha1.Decision) []Limit {
	if d == nil || d.Limits == nil {
		return nil
	}
	var limits []Limit
	decided := d.Limits.Numbers()
	for _, field := range numbers {
		l := Limit{Field: field, Decided: *decided.Number(field)}
		for _, b := range d.Limits.Bounds {
			if b.Field == field {
				l.Declared, l.Rules = &b.Declared, append(l.Rules, b)
			}
		}
		limits = append(limits, l)
	}
	return limits
}

// held lists what holds the pool back, and since when.
func (f *PoolFacts) held() []Held {
	s, held := &f.Pool.Status, f.heldIntake()
	add := func(what, condition string) {
		c := ConditionOf(f.Pool, condition)
		if !c.isFalse() {
			return
		}
		text := c.text()
		if ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition); ready != nil && ready.Reason == c.Reason {
			text = wording.FirstLine(text) // the page begins with the others
		}
		held = append(held, Held{What: what, Reason: text, Since: &c.Since})
	}
	add("policy", v1alpha1.PolicyCondition)
	add("health", v1alpha1.HealthyCondition)
	if u := s.Update; u != nil && u.Phase == v1alpha1.UpdateHeld {
		held = append(held, Held{What: "update", Reason: with(u.Way(""), u.Reason), Since: &u.Since})
	}
	if f.Applied.isFalse() {
		held = append(held, Held{What: "definitions", Reason: fmt.Sprintf("PoolSource %s: %s", f.Source, wording.FirstLine(f.Applied.text())), Since: &f.Applied.Since})
	}
	if text := f.otherGroup(); text != "" {
		held = append(held, Held{What: "runner group", Reason: text})
	}
	return held
}

// heldIntake lists what keeps jobs from being accepted, or those that are from starting.
func (f *PoolFacts) heldIntake() []Held {
	s, held := &f.Pool.Status, []Held(nil)
	if closed := f.closed(); closed != nil {
		held = append(held, *closed)
	}
	if ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition); f.Pool.Spec.Stops() {
		h := Held{What: "intake", Reason: fmt.Sprintf("spec.stopPolicy is %s: no new jobs are accepted", f.Pool.Spec.StopPolicy)}
		if ready.isFalse() && ready.Reason == v1alpha1.SuspendedReason {
			h.Since = &ready.Since
		}
		held = append(held, h)
	}
	if c := ConditionOf(f.Pool, v1alpha1.SaturatedCondition); c != nil && c.Status == metav1.ConditionTrue {
		held = append(held, Held{What: "intake", Reason: fmt.Sprintf("full, %s waiting", wording.Count(s.JobsWaiting, "more job")), Since: &c.Since})
	}
	if d := s.Decision; d != nil && d.JobsHeld > 0 {
		held = append(held, Held{What: "intake", Reason: wording.Count(d.JobsHeld, "accepted job") + " wait, because of a policy with assignedJobs: Wait", Since: &d.Time})
	}
	return held
}

// Text writes the answer for people.
func (a PoolAnswer) Text() string { return answerText("pool", a.now, &a) }

// numbers says how many jobs and runners there are.
func (a *PoolAnswer) numbers() string {
	has, runners := "It has", RunnersText(a.Runners)
	if a.Past {
		has = "It had"
	}
	if a.Jobs == nil {
		return fmt.Sprintf("%s %s; how many jobs isn't known.", has, runners)
	}
	switch jobs := wording.Count(*a.Jobs, "job"); {
	case a.Mode == v1alpha1.Observe && a.Runners.Total == 0:
		return fmt.Sprintf("It knows of %s, and starts no runners: it only observes.", jobs)
	case a.closed:
		return fmt.Sprintf("It had %s when GitHub last told, and has %s.", jobs, runners)
	default:
		return fmt.Sprintf("%s %s and %s.", has, jobs, runners)
	}
}

// undecided says why no number of runners was ever decided.
func undecided(v *v1alpha1.TemplateVerdict) string {
	if v != nil && !v.Allowed {
		return "policies deny its pod template"
	}
	return "nothing was decided on it yet"
}

// target writes the desired runners, and the most runners or jobs.
func (a *PoolAnswer) target() string {
	runners, most := wording.Count(a.Decision.Desired, "runner"), a.Decision.Announced
	switch isREST := a.Registration == v1alpha1.RegisterREST; {
	case (isREST || a.Mode == v1alpha1.Observe) && most == 0:
		return fmt.Sprintf("Desired: %s; no more are started.", runners)
	case isREST || a.Mode == v1alpha1.Observe:
		return fmt.Sprintf("Desired: %s; max: %s.", runners, wording.Max(most))
	case a.Past:
		return fmt.Sprintf("Desired: %s; it accepted %s.", runners, capacity(most))
	case a.closed:
		return fmt.Sprintf("Desired: %s. It accepts no new jobs now, and up to %s once nothing is in the way.", runners, wording.Max(most))
	}
	return fmt.Sprintf("Desired: %s; it accepts %s.", runners, capacity(most))
}

// RunnersText says how many runners there are, and how many in each state.
func RunnersText(c v1alpha1.RunnerCounts) string {
	text := wording.Count(c.Total, "runner")
	var parts []string
	for _, s := range []struct {
		n    int32
		word string
	}{{c.Pending, "starting"}, {c.Idle, "idle"}, {c.Busy, "busy"}, {c.Finished, "finished"}, {c.Failed, "failed"}} {
		if s.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", s.n, s.word))
		}
	}
	if c.Outdated > 0 {
		parts = append(parts, fmt.Sprintf("%d of them of an older template", c.Outdated))
	}
	if len(parts) == 0 {
		return text
	}
	return text + ": " + strings.Join(parts, ", ")
}

// briefReason returns a decision's reason without its rules, which the limits list.
func briefReason(d *v1alpha1.Decision) string {
	if d.Limits == nil || len(d.Limits.Bounds) == 0 {
		return d.Reason
	}
	b := d.Limits.Bounds[0]
	before, _, _ := strings.Cut(d.Reason, fmt.Sprintf("; %s %d → %d by ", b.Field, b.Declared, b.Value))
	return before
}

// differs reports whether a limit is not as declared, although no rule changed it.
func (l *Limit) differs() bool {
	return l.Declared != nil && *l.Declared != l.Decided && len(l.Rules) == 0
}

// origin says where a limit comes from, if its declared number is known.
func (l *Limit) origin() string {
	scheduled := ""
	if l.Spec != nil {
		scheduled = fmt.Sprintf("; spec.scale.%s is %s", l.Field, wording.Max(*l.Spec))
	}
	by := ""
	if l.Schedule != "" {
		by = " by " + l.Schedule
	}
	switch {
	case l.Declared == nil:
		return ""
	case *l.Declared == l.Decided && l.Spec != nil:
		return ", as scheduled" + by + scheduled
	case *l.Declared == l.Decided:
		return ", as declared"
	case l.Spec != nil:
		return fmt.Sprintf("; scheduled%s is %s%s", by, wording.Max(*l.Declared), scheduled)
	}
	return "; declared is " + wording.Max(*l.Declared)
}

// verdict is a finding of a policy about a template.
type verdict struct {
	Kind string
	v1alpha1.PolicyFinding
}

func verdicts(v *v1alpha1.TemplateVerdict) (all []verdict) {
	for _, f := range v.Denials {
		all = append(all, verdict{"denied", f})
	}
	for _, f := range v.Warnings {
		all = append(all, verdict{"warning", f})
	}
	return all
}

// kept is the pod that is kept; nil for none.
func (a *PoolAnswer) kept() *types.NamespacedName {
	namespace, name, ok := strings.Cut(a.Kept, "/")
	if !ok {
		return nil
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}
}

// mode says what the policy is asked for.
func (p *Policy) mode() string {
	mode := "enforced"
	if p.Mode == v1alpha1.PolicyAudit {
		mode = "audit only"
	}
	if len(p.Decisions) > 0 {
		mode += ", on " + strings.Join(p.Decisions, ", ")
	}
	return mode
}

// state says whether the policy can be asked about a pool.
func (p *Policy) state(now time.Time, a *PoolAnswer) string {
	isOfPool := func(c v1alpha1.Cause) bool { return c.Parameter("policy") == p.Policy }
	switch r := p.Ready; {
	case r == nil:
		return "not looked at yet"
	case r.Status != metav1.ConditionTrue:
		return fmt.Sprintf("not ready since %s: %s", when(now, r.Since), r.text())
	case a.Ready.isFalse() && slices.ContainsFunc(a.Ready.Causes, isOfPool): // and is well elsewhere
		return "ready, but not for this pool: see above"
	}
	return "ready"
}

// text is an entry of the history in a line.
func (e *Entry) text() string {
	text := stamp(e.Time.Time)
	if d := e.Decision; d != nil {
		desired := fmt.Sprint(d.Desired)
		if d.Before != nil && d.Before.Desired != d.Desired {
			desired = fmt.Sprintf("%d → %d", d.Before.Desired, d.Desired)
		}
		text += fmt.Sprintf("  desired %s, announced %s", desired, wording.Max(d.Announced))
		if d.Limits != nil {
			text += ", max " + wording.Max(d.Limits.GetMax())
		}
		text += ": " + briefReason(d)
	}
	switch v := e.Template; {
	case v == nil:
	case v.Allowed:
		text += "; template allowed"
	default:
		text += "; template denied"
	}
	return text
}
