// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// rest changes the pool to one without a scale set, with demand from webhook events and metrics.
func rest(f *PoolFacts) {
	s, status := &f.Pool.Spec, &f.Pool.Status
	s.Registration, s.RunnerLabels, s.RunnerGroup = v1alpha1.RegisterREST, []string{"gpu"}, "builders"
	s.Demand = v1alpha1.DemandSpec{
		Webhook: &v1alpha1.WebhookDemand{},
		Boosts:  []v1alpha1.Boost{{Name: "release", Event: "push"}},
		Metrics: []v1alpha1.MetricSource{
			{Name: "queue", Prometheus: &v1alpha1.PrometheusMetric{}}, {Name: "load", Busy: &v1alpha1.BusyMetric{}}, {Name: "night", External: &v1alpha1.ExternalMetric{}},
		},
	}
	status.Demand = []v1alpha1.DemandStatus{
		{Name: "webhook", Jobs: new(int32(7)), Reason: "GitHub's events tell of 1 waiting and 6 running"},
		{Name: "release", Idle: new(int32(3)), Reason: "3 push events in 10m0s"},
		{Name: "queue", Jobs: new(int32(5)), Reason: "no signal: connection refused", Stale: true},
		{Name: "load", Total: new(int32(8)), Reason: "6 of 8 busy"},
		{Name: "former", Jobs: new(int32(1)), Reason: "the value is 1"},
	}
	status.Decision.Desired, status.Decision.Reason = 12, "7 jobs (webhook: GitHub's events tell of 1 waiting and 6 running) + 5 idle (release: 3 push events in 10m0s)"
	status.Decision.Limits.Idle = 5
	f.Webhooks = &[]string{"ci/acme"}
	f.ready(metav1.ConditionTrue, v1alpha1.SucceededReason, "registering runners by GitHub's REST API")
}

// scheduled adds schedules to the pool: two that are active and one that is not.
func scheduled(f *PoolFacts) {
	s := &f.Pool.Spec
	s.Scale = v1alpha1.ScaleSpec{Max: new(int32(20))}
	s.Scale.Schedules = []v1alpha1.Schedule{
		{Name: "year-end", Scale: v1alpha1.ScheduledScale{Max: new(int32(1))}},
		{Name: "office", Scale: v1alpha1.ScheduledScale{Idle: new(int32(2)), Max: new(int32(60))}},
		{Name: "release", Scale: v1alpha1.ScheduledScale{Min: new(int32(4)), Max: new(int32(80))}},
	}
	f.Pool.Status.Schedule = &v1alpha1.ScheduleStatus{
		Active: []string{"office", "release"}, Min: 4, Idle: 2, Max: new(int32(60)), Next: &metav1.Time{Time: noon.Add(4 * time.Hour)},
	}
	l := f.Pool.Status.Decision.Limits
	l.Min, l.Idle, l.Max = 4, 2, new(int32(60))
	f.Pool.Status.Decision.Announced = 60
}

// observes sets the pool to observe mode, in which it decides but does not act.
func observes(f *PoolFacts) {
	f.Pool.Spec.Mode = v1alpha1.Observe
	s := &f.Pool.Status
	s.Runners = v1alpha1.RunnerCounts{}
	s.Demand = []v1alpha1.DemandStatus{{Name: "scaleSet", Jobs: new(int32(7)), Reason: "GitHub counts 7 jobs, 6 running"}}
	s.Observation = &v1alpha1.Observation{Desired: 9, Actual: new(int32(6)), Busy: new(int32(6)), Difference: "it would have 9 runners, 3 more than there are"}
	f.ready(metav1.ConditionTrue, v1alpha1.SucceededReason, "observing: "+s.Observation.Difference)
}

// decide sets the desired number of runners, with an idle of two.
func decide(f *PoolFacts, desired int32, reason string) {
	d := f.Pool.Status.Decision
	d.Desired, d.Reason, d.Limits.Idle = desired, reason, 2
}

func TestPoolByDemandAndSchedule(t *testing.T) {
	tests := map[string]func(*PoolFacts){
		"pool-rest": rest,
		"pool-rest-deaf": func(f *PoolFacts) {
			rest(f)
			f.Pool.Spec.Demand = v1alpha1.DemandSpec{Webhook: &v1alpha1.WebhookDemand{}}
			f.Pool.Status.Demand, f.Webhooks = nil, &[]string{}
			f.Pool.Status.Jobs, f.Pool.Status.Runners = new(int32(0)), v1alpha1.RunnerCounts{}
			decide(f, 2, "0 jobs + 2 idle")
		},
		"pool-rest-busy": func(f *PoolFacts) {
			rest(f)
			f.Pool.Status.Demand, f.Webhooks = []v1alpha1.DemandStatus{{Name: "webhook", Jobs: new(int32(2))}, {Name: "queue", Stale: true, Reason: "no signal: timeout"}, {Name: "load"}}, nil
			f.Pool.Status.Runners.Busy = 7
			f.Pool.Status.Decision.Announced = v1alpha1.UnboundedMax
		},
		"pool-rest-alone": func(f *PoolFacts) {
			rest(f)
			f.Pool.Spec.Demand, f.Pool.Status.Demand, f.Pool.Status.Jobs = v1alpha1.DemandSpec{}, nil, new(int32(0))
			decide(f, 2, "0 jobs + 2 idle")
		},
		"pool-rest-suspended": func(f *PoolFacts) {
			rest(f)
			f.Pool.Spec.StopPolicy, f.Pool.Status.Decision.Announced = v1alpha1.StopDrain, 0
			f.causes(v1alpha1.ReadyCondition, catalog.PoolDrained.With())
		},
		"pool-rest-idle": func(f *PoolFacts) {
			rest(f)
			f.Pool.Spec.Demand = v1alpha1.DemandSpec{Webhook: &v1alpha1.WebhookDemand{}}
			f.Pool.Status.Demand, f.Pool.Status.Jobs = []v1alpha1.DemandStatus{{Name: "webhook", Jobs: new(int32(0)), Reason: "GitHub's events tell of 0 waiting and 0 running"}}, new(int32(0))
			decide(f, 2, "0 jobs (webhook: GitHub's events tell of 0 waiting and 0 running) + 2 idle")
		},
		"pool-rest-past": func(f *PoolFacts) { rest(f); f.At = noon },
		"pool-with-events": func(f *PoolFacts) {
			f.Pool.Spec.Demand.Webhook, f.Webhooks = &v1alpha1.WebhookDemand{}, &[]string{"ci/acme"}
			f.Pool.Status.Demand = []v1alpha1.DemandStatus{
				{Name: "scaleSet", Jobs: new(int32(7)), Reason: "assigned by GitHub"}, {Name: "webhook", Jobs: new(int32(4)), Reason: "GitHub's events tell of 0 waiting and 4 running"},
			}
		},
		"pool-with-events-refused": func(f *PoolFacts) {
			rest(f)
			f.Connection = &Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.WebhookSecretMissingReason, Message: "spec.webhook.secretRef: Secret hook not found: Corral refuses GitHub's events"}
		},
		"pool-with-events-signed-otherwise": func(f *PoolFacts) {
			rest(f)
			f.EventsRefused = "incoming events aren't signed with the secret in Secret hook"
		},
		"pool-with-events-refused-by-all": func(f *PoolFacts) {
			rest(f)
			f.Webhooks = &[]string{"ci/acme", "ci/other"}
			f.EventsRefused = "incoming events aren't signed with the secret in Secret hook; incoming events aren't signed with the secret in Secret other"
		},
		"pool-scheduled": scheduled,
		"pool-scheduled-at-max": func(f *PoolFacts) {
			scheduled(f)
			f.Pool.Status.Jobs = new(int32(70))
		},
		"pool-scheduled-bounded": func(f *PoolFacts) {
			scheduled(f)
			f.Pool.Status.Decision.Limits.Max = new(int32(30))
			f.Pool.Status.Decision.Limits.Bounds = []v1alpha1.LimitBound{{Field: "max", Declared: 60, Value: 30, Reason: "a team has 30 runners", Rule: teamRule}}
		},
		"pool-scheduled-none-holds": func(f *PoolFacts) {
			scheduled(f)
			f.Pool.Status.Schedule = &v1alpha1.ScheduleStatus{Max: new(int32(20))}
			f.Pool.Status.Decision.Limits = &v1alpha1.DecidedLimits{Max: new(int32(20))}
		},
		"pool-scheduled-not-looked-at": func(f *PoolFacts) { scheduled(f); f.Pool.Status.Schedule = nil },
		"pool-scheduled-overdue": func(f *PoolFacts) {
			scheduled(f)
			f.Pool.Status.Schedule.Next = new(ago(time.Hour))
			f.Pool.Spec.Scale.Max = nil
		},
		"pool-observes": observes,
		"pool-observes-unseen": func(f *PoolFacts) {
			observes(f)
			f.Pool.Status.Observation, f.Pool.Status.Demand = nil, nil
			f.Pool.Status.Decision.Announced = v1alpha1.UnboundedMax
		},
		"pool-spec-invalid": func(f *PoolFacts) {
			f.ready(metav1.ConditionFalse, v1alpha1.InvalidSpecReason, `spec.scale.schedules[1].timeZone: there is no time zone "Europe/Berln"`)
		},
		"pool-demand-hostile": func(f *PoolFacts) {
			rest(f)
			f.Pool.Status.Demand[2].Reason = "\x1b[31mno\n\nRunnerPool ci/other is ready: \u202e"
			f.Pool.Status.Demand[4].Name = "a\nb"
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

func TestOfRunnerWithoutAScaleSet(t *testing.T) {
	pool := facts(rest).Pool
	owned := func(labels ...string) *v1alpha1.RESTRegistration {
		return &v1alpha1.RESTRegistration{RunnerGroup: "builders", Labels: append(labels, v1alpha1.OwnerLabel("c", "p"))}
	}
	idle := runnerOf("linux-3", v1alpha1.RunnerIdle, "", "waiting for a job")
	idle.Object.Spec.REST, idle.Object.Spec.ConnectionRef = owned("gpu", "self-hosted", "linux", "x64"), pool.Spec.ConnectionRef
	idle.Object.Status.RunnerID, idle.Until = 77, time.Time{}
	other := runnerOf("linux-4", v1alpha1.RunnerBusy, "", "running a job")
	other.Object.Spec.REST, other.Object.Spec.ConnectionRef.Name = owned("gpu", "linux", "x64"), "former"
	other.Object.Spec.REST.RunnerGroup = "default"
	other.Object.Status.Job, other.Until = &v1alpha1.JobReference{ID: v1alpha1.UnknownJob, StartedAt: new(ago(time.Minute))}, time.Time{}
	for name, r := range map[string]Runner{"runner-rest-idle": idle, "runner-rest-outdated": other} {
		t.Run(name, func(t *testing.T) { compare(t, OfRunner(RunnerFacts{Runner: r, Pool: pool, Now: noon}).Text()) })
	}
}

// restJob adds a third pool, gpu, which has no scale set and counts jobs from webhook events.
func restJob(state JobState, change ...func(*JobFacts, *PoolFacts, *JobEvents)) func(*JobFacts) {
	return func(f *JobFacts) {
		gpu := facts(rest, func(p *PoolFacts) { p.Pool.Name = "gpu" })
		e := JobEvents{Webhooks: []string{"ci/acme"}, State: state, HoldFor: metav1.Duration{Duration: time.Hour}, Winner: "ci/gpu"}
		f.RunsOn = []string{"self-hosted", "gpu"}
		for _, c := range change {
			c(f, &gpu, &e)
		}
		f.Pools = append(f.Pools, gpu)
		if f.Events == nil {
			f.Events = map[string]*JobEvents{"ci/gpu": &e}
		}
	}
}

func TestJobByEvents(t *testing.T) {
	full := func(_ *JobFacts, p *PoolFacts, e *JobEvents) {
		scheduled(p)
		p.Pool.Status.Jobs, p.Pool.Status.Decision.Desired = new(int32(70)), 60
		e.Until = &metav1.Time{Time: noon.Add(20 * time.Minute)}
	}
	tests := map[string]func(*JobFacts){
		"job-heard-queued":    restJob(JobQueued),
		"job-heard-full":      restJob(JobQueued, full),
		"job-heard-waiting":   restJob(JobWaiting),
		"job-heard-running":   restJob(JobRunning),
		"job-heard-elsewhere": restJob(JobElsewhere),
		"job-heard-done":      restJob(JobDone),
		"job-unknown":         restJob(JobUnknown, func(_ *JobFacts, _ *PoolFacts, e *JobEvents) { e.Over, e.Why = "ci/big", "ci/gpu has fewer labels" }),
		"job-unknown-deaf":    restJob("", func(_ *JobFacts, _ *PoolFacts, e *JobEvents) { e.Webhooks = nil }),
		"job-unknown-excluded": restJob("", func(_ *JobFacts, _ *PoolFacts, e *JobEvents) {
			e.Excluded, e.Winner = true, ""
		}),
		"job-counts-at-another": restJob(JobUnknown, func(f *JobFacts, gpu *PoolFacts, e *JobEvents) {
			small := facts(rest, func(p *PoolFacts) { p.Pool.Name = "small" })
			f.Pools = []PoolFacts{small}
			e.Winner, e.Why = "ci/small", "ci/small has fewer labels beyond those asked for: 4 in all, ci/gpu has 5"
			gpu.Pool.Spec.RunnerLabels = append(gpu.Pool.Spec.RunnerLabels, "big")
			f.Events = map[string]*JobEvents{"ci/gpu": e, "ci/small": {Webhooks: e.Webhooks, Winner: "ci/small", State: JobQueued, HoldFor: e.HoldFor}}
		}),
		"job-of-a-run": restJob("", func(f *JobFacts, _ *PoolFacts, _ *JobEvents) { f.URL.JobID = 0 }),
		"job-only-metrics": restJob("", func(f *JobFacts, p *PoolFacts, _ *JobEvents) {
			p.Pool.Spec.Demand.Webhook, f.Events = nil, map[string]*JobEvents{}
		}),
		"job-observed": restJob(JobRunning, func(_ *JobFacts, p *PoolFacts, _ *JobEvents) { observes(p) }),
		"job-only-observed": restJob(JobQueued, func(f *JobFacts, p *PoolFacts, _ *JobEvents) {
			observes(p)
			f.Pools, f.RunsOn = nil, nil
		}),
		"job-rest-new": restJob(JobQueued, func(_ *JobFacts, p *PoolFacts, _ *JobEvents) {
			p.Pool.Status.Decision = nil
			p.ready(metav1.ConditionFalse, v1alpha1.CredentialsRefusedReason, "GitHub answers 401")
		}),
		"job-rest-suspended": restJob("", func(_ *JobFacts, p *PoolFacts, _ *JobEvents) {
			p.Pool.Spec.StopPolicy, p.Pool.Status.Decision.Announced = v1alpha1.StopDrain, 0
			p.causes(v1alpha1.ReadyCondition, catalog.PoolDrained.With())
		}),
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			answer := Job(jobFacts(t, jobPage, change))
			compare(t, answer.Text())
			if _, err := json.Marshal(answer); err != nil {
				t.Error(err)
			}
		})
	}
}
