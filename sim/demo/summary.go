// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/sim/githubsim"
)

const (
	// shownEndpoints is the maximum number of endpoints in the summary.
	shownEndpoints = 6
	// shownProblems is the maximum number of problems of each kind in the summary.
	shownProblems = 10
)

// outcome is the result of the demo.
type outcome struct {
	// Planned is the planned number of jobs.
	Planned int
	Jobs    []githubsim.JobTimeline
	// JobPhase is the time from the arrival of the first job to the end of the last one.
	JobPhase time.Duration
	// RunnersMade counts the registrations on GitHub over the whole demo.
	RunnersMade int
	// Requests to GitHub during the job phase.
	Requests map[githubsim.Endpoint]int
	// Deliveries of webhooks.
	Deliveries []githubsim.DeliveryReport
	// Use is the controller's resource use during the job phase, with peak memory.
	Use use
	// LogErrors is the number of errors in the controller's log.
	LogErrors int
	// Left lists objects that should have been removed, Broken the violations of its protocol that GitHub observed.
	Left, Broken []string
}

// runnerEndpoints are called by the runners themselves, so Corral does not determine how often.
var runnerEndpoints = []githubsim.Endpoint{
	githubsim.EndpointRunnerSession, githubsim.EndpointRunnerLeave, githubsim.EndpointRunnerMessage,
	githubsim.EndpointRunnerAcknowledge, githubsim.EndpointRunnerRenew, githubsim.EndpointRunnerComplete,
}

// problems describes everything that went wrong.
func (o *outcome) problems() []string {
	var found []string
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(o.Jobs) < o.Planned {
		note("%d of %d jobs never arrived", o.Planned-len(o.Jobs), o.Planned)
	}
	for _, j := range o.Jobs {
		switch {
		case j.Starts > 1:
			note("job %s was run %d times", j.ID, j.Starts)
		case j.State != githubsim.JobCompleted:
			note("job %s is %s", j.ID, j.State)
		case j.Result != githubsim.ResultSucceeded:
			note("job %s %s", j.ID, j.Result)
		case j.Starts == 0:
			note("job %s is done, but no runner started it", j.ID)
		}
	}
	found = shorten(found)
	for _, left := range shorten(o.Left) {
		note("left over: %s", left)
	}
	for _, broken := range shorten(o.Broken) {
		note("violation: %s", broken)
	}
	return found
}

// shorten keeps the first few and counts the rest.
func shorten(all []string) []string {
	if len(all) <= shownProblems {
		return all
	}
	return append(slices.Clone(all[:shownProblems]), fmt.Sprintf("and %d more", len(all)-shownProblems))
}

// lines returns the summary.
func (o *outcome) lines(p palette) []string {
	lines := []string{"", p.bold("Summary"), "  jobs             " + o.results()}
	lines = append(lines, o.waits()...)
	lines = append(lines, fmt.Sprintf("  runners          %d registered, %s per job", o.RunnersMade, o.perJob(float64(o.RunnersMade))))
	if len(o.Deliveries) > 0 {
		lines = append(lines, o.deliveries())
	}
	lines = append(lines, o.requests()...)
	lines = append(lines, fmt.Sprintf("  to Kubernetes    %.0f requests, %s per job; the controller used %.1f s of CPU",
		o.Use.KubeRequests, o.perJob(o.Use.KubeRequests), o.Use.CPUSeconds))
	lines = append(lines,
		fmt.Sprintf("  controller       %.0f MB of memory at most, %s in its log", o.Use.MemoryBytes/1e6, wording.Count(o.LogErrors, "error")),
		"  left over        "+count(len(o.Left)),
		"  violations       "+count(len(o.Broken)),
	)
	return append(lines, verdict(o.problems(), p)...)
}

// results counts the jobs by result.
func (o *outcome) results() string {
	results := map[string]int{}
	for _, j := range o.Jobs {
		results[j.Result]++
	}
	text := fmt.Sprintf("%d of %d done in %s", results[githubsim.ResultSucceeded], o.Planned, seconds(o.JobPhase))
	if failed := results[githubsim.ResultFailed] + results[githubsim.ResultCanceled]; failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}

func verdict(problems []string, p palette) []string {
	if len(problems) == 0 {
		return []string{"", p.green("Every job ran exactly once. Nothing is left over.")}
	}
	lines := []string{""}
	for _, problem := range problems {
		lines = append(lines, p.red(problem))
	}
	return lines
}

// waits describes how long jobs were queued before a runner started them, by pool.
func (o *outcome) waits() []string {
	waits := map[string][]time.Duration{}
	const all = "all pools"
	for _, j := range o.Jobs {
		if j.Started.IsZero() {
			continue
		}
		wait := j.Started.Sub(j.Queued)
		pool := j.ScaleSet
		if pool == "" && len(j.Labels) > 0 {
			pool = j.Labels[0] // for runners without a scale set: the demo's jobs request their pool by label
		}
		waits[pool] = append(waits[pool], wait)
		waits[all] = append(waits[all], wait)
	}
	rows := [][]string{{"queue wait     ", "jobs", "p50", "p95", "max", ""}}
	names := slices.Sorted(maps.Keys(waits))
	names = append(slices.DeleteFunc(names, func(name string) bool { return name == all }), all)
	for _, name := range names {
		rows = append(rows, waitRow(name, waits[name]))
	}
	lines := align(rows)
	for i := range lines {
		lines[i] = "  " + strings.TrimRight(lines[i], " ")
	}
	return lines
}

// deliveries describes how webhook deliveries were answered.
func (o *outcome) deliveries() string {
	failed, took := 0, make([]time.Duration, 0, len(o.Deliveries))
	for _, d := range o.Deliveries {
		if d.Code >= http.StatusBadRequest {
			failed++
		}
		took = append(took, d.Took)
	}
	slices.Sort(took)
	text := fmt.Sprintf("  from GitHub      %s, answered in %s at p95", wording.Count(len(o.Deliveries), "webhook"), milliseconds(quantile(took, 0.95)))
	if failed > 0 {
		text += fmt.Sprintf(", %d refused", failed)
	}
	return text
}

// waitRow is one row of the table of waits.
func waitRow(name string, waits []time.Duration) []string {
	slices.Sort(waits)
	row := []string{"  " + name, strconv.Itoa(len(waits))}
	for _, p := range []float64{0.5, 0.95, 1} {
		row = append(row, seconds(quantile(waits, p)))
	}
	return append(row, "")
}

// quantile returns a quantile of sorted values by the nearest rank, or 0 if there are no values.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}

// requests describes the controller's requests to GitHub, the most frequent first.
func (o *outcome) requests() []string {
	own, runners := maps.Clone(o.Requests), 0
	for _, e := range runnerEndpoints {
		runners += own[e]
		delete(own, e)
	}
	total := 0
	endpoints := slices.SortedFunc(maps.Keys(own), func(a, b githubsim.Endpoint) int {
		return cmp.Or(cmp.Compare(own[b], own[a]), cmp.Compare(a, b))
	})
	var most []string
	for i, e := range endpoints {
		total += own[e]
		if i < shownEndpoints && own[e] > 0 {
			most = append(most, fmt.Sprintf("%s %s", o.perJob(float64(own[e])), e))
		}
	}
	return []string{
		fmt.Sprintf("  to GitHub        %d requests, %s per job: %s", total, o.perJob(float64(total)), strings.Join(most, ", ")),
		fmt.Sprintf("                   and %d requests by the runners", runners),
	}
}

// perJob divides by the number of jobs.
func (o *outcome) perJob(n float64) string {
	return strconv.FormatFloat(n/float64(max(1, len(o.Jobs))), 'f', 2, 64)
}

// seconds formats a duration with one decimal.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

// milliseconds formats a short duration.
func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
}

func count(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// difference returns the increase of each counter.
func difference(before, after map[githubsim.Endpoint]int) map[githubsim.Endpoint]int {
	added := map[githubsim.Endpoint]int{}
	for e, n := range after {
		added[e] = n - before[e]
	}
	return added
}
