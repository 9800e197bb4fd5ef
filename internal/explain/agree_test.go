// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// variant modifies one aspect of an installation with one pool.
type variant struct {
	name string
	set  func(*Snapshot)
}

func pool(s *Snapshot) *v1alpha1.RunnerPool         { return &s.Pools[0] }
func scaleSet(s *Snapshot) *v1alpha1.RunnerScaleSet { return &s.ScaleSets[0] }

// sorted returns all reasons.
func sorted() []string {
	var reasons []string
	for _, row := range catalog.Rows() {
		if row.Code == row.Reason && row.Role != catalog.Finding {
			reasons = append(reasons, row.Code)
		}
	}
	return reasons
}

// readiness returns variants of a pool's Ready condition.
func readiness() []variant {
	all := []variant{
		{"ready", func(*Snapshot) {}},
		{"never looked at", func(s *Snapshot) { pool(s).Status = v1alpha1.RunnerPoolStatus{ObservedGeneration: -1} }},
		{"under way", func(s *Snapshot) {
			setCondition(&pool(s).Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "the scale set is being created")
		}},
	}
	for _, reason := range sorted() {
		if !catalog.IsFine(reason) {
			all = append(all, variant{reason, func(s *Snapshot) { setNotReady(&pool(s).Status.Conditions, reason, "message of "+reason) }})
		}
	}
	return all
}

// sessions returns variants of a scale set's Listening condition.
func sessions() []variant {
	listening := func(status metav1.ConditionStatus, reason, message string) func(*Snapshot) {
		return func(s *Snapshot) {
			setCondition(&scaleSet(s).Status.Conditions, v1alpha1.ListeningCondition, status, reason, message)
		}
	}
	return []variant{
		{"listening", func(*Snapshot) {}},
		{"opening", listening(metav1.ConditionUnknown, v1alpha1.ProgressingReason, "opening a session")},
		{"owned elsewhere", listening(metav1.ConditionFalse, v1alpha1.OwnedElsewhereReason, "the session was closed")},
		{"refused", listening(metav1.ConditionFalse, v1alpha1.SessionRefusedReason, "an earlier session of this pool has not expired yet")},
		{"no scale set", func(s *Snapshot) { s.ScaleSets = nil }},
		{"new scale set", func(s *Snapshot) { scaleSet(s).Status = v1alpha1.RunnerScaleSetStatus{ObservedGeneration: 1} }},
		{"in another group", func(s *Snapshot) { scaleSet(s).Status.RunnerGroup = "other" }},
		{"of a former pool", func(s *Snapshot) { scaleSet(s).Spec.PoolUID = "former" }},
		{"set not ready", func(s *Snapshot) {
			setNotReady(&scaleSet(s).Status.Conditions, v1alpha1.RunnerGroupNotFoundReason, `runner group "big" not found`)
		}},
	}
}

// reasonsIn returns the reasons for which Ready is not True, according to a kind's page in docs/spec.
func reasonsIn(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/spec", page))
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, line := range strings.Split(string(text), "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !strings.HasPrefix(cell, "False") && !strings.HasPrefix(cell, "Unknown") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			if slices.Contains(sorted(), m[1]) && !slices.Contains(reasons, m[1]) {
				reasons = append(reasons, m[1])
			}
		}
	}
	if len(reasons) < 5 {
		t.Fatalf("%s has the reasons %q alone", page, reasons)
	}
	return reasons
}

var quoted = regexp.MustCompile("`(\\w+)`")

// outages contains variants of GitHub's failure to answer.
var outages = map[string]*v1alpha1.GitHubOutage{"500": {Code: 500}, "429": {Code: 429}, "no answer": {}}

// records returns variants of a scale set's Ready condition, for the reasons on its page in docs/spec. All but the
// first have no session.
func records(t *testing.T) []variant {
	t.Helper()
	fail := func(reason string, outage *v1alpha1.GitHubOutage) func(*Snapshot) {
		return func(s *Snapshot) {
			status := &scaleSet(s).Status
			status.Outage = outage
			setNotReady(&status.Conditions, reason, "message of "+reason)
			setCondition(&status.Conditions, v1alpha1.ListeningCondition, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "opening a session")
		}
	}
	all := []variant{{"record ready", func(*Snapshot) {}}}
	for _, reason := range reasonsIn(t, "runnerscaleset.md") {
		all = append(all, variant{"record " + reason, fail(reason, nil)})
	}
	for name, outage := range outages {
		all = append(all, variant{"record " + name, fail(v1alpha1.GitHubUnavailableReason, outage)})
	}
	return all
}

// connections returns variants of a connection: for the reasons on its page in docs/spec, and for other states.
func connections(t *testing.T) []variant {
	t.Helper()
	of := func(s *Snapshot) *v1alpha1.GitHubConnectionStatus { return &s.Connections[0].Status }
	all := []variant{
		{"connection ready", func(*Snapshot) {}},
		{"no connection", func(s *Snapshot) { s.Connections = nil }},
		{"connection never looked at", func(s *Snapshot) { *of(s) = v1alpha1.GitHubConnectionStatus{ObservedGeneration: -1} }},
		{"connection under way", func(s *Snapshot) {
			setCondition(&of(s).Conditions, v1alpha1.ReadyCondition, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "reconciling")
		}},
		{"events refused", func(s *Snapshot) {
			of(s).MissingFeatures = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureEvents, Message: "incoming events aren't signed with the secret in Secret hook"}}
		}},
		{"token ends", func(s *Snapshot) { of(s).TokenExpires = &metav1.Time{Time: noon.Add(time.Hour)} }},
	}
	for _, reason := range reasonsIn(t, "githubconnection.md") {
		all = append(all, variant{"connection " + reason, func(s *Snapshot) { setNotReady(&of(s).Conditions, reason, "message of "+reason) }})
	}
	for name, outage := range outages {
		all = append(all, variant{"connection " + name, func(s *Snapshot) {
			setNotReady(&of(s).Conditions, v1alpha1.GitHubUnavailableReason, "GitHub: "+name)
			of(s).Outage = outage
		}})
	}
	for _, reason := range []string{v1alpha1.CredentialsMissingReason, v1alpha1.CredentialsRefusedReason, v1alpha1.GitHubUnavailableReason} {
		all = append(all, variant{"former credentials, " + reason, func(s *Snapshot) {
			setNotReady(&of(s).Conditions, reason, "message of "+reason)
			of(s).FormerCredentials = true
		}})
	}
	return all
}

// policies returns variants of a policy in the pool's namespace and of a cluster-wide one.
func policies() []variant {
	guard := func(s *Snapshot, namespaces ...string) *v1alpha1.ClusterRunnerPolicy {
		p := v1alpha1.ClusterRunnerPolicy{ObjectMeta: observed("", "guard")}
		p.Spec.Namespaces, p.Status.ObservedGeneration = namespaces, 1
		setCondition(&p.Status.Conditions, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "loaded")
		s.ClusterPolicies = append(s.ClusterPolicies, p)
		return &s.ClusterPolicies[0]
	}
	invalid := func(conditions *[]metav1.Condition) {
		setNotReady(conditions, v1alpha1.PolicyInvalidReason, "limits.rego:3")
	}
	failed := func(s *Snapshot, reason string) {
		setCondition(&pool(s).Status.Conditions, v1alpha1.PolicyCondition, metav1.ConditionFalse, reason, "RunnerPolicy/ci/limits: TimedOut")
	}
	return []variant{
		{"policy ready", func(*Snapshot) {}},
		{"no policy", func(s *Snapshot) { s.Policies = nil }},
		{"policy never looked at", func(s *Snapshot) { s.Policies[0].Status = v1alpha1.RunnerPolicyStatus{ObservedGeneration: -1} }},
		{"policy invalid", func(s *Snapshot) { invalid(&s.Policies[0].Status.Conditions) }},
		{"policy invalid, and asked", func(s *Snapshot) { invalid(&s.Policies[0].Status.Conditions); failed(s, v1alpha1.PolicyFailedReason) }},
		{"policy retried", func(s *Snapshot) {
			setNotReady(&s.Policies[0].Status.Conditions, v1alpha1.ProgressingWithRetryReason, "loading the policy: killed")
		}},
		{"policy times out", func(s *Snapshot) { failed(s, v1alpha1.PolicyFailedReason) }},
		{"policy never decided", func(s *Snapshot) { pool(s).Status.Decision = nil; failed(s, v1alpha1.PolicyPendingReason) }},
		{"guard rail ready", func(s *Snapshot) { guard(s) }},
		{"guard rail invalid", func(s *Snapshot) { invalid(&guard(s).Status.Conditions); failed(s, v1alpha1.PolicyFailedReason) }},
		{"guard rail of others invalid", func(s *Snapshot) { invalid(&guard(s, "qa").Status.Conditions) }},
	}
}

// decisions returns variants of the pool's decision.
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
			p.Status.Jobs, p.Status.Runners = new(int32(14)), v1alpha1.RunnerCounts{Total: 10, Busy: 10}
			d.Desired, d.Reason = 10, "14 jobs + 1 idle, bounded by max 10"
		})},
		{"saturated", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Status.Jobs, p.Status.JobsWaiting, p.Status.Runners = new(int32(10)), 4, v1alpha1.RunnerCounts{Total: 10, Busy: 10}
			d.Desired, d.Reason = 10, "10 jobs: full (max 10); 4 more wait on GitHub"
			setCondition(&p.Status.Conditions, v1alpha1.SaturatedCondition, metav1.ConditionTrue, v1alpha1.MaxReachedReason, "the pool runs the maximum of 10 jobs and more jobs wait")
		})},
		{"unbounded", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Spec.Scale.Max, d.Announced, d.Limits.Max = nil, v1alpha1.UnboundedMax, nil
		})},
		{"bounded by policy", decided(func(p *v1alpha1.RunnerPool, d *v1alpha1.Decision) {
			p.Status.Jobs, d.Announced, d.Limits.Max, d.Limits.AssignedJobs, d.JobsHeld = new(int32(6)), 4, new(int32(4)), v1alpha1.AssignedJobsWait, 2
			d.Desired, d.Reason = 4, "6 jobs + 1 idle, bounded by max 4; 2 jobs accepted before wait, by policy; max 10 → 4 by "+rule.String()
			d.Limits.Bounds = []v1alpha1.LimitBound{{Field: "max", Declared: 10, Value: 4, Rule: rule}}
		})},
		{"announces nothing", decided(func(_ *v1alpha1.RunnerPool, d *v1alpha1.Decision) { d.Announced = 0 })},
	}
}

// modes returns variants of the spec.
func modes() []variant {
	return []variant{
		{"active", func(*Snapshot) {}},
		{"suspended", func(s *Snapshot) { pool(s).Spec.StopPolicy = v1alpha1.StopDrain }},
		{"observing", func(s *Snapshot) { pool(s).Spec.Mode, s.ScaleSets = v1alpha1.Observe, nil }},
		{"by REST", func(s *Snapshot) { pool(s).Spec.Registration, s.ScaleSets = v1alpha1.RegisterREST, nil }},
		{"changed since", func(s *Snapshot) { pool(s).Generation = 2 }},
	}
}

// others returns problems of a pool outside of its Ready condition.
func others() []variant {
	return []variant{
		{"fine", func(*Snapshot) {}},
		{"runners fail", func(s *Snapshot) {
			setCondition(&pool(s).Status.Conditions, v1alpha1.HealthyCondition, metav1.ConditionFalse, v1alpha1.RunnersFailingReason, "3 runners in a row failed")
		}},
		{"template denied", func(s *Snapshot) {
			setCondition(&pool(s).Status.Conditions, v1alpha1.PolicyCondition, metav1.ConditionFalse, v1alpha1.PolicyDeniedReason, "no root")
		}},
		{"drains fail", func(s *Snapshot) {
			setCondition(&pool(s).Status.Conditions, v1alpha1.DrainableCondition, metav1.ConditionFalse, v1alpha1.DisruptionBudgetsReason, "PodDisruptionBudget mine")
		}},
		{"update held", func(s *Snapshot) {
			pool(s).Status.Update = &v1alpha1.UpdateStatus{From: "a", To: "b", Phase: v1alpha1.UpdateHeld, Since: ago(time.Hour), Reason: "paused"}
			setCondition(&pool(s).Status.Conditions, v1alpha1.UpdatedCondition, metav1.ConditionFalse, v1alpha1.UpdateHeldReason, "paused")
		}},
	}
}

// TestNothingContradicts combines states of a pool, its connection, session, policies, decision and mode: each variant of a side
// with each variant of each other side. For each combination, it checks that the columns of `kubectl get`, explain pool, explain
// job and status agree.
func TestNothingContradicts(t *testing.T) {
	for name, sides := range map[string][][]variant{
		"by the pool":                        {readiness(), sessions(), decisions(), modes()},
		"by its conditions":                  {others(), readiness(), sessions(), idleOrNot},
		"by its connection":                  {connections(t), readiness(), records(t)},
		"by its policies":                    {policies(), readiness(), sessions(), idleOrNot},
		"by its connection and its policies": {connections(t), policies(), records(t), readiness()[:5]},
	} {
		t.Run(name, func(t *testing.T) {
			states := pairwise(sides)
			for _, state := range states {
				s := calm(1)
				names := []string{}
				for _, v := range state {
					v.set(s)
					names = append(names, v.name)
				}
				if wrong := contradictions(s); len(wrong) > 0 {
					t.Fatalf("%s:\n%s", strings.Join(names, ", "), strings.Join(wrong, "\n"))
				}
			}
			t.Logf("%d states", len(states))
		})
	}
}

// idleOrNot contains variants with and without jobs.
var idleOrNot = []variant{{"jobs", func(*Snapshot) {}}, {"no jobs", func(s *Snapshot) {
	pool(s).Status.Jobs, pool(s).Status.Runners = new(int32(0)), v1alpha1.RunnerCounts{Total: 1, Idle: 1}
}}}

// pairwise returns states with one variant of each side, so that each two variants of two sides are in at least one of them.
func pairwise(sides [][]variant) (states [][]variant) {
	covered := map[[2]string]bool{}
	for i, side := range sides {
		for j := range sides[:i] {
			for _, a := range side {
				for _, b := range sides[j] {
					if covered[[2]string{a.name, b.name}] {
						continue
					}
					state := make([]variant, len(sides))
					for k, other := range sides {
						state[k] = other[len(states)%len(other)]
					}
					state[i], state[j] = a, b
					states = append(states, state)
					for _, x := range state {
						for _, y := range state {
							covered[[2]string{x.name, y.name}] = true
						}
					}
				}
			}
		}
	}
	return states
}

// contradictions returns the disagreements between the reports about a pool.
func contradictions(s *Snapshot) []string {
	p := pool(s)
	f := PoolFacts{Pool: p, Now: s.Now, Policies: policyFacts(s)}
	if len(s.ScaleSets) > 0 && scaleSet(s).Spec.PoolUID == string(p.UID) {
		f.ScaleSet = scaleSet(s)
	}
	answer, err := Pool(f)
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
	ready := ConditionOf(p, v1alpha1.ReadyCondition)
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
	claim(page.Verdict == Trouble || isReady || catalog.Of(reasonOf(ready)).Severity == Note || ready == nil, "status says %s, and explain:\n%s", page.Verdict, text)
	for _, one := range found {
		ofTheirs := slices.ContainsFunc(one.Objects, func(o string) bool { return !strings.HasPrefix(o, poolKind) })
		if isReady || one.Reason != reasonOf(ready) || one.Severity == Note || ofTheirs || isConnections(one.Reason) {
			continue
		}
		claim(strings.Contains(text, one.Do) || changesSay(one.Reason), "status advises %q, and explain doesn't:\n%s", one.Do, text)
	}
	claim(strings.Contains(text, "the number of jobs is unknown") == (page.Totals.JobsUnknown == 1), "status has %+v, and explain says:\n%s", page.Totals, text)
	compareJob(f, answer, claim)
	compareOthers(s, &page, text, claim)
	return wrong
}

// policyFacts returns the pool's policies, as corral explain reads them.
func policyFacts(s *Snapshot) []Policy {
	var all []Policy
	for i := range s.Policies {
		p := &s.Policies[i]
		all = append(all, Policy{Policy: "RunnerPolicy/ci/" + p.Name, Ready: ConditionOf(p, v1alpha1.ReadyCondition)})
	}
	for i := range s.ClusterPolicies {
		if p := &s.ClusterPolicies[i]; len(p.Spec.Namespaces) == 0 {
			all = append(all, Policy{Policy: "ClusterRunnerPolicy/" + p.Name, Ready: ConditionOf(p, v1alpha1.ReadyCondition)})
		}
	}
	return all
}

// compareOthers compares the findings about the pool's connection and policies with their own conditions.
func compareOthers(s *Snapshot, page *Page, text string, claim func(bool, string, ...any)) {
	finding := func(of string) *Finding {
		for i := range page.Findings {
			if f := &page.Findings[i]; slices.Contains(f.Objects, of) && f.Severity != Ahead && f.Reason != catalog.EventsRefused.Code {
				return f
			}
		}
		return nil
	}
	checkFinding := func(of string, ready *Condition) *Finding {
		f := finding(of)
		claim((f == nil) == (ready != nil && ready.Status == metav1.ConditionTrue), "%s is %+v, and status says:\n%s", of, ready, page.Text())
		return f
	}
	for _, p := range policyFacts(s) {
		checkFinding(p.Policy, p.Ready)
		isReady := p.Ready != nil && p.Ready.Status == metav1.ConditionTrue
		claim(strings.Contains(text, p.Policy+" (enforced): ready\n") == isReady, "%s is %+v, and explain says:\n%s", p.Policy, p.Ready, text)
	}
	if len(s.Connections) == 0 {
		return
	}
	c := &s.Connections[0]
	ready := ConditionOf(c, v1alpha1.ReadyCondition)
	f := checkFinding("GitHubConnection/ci/acme", ready)
	if f == nil || ready == nil {
		return
	}
	isAway, o := ready.Reason == v1alpha1.GitHubUnavailableReason, c.Status.Outage
	claim(!isAway || f.Do == OutageRemedy(o) && (o == nil || f.What == o.String()), "GitHub does %+v, and status says:\n%s", o, page.Text())
	claim(isAway || !c.Status.FormerCredentials || strings.Contains(f.Do, "do not restart the controller"), "pools go on with former credentials, and status advises %q", f.Do)
	ofPool := ConditionOf(pool(s), v1alpha1.ReadyCondition)
	if ofPool != nil && ofPool.Status != metav1.ConditionTrue && isConnections(ofPool.Reason) && f.Severity != Note {
		claim(slices.Contains(f.Objects, "RunnerPool/ci/linux-01"), "the pool isn't ready by its connection, and status says:\n%s", page.Text())
	}
}

// changesSay reports whether explain gives more details about a reason than status does.
func changesSay(reason string) bool {
	return slices.Contains([]string{v1alpha1.PolicyDeniedReason, v1alpha1.RolledBackReason, v1alpha1.UpdateHeldReason}, reason)
}

func reasonOf(c *Condition) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

// compareColumns compares the columns STATUS, WHY, MAX, LISTENING and GROUP with explain pool.
func compareColumns(p *v1alpha1.RunnerPool, f PoolFacts, ready *Condition, text string, claim func(bool, string, ...any)) {
	accepts := strings.Contains(text, "; it accepts ") && !strings.Contains(text, "it accepts no jobs")
	if ready != nil {
		closed := strings.Contains(text, "but accepts no jobs now")
		claim(strings.Contains(text, ready.Message) || closed, "STATUS is %q, and explain says:\n%s", ready.Message, text)
		claim(strings.Contains(text, "is ready: ") == (ready.Status == metav1.ConditionTrue && !closed), "READY is %s, and explain says:\n%s", ready.Status, text)
	}
	if d := p.Status.Decision; d != nil {
		why, _, _ := strings.Cut(d.Reason, "; max ")
		claim(strings.Contains(text, "Why: "+why+"\n"), "WHY is %q, and explain says:\n%s", d.Reason, text)
		claim(strings.Contains(text, "max   "+wording.Max(d.Limits.GetMax())), "MAX is %d, and explain says:\n%s", d.Limits.GetMax(), text)
		claim(!accepts || d.Announced > 0, "nothing is announced, and explain says:\n%s", text)
	} else {
		claim(!accepts, "nothing was decided, and explain says:\n%s", text)
	}
	usesSet := p.Spec.GetRegistration() == v1alpha1.RegisterScaleSet && p.Spec.GetMode() != v1alpha1.Observe
	if f.ScaleSet == nil || !usesSet {
		return
	}
	listening := ConditionOf(f.ScaleSet, v1alpha1.ListeningCondition)
	isOpen := listening != nil && listening.Status == metav1.ConditionTrue
	claim(isOpen || !accepts, "LISTENING isn't True, and explain says:\n%s", text)
	claim(isOpen || !strings.Contains(text, "Corral creates runners for"), "LISTENING isn't True, and explain says:\n%s", text)
	claim(isOpen == !strings.Contains(text, "no message session "), "LISTENING is %v, and explain says:\n%s", isOpen, text)
	if group := f.ScaleSet.Status.RunnerGroup; group != "" && group != p.Spec.GetRunnerGroup() {
		claim(strings.Contains(text, fmt.Sprintf("%q", group)), "GROUP is %q, and explain says:\n%s", group, text)
	}
}

// compareJob compares explain pool with explain job's result for the pool.
func compareJob(f PoolFacts, answer PoolAnswer, claim func(bool, string, ...any)) {
	url, err := ParseJobURL("https://github.com/acme/app/actions/runs/1")
	claim(err == nil, "%v", err)
	connection := Connection{Namespace: "ci", Name: "acme", Host: "github.com", Scope: "organization", Owner: "acme"}
	job := Job(JobFacts{URL: url, Pools: []PoolFacts{f}, Connections: map[string]Connection{"ci/acme": connection}, Now: noon})
	text := job.Text()
	claim(len(job.Pools) == 1, "explain job has %d candidates", len(job.Pools))
	if answer.Registration == v1alpha1.RegisterREST {
		return // explain job describes such a pool by its numbers of runners
	}
	pool := answer.Text()
	closed := strings.Contains(pool, "accepts no new jobs now") || strings.Contains(pool, "it accepts no jobs")
	claim(!closed || !strings.Contains(text, "room for"), "explain pool says that no job is accepted, and explain job:\n%s", text)
}
