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

// jobBuckets are seconds, from half a second to six hours.
var jobBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600}

// jobLabels are of each metric of jobs. Repository and workflow are empty, which Prometheus takes for absent, unless they are asked for.
var jobLabels = []string{"namespace", "pool", "repository", "workflow"}

var (
	jobsStarted  = meter.Counters("corral_workflow_jobs_started_total", "Jobs that a runner of a pool got.", jobLabels...)
	queueSeconds = meter.Histograms("corral_workflow_job_queue_duration_seconds",
		"Time that jobs which a runner got had waited since they were queued.", jobBuckets, jobLabels...)
	startupSeconds = meter.Histograms("corral_workflow_job_startup_duration_seconds",
		"Time from a job's assignment to a scale set to its start on a runner.", jobBuckets, jobLabels...)
	runSeconds  = meter.Histograms("corral_workflow_job_run_duration_seconds", "Time that jobs which ended had run.", jobBuckets, jobLabels...)
	conclusions = meter.Counters("corral_workflow_job_conclusions_total", "Jobs that ended, by how.", append(jobLabels, "conclusion")...)
)

func jobCollectors() []prometheus.Collector {
	return []prometheus.Collector{jobsStarted, queueSeconds, startupSeconds, runSeconds, conclusions}
}

const (
	// DefaultLabelLimit is how many pairs of repository and workflow a pool has series of, if labels are asked for and nothing else is said.
	DefaultLabelLimit = 100
	// maxLabelLimit bounds what may be asked for: each pair has some 60 series.
	maxLabelLimit = 1_000
	// maxPairs bounds those of all pools. One namespace's have a quarter at most.
	maxPairs = 10_000
	// maxDuration is longer than any job waits or runs: GitHub ends a workflow after 35 days. What a wrong time comes to would be in sums for ever.
	maxDuration = 36 * 24 * time.Hour
	// otherLabel stands for all repositories and workflows beyond the limit.
	otherLabel = "other"
	// maxLabel bounds a label's value, in bytes.
	maxLabel = 140
	// rememberedJobs is how many jobs are remembered, so that one that is reported again isn't counted again. One namespace has a quarter.
	rememberedJobs = 131_072
	// takenBack is the conclusion of a job whose scale set's messages end it before a runner had it. GitHub says canceled, whether
	// somebody cancelled it or it is queued again.
	takenBack = "taken_back"
)

// MeterOptions say by what the metrics of jobs are told apart besides the pool.
type MeterOptions struct {
	// Repository and Workflow are labels if they are true.
	Repository, Workflow bool
	// Limit of the pairs of both for each pool; those beyond are "other".
	Limit int
}

// NewMeterOptions reads the names of labels and their limit.
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
		return o, errors.New("the limit isn't from 1 to " + strconv.Itoa(maxLabelLimit))
	}
	return o, nil
}

// JobMeter measures the jobs of pools, whoever tells of them: messages of scale sets, webhooks or lists. Each pool has one teller, by how its
// runners are registered, and each job is counted once. The zero value has no labels.
type JobMeter struct {
	options MeterOptions
	seed    maphash.Seed

	mu    sync.Mutex
	known *share.Map[uint64, facts] // by the hash of a job
	pairs *share.Map[series, struct{}]
	of    map[types.NamespacedName]int // pairs of a pool
}

// NewJobMeter returns a JobMeter that knows no job.
func NewJobMeter(o MeterOptions) *JobMeter {
	m := &JobMeter{options: o, seed: maphash.MakeSeed(), known: share.New[uint64, facts](rememberedJobs, nil), of: map[types.NamespacedName]int{}}
	m.pairs = share.New[series, struct{}](maxPairs, func(_ string, s series) { m.forget(s) })
	return m
}

// measuredJob names a job of a pool.
type measuredJob struct {
	pool types.NamespacedName
	id   string
}

// series are those of a pair of repository and workflow of a pool.
type series struct {
	pool                 types.NamespacedName
	repository, workflow string
}

func (s series) labels() []string {
	return []string{s.pool.Namespace, s.pool.Name, s.repository, s.workflow}
}

// facts of a job are counted once each, in whatever order they are told.
type facts uint8

const (
	factStart facts = 1 << iota
	factEnd
	factTakenBack
)

// jobNews is what is told of a job.
type jobNews struct {
	id, repository, workflow string
	facts                    facts
	conclusion               string // of one that ended
	ran                      bool   // a runner had it

	queued, assigned, started, ended time.Time
}

// Observe measures what a message of a pool's scale set tells of jobs. A message may come again.
func (m *JobMeter) Observe(pool types.NamespacedName, events []scaleset.JobEvent) {
	for _, e := range events {
		if n, ok := newsOfMessage(e); ok {
			m.measure(pool, n, 0)
		}
	}
}

// newsOfMessage is what a scale set's message tells of a job. Its start has a message of its own.
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

// newsOfWebhook is what an event tells of a job. The event of its start may have been lost.
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

// newsOfList is what a list tells of a job: it has none that has ended.
func newsOfList(repository string, j *rest.Job, state reservation.State) jobNews {
	n := jobNews{
		id: strconv.FormatInt(j.ID, 10), repository: repository, workflow: j.Workflow, ran: true, queued: j.CreatedAt, started: j.StartedAt,
	}
	if state == reservation.Running {
		n.facts = factStart
	}
	return n
}

// factsOf is what a ledger, which outlives the process, knows of a job.
func factsOf(s reservation.State) facts {
	switch s {
	case reservation.Running, reservation.Elsewhere:
		return factStart
	case reservation.Done:
		return factStart | factEnd
	}
	return 0
}

// measure measures what an event or a list tells of a job, unless the pool's scale set tells of it, too. Before is what its ledger knew.
func (p *pool) measure(m *JobMeter, n jobNews, before reservation.State) {
	if (p.rest || p.now.observes) && n.facts != 0 {
		m.measure(p.key, n, factsOf(before))
	}
}

// measure counts what is new of a job.
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

// series of a job, within the limits of its pool and its namespace.
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

// others are the series of the pairs beyond a limit.
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

// forget drops series for which there is no place any more.
func (m *JobMeter) forget(s series) {
	if m.of[s.pool]--; m.of[s.pool] <= 0 {
		delete(m.of, s.pool)
	}
	dropSeries(s)
}

// dropSeries drops series by their names: a search for those of a pool would go through the series of all.
func dropSeries(s series) {
	for _, c := range []interface{ DeleteLabelValues(...string) bool }{jobsStarted, queueSeconds, startupSeconds, runSeconds} {
		c.DeleteLabelValues(s.labels()...)
	}
	for _, conclusion := range allConclusions {
		conclusions.DeleteLabelValues(append(s.labels(), conclusion)...)
	}
}

// Forget drops the series of a pool that is gone.
func (m *JobMeter) Forget(pool types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock() // no series is made meanwhile
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

// allConclusions are those that conclusionOf returns, and takenBack.
var allConclusions = []string{"success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "startup_failure", "stale", "other", takenBack}

// conclusionOf bounds what is told in metrics to what GitHub says today, in one wording for webhooks and messages:
// https://docs.github.com/rest/actions/workflow-jobs
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

// fileOf is the name of a workflow's file: OWNER/NAME/.github/workflows/FILE@REF has a value for each branch.
func fileOf(ref string) string {
	file, _, _ := strings.Cut(ref, "@")
	if file == "" {
		return ""
	}
	return path.Base(file)
}

// clip bounds a text, in whole characters.
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

// observe a time between two that were told; GitHub's clocks may differ by a second.
func observe(h prometheus.Observer, from, to time.Time) {
	if took := to.Sub(from); !from.IsZero() && !to.IsZero() && took < maxDuration {
		h.Observe(max(0, took.Seconds()))
	}
}
