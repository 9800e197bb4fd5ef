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
	// shownEndpoints is how many endpoints the summary names.
	shownEndpoints = 6
	// shownProblems is how many problems of one sort the summary names.
	shownProblems = 10
)

// outcome is what is known at the end.
type outcome struct {
	// Planned is how many jobs there were to be.
	Planned int
	Jobs    []githubsim.JobTimeline
	// JobPhase is from the first job's arrival to the last one's end.
	JobPhase time.Duration
	// RunnersMade counts the registrations on GitHub over the whole demo.
	RunnersMade int
	// Requests to GitHub in the job phase.
	Requests map[githubsim.Endpoint]int
	// Deliveries of webhooks.
	Deliveries []githubsim.DeliveryReport
	// Use of the controller in the job phase, but for the memory: that is its peak.
	Use use
	// LogErrors is the number of errors in the controller's log.
	LogErrors int
	// Left is what is there and should not be, Broken what happened and never may.
	Left, Broken []string
}

// runnerEndpoints are called by the runners themselves: how often is not Corral's doing.
var runnerEndpoints = []githubsim.Endpoint{
	githubsim.EndpointRunnerSession, githubsim.EndpointRunnerLeave, githubsim.EndpointRunnerMessage,
	githubsim.EndpointRunnerAcknowledge, githubsim.EndpointRunnerRenew, githubsim.EndpointRunnerComplete,
}

// problems says all that is wrong; nothing may be.
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
		note("broken promise: %s", broken)
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

// lines sums up.
func (o *outcome) lines(p palette) []string {
	lines := []string{"", p.bold("Summary"), "  jobs             " + o.results()}
	lines = append(lines, o.waits()...)
	lines = append(lines, fmt.Sprintf("  runners          %d registered, %s a job", o.RunnersMade, o.perJob(float64(o.RunnersMade))))
	if len(o.Deliveries) > 0 {
		lines = append(lines, o.deliveries())
	}
	if o.JobPhase > 0 {
		lines = append(lines, o.requests()...)
		lines = append(lines, fmt.Sprintf("  to Kubernetes    %.0f requests, %s a job; the controller took %.1f s of CPU",
			o.Use.KubeRequests, o.perJob(o.Use.KubeRequests), o.Use.CPUSeconds))
	}
	lines = append(lines,
		fmt.Sprintf("  controller       %.0f MB at most, %s in its log", o.Use.MemoryBytes/1e6, wording.Count(o.LogErrors, "error")),
		"  left over        "+count(len(o.Left)),
		"  broken promises  "+count(len(o.Broken)),
	)
	return append(lines, verdict(o.problems(), p)...)
}

// results counts the jobs by how they ended.
func (o *outcome) results() string {
	results := map[string]int{}
	for _, j := range o.Jobs {
		results[j.Result]++
	}
	text := fmt.Sprintf("%d of %d done", results[githubsim.ResultSucceeded], o.Planned)
	if o.JobPhase > 0 {
		text += " in " + seconds(o.JobPhase)
	}
	if failed := results[githubsim.ResultFailed] + results[githubsim.ResultCanceled]; failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}

func verdict(problems []string, p palette) []string {
	if len(problems) == 0 {
		return []string{"", p.green("Every job was done once. Nothing is left over.")}
	}
	lines := []string{""}
	for _, problem := range problems {
		lines = append(lines, p.red(problem))
	}
	return lines
}

// waits tells how long jobs were queued before a runner started them, by pool.
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
			pool = j.Labels[0] // of runners without a scale set: the demo's jobs ask for their pool
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

// deliveries tells how webhooks were answered.
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

// waitRow is a line of the table of waits.
func waitRow(name string, waits []time.Duration) []string {
	slices.Sort(waits)
	row := []string{"  " + name, strconv.Itoa(len(waits))}
	for _, p := range []float64{0.5, 0.95, 1} {
		row = append(row, seconds(quantile(waits, p)))
	}
	return append(row, "")
}

// quantile of sorted values by the nearest rank; 0 of none.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}

// requests tells what the controller asked of GitHub, the most frequent first.
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
		fmt.Sprintf("  to GitHub        %d requests, %s a job: %s", total, o.perJob(float64(total)), strings.Join(most, ", ")),
		fmt.Sprintf("                   and %d by the runners themselves", runners),
	}
}

// perJob divides by the number of jobs.
func (o *outcome) perJob(n float64) string {
	return strconv.FormatFloat(n/float64(max(1, len(o.Jobs))), 'f', 2, 64)
}

// seconds writes a time with one decimal.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

// milliseconds writes a short time.
func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + "ms"
}

func count(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// difference returns what was added to counters.
func difference(before, after map[githubsim.Endpoint]int) map[githubsim.Endpoint]int {
	added := map[githubsim.Endpoint]int{}
	for e, n := range after {
		added[e] = n - before[e]
	}
	return added
}
