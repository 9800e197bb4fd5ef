// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// recent is how many entries of the history an answer about now has.
const recent = 5

// PoolAnswer says why a pool's numbers are what they are.
type PoolAnswer struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Time that the answer is about.
	Time metav1.Time `json:"time"`
	// Past is true of an answer from the history: it has only what is kept there.
	Past bool `json:"past,omitempty"`
	// Ready is the pool's condition.
	Ready *Condition `json:"ready,omitempty"`
	// Registration of its runners, and Mode, whether it acts. Of a time in the past the mode isn't known.
	Registration v1alpha1.Registration `json:"registration"`
	Mode         v1alpha1.PoolMode     `json:"mode,omitempty"`
	// Jobs of the pool that have not finished.
	Jobs int32 `json:"jobs"`
	// Runners by state.
	Runners v1alpha1.RunnerCounts `json:"runners"`
	// Decision that holds.
	Decision *v1alpha1.Decision `json:"decision,omitempty"`
	// Demand is what tells of jobs, if it isn't the scale set alone.
	Demand *Demand `json:"demand,omitempty"`
	// Schedule is what schedules make of spec.scale.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Observed is what a pool that acts on nothing would do.
	Observed *v1alpha1.ObservedStatus `json:"observed,omitempty"`
	// Limits as declared and as decided.
	Limits []Limit `json:"limits,omitempty"`
	// Template is what policies say of it.
	Template *v1alpha1.TemplateVerdict `json:"template,omitempty"`
	// Update under way, or the last that was rolled back.
	Update *v1alpha1.UpdateStatus `json:"update,omitempty"`
	// Held is what holds the pool back, and since when.
	Held []Held `json:"held,omitempty"`
	// Changes say what would change the answer.
	Changes []string `json:"changes,omitempty"`
	// Policies that bind the pool.
	Policies []Policy `json:"policies,omitempty"`
	// Recent decisions, the newest first.
	Recent []Entry `json:"recent,omitempty"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	now   time.Time
	since *metav1.Time // of an entry that tells of several decisions
}

// Limit is one of the three numbers of a pool.
type Limit struct {
	// Field is min, max or idle.
	Field string `json:"field"`
	// Declared number, after schedules; absent where it isn't known any more. 2147483647 stands for no bound.
	Declared *int32 `json:"declared,omitempty"`
	// Spec is the number of spec.scale, where Schedule makes it another.
	Spec     *int32 `json:"spec,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Added is true if warm capacity or slack makes it another than declared.
	Added bool `json:"added,omitempty"`
	// Decided number.
	Decided int32 `json:"decided"`
	// Rules that make it another than declared.
	Rules []v1alpha1.LimitBound `json:"rules,omitempty"`
}

// Held is what holds a pool back.
type Held struct {
	// What is held: policy, update, health, intake.
	What   string       `json:"what"`
	Reason string       `json:"reason"`
	Since  *metav1.Time `json:"since,omitempty"`
}

// Pool explains a pool. An error says that nothing is known of the time asked about.
func Pool(f PoolFacts) (PoolAnswer, error) {
	if !f.At.IsZero() {
		return past(f)
	}
	s := &f.Pool.Status
	return PoolAnswer{
		Pool: f.name(), Time: metav1.Time{Time: f.Now}, Ready: ConditionOf(s.Conditions, v1alpha1.ReadyCondition),
		Registration: f.Pool.Spec.GetRegistration(), Mode: f.Pool.Spec.GetMode(), Demand: f.demand(), Schedule: f.schedule(), Observed: s.Observed,
		Jobs: s.Jobs, Runners: s.Runners, Decision: s.Decision, Limits: f.limits(s.Decision), Template: s.Template, Update: s.Update,
		Held: f.held(), Changes: f.changes(), Policies: f.Policies, Recent: f.History[:min(len(f.History), recent)],
		Unknown: f.Unknown, now: f.Now,
	}, nil
}

func (f *PoolFacts) name() string { return f.Pool.Namespace + "/" + f.Pool.Name }

// past answers from the history.
func past(f PoolFacts) (PoolAnswer, error) {
	entry, ok := At(f.History, f.At)
	latest := f.Pool.Status.Decision
	if latest != nil && !latest.Time.After(f.At) && (!ok || latest.Time.After(entry.Time.Time)) {
		// What was decided last may not be written down yet.
		entry, ok = Entry{Time: latest.Time, Jobs: f.Pool.Status.Jobs, Runners: f.Pool.Status.Runners, Decision: latest}, true
	}
	switch {
	case !ok && len(f.History) == 0:
		return PoolAnswer{}, fmt.Errorf("nothing is known of RunnerPool %s at %s: it has no history%s", f.name(), stamp(f.At), because(f.Unknown))
	case !ok:
		begin := f.History[len(f.History)-1]
		return PoolAnswer{}, fmt.Errorf("nothing is known of RunnerPool %s at %s: its history begins at %s", f.name(), stamp(f.At), stamp(begin.start()))
	}
	a := PoolAnswer{
		Pool: f.name(), Time: metav1.Time{Time: f.At}, Past: true, Registration: f.Pool.Spec.GetRegistration(), Jobs: entry.Jobs, Runners: entry.Runners,
		Decision: entry.Decision, Limits: pastLimits(entry.Decision), Unknown: f.Unknown, now: f.Now, since: entry.Since,
	}
	for _, e := range f.History {
		if e.Template != nil && !e.start().After(f.At) {
			a.Template = e.Template
			break
		}
	}
	return a, nil
}

func because(unknown []string) string {
	if len(unknown) == 0 {
		return ""
	}
	return " (" + strings.Join(unknown, "; ") + ")"
}

// limits are the pool's numbers as declared and as decided.
func (f *PoolFacts) limits(d *v1alpha1.Decision) []Limit {
	if d == nil || d.Limits == nil {
		return nil
	}
	scale, now := &f.Pool.Spec.Scale, f.declared()
	limits := pastLimits(d)
	for i, n := range []struct{ declared, spec int32 }{{now.Min, scale.GetMin()}, {now.Max, scale.GetMax()}, {now.Idle, scale.GetIdle()}} {
		l := &limits[i]
		l.Declared = &n.declared
		if n.spec != n.declared {
			l.Spec, l.Schedule = &n.spec, f.decider(l.Field)
		}
	}
	idle := &limits[2]
	idle.Added = (f.Pool.Spec.Scale.IdlePercentOfBusy != nil || f.Pool.Spec.Scale.IdleTimeout != nil || len(f.Pool.Spec.Demand.Slack) > 0) && len(idle.Rules) == 0 && idle.Decided != *idle.Declared
	return limits
}

// pastLimits are the numbers as they were decided; what was declared is only known of those
// that a rule changed.
func pastLimits(d *v1alpha1.Decision) []Limit {
	if d == nil || d.Limits == nil {
		return nil
	}
	l := d.Limits
	limits := []Limit{{Field: "min", Decided: l.Min}, {Field: "max", Decided: l.Max}, {Field: "idle", Decided: l.Idle}}
	for i := range limits {
		for _, b := range l.Bounds {
			if b.Field == limits[i].Field {
				limits[i].Declared = &b.Declared
				limits[i].Rules = append(limits[i].Rules, b)
			}
		}
	}
	return limits
}

// held lists what holds the pool back.
func (f *PoolFacts) held() []Held {
	s, held := &f.Pool.Status, []Held(nil)
	add := func(what, condition string) {
		if c := ConditionOf(s.Conditions, condition); c.isFalse() {
			held = append(held, Held{What: what, Reason: c.words(), Since: &c.Since})
		}
	}
	if ready := ConditionOf(s.Conditions, v1alpha1.ReadyCondition); f.Pool.Spec.Suspend {
		h := Held{What: "intake", Reason: "spec.suspend is set: no new jobs are taken in"}
		if ready.isFalse() && ready.Reason == v1alpha1.SuspendedReason {
			h.Since = &ready.Since
		}
		held = append(held, h)
	}
	add("policy", v1alpha1.PolicyCondition)
	add("health", v1alpha1.HealthyCondition)
	if u := s.Update; u != nil && u.Phase == v1alpha1.UpdateHeld {
		held = append(held, Held{What: "update", Reason: with("from "+u.From+" to "+u.To, u.Reason), Since: &u.Since})
	}
	if d := s.Decision; d != nil && d.Waiting > 0 {
		held = append(held, Held{What: "intake", Reason: wording.Count(d.Waiting, "accepted job") + " wait, because a policy bounds the pool hard", Since: &d.Time})
	}
	return held
}

// Text tells the answer in plain words.
func (a PoolAnswer) Text() string {
	p := &page{now: a.now}
	a.title(p)
	a.numbers(p)
	a.observed(p)
	a.demand(p)
	a.schedule(p)
	a.limits(p)
	a.template(p)
	if u := a.Update; u != nil {
		p.section("Update")
		p.line(2, "%s since %s, from %s to %s", u.Phase, p.when(u.Since.Time), u.From, u.To)
		if u.Reason != "" {
			p.line(2, "%s", u.Reason)
		}
	}
	a.holds(p)
	p.list("What would change this", a.Changes)
	a.policies(p)
	a.decision(p)
	if len(a.Recent) > 1 {
		p.section("Lately")
		for _, e := range a.Recent {
			p.line(2, "%s", e.words())
		}
	}
	p.list("Not known", a.Unknown)
	return p.String()
}

func (a *PoolAnswer) title(p *page) {
	switch {
	case a.Past:
		p.line(0, "RunnerPool %s at %s", a.Pool, p.when(a.Time.Time))
	case a.Ready == nil:
		p.line(0, "RunnerPool %s: the controller has not looked at it yet", a.Pool)
	case a.Ready.Status == metav1.ConditionTrue:
		p.line(0, "RunnerPool %s is ready: %s", a.Pool, a.Ready.Message)
	default:
		p.line(0, "RunnerPool %s is not ready since %s", a.Pool, p.when(a.Ready.Since.Time))
		p.line(0, "%s", a.Ready.words())
	}
}

func (a *PoolAnswer) numbers(p *page) {
	d := a.Decision
	p.gap()
	has := "It has"
	if a.Past {
		has = "It had"
	}
	if a.Mode == v1alpha1.Observe && a.Runners.Total == 0 {
		p.line(0, "It knows of %s, and starts no runners: it only observes.", wording.Count(a.Jobs, "job"))
	} else {
		p.line(0, "%s %s and %s.", has, wording.Count(a.Jobs, "job"), runnersWords(a.Runners))
	}
	if d == nil {
		p.line(0, "Nothing was decided on it yet: it starts no runners and takes in no jobs.")
		return
	}
	p.line(0, "%s", a.target())
	p.line(0, "Why: %s", briefReason(d))
	if a.since != nil {
		p.line(0, "These are the last numbers of several that were decided from %s on, within a minute.", stamp(a.since.Time))
	}
}

// target says how many runners it is to have, and what it takes in.
func (a *PoolAnswer) target() string {
	d := a.Decision
	runners := wording.Count(d.Desired, "runner")
	switch {
	case a.Mode == v1alpha1.Observe:
		return fmt.Sprintf("It would have %s%s.", runners, room(d.Announced))
	case a.Registration == v1alpha1.RegisterREST && a.Past:
		return fmt.Sprintf("It was to have %s%s.", runners, room(d.Announced))
	case a.Registration == v1alpha1.RegisterREST:
		return fmt.Sprintf("It is to have %s%s.", runners, room(d.Announced))
	case a.Past:
		return fmt.Sprintf("It was to have %s, and took in %s.", runners, capacity(d.Announced))
	}
	return fmt.Sprintf("It is to have %s, and takes in %s.", runners, capacity(d.Announced))
}

func runnersWords(c v1alpha1.RunnerCounts) string {
	words := wording.Count(c.Total, "runner")
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
		parts = append(parts, fmt.Sprintf("%d of a former template among them", c.Outdated))
	}
	if len(parts) == 0 {
		return words
	}
	return words + ": " + strings.Join(parts, ", ")
}

// briefReason is a decision's reason without the rules that bound it: they are told by field.
func briefReason(d *v1alpha1.Decision) string {
	if d.Limits == nil || len(d.Limits.Bounds) == 0 {
		return d.Reason
	}
	b := d.Limits.Bounds[0]
	before, _, _ := strings.Cut(d.Reason, fmt.Sprintf("; %s %d → %d by ", b.Field, b.Declared, b.Value))
	return before
}

func (a *PoolAnswer) limits(p *page) {
	if len(a.Limits) == 0 {
		return
	}
	p.section("Limits")
	for _, l := range a.Limits {
		p.line(2, "%-4s  %s%s", l.Field, number(l.Decided), l.origin())
		for _, b := range l.Rules {
			p.line(8, "%s by %s", number(b.Value), b.Rule.Says(b.Reason))
		}
		switch {
		case l.Added:
			p.line(8, "by spec.scale.idlePercentOfBusy or idleTimeout, or a slack trigger, within max")
		case l.Declared != nil && *l.Declared != l.Decided && len(l.Rules) == 0:
			p.line(8, "not above max, or not decided again since it was declared")
		}
	}
	a.terms(p)
}

// origin says what a limit comes from, as far as it is declared.
func (l *Limit) origin() string {
	scheduled := ""
	if l.Spec != nil {
		scheduled = fmt.Sprintf("; spec.scale.%s is %s", l.Field, number(*l.Spec))
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
		return fmt.Sprintf("; scheduled%s is %s%s", by, number(*l.Declared), scheduled)
	}
	return "; declared is " + number(*l.Declared)
}

// terms say what goes with the limits.
func (a *PoolAnswer) terms(p *page) {
	d := a.Decision.Limits
	if d.Hard {
		p.line(2, "The bound is hard: jobs accepted beyond it wait; %d do.", a.Decision.Waiting)
	}
	if d.Shared {
		p.line(2, "Rules read what other pools were granted: they may change when others grow or shrink.")
	}
	if d.Until != nil {
		p.line(2, "They are decided again at %s at the latest.", p.when(d.Until.Time))
	}
	for _, c := range d.Conflicts {
		p.line(2, "Without effect: %s", c)
	}
}

func (a *PoolAnswer) template(p *page) {
	v := a.Template
	if v == nil {
		return
	}
	p.section("Template")
	if v.Allowed {
		p.line(2, "Policies allow revision %s.", v.Revision)
	} else {
		p.line(2, "Policies deny revision %s: none of its pods are made.", v.Revision)
	}
	write := func(kind string, findings []v1alpha1.PolicyFinding) {
		for _, f := range findings {
			path := ""
			if f.Path != "" {
				path = "spec.template." + f.Path + ": "
			}
			p.line(2, "%s: %s%s", kind, path, f.Message)
			p.line(6, "by %s", f.Rule)
			if f.Remediation != "" {
				p.line(6, "to do: %s", f.Remediation)
			}
		}
	}
	write("denied", v.Denials)
	write("warning", v.Warnings)
}

func (a *PoolAnswer) holds(p *page) {
	if len(a.Held) == 0 {
		return
	}
	p.section("Held")
	for _, h := range a.Held {
		since := ""
		if h.Since != nil {
			since = ", since " + p.when(h.Since.Time)
		}
		p.line(2, "- %s%s: %s", h.What, since, h.Reason)
	}
}

func (a *PoolAnswer) policies(p *page) {
	if len(a.Policies) == 0 {
		return
	}
	p.section("Policies that bind it")
	for _, pol := range a.Policies {
		mode := "enforced"
		if pol.Mode == v1alpha1.PolicyAudit {
			mode = "audit only"
		}
		if len(pol.Decisions) > 0 {
			mode += ", on " + strings.Join(pol.Decisions, ", ")
		}
		state := "ready"
		switch r := pol.Ready; {
		case r == nil:
			state = "not looked at yet"
		case r.Status != metav1.ConditionTrue:
			state = fmt.Sprintf("not ready since %s: %s", p.when(r.Since.Time), r.words())
		}
		p.line(2, "- %s (%s): %s", pol.Policy, mode, state)
		for _, w := range pol.WouldChange {
			p.line(6, "would change: %s", w)
		}
	}
}

func (a *PoolAnswer) decision(p *page) {
	d := a.Decision
	if d == nil {
		return
	}
	p.section("Decision")
	p.line(2, "taken %s", p.when(d.Time.Time))
	if d.ID != "" {
		p.line(2, "id %s", d.ID)
	}
	if d.Digest != "" {
		p.line(2, "by policies of digest %s", d.Digest)
	}
	if b := d.Before; b != nil {
		p.line(2, "before: %s", numbersWords(b))
	}
}

func numbersWords(n *v1alpha1.DecidedNumbers) string {
	words := fmt.Sprintf("desired %d, announced %s", n.Desired, number(n.Announced))
	if n.Max != 0 {
		words += ", max " + number(n.Max)
	}
	return words
}

// words tell an entry of the history in a line.
func (e *Entry) words() string {
	words := stamp(e.Time.Time)
	if d := e.Decision; d != nil {
		desired := fmt.Sprint(d.Desired)
		if d.Before != nil && d.Before.Desired != d.Desired {
			desired = fmt.Sprintf("%d → %d", d.Before.Desired, d.Desired)
		}
		words += fmt.Sprintf("  desired %s, announced %s", desired, number(d.Announced))
		if d.Limits != nil {
			words += ", max " + number(d.Limits.Max)
		}
		words += ": " + briefReason(d)
	}
	switch v := e.Template; {
	case v == nil:
	case v.Allowed:
		words += "; template allowed"
	default:
		words += "; template denied"
	}
	return words
}
