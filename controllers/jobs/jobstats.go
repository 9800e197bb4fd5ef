// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/share"
)

// jobBuckets are the histogram buckets in seconds, from half a second to six hours.
var jobBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600}

// jobLabels are the labels of each job metric. Repository and workflow are empty unless they are enabled. Prometheus treats
// an empty label like an absent one.
var jobLabels = []string{"namespace", "pool", "repository", "workflow"}

var (
	jobsStarted  = meter.Counters("corral_workflow_jobs_started_total", "Jobs that a runner of a pool started.", jobLabels...)
	queueSeconds = meter.Histograms("corral_workflow_job_queue_duration_seconds",
		"Time from the queuing of a job to its start on a runner.", jobBuckets, jobLabels...)
	startupSeconds = meter.Histograms("corral_workflow_job_startup_duration_seconds",
		"Time from a job's assignment to a scale set to its start on a runner.", jobBuckets, jobLabels...)
	runSeconds  = meter.Histograms("corral_workflow_job_run_duration_seconds", "Run time of jobs that ended.", jobBuckets, jobLabels...)
	conclusions = meter.Counters("corral_workflow_job_conclusions_total", "Jobs that ended, by conclusion.", append(jobLabels, "conclusion")...)
)

func jobCollectors() []prometheus.Collector {
	return []prometheus.Collector{jobsStarted, queueSeconds, startupSeconds, runSeconds, conclusions}
}

const (
	// DefaultLabelLimit is the default limit of pairs of repository and workflow per pool, if labels are enabled.
	DefaultLabelLimit = 100
	// maxLabelLimit is the highest configurable limit: each pair has about 60 series.
	maxLabelLimit = 1_000
	// maxPairs limits the pairs of all pools. One namespace may have a quarter of them.
	maxPairs = 10_000
	// maxDuration is longer than any job waits or runs, because GitHub ends a workflow after 35 days. Longer times are not
	// measured: a wrong time would distort the sums forever.
	maxDuration = 36 * 24 * time.Hour
	// otherLabel stands for all repositories and workflows beyond the limit.
	otherLabel = "other"
	// maxLabel limits a label's value, in bytes.
	maxLabel = 140
	// rememberedJobs is how many jobs are remembered, so that a job that is reported again is not counted again. One namespace
	// may have a quarter.
	rememberedJobs = 131_072
	// takenBack is the conclusion of a job that never had a runner, but whose completion is in a message of a scale set.
	// GitHub then reports canceled, whether a user canceled the job or GitHub queues it again.
	takenBack = "taken_back"
)

// MeterOptions select the labels of job metrics besides the pool.
type MeterOptions struct {
	// Repository and Workflow enable these labels.
	Repository, Workflow bool
	// Limit is the maximum number of pairs of both per pool; further pairs are counted as "other".
	Limit int
}

// NewMeterOptions parses the names of labels and their limit.
func NewMeterOptions(labels []string, limit int) (MeterOptions, error) {
	o := MeterOptions{Limit: limit}
	for _, name := range labels {
		switch name {
		case "repository":
			o.Repository = true
		case "workflow":
			o.Workflow = true
		default:
			return o, fmt.Errorf("%q is neither repository nor workflow", name)
		}
	}
	if limit < 1 || limit > maxLabelLimit {
		return o, errors.New("the limit must be from 1 to " + strconv.Itoa(maxLabelLimit))
	}
	return o, nil
}

// JobMeter measures the jobs of pools, whether messages of scale sets, webhooks or lists report them. Each pool has one such
// source, determined by its registration, and each job is counted once. A nil JobMeter measures nothing.
type JobMeter struct {
	options MeterOptions
	seed    maphash.Seed

	mu    sync.Mutex
	known *share.Map[uint64, facts] // by the hash of a job
	pairs *share.Map[series, struct{}]
	of    map[types.NamespacedName]int // number of pairs per pool
}

// NewJobMeter returns a JobMeter without jobs.
func NewJobMeter(o MeterOptions) *JobMeter {
	m := &JobMeter{options: o, seed: maphash.MakeSeed(), known: share.New[uint64, facts](rememberedJobs, nil), of: map[types.NamespacedName]int{}}
	m.pairs = share.New[series, struct{}](maxPairs, func(_ string, s series) { m.forget(s) })
	return m
}

// measuredJob identifies a job of a pool.
type measuredJob struct {
	pool types.NamespacedName
	id   string
}

// series identifies the series of a pair of repository and workflow of a pool.
type series struct {
	pool                 types.NamespacedName
	repository, workflow string
}

func (s series) labels() []string {
	return []string{s.pool.Namespace, s.pool.Name, s.repository, s.workflow}
}

// facts are events in the life of a job. Each is counted once, in whatever order they arrive.
type facts uint8

const (
	factStart facts = 1 << iota
	factEnd
	factTakenBack
)

// jobNews is a report about a job.
type jobNews struct {
	id, repository, workflow string
	facts                    facts
	conclusion               string // if it ended
	ran                      bool   // a runner had it

	queued, assigned, started, ended time.Time
}

// Observe measures the jobs in a message of a pool's scale set. A message may arrive again.
func (m *JobMeter) Observe(pool types.NamespacedName, events []scaleset.JobEvent) {
	for _, e := range events {
		if n, ok := newsOfMessage(e); ok {
			m.measure(pool, n, 0)
		}
	}
}

// newsOfMessage converts an event of a scale set's message. It returns false if there is nothing to measure.
func newsOfMessage(e scaleset.JobEvent) (jobNews, bool) {
	n := jobNews{
		id: e.JobID, repository: e.Repository, workflow: fileOf(e.Workflow), ran: e.RunnerName != "",
		queued: e.QueuedAt, assigned: e.AssignedAt, started: e.StartedAt,
	}
	switch {
	case e.Type == scaleset.JobStarted:
		n.facts, n.started = factStart, orTime(e.StartedAt, e.At)
	case e.Type == scaleset.JobCompleted && n.ran:
		n.facts, n.conclusion, n.ended = factEnd, conclusionOf(e.Result), e.At
	case e.Type == scaleset.JobCompleted:
		n.facts, n.conclusion = factTakenBack, takenBack
	}
	return n, n.facts != 0 && n.id != ""
}

// newsOfWebhook converts a webhook event. A job that ended also counts as started, because the event of its start may have
// been lost.
func newsOfWebhook(u update) jobNews {
	j := u.news
	n := jobNews{
		id: strconv.FormatInt(j.ID, 10), repository: u.job.Repository, workflow: j.Workflow, ran: j.RunnerName != "",
		conclusion: conclusionOf(j.Conclusion), queued: j.CreatedAt, started: j.StartedAt, ended: j.CompletedAt,
	}
	switch u.event.State {
	case reservation.Running:
		n.facts = factStart
	case reservation.Done:
		n.facts = factEnd
		if n.ran {
			n.facts |= factStart
		}
	}
	return n
}

// newsOfList converts an entry of a job list, which contains no ended jobs.
func newsOfList(repository string, j *rest.Job, state reservation.State) jobNews {
	n := jobNews{
		id: strconv.FormatInt(j.ID, 10), repository: repository, workflow: j.Workflow, ran: true, queued: j.CreatedAt, started: j.StartedAt,
	}
	if state == reservation.Running {
		n.facts = factStart
	}
	return n
}

// factsOf returns what a ledger, which survives the process, knows about a job.
func factsOf(s reservation.State) facts {
	switch s {
	case reservation.Running, reservation.Elsewhere:
		return factStart
	case reservation.Done:
		return factStart | factEnd
	}
	return 0
}

// measure counts a job from an event or a list, unless the pool's scale set reports it, too. before is the job's state in
// the ledger.
func (p *pool) measure(m *JobMeter, n jobNews, before reservation.State) {
	if (p.rest || p.now.observes) && n.facts != 0 {
		m.measure(p.key, n, factsOf(before))
	}
}

// measure counts the new facts of a job.
func (m *JobMeter) measure(pool types.NamespacedName, n jobNews, before facts) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	job := maphash.Comparable(m.seed, measuredJob{pool, n.id})
	told, _ := m.known.Get(pool.Namespace, job)
	before |= told
	m.known.Push(pool.Namespace, job, before|n.facts)
	got := n.facts &^ before
	if got == 0 {
		return
	}
	labels := m.series(pool, n).labels()
	if got&factStart != 0 {
		jobsStarted.WithLabelValues(labels...).Inc()
		observe(queueSeconds.WithLabelValues(labels...), n.queued, n.started)
	}
	if got&factStart != 0 && !n.assigned.IsZero() {
		observe(startupSeconds.WithLabelValues(labels...), n.assigned, n.started)
	}
	if got&factEnd != 0 && n.ran {
		observe(runSeconds.WithLabelValues(labels...), n.started, n.ended)
	}
	if got&(factEnd|factTakenBack) != 0 {
		conclusions.WithLabelValues(append(labels, n.conclusion)...).Inc()
	}
}

// series returns the series of a job, within the limits of its pool and namespace.
func (m *JobMeter) series(pool types.NamespacedName, n jobNews) series {
	s := series{pool: pool}
	if m.options.Repository {
		s.repository = cmp.Or(clip(strings.ToLower(n.repository)), otherLabel)
	}
	if m.options.Workflow {
		s.workflow = cmp.Or(clip(n.workflow), otherLabel)
	}
	others := m.others(pool)
	_, isKnown := m.pairs.Get(pool.Namespace, s)
	switch {
	case isKnown || s == others:
	case m.of[pool] < m.options.Limit && m.pairs.Put(pool.Namespace, s, struct{}{}):
		m.of[pool]++
	default:
		return others
	}
	return s
}

// others returns the series for pairs beyond a limit.
func (m *JobMeter) others(pool types.NamespacedName) series {
	s := series{pool: pool}
	if m.options.Repository {
		s.repository = otherLabel
	}
	if m.options.Workflow {
		s.workflow = otherLabel
	}
	return s
}

// forget drops the series of a pair that was removed from pairs.
func (m *JobMeter) forget(s series) {
	if m.of[s.pool]--; m.of[s.pool] <= 0 {
		delete(m.of, s.pool)
	}
	dropSeries(s)
}

// dropSeries drops series by their label values, because a search for the series of a pool would scan the series of all
// pools.
func dropSeries(s series) {
	for _, c := range []interface{ DeleteLabelValues(...string) bool }{jobsStarted, queueSeconds, startupSeconds, runSeconds} {
		c.DeleteLabelValues(s.labels()...)
	}
	for _, conclusion := range allConclusions {
		conclusions.DeleteLabelValues(append(s.labels(), conclusion)...)
	}
}

// Forget drops the series of a deleted pool.
func (m *JobMeter) Forget(pool types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock() // no series is created in the meantime
	defer m.mu.Unlock()
	dropSeries(m.others(pool))
	if m.of[pool] == 0 {
		return
	}
	m.pairs.DeleteFunc(pool.Namespace, func(s series) bool {
		if s.pool != pool {
			return false
		}
		m.forget(s)
		return true
	})
}

// allConclusions are the values that conclusionOf returns, and takenBack.
var allConclusions = []string{"success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "startup_failure", "stale", "other", takenBack}

// conclusionOf limits the metric label to the conclusions that GitHub documents, with the same spelling for webhooks and
// messages: https://docs.github.com/rest/actions/workflow-jobs
func conclusionOf(text string) string {
	switch word := strings.ToLower(text); {
	case slices.Contains(allConclusions, word) && word != takenBack:
		return word
	case word == "succeeded":
		return "success"
	case word == "failed":
		return "failure"
	case word == "canceled":
		return "cancelled"
	}
	return "other"
}

// fileOf returns the name of a workflow's file. The whole reference, OWNER/NAME/.github/workflows/FILE@REF, would be another
// label value for each branch.
func fileOf(ref string) string {
	file, _, _ := strings.Cut(ref, "@")
	if file == "" {
		return ""
	}
	return path.Base(file)
}

// clip truncates a text to maxLabel bytes, without cutting a character.
func clip(text string) string {
	if len(text) <= maxLabel {
		return text
	}
	return strings.ToValidUTF8(text[:maxLabel], "")
}

func orTime(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// observe records the time between two reported times. GitHub's clocks may differ by a second.
func observe(h prometheus.Observer, from, to time.Time) {
	if took := to.Sub(from); !from.IsZero() && !to.IsZero() && took < maxDuration {
		h.Observe(max(0, took.Seconds()))
	}
}
