// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/webhook"
)

// jobBuckets are seconds, from half a second to six hours.
var jobBuckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600}

var (
	queueSeconds = meter.Histograms("corral_workflow_job_queue_duration_seconds",
		"Time that jobs which ended had waited for a runner.", jobBuckets, "namespace", "pool")
	runSeconds  = meter.Histograms("corral_workflow_job_run_duration_seconds", "Time that jobs which ended had run.", jobBuckets, "namespace", "pool")
	conclusions = meter.Counters("corral_workflow_job_conclusions_total", "Jobs that ended, by how.", "namespace", "pool", "conclusion")
)

// conclusionOf bounds what is told in metrics to what GitHub says today:
// https://docs.github.com/rest/actions/workflow-jobs
func conclusionOf(text string) string {
	switch text {
	case "success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "startup_failure", "stale":
		return text
	}
	return "other"
}

// tallyJob counts a job of a pool that has ended, and how long it waited and ran. One that never had a runner did neither.
func (p *pool) tallyJob(j *webhook.WorkflowJob) {
	namespace, name := p.key.Namespace, p.key.Name
	conclusions.WithLabelValues(namespace, name, conclusionOf(j.Conclusion)).Inc()
	if j.RunnerName == "" {
		return
	}
	observe(queueSeconds.WithLabelValues(namespace, name), j.CreatedAt, j.StartedAt)
	observe(runSeconds.WithLabelValues(namespace, name), j.StartedAt, j.CompletedAt)
}

// observe a time between two that were told; GitHub's clocks may differ by a second.
func observe(h prometheus.Observer, from, to time.Time) {
	if !from.IsZero() && !to.IsZero() {
		h.Observe(max(0, to.Sub(from).Seconds()))
	}
}
