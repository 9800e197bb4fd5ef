// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

// webhookReading is a reading of a webhook source with jobs and idle runners.
func webhookReading(jobs, idle int32) demand.Reading {
	return demand.Reading{Known: true, Signals: []demand.Signal{
		{Name: "webhook", Jobs: &jobs, Reason: "jobs wait"}, {Name: "pushes", Idle: &idle, Reason: "somebody pushed"},
	}}
}

// declare changes the pool, and adds webhooks as a demand source.
func (b *bench) declare(do func(*v1alpha1.RunnerPoolSpec)) {
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Demand.Webhook = &v1alpha1.WebhookDemand{}
		do(&p.Spec)
	})
}

func (b *bench) decided() (desired int32, reason string) {
	b.t.Helper()
	b.reconcile()
	d := b.pool().Status.Decision
	return d.Desired, d.Reason
}

func (b *bench) wantDecided(desired int32, reason string) {
	b.t.Helper()
	if n, why := b.decided(); n != desired || !strings.Contains(why, reason) {
		b.t.Errorf("%d are desired: %s; want %d: %s", n, why, desired, reason)
	}
}

func TestTheLargestSourceOfJobsCounts(t *testing.T) {
	b := newBench(t)
	b.start()
	b.declare(func(*v1alpha1.RunnerPoolSpec) {})
	b.snapshot.Assigned = 2
	b.reading = webhookReading(3, 1)
	b.wantDecided(4, "3 jobs (webhook: jobs wait) + 1 idle (pushes: somebody pushed)")
	b.snapshot.Assigned = 4
	b.wantDecided(5, "4 jobs (scaleSet: assigned by GitHub)")
	if s := b.pool().Status; len(s.Demand) != 3 || s.GetJobs() != 4 {
		t.Errorf("status: %d jobs, %+v", s.GetJobs(), s.Demand)
	}
	if jobs, limit := testutil.ToFloat64(demandGauge.WithLabelValues("ci", "linux", "webhook", "jobs")), testutil.ToFloat64(limitGauge.WithLabelValues("ci", "linux", "max")); jobs != 3 || limit != 5 {
		t.Errorf("the metrics say %v jobs by webhook, max %v", jobs, limit)
	}
	b.reading = webhookReading(9, 0)
	b.wantDecided(5, "9 jobs (webhook: jobs wait), bounded by max 5")
	if !b.atMax {
		t.Error("the account of jobs isn't told that the pool is at its max")
	}
}

func TestAPoolWithoutAScaleSetServesWhatItIsTold(t *testing.T) {
	b := newBench(t)
	b.declare(func(s *v1alpha1.RunnerPoolSpec) { s.Registration = v1alpha1.RegisterREST })
	b.reconcile()
	if n := len(b.runners()); n != 0 {
		t.Errorf("%d runners before anything was heard", n)
	}
	b.reading = webhookReading(2, 0)
	b.wantDecided(2, "2 jobs (webhook: jobs wait)")
	if list := b.runners(); len(list) != 2 || list[0].Spec.REST == nil || list[0].Spec.ScaleSetID != 0 {
		t.Errorf("runners: %+v", list)
	}
	b.reading = webhookReading(0, 0)
	b.now = b.now.Add(time.Hour)
	b.wantDecided(0, "0 jobs")
}

func TestJobsDoNotExpireForWantOfRunners(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*v1alpha1.RunnerPoolSpec)
		jobs int32
		want bool
	}{
		"room for more":     {func(*v1alpha1.RunnerPoolSpec) {}, 0, false},
		"runners not there": {func(*v1alpha1.RunnerPoolSpec) {}, 1, true},
		"at its max":        {func(s *v1alpha1.RunnerPoolSpec) { s.Scale.Max = new(int32(0)) }, 1, true},
		"observing":         {func(s *v1alpha1.RunnerPoolSpec) { s.Mode = v1alpha1.Observe }, 1, false},
		"suspended":         {func(s *v1alpha1.RunnerPoolSpec) { s.StopPolicy = v1alpha1.StopDrain }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.declare(tc.do)
			b.reading, b.atMax = webhookReading(tc.jobs, 0), !tc.want
			b.reconcile()
			if b.atMax != tc.want {
				t.Errorf("jobs expire: %t", !b.atMax)
			}
		})
	}
}

func TestSchedulesSetWhatAPoolDeclares(t *testing.T) {
	b := newBench(t)
	b.start()
	b.now = time.Date(2026, 5, 4, 7, 59, 0, 0, time.UTC) // a Monday
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Schedules = []v1alpha1.Schedule{
			{Name: "nowhere", TimeZone: "Mars/Olympus", Weekly: &v1alpha1.WeeklyWindow{From: "00:00", To: "24:00"}, Scale: v1alpha1.ScheduledScale{Idle: new(int32(9))}},
			{Name: "day", Weekly: &v1alpha1.WeeklyWindow{Days: []v1alpha1.Weekday{"Monday"}, From: "08:00", To: "18:00"}, Scale: v1alpha1.ScheduledScale{Idle: new(int32(2))}},
		}
	})
	b.wantDecided(0, "0 jobs")
	if got := b.readyReason(); !strings.Contains(got, "InvalidSpec: spec.scale.schedules[0].timeZone") {
		t.Errorf("ready: %s", got)
	}
	b.now = b.now.Add(time.Minute)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Schedules = p.Spec.Scale.Schedules[1:] })
	b.wantDecided(2, "0 jobs + 2 idle")
	s := b.pool().Status.Schedule
	if s == nil || len(s.Active) != 1 || s.Active[0] != "day" || s.Idle != 2 || s.Numbers().Max != 5 || !s.Next.Time.Equal(time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)) {
		t.Errorf("schedule: %+v", s)
	}
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Schedules[0].TimeZone = "Mars/Olympus" })
	b.wantDecided(2, "0 jobs + 2 idle")
}

func TestWarmRunnersEndWithoutJobs(t *testing.T) {
	b := newBench(t)
	b.start()
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Idle = new(int32(2))
		p.Spec.Scale.IdleTimeout = &metav1.Duration{Duration: time.Hour}
	})
	b.wantDecided(2, "+ 2 idle")
	b.now = b.now.Add(59 * time.Minute)
	b.wantDecided(2, "+ 2 idle")
	b.now = b.now.Add(2 * time.Minute)
	b.wantDecided(0, "0 jobs")
	b.snapshot.Assigned = 1
	b.wantDecided(3, "1 job + 2 idle")
}

func TestBehaviorPacesThePool(t *testing.T) {
	b := newBench(t)
	b.start()
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Behavior = &v1alpha1.ScalingBehavior{ScaleUp: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{{Type: v1alpha1.ScalePods, Value: 2, PeriodSeconds: 60}}}}
	})
	b.reconcile()
	b.snapshot.Assigned = 5
	if n, why := b.decided(); n != 2 || !strings.HasPrefix(why, "5 jobs; ") {
		t.Errorf("%d are desired: %s", n, why)
	}
	b.now = b.now.Add(61 * time.Second)
	if n, _ := b.decided(); n != 4 {
		t.Errorf("%d are desired after a minute", n)
	}
}

func TestAnObserverActsOnNothing(t *testing.T) {
	b := newBench(t)
	b.declare(func(s *v1alpha1.RunnerPoolSpec) { s.Mode = v1alpha1.Observe })
	b.reading = webhookReading(3, 0)
	b.reading.Actual = &demand.Actual{Runners: 7, Busy: 2}
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	must(t, err)
	if result.RequeueAfter == 0 {
		t.Error("it isn't looked at again")
	}
	o := b.pool().Status.Observation
	if o == nil || o.Desired != 3 || *o.Actual != 7 || *o.Busy != 2 || o.Difference != "it would have 3 runners, 4 fewer than there are" {
		t.Errorf("observed: %+v", o)
	}
	sets := &v1alpha1.RunnerScaleSetList{}
	must(t, b.Client.List(t.Context(), sets))
	if len(b.runners())+len(sets.Items)+len(b.announced) > 0 {
		t.Error("it acts")
	}
}

// A schedule can have so many windows without a gap that finding its next change takes long.
func TestSchedulesAreEvaluatedOnceUntilTheirNextChange(t *testing.T) {
	at := time.Date(2026, 1, 5, 7, 30, 0, 0, time.UTC)
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1}}
	pool.Spec.Scale.Schedules = []v1alpha1.Schedule{{Name: "day", Cron: &v1alpha1.CronWindow{Schedule: "0 8 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}
	planned := scheduled(pool, plannedScale{}, at).planned
	if want := at.Add(30 * time.Minute); !planned.until.Equal(want) {
		t.Errorf("remembered until %s, want %s", planned.until, want)
	}
	edited, another := pool.DeepCopy(), pool.DeepCopy()
	edited.Generation, another.UID = 2, "b"
	for name, tc := range map[string]struct {
		pool *v1alpha1.RunnerPool
		now  time.Time
		want bool
	}{
		"now":                    {pool, at, true},
		"before the next change": {pool, planned.until.Add(-time.Nanosecond), true},
		"at the next change":     {pool, planned.until, false},
		"the clock was set back": {pool, at.Add(-time.Second), false},
		"the pool was edited":    {edited, at, false},
		"another pool":           {another, at, false},
	} {
		if got := planned.holds(tc.pool, tc.now); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// A pool whose schedules were never all valid follows the valid ones, in each pass. It does not keep the numbers of the
// first pass as if they were valid.
func TestValidSchedulesApplyUntilAllAreValid(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Spec.Scale.Max = new(int32(9))
	pool.Spec.Scale.Schedules = []v1alpha1.Schedule{
		{Name: "day", Cron: &v1alpha1.CronWindow{Schedule: "0 8 * * *", Duration: metav1.Duration{Duration: time.Hour}}, Scale: v1alpha1.ScheduledScale{Max: new(int32(3))}},
		{Name: "mars", TimeZone: "Mars/Olympus", Weekly: &v1alpha1.WeeklyWindow{From: "08:00", To: "09:00"}},
	}
	for _, step := range []struct {
		hour int
		max  int32
	}{{7, 9}, {8, 3}, {9, 9}} {
		c := scheduled(pool, plannedScale{}, time.Date(2026, 7, 6, step.hour, 0, 0, 0, time.UTC))
		if c.Max != step.max || c.schedule != nil || len(c.problems) != 1 || c.next == 0 {
			t.Errorf("at %d:00: max %d, next in %s, status %+v, problems %q", step.hour, c.Max, c.next, c.schedule, c.problems)
		}
		pool.Status.Schedule = c.schedule
	}
}
