// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// figures are the measured values by name; see figureNames. Names with a slash are parts of a sum, per job: kube/VERB
// RESOURCE and github/ENDPOINT.
type figures map[string]float64

// Prefixes of the parts of a sum.
const (
	kubePrefix   = "kube/"
	githubPrefix = "github/"
)

// figureName determines how a figure is printed.
type figureName struct{ key, label, format string }

// figureNames are in the order of the table.
var figureNames = []figureName{
	{"jobs", "jobs", "%.0f"},
	{"pod_p50_ms", "demand to pod, p50, ms", "%.0f"},
	{"pod_p95_ms", "demand to pod, p95, ms", "%.0f"},
	{"pod_p99_ms", "demand to pod, p99, ms", "%.0f"},
	{"pod_max_ms", "demand to pod, max, ms", "%.0f"},
	{"floor_p50_ms", "floor, p50, ms", "%.0f"},
	{"floor_p95_ms", "floor, p95, ms", "%.0f"},
	{"floor_p99_ms", "floor, p99, ms", "%.0f"},
	{"floor_max_ms", "floor, max, ms", "%.0f"},
	{"floor_answered_p99_ms", "floor, p99 until the API server's answer, ms", "%.0f"},
	{"p99_to_floor", "ratio of p99 to the floor's p99", "%.2f"},
	{"answering_p50_ms", "demand to pod while all servers answer, p50, ms", "%.0f"},
	{"answering_p99_ms", "demand to pod while all servers answer, p99, ms", "%.0f"},
	{"p99_to_answering", "ratio of the p99s", "%.2f"},
	{"in_place_s", "crash to pod, restarted in place, s", "%.1f"},
	{"replica_s", "crash to pod, by another replica, s", "%.1f"},
	{"not_resumed_s", "crash to pod, in place, session not resumed, s", "%.1f"},
	{"kube_per_job", "Kubernetes requests per job", "%.2f"},
	{"github_per_job", "GitHub requests per job", "%.2f"},
	{"runners_per_job", "runners created per job", "%.3f"},
	{"idle_s_per_job", "idle runner-seconds per job", "%.3f"},
	{"cpu_ms_per_job", "controller CPU per job, ms", "%.1f"},
	{"peak_mib", "controller memory, peak, MiB", "%.0f"},
	{"cuts", "interrupted watches of the benchmark", "%.0f"},
	{"pools", "idle pools", "%.0f"},
	{"window_s", "observed time, s", "%.0f"},
	{"rest_calls", "REST calls to GitHub meanwhile", "%.0f"},
	{"writes_per_pool", "Kubernetes writes per pool meanwhile", "%.3f"},
	{"kube_per_pool", "Kubernetes requests per pool meanwhile", "%.3f"},
	{"github_per_pool", "GitHub requests per pool meanwhile", "%.2f"},
	{"idle_cpu_ms_per_s", "controller CPU, ms per s", "%.1f"},
	{"rss_empty_mib", "controller memory without pools, MiB", "%.1f"},
	{"rss_mib", "controller memory with the idle pools, MiB", "%.1f"},
	{"rss_mib_per_pool", "memory per idle pool, resident, MiB", "%.3f"},
	{"heap_mib_per_pool", "memory per idle pool, Go heap in use, MiB", "%.3f"},
	{"stack_mib_per_pool", "memory per idle pool, Go stacks, MiB", "%.3f"},
	{"judged_pools", "evaluated pools", "%.0f"},
	{"library_cpu_s", "library policies: CPU to evaluate all pools after a policy change, s", "%.2f"},
	{"library_asked", "…: evaluations", "%.0f"},
	{"library_asked_again", "…: repeated evaluations when nothing changed", "%.0f"},
	{"library_sharers", "…: repeated evaluations after one usage change", "%.0f"},
	{"modules_cpu_s", "policies with modules: CPU to evaluate all pools after a policy change, s", "%.2f"},
	{"modules_asked", "…: evaluations", "%.0f"},
	{"modules_asked_again", "…: repeated evaluations when nothing changed", "%.0f"},
	{"modules_sharers", "…: repeated evaluations after one usage change", "%.0f"},
	{"modules_children_mib", "…: memory of the children, sum of their peaks, MiB", "%.0f"},
	{"quiet_jobs", "jobs of other tenants, quiet phase", "%.0f"},
	{"hostile_jobs", "jobs of other tenants, hostile phase", "%.0f"},
	{"quiet_p50_ms", "quiet: job to its start, p50, ms", "%.0f"},
	{"quiet_p99_ms", "quiet: job to its start, p99, ms", "%.0f"},
	{"hostile_p50_ms", "hostile: job to its start, p50, ms", "%.0f"},
	{"hostile_p99_ms", "hostile: job to its start, p99, ms", "%.0f"},
	{"p99_to_quiet", "ratio of the p99 to the quiet phase", "%.2f"},
	{"quiet_edit_max_ms", "quiet: another tenant's policy change until it is in force, max, ms", "%.0f"},
	{"hostile_edit_max_ms", "hostile: another tenant's policy change until it is in force, max, ms", "%.0f"},
	{"hostile_edits", "changes of hostile policies", "%.0f"},
	{"others_blamed", "pools of other tenants whose policies failed", "%.0f"},
	{"leader_mib", "leader's peak memory, quiet phase, MiB", "%.0f"},
	{"leader_growth_mib", "growth of the leader's memory, hostile phase, MiB", "%.1f"},
	{"evaluators_mib", "peak memory of its children together, MiB", "%.0f"},
	{"reviewed_pools", "pools reviewed", "%.0f"},
	{"compile_s", "until the objects were built, s", "%.2f"},
	{"compile_cpu_s", "CPU of compiling, s", "%.2f"},
	{"compile_mib", "peak memory of compiling, MiB", "%.0f"},
	{"compile_to_cue", "ratio of the CPU to CUE's own library", "%.2f"},
	{"review_s", "until the review was written, s", "%.2f"},
	{"review_cpu_s", "CPU of the review, s", "%.2f"},
	{"hook_pools", "pools with webhooks", "%.0f"},
	{"deliveries", "deliveries in a storm", "%.0f"},
	{"deliveries_per_s", "deliveries accepted a second, slowest storm", "%.0f"},
	{"storm_s", "until all were accepted, slowest storm, s", "%.2f"},
	{"accept_p50_ms", "delivery to answer, p50, ms", "%.1f"},
	{"accept_p99_ms", "delivery to answer, p99, ms", "%.1f"},
	{"accept_max_ms", "delivery to answer, max, ms", "%.1f"},
	{"reserve_p50_ms", "answer to record, p50, ms", "%.0f"},
	{"reserve_p99_ms", "answer to record, p99, ms", "%.0f"},
	{"reserve_max_ms", "answer to record, max, ms", "%.0f"},
	{"lost", "accepted but not recorded", "%.0f"},
	{"storm_growth_mib", "memory growth after the storms, MiB", "%.1f"},
	{"flood", "meaningless requests", "%.0f"},
	{"flood_per_s", "…: per second", "%.0f"},
	{"flood_refused", "…: refused", "%.0f"},
	{"flood_writes", "Kubernetes writes meanwhile", "%.0f"},
	{"flood_growth_mib", "memory growth after them, MiB", "%.1f"},
	{"done_s", "until all jobs were done, s", "%.1f"},
	{"cleanup_s", "clean-up after the last job, s", "%.1f"},
}

// summary describes a run in one line.
func (f figures) summary() string {
	var parts []string
	for _, n := range []figureName{
		{"pod_p99_ms", "p99 %s ms", "%.0f"}, {"p99_to_floor", "%s of the floor", "%.2f"}, {"kube_per_job", "Kubernetes %s", "%.2f"},
		{"p99_to_quiet", "p99 %s of the quiet phase", "%.2f"}, {"leader_growth_mib", "leader grew by %s MiB", "%.1f"}, {"others_blamed", "%s other pools blamed", "%.0f"},
		{"p99_to_answering", "%s of the p99 while all answer", "%.2f"},
		{"in_place_s", "in place %s s", "%.1f"}, {"replica_s", "by a replica %s s", "%.1f"}, {"not_resumed_s", "not resumed %s s", "%.1f"},
		{"github_per_job", "GitHub %s", "%.2f"}, {"runners_per_job", "runners %s", "%.3f"}, {"idle_s_per_job", "idle %s s", "%.3f"},
		{"rest_calls", "%s REST calls", "%.0f"}, {"writes_per_pool", "%s writes a pool", "%.3f"}, {"rss_mib_per_pool", "%s MiB a pool", "%.3f"},
		{"deliveries_per_s", "%s deliveries a second", "%.0f"}, {"accept_p99_ms", "p99 %s ms", "%.1f"}, {"reserve_max_ms", "written down within %s ms", "%.0f"},
		{"flood_per_s", "flood of %s a second", "%.0f"}, {"flood_writes", "%s writes", "%.0f"}, {"flood_growth_mib", "%s MiB more", "%.1f"},
		{"cpu_ms_per_job", "CPU %s ms a job", "%.1f"}, {"peak_mib", "%s MiB", "%.0f"}, {"cleanup_s", "clean-up %s s", "%.1f"},
	} {
		if v, ok := f[n.key]; ok {
			parts = append(parts, fmt.Sprintf(n.label, fmt.Sprintf(n.format, v)))
		}
	}
	return strings.Join(parts, ", ")
}

// latencies adds the quantiles of durations, in milliseconds, as PREFIX_p50_ms and so on.
func (f figures) latencies(prefix string, all []time.Duration) {
	sorted := slices.Sorted(slices.Values(all))
	for name, p := range map[string]float64{"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1} {
		f[prefix+"_"+name+"_ms"] = float64(quantile(sorted, p)) / float64(time.Millisecond)
	}
}

// counts adds the parts and their sum, each divided by by.
func (f figures) counts(sum, prefix string, parts map[string]int, by float64) {
	total := 0
	for name, n := range parts {
		if n != 0 {
			f[prefix+name] = float64(n) / by
			total += n
		}
	}
	f[sum] = float64(total) / by
}

// quantile returns a quantile of sorted values by the nearest rank, or 0 if there are no values.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// medians returns the median of each figure over all runs; for an even number of runs, the lower of the two middle
// values. A part that a run does not have counts as 0.
func medians(runs []figures) figures {
	out := figures{}
	for _, run := range runs {
		for name := range run {
			if _, done := out[name]; done {
				continue
			}
			values := make([]float64, 0, len(runs))
			for _, other := range runs {
				values = append(values, other[name])
			}
			slices.Sort(values)
			out[name] = values[(len(values)-1)/2]
		}
	}
	return out
}

// matchFIFO returns the time from the kth demand of a pool to its kth pod, for each demand with a pod; 0 if the pod
// already existed.
func matchFIFO(demands, pods map[string][]time.Time) []time.Duration {
	var all []time.Duration
	for pool, queued := range demands {
		queued = slices.SortedFunc(slices.Values(queued), time.Time.Compare)
		seen := slices.SortedFunc(slices.Values(pods[pool]), time.Time.Compare)
		for k := range min(len(queued), len(seen)) {
			all = append(all, max(0, seen[k].Sub(queued[k])))
		}
	}
	return all
}
