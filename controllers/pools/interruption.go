// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"maps"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// interruptedFor is how long the end of a runner by a node or another actor counts towards an interruption.
	interruptedFor = 10 * time.Minute
	// interruptedLeast is the minimum time after the last such end for which a pool reports an interruption, so that the
	// condition does not change with each runner if only some nodes fail.
	interruptedLeast = time.Minute
	// maxRow limits how many of these ends are remembered.
	maxRow = 20
)

// interruption records that external causes, rather than the template, end a pool's runners one after the other; the zero
// value for nothing.
type interruption struct {
	// row has the last runners that nodes or other actors ended, newest last.
	row []runners.Failure
	// reason is the reason of the condition Healthy; empty while nothing is reported. nodes are the nodes that ended runners,
	// and lastMessage describes the last end.
	reason      string
	nodes       []string
	lastMessage string
	// well is when the last healthy runner began to be healthy, and last is when the last runner of row ended.
	well, last time.Time
	// isNew is true in the first pass that reports the interruption.
	isNew bool
}

// after returns the state after another pass. failures are the failures since the previous pass. Only runners that were
// created after the last healthy runner began to be healthy count.
func (i interruption) after(o observation, results runners.Results, failures []runners.Failure) interruption {
	next := i.recalled(o)
	next.well = i.wellSince(o, results)
	next.row = slices.DeleteFunc(slices.Concat(i.row, failures), func(f runners.Failure) bool {
		return !f.Cause.IsExternal() || f.NameTaken || o.now.Sub(f.At) >= interruptedFor
	})
	next.row = next.row[max(0, len(next.row)-maxRow):]
	n := 0
	for _, f := range next.row {
		if f.Began.After(next.well) {
			n++
			next.last = f.At
			next.lastMessage = wording.Truncate(f.Message, maxReason)
		}
	}
	switch {
	case n >= scaling.Tolerated:
		next.reason, next.nodes = endedBy(next.row)
		next.isNew = i.reason == "" && conditions.GetReason(o.pool, v1alpha1.HealthyCondition) != next.reason
	case o.now.Sub(next.last) >= interruptedLeast:
		next.reason = ""
	}
	return next
}

// recalled returns the state without values of the previous pass. A process that has just started continues with the pool's
// status.
func (i interruption) recalled(o observation) interruption {
	i.isNew = false
	if h := o.pool.Status.Health; o.memory.health.failures == nil && h != nil && h.Interruption != nil {
		i.reason, i.nodes = h.Interruption.Reason, h.Interruption.Nodes
		i.lastMessage, i.last = h.Interruption.Message, h.Interruption.Last.Time
	}
	return i
}

// status returns the state that another process needs to continue; nil if nothing is reported.
func (i interruption) status() *v1alpha1.Interruption {
	if i.reason == "" {
		return nil
	}
	return &v1alpha1.Interruption{Reason: i.reason, Nodes: i.nodes, Message: i.lastMessage, Last: metav1.Time{Time: i.last.Truncate(time.Second)}}
}

// endedBy returns the reason to report for a row of ended runners, which the last one decides, and the nodes that ended
// some of them.
func endedBy(row []runners.Failure) (reason string, nodes []string) {
	if row[len(row)-1].Cause != v1alpha1.CauseNode {
		return v1alpha1.PodsDeletedReason, nil
	}
	names := map[string]bool{}
	for _, f := range row {
		if f.Cause == v1alpha1.CauseNode && f.Node != "" {
			names[f.Node] = true
		}
	}
	return v1alpha1.NodesFailingReason, slices.Sorted(maps.Keys(names))
}

// cause returns the cause to report: failing nodes, or other actors that delete pods.
func (i interruption) cause() catalog.Cause {
	if i.reason == v1alpha1.PodsDeletedReason {
		return catalog.PodsDeletedByOthers.With()
	}
	return catalog.NodesEndRunners.With(wording.List(i.nodes, maxNamed))
}

// causes returns the cause and, if known, the last end.
func (i interruption) causes() []catalog.Cause {
	all := []catalog.Cause{i.cause()}
	if i.lastMessage != "" {
		all = append(all, catalog.LastEnd.With(i.lastMessage))
	}
	return all
}

// wellSince returns when the pool's last healthy runner began to be healthy; zero if none is known.
func (i interruption) wellSince(o observation, results runners.Results) time.Time {
	began := []time.Time{i.well}
	for _, w := range results.Worked {
		began = append(began, w.Began)
	}
	for _, x := range o.runners {
		s := x.verdict.State
		if s == v1alpha1.RunnerBusy || s == v1alpha1.RunnerIdle && o.now.Sub(x.verdict.Since) >= healthy {
			began = append(began, x.verdict.Since)
		}
	}
	return slices.MaxFunc(began, time.Time.Compare)
}
