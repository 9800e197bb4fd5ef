// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// distance classifies the latency of GitHub.
type distance int

const (
	anywhere distance = iota
	near              // GitHub answers at once
	distant           // each answer of GitHub is delayed
)

// covers reports whether a result was measured at the distance.
func (d distance) covers(r result) bool {
	return d == anywhere || (d == distant) == (r.GitHubLatencyMS > 0)
}

// bound is the maximum of a figure.
type bound struct {
	scenario string
	github   distance
	key      string
	most     float64
	about    string
}

// bounds returns the bounds that --check verifies.
func bounds() []bound {
	all := []bound{
		{"deaf-100", anywhere, "p99_to_answering", 1.2, "the p99 of the other 100 pools grows by at most 20 %"},
		{"idle-200", anywhere, "writes_per_pool", 1, "at most one Kubernetes write per idle pool"},
		{"idle-200", anywhere, "rss_mib_per_pool", 0.5, "at most 0.5 MiB per idle pool"},
		{"idle-200", anywhere, "rest_calls", 120, "at most 120 REST calls"},
		{"crash", anywhere, "in_place_s", 3, "a leader that restarts in place creates the next pod within 3 s"},
		{"crash", anywhere, "replica_s", 18, "another replica creates it within 18 s, including 15 s until the lease expires"},
		{"crash", anywhere, "not_resumed_s", 3, "a leader that restarts in place and cannot resume the session creates it within 3 s"},
		{"webhooks-50", anywhere, "storm_s", 2.5, "5,000 deliveries are accepted at more than 2,000 a second"},
		{"webhooks-50", anywhere, "accept_p99_ms", 50, "a delivery is answered within 50 ms at p99"},
		{"webhooks-50", anywhere, "reserve_max_ms", 2000, "an accepted delivery is recorded within 2 s"},
		{"webhooks-50", anywhere, "lost", 0, "no accepted delivery is lost"},
		{"webhooks-50", anywhere, "storm_growth_mib", 24, "memory grows by less than 24 MiB after the storms"},
		{"webhooks-50", anywhere, "flood_writes", 0, "meaningless requests cause no Kubernetes writes"},
		{"webhooks-50", anywhere, "flood_growth_mib", 24, "memory grows by less than 24 MiB after meaningless requests"},
		{"policy-1000", anywhere, "library_cpu_s", 1, "library policies evaluate 1,000 pools after a policy change within 1 s of CPU"},
		{"policy-1000", anywhere, "modules_cpu_s", 5, "policies with modules evaluate 1,000 pools after a policy change within 5 s of CPU"},
		{"policy-1000", anywhere, "library_asked_again", 0, "library policies are evaluated again only if the input that their rules read changed"},
		{"policy-1000", anywhere, "modules_asked_again", 0, "policies with modules are evaluated again only if the input that their rules read changed"},
		{"policy-1000", anywhere, "library_sharers", judgedPools - 1, "after a usage change, only pools that share the ceiling are evaluated"},
		{"policy-1000", anywhere, "modules_sharers", judgedPools - 1, "after a usage change, only pools that share the ceiling are evaluated"},
	}
	all = append(all,
		bound{"hostile-rules", anywhere, "p99_to_quiet", 1.2, "the p99 of other tenants grows by at most 20 %"},
		bound{"hostile-rules", anywhere, "leader_growth_mib", 16, "the leader's memory grows by at most 16 MiB"},
		bound{"hostile-rules", anywhere, "others_blamed", 0, "no policy of another tenant's pools fails"},
	)
	all = append(all, maximalBounds()...)
	all = append(all, bound{"review-200", anywhere, "review_s", 2, "corral review handles a change of 200 pools within 2 s"})
	for _, scenario := range []string{"compile-300", "compile-5000"} {
		all = append(all, bound{scenario, anywhere, "compile_to_cue", 2.5, "compiling and validating a tree takes at most 2.5 times the CPU of CUE's own library"})
	}
	for _, scenario := range []string{"burst-500", "pools-20x25"} {
		all = append(all,
			bound{scenario, near, "p99_to_floor", 2, "p99 within 2x of the floor"},
			bound{scenario, distant, "p99_to_floor", 3, "p99 within 3x of the floor if GitHub's answers are delayed"},
			bound{scenario, anywhere, "kube_per_job", 9, "at most 9 Kubernetes requests per job"},
			bound{scenario, anywhere, "github_per_job", 2.5, "at most 2.5 GitHub requests per job"},
			bound{scenario, anywhere, "runners_per_job", 1.02, "at most 2 % more runners than jobs"},
			bound{scenario, anywhere, "idle_s_per_job", 0.2, "at most 0.2 idle runner-seconds per job"},
			bound{scenario, anywhere, "cpu_ms_per_job", 12, "at most 12 ms of controller CPU per job"},
		)
	}
	return all
}

// brokenBounds describes the figures that exceed their bounds. A figure that was not measured exceeds none.
func brokenBounds(results []result) []string {
	var broken []string
	for _, r := range results {
		for _, b := range bounds() {
			value, measured := r.Figures[b.key]
			if measured && b.scenario == r.Scenario && b.github.covers(r) && value > b.most {
				broken = append(broken, fmt.Sprintf("%s: %s: it is %.3g", r.label(), b.about, value))
			}
		}
	}
	return broken
}
