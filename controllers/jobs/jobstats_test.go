// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/webhook"
)

// measuredJobs returns the job metrics in short form: "started{pool=gpu} 1", and for histograms the seconds and the number
// of jobs.
func measuredJobs(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(jobCollectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, f := range families {
		name := strings.NewReplacer("corral_workflow_jobs_", "", "corral_workflow_job_", "", "_duration_seconds", "", "_total", "").Replace(f.GetName())
		for _, m := range f.GetMetric() {
			value := fmt.Sprint(m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%gs in %d", h.GetSampleSum(), h.GetSampleCount())
			}
			all = append(all, fmt.Sprintf("%s%s %s", name, labelsOfMetric(m), value))
		}
	}
	return all
}

func labelsOfMetric(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		if l.GetName() != "namespace" && l.GetValue() != "" {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
	}
	return "{" + strings.Join(labels, ",") + "}"
}

func resetJobs() {
	for _, c := range jobCollectors() {
		c.(interface{ Reset() }).Reset()
	}
}

// wantJobs compares the measured values, and resets them.
func wantJobs(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, measuredJobs(t)); diff != "" {
		t.Errorf("measured is (-want +got):\n%s", diff)
	}
}

// queuedAt is when the jobs of messages were queued.
var queuedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// eventOf returns an event of a message: queued at 0 s, assigned at 5 s, started at 15 s, completed at 75 s.
func eventOf(kind scaleset.EventType, id, result string, change ...func(*scaleset.JobEvent)) scaleset.JobEvent {
	e := scaleset.JobEvent{
		Type: kind, JobID: id, Repository: "acme/web", Workflow: "acme/web/.github/workflows/ci.yml@refs/heads/fix", RunnerName: "linux-1", Result: result,
		QueuedAt: queuedAt, AssignedAt: queuedAt.Add(5 * time.Second), StartedAt: queuedAt.Add(15 * time.Second), At: queuedAt.Add(15 * time.Second),
	}
	if kind == scaleset.JobCompleted {
		e.At = queuedAt.Add(75 * time.Second)
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

// The jobs in a scale set's messages are measured without webhooks, once per job, in whatever order and however often the
// messages arrive.
func TestJobsOfMessagesAreMeasured(t *testing.T) {
	start, end := eventOf(scaleset.JobStarted, "a", ""), eventOf(scaleset.JobCompleted, "a", "succeeded")
	back := eventOf(scaleset.JobCompleted, "a", "canceled", func(e *scaleset.JobEvent) { e.RunnerName, e.StartedAt = "", time.Time{} })
	whole := []string{"conclusions{conclusion=success,pool=linux} 1", "queue{pool=linux} 15s in 1", "run{pool=linux} 60s in 1", "startup{pool=linux} 10s in 1", "started{pool=linux} 1"}
	for name, tc := range map[string]struct {
		messages [][]scaleset.JobEvent
		want     []string
	}{
		"assigned alone": {[][]scaleset.JobEvent{{eventOf(scaleset.JobAssigned, "a", "")}}, []string{}},
		"started":        {[][]scaleset.JobEvent{{start}}, []string{"queue{pool=linux} 15s in 1", "startup{pool=linux} 10s in 1", "started{pool=linux} 1"}},
		"ended":          {[][]scaleset.JobEvent{{start}, {end}}, whole},
		"twice":          {[][]scaleset.JobEvent{{start, start}, {end}, {start, end}}, whole},
		"out of order":   {[][]scaleset.JobEvent{{end}, {start}}, whole},
		"its start was measured by the process before": {[][]scaleset.JobEvent{{end}},
			[]string{"conclusions{conclusion=success,pool=linux} 1", "run{pool=linux} 60s in 1"}},
		"taken back twice": {[][]scaleset.JobEvent{{back}, {back}}, []string{"conclusions{conclusion=taken_back,pool=linux} 1"}},
		"taken back, then done": {[][]scaleset.JobEvent{{back}, {start}, {end}},
			append([]string{whole[0], "conclusions{conclusion=taken_back,pool=linux} 1"}, whole[1:]...)},
		"without times": {[][]scaleset.JobEvent{{eventOf(scaleset.JobStarted, "a", "", func(e *scaleset.JobEvent) {
			e.QueuedAt, e.AssignedAt, e.StartedAt = time.Time{}, time.Time{}, time.Time{}
		})}}, []string{"queue{pool=linux} 0s in 0", "started{pool=linux} 1"}},
		"a time that can't be": {[][]scaleset.JobEvent{{eventOf(scaleset.JobStarted, "a", "", func(e *scaleset.JobEvent) {
			e.QueuedAt, e.AssignedAt = time.Unix(0, 0), e.StartedAt.Add(time.Second)
		})}}, []string{"queue{pool=linux} 0s in 0", "startup{pool=linux} 0s in 1", "started{pool=linux} 1"}},
		"a word that is new": {[][]scaleset.JobEvent{{start}, {eventOf(scaleset.JobCompleted, "a", "Abandoned")}},
			append([]string{"conclusions{conclusion=other,pool=linux} 1"}, whole[1:]...)},
	} {
		t.Run(name, func(t *testing.T) {
			resetJobs()
			m := NewJobMeter(MeterOptions{})
			for _, events := range tc.messages {
				m.Observe(keyOf("linux"), events)
			}
			wantJobs(t, tc.want...)
			if m.Forget(keyOf("linux")); len(measuredJobs(t)) > 0 {
				t.Errorf("of a pool that is gone there is left %v", measuredJobs(t))
			}
		})
	}
}

// A pool has as many series as the limit allows, whatever the names of its jobs.
func TestLabelsOfJobsAreLimited(t *testing.T) {
	defer resetJobs()
	of := func(repository, workflow string) scaleset.JobEvent {
		return eventOf(scaleset.JobCompleted, repository+workflow, "failed", func(e *scaleset.JobEvent) {
			e.Repository, e.Workflow, e.StartedAt = repository, repository+"/.github/workflows/"+workflow+"@refs/pull/7/merge", time.Time{}
		})
	}
	events := []scaleset.JobEvent{of("acme/web", "a.yml"), of("acme/web", "b.yml"), of("acme/web", "c.yml"), of("ACME/Web", "a.yml"), of("acme/"+strings.Repeat("é", 100), "a.yml")}
	for name, tc := range map[string]struct {
		labels []string
		want   []string
	}{
		"none": {nil, []string{"{conclusion=failure,pool=linux} 5"}},
		"repository": {[]string{"repository"}, []string{
			"{conclusion=failure,pool=linux,repository=acme/web} 4", "{conclusion=failure,pool=linux,repository=acme/" + strings.Repeat("é", 67) + "} 1",
		}},
		"both": {[]string{"workflow", "repository"}, []string{
			"{conclusion=failure,pool=linux,repository=acme/web,workflow=a.yml} 2", "{conclusion=failure,pool=linux,repository=acme/web,workflow=b.yml} 1",
			"{conclusion=failure,pool=linux,repository=other,workflow=other} 2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			resetJobs()
			o, err := NewMeterOptions(tc.labels, 2)
			if err != nil {
				t.Fatal(err)
			}
			NewJobMeter(o).Observe(keyOf("linux"), events)
			var got []string
			for _, line := range measuredJobs(t) {
				if rest, ok := strings.CutPrefix(line, "conclusions"); ok {
					got = append(got, rest)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("measured is (-want +got):\n%s", diff)
			}
		})
	}
	for _, limit := range []int{0, maxLabelLimit + 1} {
		if _, err := NewMeterOptions(nil, limit); err == nil {
			t.Errorf("a limit of %d is taken", limit)
		}
	}
	if _, err := NewMeterOptions([]string{"branch"}, 1); err == nil {
		t.Error("a label that there isn't is taken")
	}
}

// However many repositories a tenant invents, another tenant's repositories have series of their own. Only the first
// tenant's become "other".
func TestOneTenantsRepositoriesLeaveRoomForOthers(t *testing.T) {
	resetJobs()
	defer resetJobs()
	m := NewJobMeter(MeterOptions{Repository: true, Limit: maxLabelLimit})
	observe := func(pool types.NamespacedName, repository string) {
		m.Observe(pool, []scaleset.JobEvent{eventOf(scaleset.JobStarted, repository, "", func(e *scaleset.JobEvent) { e.Repository = repository })})
	}
	started := func(namespace, pool, repository string) float64 {
		return testutil.ToFloat64(jobsStarted.WithLabelValues(namespace, pool, repository, ""))
	}
	for tenant := range 5 { // four of them could use all of the limit
		for i := range maxPairs / 3 {
			observe(types.NamespacedName{Namespace: fmt.Sprint("greedy-", tenant), Name: fmt.Sprint("linux-", i/maxLabelLimit)}, fmt.Sprint("made/up-", i))
		}
	}
	if n := testutil.CollectAndCount(jobsStarted); n > maxPairs+5*4 {
		t.Errorf("there are %d series", n)
	}
	if started("greedy-4", "linux-3", otherLabel) == 0 {
		t.Error("a namespace has more than a quarter of the series")
	}
	for i := range 500 {
		observe(keyOf("linux"), fmt.Sprint("acme/web-", i))
	}
	if started(ns, "linux", otherLabel) != 0 || started(ns, "linux", "acme/web-0") != 1 || started(ns, "linux", "acme/web-499") != 1 {
		t.Errorf("%v jobs of a neighbour are counted as other", started(ns, "linux", otherLabel))
	}
	before := testutil.CollectAndCount(jobsStarted)
	m.Forget(keyOf("linux"))
	if n := before - testutil.CollectAndCount(jobsStarted); n < 500 || m.pairs.Len(ns) != 0 || m.of[keyOf("linux")] != 0 {
		t.Errorf("of a pool that is gone, %d series went", n)
	}
}

// However many jobs a tenant invents, another tenant's repeated job is not counted again. The memory for jobs is limited.
func TestMadeUpJobsHaveNoOthersCountedTwice(t *testing.T) {
	resetJobs()
	defer resetJobs()
	m := NewJobMeter(MeterOptions{})
	once := []scaleset.JobEvent{eventOf(scaleset.JobStarted, "once", "")}
	m.Observe(keyOf("linux"), once)
	for i := range rememberedJobs {
		m.Observe(types.NamespacedName{Namespace: "greedy", Name: "linux"}, []scaleset.JobEvent{eventOf(scaleset.JobStarted, fmt.Sprint(i), "")})
	}
	m.Observe(keyOf("linux"), once)
	if got := testutil.ToFloat64(jobsStarted.WithLabelValues(ns, "linux", "", "")); got != 1 {
		t.Errorf("a neighbour's job is counted %v times", got)
	}
	if n := m.known.Len("greedy"); n != rememberedJobs/4 {
		t.Errorf("%d jobs of a namespace are remembered", n)
	}
}

// A job in webhooks or lists is measured for the pool whose runner has it, but not for a pool whose scale set reports it.
func TestJobsOfEventsAndListsAreMeasured(t *testing.T) {
	completed := func(id int64, label string, on ...string) webhook.Delivery {
		d := job(id, "completed", label, on...)
		d.Job.CreatedAt = time.Now().Add(-time.Minute)
		d.Job.StartedAt, d.Job.CompletedAt = d.Job.CreatedAt.Add(10*time.Second), d.Job.CreatedAt.Add(40*time.Second)
		return d
	}
	running := func(d webhook.Delivery) webhook.Delivery {
		j := *d.Job
		d.GUID, d.Action, d.Job = d.GUID+"-running", "in_progress", &j
		j.Status, j.Conclusion, j.CompletedAt = "in_progress", "", time.Time{}
		return d
	}
	big := func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} }
	bySet := func(p *v1alpha1.RunnerPool) { p.Spec.Registration = v1alpha1.RegisterScaleSet }
	whole := []string{"conclusions{conclusion=success,pool=big} 1", "queue{pool=big} 10s in 1", "run{pool=big} 30s in 1", "started{pool=big} 1"}
	for name, tc := range map[string]struct {
		do   func(x *place)
		set  bool
		want []string
	}{
		"the events of a job": {func(x *place) {
			d := completed(1, "gpu", "big-1")
			x.accept(job(1, "queued", "gpu"), running(d), running(d), d, d)
		}, false, whole},
		"the start was lost": {func(x *place) { d := completed(1, "gpu", "big-1"); x.accept(d, running(d)) }, false, whole},
		"it never ran": {func(x *place) {
			d := completed(2, "gpu")
			d.Job.Conclusion = "brand_new"
			x.accept(d, d)
		}, false, []string{"conclusions{conclusion=other,pool=gpu} 1"}},
		"a list, then an event": {func(x *place) {
			d := completed(1, "gpu", "big-1")
			x.accept(job(1, "queued", "gpu"))
			time.Sleep(compareAfter)
			x.gh.edit(func() {
				x.gh.jobs["acme/web"] = []rest.Job{{ID: 1, Status: "in_progress", Labels: d.Job.Labels, RunnerName: "big-1", RunnerID: 7, CreatedAt: d.Job.CreatedAt, StartedAt: d.Job.StartedAt}}
			})
			time.Sleep(time.Minute)
			x.accept(d)
		}, false, whole},
		"another leader": {func(x *place) {
			d := completed(1, "gpu", "big-1")
			x.accept(running(d))
			x.end()
			x.lead()
			x.accept(running(d), d)
		}, false, whole},
		"its scale set tells of it": {func(x *place) { d := completed(1, "gpu", "big-1"); x.accept(running(d), d) }, true, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resetJobs()
				change := []func(*v1alpha1.RunnerPool){big}
				if tc.set {
					change = append(change, bySet)
				}
				x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("big", change...), runnerOf("big-1", "big"))
				x.lead()
				tc.do(x)
				wantJobs(t, tc.want...)
				x.end()
			})
		})
	}
}
