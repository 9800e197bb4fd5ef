// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/maximal"
	"github.com/corral-dev/corral/sim/world"
)

// maximalWide is the number of the tenant's pools that have the maximum size, not counting the pools of one commit. Each
// phase has maximalJobs jobs of the neighbor, and the leader starts and crashes maximalStarts times each.
const maximalWide, maximalJobs, maximalStarts = 4, 5, 5

// roomForChildren returns the memory, in MiB, that the controller leaves to its child processes: two that compile, and
// two that evaluate policies next to as many slow ones.
func roomForChildren() float64 {
	return float64(2*int64(worker.DefaultLimits().Memory+worker.StartBytes)+worker.DefaultEvaluatorLimits().Most(2)) / (1 << 20)
}

// chartLimit returns the memory limit of the chart's container, in MiB; 0 if it cannot be read.
func chartLimit() float64 {
	text, err := charts.Corral.ReadFile("corral/values.yaml")
	if err != nil {
		return 0
	}
	var values struct {
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return 0
	}
	return float64(values.Resources.Limits.Memory().Value()) / (1 << 20)
}

// runMaximal measures how long an ordinary tenant's jobs wait when it is alone, and next to a tenant that reaches every
// limit.
func runMaximal(ctx context.Context, o *options, latency time.Duration) (f figures, err error) {
	w, err := world.Start(ctx, world.Options{GitHub: githubsim.Options{Latency: latency, Seed: o.seed}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	story := &maximal.Story{World: w, Binary: o.corral, Pools: o.pools, Wide: maximalWide, Jobs: maximalJobs, Starts: maximalStarts, Say: say}
	r, err := story.Run(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.Refused) > 0 {
		return nil, fmt.Errorf("%d of the tenant's pools do nothing: %s", len(r.Refused), r.Refused[0])
	}
	f = figures{
		"maximal_pools": float64(o.pools + maximalWide), "maximal_changes": float64(r.Changes), "maximal_events": float64(r.Taken),
		"alone_mib": r.AloneMemory.Both, "beside_mib": r.BesideMemory.Both, "beside_children_mib": r.BesideMemory.Children,
		"beside_leader_mib": r.BesideMemory.Leader, "maximal_commits": float64(r.Commits),
	}
	for _, phase := range maximal.Phases {
		alone, beside := maximal.Median(r.Alone[phase]), maximal.Median(r.Beside[phase])
		f[phase+"_alone_ms"], f[phase+"_beside_ms"] = float64(alone)/float64(time.Millisecond), float64(beside)/float64(time.Millisecond)
		f[phase+"_to_alone"] = float64(beside) / float64(alone)
	}
	return f, nil
}

// maximalFigures returns how the figures of each phase are printed.
func maximalFigures() (names []figureName) {
	names = []figureName{{"maximal_pools", "pools of the maximal tenant", "%.0f"}}
	for _, phase := range maximal.Phases {
		names = append(names,
			figureName{phase + "_alone_ms", phase + ": another tenant's job to its start, alone, ms", "%.0f"},
			figureName{phase + "_beside_ms", phase + ": …, next to the maximal tenant, ms", "%.0f"},
			figureName{phase + "_to_alone", phase + ": to that alone", "%.2f"})
	}
	return append(names,
		figureName{"maximal_commits", "commits of the maximal tenant that were applied during a phase", "%.0f"},
		figureName{"maximal_changes", "changes of the maximal tenant's pools", "%.0f"}, figureName{"maximal_events", "events of the maximal tenant that were taken", "%.0f"},
		figureName{"alone_mib", "controller and children, peak, alone, MiB", "%.0f"}, figureName{"beside_mib", "…, next to the maximal tenant, MiB", "%.0f"},
		figureName{"beside_children_mib", "…: the children's part, MiB", "%.0f"}, figureName{"beside_leader_mib", "…: the controller's part, MiB", "%.0f"})
}

// maximalBounds returns the bounds that --check verifies.
func maximalBounds() (all []bound) {
	for _, phase := range maximal.Phases {
		all = append(all, bound{"maximal-5000", anywhere, phase + "_to_alone", 1.2, fmt.Sprintf("next to the maximal tenant (%s), other tenants' jobs wait at most 20 %% longer", phase)})
	}
	return append(all,
		bound{"maximal-5000", anywhere, "beside_mib", chartLimit(), "the controller and its children stay below the chart's limit"},
		bound{"maximal-5000", anywhere, "beside_leader_mib", chartLimit() - roomForChildren(), "the controller leaves its children the room that they may take"})
}
