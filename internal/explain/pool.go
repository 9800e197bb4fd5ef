// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// numbers are the fields of spec.scale that limit a pool.
var numbers = []string{"min", "max", "idle"}

// recent limits how many entries of the history an answer about the present contains.
const recent = 5

// PoolAnswer explains a pool's numbers.
type PoolAnswer struct {
	PoolHeader
	PoolNumbers
	// Template is the policies' verdict on the template.
	Template *v1alpha1.TemplateVerdict `json:"template,omitempty"`
	// Update in progress, or the last update that was rolled back.
	Update *v1alpha1.UpdateStatus `json:"update,omitempty"`
	// RunnerVersion is the version of the runner program and how long GitHub supports it, if known.
	RunnerVersion *v1alpha1.RunnerVersionStatus `json:"runnerVersion,omitempty"`
	// Held lists what holds the pool back, and since when.
	Held []Held `json:"held,omitempty"`
	// Failures lists the last failed runners, the newest first.
	Failures []v1alpha1.RunnerFailure `json:"failures,omitempty"`
	// Kept is the pod of a failed runner, as NAMESPACE/NAME, that is kept for its log.
	Kept string `json:"kept,omitempty"`
	// Changes describe what would change the answer.
	Changes []string `json:"changes,omitempty"`
	// Policies that apply to the pool.
	Policies []Policy `json:"policies,omitempty"`
	// Recent decisions, the newest first; at most 5.
	Recent []Entry `json:"recent,omitempty"`
	// Unknown lists what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	now time.Time
	// Closed is true while the pool accepts no jobs regardless of its decision. IsUpdated is true once all runners use the
	// current template.
	Closed    bool `json:"-"`
	IsUpdated bool `json:"-"`
}

// PoolHeader identifies the pool and the time of an answer, and contains whether the pool is ready.
type PoolHeader struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Time that the answer is about.
	Time metav1.Time `json:"time"`
	// Past is true for an answer from the history, which has fewer fields.
	Past bool `json:"past,omitempty"`
	// Ready is the pool's condition.
	Ready *Condition `json:"ready,omitempty"`
	// Behind is true while the controller has not reconciled the current spec.
	Behind bool `json:"behind,omitempty"`
	// Registration of its runners. Mode is whether the pool acts or observes; unknown for a time in the past.
	Registration v1alpha1.Registration `json:"registration"`
	Mode         v1alpha1.PoolMode     `json:"mode,omitempty"`
}

// PoolNumbers contains a pool's jobs and runners, the decision about them, and the demand, schedule and limits behind it.
type PoolNumbers struct {
	// Jobs of the pool that have not finished; absent if unknown.
	Jobs *int32 `json:"jobs,omitempty"`
	// Runners by state.
	Runners v1alpha1.RunnerCounts `json:"runners"`
	// Decision in force.
	Decision *v1alpha1.Decision `json:"decision,omitempty"`
	// Demand lists the sources of demand; absent if the scale set is the only one.
	Demand *Demand `json:"demand,omitempty"`
	// Schedule contains the numbers of spec.scale after schedules; absent without schedules.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Observation is what a pool in mode Observe would do.
	Observation *v1alpha1.Observation `json:"observation,omitempty"`
	// Limits as declared and as decided.
	Limits []Limit `json:"limits,omitempty"`

	// First is the time of the first decision, if the history merged several.
	First *metav1.Time `json:"-"`
}

// Limit is one of the three numbers of a pool.
type Limit struct {
	// Field is min, max or idle.
	Field string `json:"field"`
	// Declared number, after schedules; absent if no longer known. 2147483647 means unbounded.
	Declared *int32 `json:"declared,omitempty"`
	// Spec is the number in spec.scale if Schedule overrides it.
	Spec     *int32 `json:"spec,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Added is true if warm capacity or boosts changed it.
	Added bool `json:"added,omitempty"`
	// Decided number.
	Decided int32 `json:"decided"`
	// Rules that changed it.
	Rules []v1alpha1.LimitBound `json:"rules,omitempty"`
}

// Held describes what holds a pool back.
type Held struct {
	// What names the part that is held back: intake, policy, health, update, definitions or runner group.
	What   string       `json:"what"`
	Reason string       `json:"reason"`
	Since  *metav1.Time `json:"since,omitempty"`
}

// Pool explains a pool. It fails if nothing is known about the requested time.
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
		Recent: f.History[:min(len(f.History), recent)], Unknown: f.Unknown, now: f.Now, Closed: f.closed().Reason != "", IsUpdated: meta.IsStatusConditionTrue(s.Conditions, v1alpha1.UpdatedCondition),
	}, nil
}

// Known returns the number of the pool's jobs; nil if it is unknown. The status may still contain an earlier count.
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
		// The history is written once a minute, so the last decision may be missing from it.
		entry, ok = Entry{Time: latest.Time, Jobs: f.Pool.Status.Jobs, Runners: f.Pool.Status.Runners, Decision: latest}, true
	}
	if !ok {
		return PoolAnswer{}, errors.New(phrase("unknown-past", &f))
	}
	a := PoolAnswer{
		PoolHeader:  PoolHeader{Pool: f.name(), Time: metav1.Time{Time: f.At}, Past: true, Registration: f.Pool.Spec.GetRegistration()},
		PoolNumbers: PoolNumbers{Jobs: known(entry.Jobs, entry.Decision), Runners: entry.Runners, Decision: entry.Decision, Limits: pastLimits(entry.Decision), First: entry.Since},
		Unknown:     f.Unknown, now: f.Now,
	}
	judged, _ := At(slices.DeleteFunc(slices.Clone(f.History), func(e Entry) bool { return e.Template == nil }), f.At)
	a.Template = judged.Template
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

// pastLimits returns the decided numbers. The declared number is only known if a rule changed it.
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

// held lists what holds the pool back, and since when. It starts with what keeps the pool from accepting jobs or starting
// runners.
func (f *PoolFacts) held() []Held {
	s, suspended := &f.Pool.Status, ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	if !suspended.isFalse() || suspended.Reason != v1alpha1.SuspendedReason {
		suspended = nil
	}
	all := []Held{
		f.closed(),
		{"intake", phrase("stopped", f), suspended.start()},
		{"intake", phrase("full", f), ConditionOf(f.Pool, v1alpha1.SaturatedCondition).start()},
		{"intake", phrase("jobs-held", f), &cmp.Or(s.Decision, &v1alpha1.Decision{}).Time},
		f.heldBy("policy", v1alpha1.PolicyCondition),
		f.heldBy("health", v1alpha1.HealthyCondition),
		{"update", phrase("update-held", f), &cmp.Or(s.Update, &v1alpha1.UpdateStatus{}).Since},
		{"definitions", phrase("definitions-held", f), f.Applied.start()},
		{What: "runner group", Reason: phrase("group-held", f)},
	}
	return slices.DeleteFunc(all, func(h Held) bool { return h.Reason == "" })
}

// heldBy contains the data for the template that describes what a condition of a pool holds back.
type heldBy struct {
	Pool      *v1alpha1.RunnerPool
	Condition *Condition
}

// heldBy returns what a condition of the pool holds back. The reason is empty if the condition is not False.
func (f *PoolFacts) heldBy(what, name string) Held {
	c := ConditionOf(f.Pool, name)
	return Held{what, phrase("condition-held", heldBy{f.Pool, c}), c.start()}
}

// Text renders the answer for people.
func (a PoolAnswer) Text() string { return answerText("pool", a.now, &a) }

// RunnersText returns the number of runners, in total and per state.
func RunnersText(c v1alpha1.RunnerCounts) string {
	return phrase("runners", c)
}

// briefReason returns a decision's reason without the rules that changed a limit, because the answer lists them with the
// limits.
func briefReason(d *v1alpha1.Decision) string {
	if d.Limits == nil || len(d.Limits.Bounds) == 0 {
		return d.Reason
	}
	b := d.Limits.Bounds[0]
	before, _, _ := strings.Cut(d.Reason, fmt.Sprintf("; %s %d → %d by ", b.Field, b.Declared, b.Value))
	return before
}

// blames reports whether the pool is not ready because of a policy.
func (a *PoolAnswer) blames(policy string) bool {
	return a.Ready.isFalse() && slices.ContainsFunc(a.Ready.Causes, func(c v1alpha1.Cause) bool { return c.Parameter("policy") == policy })
}
