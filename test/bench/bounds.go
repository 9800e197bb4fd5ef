// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// bound is the most that a figure may be.
type bound struct {
	scenarios string // prefix of the names
	far       *bool  // nil: with GitHub at any distance
	key       string
	most      float64
	about     string
}

var (
	isNear, isFar = new(bool), func() *bool { far := true; return &far }()

	bounds = []bound{
		{"burst-500", isNear, "p99_to_floor", 2, "p99 within 2x of the floor"},
		{"burst-500", isFar, "p99_to_floor", 3, "p99 within 3x of the floor with GitHub 100 ms away"},
		{"pools-20x25", isNear, "p99_to_floor", 2, "p99 within 2x of the floor"},
		{"pools-20x25", isFar, "p99_to_floor", 3, "p99 within 3x of the floor with GitHub 100 ms away"},
		{"burst-500", nil, "kube_per_job", 9, "at most 9 Kubernetes requests per job"},
		{"pools-20x25", nil, "kube_per_job", 9, "at most 9 Kubernetes requests per job"},
		{"burst-500", nil, "github_per_job", 2.5, "at most 2.5 GitHub requests per job"},
		{"pools-20x25", nil, "github_per_job", 2.5, "at most 2.5 GitHub requests per job"},
		{"burst-500", nil, "runners_per_job", 1.02, "at most 2 % more runners than jobs"},
		{"pools-20x25", nil, "runners_per_job", 1.02, "at most 2 % more runners than jobs"},
		{"burst-500", nil, "idle_s_per_job", 0.2, "at most 0.2 idle runner-seconds per job"},
		{"pools-20x25", nil, "idle_s_per_job", 0.2, "at most 0.2 idle runner-seconds per job"},
		{"burst-500", nil, "cpu_ms_per_job", 12, "at most 12 ms of controller CPU per job"},
		{"pools-20x25", nil, "cpu_ms_per_job", 12, "at most 12 ms of controller CPU per job"},
		{"deaf-100", nil, "p99_to_answering", 1.2, "the other 100 pools lose less than 20 % at p99"},
		{"idle-200", nil, "writes_per_pool", 1, "at most one Kubernetes write per idle pool"},
		{"idle-200", nil, "rss_mib_per_pool", 0.5, "at most 0.5 MiB per idle pool"},
		{"idle-200", nil, "rest_calls", 120, "at most 120 REST calls"},
	}
)

// brokenBounds says which figures are beyond their bounds. A figure that was not measured
// breaks none.
func brokenBounds(results []result) []string {
	var broken []string
	for _, r := range results {
		for _, b := range bounds {
			value, measured := r.Figures[b.key]
			if !measured || !strings.HasPrefix(r.Scenario, b.scenarios) || b.far != nil && *b.far != (r.GitHubLatencyMS > 0) || value <= b.most {
				continue
			}
			broken = append(broken, fmt.Sprintf("%s: %s: it is %.3g", r.label(), b.about, value))
		}
	}
	return broken
}
