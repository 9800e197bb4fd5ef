// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/test/golden"
)

// compare compares a text with the golden file of the current test case, in the archive of all answers.
func compare(t *testing.T, text string) {
	t.Helper()
	golden.CompareIn(t, "testdata/answers.txtar", strings.ReplaceAll(strings.Join(strings.Split(t.Name(), "/")[1:], "/"), "_", "-")+".txt", text)
}

// ago returns a time before noon.
func ago(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(-d)} }

var teamRule = v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/pools", Name: "corral.scaling.limit", File: "policies/limits.rego", Line: 5}

// facts returns the facts of a pool with 7 jobs whose policies have no effect.
func facts(change ...func(*PoolFacts)) PoolFacts {
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}}
	p.Spec.ConnectionRef.Name, p.Spec.RunnerLabels = "acme", []string{"linux", "x64"}
	p.Spec.Scale = v1alpha1.ScaleSpec{Max: new(int32(500)), Idle: new(int32(2))}
	p.Status = v1alpha1.RunnerPoolStatus{
		Revision: "linux-6f1c", Jobs: new(int32(7)), Runners: v1alpha1.RunnerCounts{Total: 9, Pending: 1, Idle: 2, Busy: 6},
		Decision: &v1alpha1.Decision{
			Time: ago(2 * time.Minute), Desired: 9, Announced: 500, Reason: "7 jobs + 2 idle",
			Limits: &v1alpha1.DecidedLimits{Max: new(int32(500)), Idle: 2},
			Before: &v1alpha1.DecidedNumbers{Desired: 4, Announced: 500, Max: 500},
		},
	}
	f := PoolFacts{Pool: p, Now: noon}
	f.ready(metav1.ConditionTrue, v1alpha1.SucceededReason, `listening as scale set "linux" (id 7)`)
	for _, c := range change {
		c(&f)
	}
	return f
}

// condition sets a condition that changed 3 minutes ago.
func (f *PoolFacts) condition(name string, status metav1.ConditionStatus, reason, message string) {
	s := &f.Pool.Status
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			s.Conditions = append(s.Conditions[:i], s.Conditions[i+1:]...)
			break
		}
	}
	s.Conditions = append(s.Conditions, metav1.Condition{Type: name, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(3 * time.Minute)})
}

// causes sets a condition to False with the given causes.
func (f *PoolFacts) causes(name string, causes ...catalog.Cause) {
	c := failing(causes...)
	f.condition(name, c.Status, c.Reason, c.Message)
	for _, cause := range c.Causes {
		cause.Condition = name
		f.Pool.Status.Causes = append(f.Pool.Status.Causes, cause)
	}
}

// failing returns a condition that has been False for an hour.
func failing(causes ...catalog.Cause) *Condition {
	plain := catalog.Plain(causes)
	return &Condition{Status: metav1.ConditionFalse, Reason: catalog.Reason(plain), Message: catalog.Messages(plain), Since: ago(time.Hour), Causes: plain}
}

func (f *PoolFacts) ready(status metav1.ConditionStatus, reason, message string) {
	f.condition(v1alpha1.ReadyCondition, status, reason, message)
}

// bounded lets a rule of the team lower max.
func bounded(f *PoolFacts) {
	d := f.Pool.Status.Decision
	d.ID, d.PolicyDigest, d.Announced = "a1b2c3", "sha256:77", 60
	d.Limits.Max = new(int32(60))
	d.Limits.Bounds = []v1alpha1.LimitBound{{Field: "max", Declared: 500, Value: 60, Reason: "a team has 60 runners", Rule: teamRule}}
	d.Reason += "; max 500 → 60 by RunnerPolicy/ci/pools corral.scaling.limit (policies/limits.rego:5): a team has 60 runners"
	f.Policies = []Policy{
		{Policy: "ClusterRunnerPolicy/guard", Mode: v1alpha1.PolicyAudit, Decisions: []string{"template"}, Ready: &Condition{Status: metav1.ConditionTrue}, WouldChange: []string{"deny: image not pinned"}},
		{Policy: "RunnerPolicy/ci/pools", Mode: v1alpha1.PolicyEnforce, Decisions: []string{"scaling", "template"}, Ready: &Condition{Status: metav1.ConditionTrue}, Source: "ci/pools"},
	}
	f.Pool.Status.Policy = &v1alpha1.TemplateVerdict{Revision: "linux-6f1c", Allowed: true, Warnings: []v1alpha1.PolicyFinding{
		{Message: "no memory limit", Path: "spec.containers[0].resources", Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/pools", Name: "corral.template.warn", File: "policies/pod.rego", Line: 12}},
	}}
	f.History = []Entry{
		{Time: d.Time, Since: new(ago(150 * time.Second)), Jobs: new(int32(7)), Decision: d},
		{Time: ago(time.Hour), Jobs: new(int32(2)), Decision: &v1alpha1.Decision{
			Time: ago(time.Hour), Desired: 4, Announced: 500, Reason: "2 jobs + 2 idle",
			Before: &v1alpha1.DecidedNumbers{Desired: 2, Announced: 500}, Limits: &v1alpha1.DecidedLimits{Max: new(int32(500)), Idle: 2},
		}},
		{Time: ago(2 * time.Hour), Jobs: new(int32(0)), Decision: &v1alpha1.Decision{
			Time: ago(2 * time.Hour), Desired: 2, Announced: 500, Reason: "0 jobs + 2 idle", Limits: &v1alpha1.DecidedLimits{Max: new(int32(500)), Idle: 2},
		}, Template: &v1alpha1.TemplateVerdict{Revision: "linux-6f1c", Allowed: true}},
	}
}

// hard lets a cluster-wide rule lower max so far that accepted jobs wait.
func hard(f *PoolFacts) {
	s := &f.Pool.Status
	s.Jobs, s.Runners = new(int32(12)), v1alpha1.RunnerCounts{Total: 5, Busy: 5}
	rule := v1alpha1.RuleReference{Policy: "ClusterRunnerPolicy/hours", Name: "corral.scaling.limit CORRAL-HRS-001", File: "library/scaling/hours.rego", Line: 40}
	s.Decision = &v1alpha1.Decision{
		Time: ago(20 * time.Second), Desired: 5, Announced: 5, JobsHeld: 7, ID: "f00d", PolicyDigest: "sha256:88",
		Reason: "12 jobs + 2 idle, bounded by max 5; 7 jobs accepted before wait, by policy; max 500 → 5 by ClusterRunnerPolicy/hours …",
		Limits: &v1alpha1.DecidedLimits{
			Min: 0, Max: new(int32(5)), Idle: 2, AssignedJobs: v1alpha1.AssignedJobsWait, Shared: true, Until: &metav1.Time{Time: noon.Add(6 * time.Hour)},
			Bounds:    []v1alpha1.LimitBound{{Field: "max", Declared: 500, Value: 5, Reason: "the night has 5 runners", Rule: rule}},
			Conflicts: []string{"RunnerPolicy/ci/wish corral.scaling.limit: min at least 8 is above what the pool declares: only a ClusterRunnerPolicy may raise it"},
		},
	}
}

// denied lets policies deny the pool's first template.
func denied(f *PoolFacts) {
	s := &f.Pool.Status
	s.Decision, s.Jobs, s.Runners = nil, nil, v1alpha1.RunnerCounts{}
	s.Policy = &v1alpha1.TemplateVerdict{Revision: "linux-bad", Denials: []v1alpha1.PolicyFinding{{
		Message: "container runner is privileged", Path: "spec.containers[0].securityContext.privileged", Remediation: "set privileged to false",
		Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/pools", Name: "corral.template.deny", File: "policies/template.rego", Line: 7},
	}}}
	f.ready(metav1.ConditionFalse, v1alpha1.PolicyDeniedReason, "container runner is privileged")
	f.condition(v1alpha1.PolicyCondition, metav1.ConditionFalse, v1alpha1.PolicyDeniedReason, "container runner is privileged")
}

func runnerOf(name string, state v1alpha1.RunnerState, cause v1alpha1.RunnerCause, reason string) Runner {
	r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, CreationTimestamp: ago(3 * time.Minute)}}
	r.Spec.PoolRef.Name, r.Spec.Revision = "linux", "linux-6f1c"
	node := "worker-3"
	if state == v1alpha1.RunnerPending {
		node = ""
	}
	return Runner{Object: r, HasPod: true, Node: node, Judgement: Judgement{
		State: state, Cause: cause, Reason: reason, Since: noon.Add(-3 * time.Minute), Until: noon.Add(7 * time.Minute),
	}}
}

func TestPool(t *testing.T) {
	tests := map[string]func(*PoolFacts){
		"pool-calm": func(*PoolFacts) {},
		"pool-idle": func(f *PoolFacts) {
			f.Pool.Status.Jobs = new(int32(0))
			f.Pool.Status.Runners = v1alpha1.RunnerCounts{Total: 2, Idle: 2}
		},
		"pool-new":     func(f *PoolFacts) { f.Pool.Status = v1alpha1.RunnerPoolStatus{} },
		"pool-bounded": bounded,
		"pool-hard":    hard,
		"pool-at-max": func(f *PoolFacts) {
			f.Pool.Spec.Scale.Max = new(int32(5))
			f.Pool.Status.Decision.Limits.Max, f.Pool.Status.Decision.Desired, f.Pool.Status.Decision.Announced = new(int32(5)), 5, 5
			f.Pool.Status.Decision.Reason = "7 jobs accepted before max fell to 5 are served"
		},
		"pool-full": func(f *PoolFacts) {
			s := &f.Pool.Status
			f.Pool.Spec.Scale = v1alpha1.ScaleSpec{Max: new(int32(2))}
			s.Jobs, s.JobsWaiting, s.Runners = new(int32(2)), 4, v1alpha1.RunnerCounts{Total: 2, Busy: 2}
			s.Decision.Limits = &v1alpha1.DecidedLimits{Max: new(int32(2))}
			s.Decision.Desired, s.Decision.Announced, s.Decision.Reason = 2, 2, "2 jobs: full (max 2); 4 more wait on GitHub"
			f.condition(v1alpha1.SaturatedCondition, metav1.ConditionTrue, v1alpha1.MaxReachedReason, "the pool runs the maximum of 2 jobs and more jobs wait")
		},
		"pool-definitions-held": func(f *PoolFacts) {
			f.Source = "ci/pools"
			f.Applied = failing(catalog.PruneTooMuch.With("main@sha1:1234", " would remove the only pool, linux", "ci", "pools", "corral.dev/allow-prune", "main@sha1:1234"), catalog.NothingApplied.With())
		},
		"pool-former-credentials": func(f *PoolFacts) {
			f.Connection = &Condition{
				Status: metav1.ConditionFalse, Reason: v1alpha1.CredentialsMissingReason, Since: ago(time.Hour),
				Message: "Secret acme not found; pools continue with the previous credentials: a restart of the controller would stop them",
			}
		},
		"pool-undrainable": func(f *PoolFacts) {
			f.condition(v1alpha1.DrainableCondition, metav1.ConditionFalse, v1alpha1.DisruptionBudgetsReason, "PodDisruptionBudget mine selects runners with a job, as "+
				"corral-busy-runners does. Kubernetes evicts no pod that two budgets select, so node drains fail. Exclude pods with the label corral.dev/job-id from it")
		},
		"pool-denied": denied,
		"pool-policy-failed": func(f *PoolFacts) {
			bounded(f)
			causes := []catalog.Cause{
				catalog.PolicyUnavailable.With("RunnerPolicy/ci/pools", "EvaluationError").Detailed("policies/limits.rego:9:3: division by zero"),
				catalog.PolicyUnavailable.With("ClusterRunnerPolicy/guard", "NotLoaded").Detailed("gone"), catalog.DecisionStays.With(),
			}
			f.causes(v1alpha1.ReadyCondition, causes...)
			f.causes(v1alpha1.PolicyCondition, causes...)
			f.Policies[1].Ready = &Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.PolicyInvalidReason, Message: "policies/limits.rego:9:3: rego_parse_error", Since: ago(time.Hour)}
		},
		"pool-failing": func(f *PoolFacts) {
			f.ready(metav1.ConditionFalse, v1alpha1.RunnersFailingReason, "3 runners failed in a row (ImagePull)")
			f.condition(v1alpha1.HealthyCondition, metav1.ConditionFalse, v1alpha1.RunnersFailingReason, "3 runners failed in a row (ImagePull)")
			f.Runners = []Runner{
				runnerOf("linux-1", v1alpha1.RunnerFailed, v1alpha1.CauseImagePull, "ErrImagePull: not found"),
				runnerOf("linux-2", v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, "Unschedulable: 0/3 nodes are available"),
				runnerOf("linux-3", v1alpha1.RunnerFailed, v1alpha1.CauseImagePull, "ErrImagePull: not found"),
				runnerOf("linux-4", v1alpha1.RunnerBusy, "", "running a job"),
			}
			f.Unknown = []string{"pods of the namespace ci: forbidden"}
		},
		"pool-crash-loop": func(f *PoolFacts) {
			message := "4 runners in a row failed (Crash: Error (exit code 1)); next try 12:00:15Z"
			f.ready(metav1.ConditionFalse, v1alpha1.RunnersFailingReason, message)
			f.condition(v1alpha1.HealthyCondition, metav1.ConditionFalse, v1alpha1.RunnersFailingReason, message)
			f.Pool.Status.Failures = []v1alpha1.RunnerFailure{
				{Runner: "linux-4", Time: ago(5 * time.Second), Revision: "linux-6f1c", Cause: v1alpha1.CauseCrash, Reason: "Error (exit code 1)", Node: "n1", Exit: &v1alpha1.RunnerExit{Code: 1, Message: "no such file: run.sh"}},
				{Runner: "linux-3", Time: ago(time.Minute), Revision: "linux-6f1c", Cause: v1alpha1.CauseNeverConnected, Reason: "its container runs, but GitHub doesn't see it", Node: "n2"},
				{Runner: "linux-2", Time: ago(time.Hour), Revision: "linux-6f1c", Reason: "OOMKilled (exit code 137), with a job: GitHub will fail it", Node: "n2", Exit: &v1alpha1.RunnerExit{Code: 137, Taints: []string{"spot=gone:NoExecute"}}},
			}
		},
		"pool-failed-kept": func(f *PoolFacts) {
			f.Kept = "ci/linux-9"
			f.Pool.Status.Failures = []v1alpha1.RunnerFailure{{Runner: "linux-9", Time: ago(5 * time.Minute), Cause: v1alpha1.CauseRemoved, Reason: "the pod is gone", Node: "n1"}}
		},
		"pool-update-held": func(f *PoolFacts) {
			f.Pool.Status.Runners.Outdated = 4
			f.Pool.Status.Update = &v1alpha1.UpdateStatus{
				From: "linux-6f1c", To: "linux-77aa", Phase: v1alpha1.UpdateHeld, Since: ago(time.Hour), Reason: "held by ClusterRunnerPolicy/freeze corral.update.rollout (freeze.rego:3): no changes on a Friday",
			}
		},
		"pool-updated": func(f *PoolFacts) {
			f.Pool.Status.Update = &v1alpha1.UpdateStatus{
				From: "linux-6f1c", To: "linux-77aa", Phase: v1alpha1.UpdateRolling, Since: ago(time.Hour), Reason: "all runners are replaced; Corral keeps linux-6f1c until a runner of linux-77aa succeeds",
			}
			f.condition(v1alpha1.UpdatedCondition, metav1.ConditionTrue, v1alpha1.SucceededReason, "revision linux-77aa")
		},
		"pool-suspended": func(f *PoolFacts) {
			f.Pool.Spec.StopPolicy, f.Pool.Spec.Update.Paused = v1alpha1.StopDrain, true
			f.Pool.Status.Decision.Announced, f.Pool.Status.Decision.Reason = 0, "draining: serving 7 jobs"
			f.Pool.Status.Update = &v1alpha1.UpdateStatus{From: "linux-6f1c", To: "linux-77aa", Phase: v1alpha1.UpdateHeld, Since: ago(time.Hour), Reason: "spec.update.paused is set"}
			f.causes(v1alpha1.ReadyCondition, catalog.PoolDrained.With())
		},
		"pool-connection": func(f *PoolFacts) {
			f.Pool.Status.Update = &v1alpha1.UpdateStatus{From: "linux-6f1c", To: "linux-77aa", Phase: v1alpha1.UpdateRolledBack, Since: ago(time.Hour), Reason: "3 runners of linux-77aa failed (Crash)"}
			f.ready(metav1.ConditionFalse, v1alpha1.CredentialsRefusedReason, "scale set: GitHub answers 401")
		},
		"pool-unbounded": func(f *PoolFacts) {
			f.Pool.Spec.Scale = v1alpha1.ScaleSpec{}
			f.Pool.Status.Decision.Announced, f.Pool.Status.Decision.Limits = v1alpha1.UnboundedMax, &v1alpha1.DecidedLimits{
				Min: 2, Bounds: []v1alpha1.LimitBound{{Field: "min", Declared: 0, Value: 2, Rule: teamRule}},
			}
		},
		"pool-hostile-words": func(f *PoolFacts) {
			bounded(f)
			f.Pool.Status.Decision.Limits.Bounds[0].Reason = "\x1b[31mred\x1b[0m\n\nRunnerPool ci/other is ready: \u202e"
			f.Pool.Status.Decision.Limits.Conflicts = []string{"a\tb\r\nc"}
		},
		"pool-past": func(f *PoolFacts) { bounded(f); f.At = noon.Add(-90 * time.Minute) },
		"pool-past-of-several": func(f *PoolFacts) {
			bounded(f)
			f.At = noon.Add(-130 * time.Second)
		},
		"pool-past-not-written-yet": func(f *PoolFacts) {
			bounded(f)
			f.History = f.History[1:]
			f.At = noon.Add(-time.Second)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			answer, err := Pool(facts(change))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, answer.Text())
			if _, err := json.Marshal(answer); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestATimeThatNothingIsKnownOf(t *testing.T) {
	for want, change := range map[string]func(*PoolFacts){
		"no information about RunnerPool ci/linux at 2026-07-06T07:00:00Z: its history begins at 2026-07-06T10:00:00Z":        bounded,
		"no information about RunnerPool ci/linux at 2026-07-06T07:00:00Z: it has no history (ConfigMap linux-decisions: no)": func(f *PoolFacts) { f.Unknown = []string{"ConfigMap linux-decisions: no"} },
	} {
		f := facts(change)
		f.At = noon.Add(-5 * time.Hour)
		if _, err := Pool(f); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestOfRunner(t *testing.T) {
	pool := facts().Pool
	tests := map[string]func() RunnerFacts{
		"runner-unschedulable": func() RunnerFacts {
			return RunnerFacts{Runner: runnerOf("linux-2", v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, "Unschedulable: 0/3 nodes are available"), Pool: pool}
		},
		"runner-registering": func() RunnerFacts {
			r := runnerOf("linux-2", v1alpha1.RunnerPending, v1alpha1.CauseGitHub, "GitHub answers 503")
			r.HasPod, r.Object.Spec.Revision = false, "linux-0000"
			return RunnerFacts{Runner: r, Pool: pool}
		},
		"runner-busy": func() RunnerFacts {
			r := runnerOf("linux-3", v1alpha1.RunnerBusy, "", "running a job")
			r.Object.Status.RunnerID, r.Until = 77, time.Time{}
			r.Object.Status.Job = &v1alpha1.JobReference{ID: "9b1f", Repository: "acme/app", RunID: 123, Name: "build", StartedAt: new(ago(time.Minute))}
			return RunnerFacts{Runner: r, Unknown: []string{"RunnerPool ci/linux: forbidden"}}
		},
		"runner-ending": func() RunnerFacts {
			r := runnerOf("linux-3", v1alpha1.RunnerBusy, "", "running a job")
			r.Object.DeletionTimestamp, r.Until = new(ago(time.Second)), time.Time{}
			r.Object.Status.Job = &v1alpha1.JobReference{ID: "9b1f"}
			return RunnerFacts{Runner: r, Pool: pool}
		},
		"runner-ending-container-runs": func() RunnerFacts { // its state before the deletion is not reported
			r := runnerOf("linux-3", v1alpha1.RunnerFinished, "", "its job is over; its container is not known to have ended")
			r.Object.DeletionTimestamp, r.Object.Generation, r.Object.Status.ObservedGeneration, r.Until = new(ago(time.Second)), 2, 2, time.Time{}
			deregistering, ending := catalog.Deregistering.With(), catalog.RunnerUnknownEnding.With(7)
			for _, c := range []catalog.Cause{ending, deregistering} {
				c.Condition = v1alpha1.ReadyCondition
				r.Object.Status.Causes = append(r.Object.Status.Causes, c.Cause)
			}
			r.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1alpha1.ProgressingReason, Message: catalog.Messages(r.Object.Status.Causes)}}
			return RunnerFacts{Runner: r, Pool: pool}
		},
		"runner-pool-gone": func() RunnerFacts {
			r := runnerOf("linux-3", v1alpha1.RunnerBusy, "", "running a job")
			r.Object.DeletionTimestamp, r.Until = new(ago(time.Second)), time.Time{}
			return RunnerFacts{Runner: r, PoolGone: true}
		},
		"runner-pool-gone-idle": func() RunnerFacts {
			r := runnerOf("linux-3", v1alpha1.RunnerIdle, "", "waiting for a job")
			r.Object.DeletionTimestamp, r.Until = new(ago(time.Second)), time.Time{}
			return RunnerFacts{Runner: r, PoolGone: true}
		},
		"runner-finished": func() RunnerFacts {
			r := runnerOf("linux-3", v1alpha1.RunnerFinished, "", "job succeeded")
			r.Object.Status.Job = &v1alpha1.JobReference{ID: "9b1f", Result: "succeeded", StartedAt: new(ago(time.Minute)), CompletedAt: new(ago(time.Second))}
			r.Until = time.Time{}
			return RunnerFacts{Runner: r, Pool: pool}
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			f := make()
			f.Now = noon
			compare(t, OfRunner(f).Text())
		})
	}
}

// After a pool's deletion, explain reports the runners that remain.
func TestGone(t *testing.T) {
	working, idle := runnerOf("linux-3", v1alpha1.RunnerBusy, "", "running a job"), runnerOf("linux-4", v1alpha1.RunnerIdle, "", "idle")
	working.Object.Status.Job = &v1alpha1.JobReference{ID: "9b1f", Repository: "acme/app", RunID: 123, Name: "build", StartedAt: new(ago(time.Minute))}
	f := GoneFacts{Namespace: "ci", Name: "linux", Runners: []Runner{working, idle}, Now: noon}
	t.Run("pool-gone-undeleted", func(t *testing.T) { compare(t, Gone(f).Text()) })
	idle.Object.DeletionTimestamp, working.Object.DeletionTimestamp = new(ago(time.Minute)), new(ago(2*time.Minute))
	t.Run("pool-gone", func(t *testing.T) { compare(t, Gone(f).Text()) })
}

func TestWhatARunnerWaitsFor(t *testing.T) {
	started := func(r *Runner) { r.Object.Status.RunnerID = 7 }
	for want, r := range map[string]struct {
		state  v1alpha1.RunnerState
		cause  v1alpha1.RunnerCause
		change func(*Runner)
	}{
		"its registration on GitHub":         {v1alpha1.RunnerPending, "", func(r *Runner) { r.HasPod = false }},
		"its pod":                            {v1alpha1.RunnerPending, "", func(r *Runner) { r.HasPod = false; started(r) }},
		"free quota in the namespace":        {v1alpha1.RunnerPending, v1alpha1.CauseQuota, func(r *Runner) { r.HasPod = false; started(r) }},
		"a node that can run its pod":        {v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, started},
		"its image":                          {v1alpha1.RunnerPending, v1alpha1.CauseImagePull, started},
		"the configuration of its container": {v1alpha1.RunnerPending, v1alpha1.CauseConfig, started},
		"its container to start":             {v1alpha1.RunnerPending, "", started},
		"a job":                              {v1alpha1.RunnerIdle, "", started},
		"its cleanup: Corral deregisters it": {v1alpha1.RunnerFailed, v1alpha1.CauseCrash, started},
		"the end of its pod": {v1alpha1.RunnerFinished, "", func(r *Runner) {
			r.Object.DeletionTimestamp, r.Object.Status.DeregisteredAt = new(ago(0)), new(ago(0))
		}},
	} {
		runner := runnerOf("linux-1", r.state, r.cause, "")
		r.change(&runner)
		if got := runner.waitsFor(); !strings.HasPrefix(got, want) {
			t.Errorf("%s %s: %s, want %s", r.state, r.cause, got, want)
		}
	}
}
