// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/wording"
)

// variant changes one side of an installation of one pool.
type variant struct {
	name string
	set  func(*Snapshot)
}

func pool(s *Snapshot) *v1alpha1.RunnerPool   { return &s.Pools[0] }
func scaleSet(s *Snapshot) *v1alpha1.ScaleSet { return &s.ScaleSets[0] }

// sorted are all reasons.
func sorted() []string { return slices.Sorted(maps.Keys(ranks)) }

// readiness are the states of a pool by its condition Ready.
func readiness() []variant {
	all := []variant{
		{"ready", func(*Snapshot) {}},
		{"never looked at", func(s *Snapshot) { pool(s).Status = v1alpha1.RunnerPoolStatus{ObservedGeneration: -1} }},
		{"under way", func(s *Snapshot) {
			is(&pool(s).Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "the scale set is being made")
		}},
	}
	for _, reason := range sorted() {
		if reason != v1alpha1.SucceededReason {
			all = append(all, variant{reason, func(s *Snapshot) { fails(&pool(s).Status.Conditions, reason, "message of "+reason) }})
		}
	}
	return all
}

// sessions are the states of a scale set.
func sessions() []variant {
	listening := func(status metav1.ConditionStatus, reason, message string) func(*Snapshot) {
		return func(s *Snapshot) {
			is(&scaleSet(s).Status.Conditions, v1alpha1.ListeningCondition, status, reason, message)
		}
	}
	return []variant{
		{"listening", func(*Snapshot) {}},
		{"opening", listening(metav1.ConditionUnknown, v1alpha1.ProgressingReason, "opening a session")},
		{"owned elsewhere", listening(metav1.ConditionFalse, v1alpha1.OwnedElsewhereReason, "the session was closed")},
		{"refused", listening(metav1.ConditionFalse, v1alpha1.SessionRefusedReason, "an earlier session of this pool has not expired yet")},
		{"no scale set", func(s *Snapshot) { s.ScaleSets = nil }},
		{"new scale set", func(s *Snapshot) { scaleSet(s).Status = v1alpha1.ScaleSetStatus{ObservedGeneration: 1} }},
		{"in another group", func(s *Snapshot) { scaleSet(s).Status.RunnerGroup = "other" }},
		{"of a former pool", func(s *Snapshot) { scaleSet(s).Spec.PoolUID = "former" }},
		{"set not ready", func(s *Snapshot) {
			fails(&scaleSet(s).Status.Conditions, v1alpha1.RunnerGroupNotFoundReason, `runner group "big" is not there`)
		}},
	}
}

// decisions are what was decided.
func decisions() []variant {
	decided := func(change func(*v1alpha1.RunnerPool, *v1alpha1.Decision)) func(*Snapshot) {
		return func(s *Snapshot) {
			if d := pool(s).Status.Decision; d != nil {
				change(pool(s), d)
			}
		}
	}
	rule := v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/limits", Name: "corral.scaling.limit", File: "limits.rego", Line: 3}
	return []variant{
		{"room", func(*Snapshot) {}},
		{"nothing decided", func(s *Snapshot) { pool(s).Status.Decision = nil }},
		{"full", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Status.Jobs, p.Status.Runners = 14, v1alpha1.RunnerCounts{Total: 10, Busy: 10}
			d.Desired, d.Reason = 10, "14 jobs + 1 idle, bounded by max 10"
		})},
		{"saturated", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Status.Jobs, p.Status.Waiting, p.Status.Runners = 10, 4, v1alpha1.RunnerCounts{Total: 10, Busy: 10}
			d.Desired, d.Reason = 10, "10 jobs: full (max 10); 4 more wait on GitHub"
			is(&p.Status.Conditions, v1alpha1.SaturatedCondition, metav1.ConditionTrue, v1alpha1.MaxReachedReason, "as many jobs as max allows, 10; more wait")
		})},
		{"unbounded", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Spec.Scale.Max, d.Announced, d.Limits.Max = nil, v1alpha1.UnboundedMax, v1alpha1.UnboundedMax
		})},
		{"bounded by policy", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Status.Jobs, d.Announced, d.Limits.Max, d.Limits.Hard, d.Waiting = 6, 4, 4, true, 2
			d.Desired, d.Reason = 4, "6 jobs + 1 idle, bounded by max 4; 2 jobs accepted before wait, by policy; max 10 → 4 by "+rule.String()
			d.Limits.Bounds = []v1alpha1.LimitBound{{Field: "max", Declared: 10, Value: 4, Rule: rule}}
		})},
		{"announces nothing", decided(func(_ *v1alpha1.RunnerPool, d *v1alpha1.Decision) { d.Announced = 0 })},
	}
}

// modes are what the spec says beside.
func modes() []variant {
	return []variant{
		{"active", func(*Snapshot) {}},
		{"suspended", func(s *Snapshot) { pool(s).Spec.Suspend = true }},
		{"observing", func(s *Snapshot) { pool(s).Spec.Mode, s.ScaleSets = v1alpha1.Observe, nil }},
		{"by REST", func(s *Snapshot) { pool(s).Spec.Registration, s.ScaleSets = v1alpha1.RegisterREST, nil }},
		{"changed since", func(s *Snapshot) { pool(s).Generation = 2 }},
	}
}

// others are the states of what else there is.
func others() []variant {
	all := []variant{
		{"fine", func(*Snapshot) {}},
		{"no connection", func(s *Snapshot) { s.Connections = nil }},
		{"policy invalid", func(s *Snapshot) {
			fails(&s.Policies[0].Status.Conditions, v1alpha1.PolicyInvalidReason, "limits.rego:3")
		}},
		{"policy fails", func(s *Snapshot) {
			is(&pool(s).Status.Conditions, v1alpha1.PolicyCondition, metav1.ConditionFalse, v1alpha1.PolicyFailedReason, "RunnerPolicy/ci/limits: TimedOut")
		}},
		{"runners fail", func(s *Snapshot) {
			is(&pool(s).Status.Conditions, v1alpha1.HealthyCondition, metav1.ConditionFalse, v1alpha1.RunnersFailingReason, "3 runners in a row failed")
		}},
		{"update held", func(s *Snapshot) {
			pool(s).Status.Update = &v1alpha1.UpdateStatus{From: "a", To: "b", Phase: v1alpha1.UpdateHeld, Since: ago(time.Hour), Reason: "paused"}
			is(&pool(s).Status.Conditions, v1alpha1.UpdatedCondition, metav1.ConditionFalse, v1alpha1.UpdateHeldReason, "paused")
		}},
	}
	for reason := range ofConnection {
		all = append(all, variant{"connection " + reason, func(s *Snapshot) { fails(&s.Connections[0].Status.Conditions, reason, "message of "+reason) }})
	}
	return all
}

// TestNothingContradicts takes an installation through the states of its pool, session, decision and mode, each with each, and those of
// pool and session with those of connections and policies. It compares what the columns of `kubectl get`, explain pool, explain job
// and status say of each.
func TestNothingContradicts(t *testing.T) {
	for name, sides := range map[string][][]variant{
		"by the pool":   {readiness(), sessions(), decisions(), modes()},
		"by the others": {others(), readiness(), sessions(), idleOrNot},
	} {
		t.Run(name, func(t *testing.T) {
			states := 0
			each(sides, nil, func(state []variant) bool {
				s := calm(1)
				names := []string{}
				for _, v := range state {
					v.set(s)
					names = append(names, v.name)
				}
				states++
				wrong := contradictions(s)
				if len(wrong) > 0 {
					t.Errorf("%s:\n%s", strings.Join(names, ", "), strings.Join(wrong, "\n"))
				}
				return len(wrong) == 0
			})
			if states < 5000 {
				t.Errorf("only %d states", states)
			}
		})
	}
}

// idleOrNot are whether the pool has jobs.
var idleOrNot = []variant{{"jobs", func(*Snapshot) {}}, {"no jobs", func(s *Snapshot) {
	pool(s).Status.Jobs, pool(s).Status.Runners = 0, v1alpha1.RunnerCounts{Total: 1, Idle: 1}
}}}

// each calls do with each choice of one variant of each side, until it returns false.
func each(sides [][]variant, chosen []variant, do func([]variant) bool) bool {
	if len(sides) == 0 {
		return do(chosen)
	}
	for _, v := range sides[0] {
		if !each(sides[1:], append(slices.Clip(chosen), v), do) {
			return false
		}
	}
	return true
}

// contradictions are what is said of a pool here and not there.
func contradictions(s *Snapshot) []string {
	p := pool(s)
	f := explain.PoolFacts{Pool: p, Now: s.Now}
	if len(s.ScaleSets) > 0 && scaleSet(s).Spec.PoolUID == string(p.UID) {
		f.ScaleSet = scaleSet(s)
	}
	answer, err := explain.Pool(f)
	if err != nil {
		return []string{err.Error()}
	}
	text, page := answer.Text(), Look(s)
	var wrong []string
	claim := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	ready := explain.ConditionOf(p.Status.Conditions, v1alpha1.ReadyCondition)
	isReady := ready != nil && ready.Status == metav1.ConditionTrue
	compareColumns(p, f, ready, text, claim)

	of, found := "RunnerPool/ci/linux-01", []Finding(nil)
	for _, one := range page.Findings {
		if slices.Contains(one.Objects, of) {
			found = append(found, one)
		}
	}
	isHeld := len(answer.Held) > 0
	claim(len(found) > 0 || isReady && !isHeld && !answer.Behind, "status says nothing of the pool, and explain says:\n%s", text)
	claim(page.Verdict == Trouble || isReady || rankOf(reasonOf(ready)).severity == Note || ready == nil, "status says %s, and explain:\n%s", page.Verdict, text)
	for _, one := range found {
		isConnections := slices.ContainsFunc(one.Objects, func(o string) bool { return !strings.HasPrefix(o, poolKind) })
		if isReady || one.Reason != reasonOf(ready) || one.Severity == Note || isConnections || ofConnection[one.Reason] {
			continue
		}
		claim(strings.Contains(text, one.Do) || changesSay(one.Reason), "status advises %q, and explain doesn't:\n%s", one.Do, text)
	}
	compareJob(f, answer, claim)
	return wrong
}

// changesSay is true of reasons about which explain says more than status does.
func changesSay(reason string) bool {
	return slices.Contains([]string{v1alpha1.PolicyDeniedReason, v1alpha1.RolledBackReason, v1alpha1.UpdateHeldReason}, reason)
}

func reasonOf(c *explain.Condition) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

// compareColumns compares the columns STATUS, WHY, MAX, LISTENING and GROUP with explain pool.
func compareColumns(p *v1alpha1.RunnerPool, f explain.PoolFacts, ready *explain.Condition, text string, claim func(bool, string, ...any)) {
	accepts := strings.Contains(text, "; it accepts ") && !strings.Contains(text, "it accepts no jobs")
	if ready != nil {
		closed := strings.Contains(text, "it accepts no jobs now")
		claim(strings.Contains(text, ready.Message) || closed, "STATUS is %q, and explain says:\n%s", ready.Message, text)
		claim(strings.Contains(text, "is ready: ") == (ready.Status == metav1.ConditionTrue && !closed), "READY is %s, and explain says:\n%s", ready.Status, text)
	}
	if d := p.Status.Decision; d != nil {
		why, _, _ := strings.Cut(d.Reason, "; max ")
		claim(strings.Contains(text, "Why: "+why+"\n"), "WHY is %q, and explain says:\n%s", d.Reason, text)
		claim(strings.Contains(text, "max   "+wording.Max(d.Limits.Max)), "MAX is %d, and explain says:\n%s", d.Limits.Max, text)
		claim(!accepts || d.Announced > 0, "nothing is announced, and explain says:\n%s", text)
	} else {
		claim(!accepts, "nothing was decided, and explain says:\n%s", text)
	}
	usesSet := p.Spec.GetRegistration() == v1alpha1.RegisterScaleSet && p.Spec.GetMode() != v1alpha1.Observe
	if f.ScaleSet == nil || !usesSet {
		return
	}
	listening := explain.ConditionOf(f.ScaleSet.Status.Conditions, v1alpha1.ListeningCondition)
	isOpen := listening != nil && listening.Status == metav1.ConditionTrue
	claim(isOpen || !accepts, "LISTENING isn't True, and explain says:\n%s", text)
	claim(isOpen || !strings.Contains(text, "Jobs create runners"), "LISTENING isn't True, and explain says:\n%s", text)
	claim(isOpen == !strings.Contains(text, "no message session "), "LISTENING is %v, and explain says:\n%s", isOpen, text)
	if group := f.ScaleSet.Status.RunnerGroup; group != "" && group != p.Spec.GetRunnerGroup() {
		claim(strings.Contains(text, fmt.Sprintf("%q", group)), "GROUP is %q, and explain says:\n%s", group, text)
	}
}

// compareJob compares explain pool with what explain job says of the pool.
func compareJob(f explain.PoolFacts, answer explain.PoolAnswer, claim func(bool, string, ...any)) {
	url, err := explain.ParseJobURL("https://github.com/acme/app/actions/runs/1")
	claim(err == nil, "%v", err)
	connection := explain.Connection{Namespace: "ci", Name: "acme", Host: "github.com", Scope: "organization", Owner: "acme"}
	job := explain.Job(explain.JobFacts{URL: url, Pools: []explain.PoolFacts{f}, Connections: map[string]explain.Connection{"ci/acme": connection}, Now: noon})
	text := job.Text()
	claim(len(job.Pools) == 1, "explain job has %d candidates", len(job.Pools))
	if answer.Registration == v1alpha1.RegisterREST {
		return // its situation is in numbers of runners
	}
	pool := answer.Text()
	closed := strings.Contains(pool, "accepts no new jobs now") || strings.Contains(pool, "it accepts no jobs")
	claim(!closed || !strings.Contains(text, "room for"), "explain pool says that no job is accepted, and explain job:\n%s", text)
}
