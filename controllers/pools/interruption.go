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
	// interruptedFor is how long after the last end by a node or an outsider a pool may report that they end its runners.
	interruptedFor = 10 * time.Minute
	// interruptedLeast is how long a pool reports it at least, so that the condition doesn't change with each runner of a pool whose nodes differ.
	interruptedLeast = time.Minute
	// maxRow bounds how many of the runners are remembered.
	maxRow = 20
)

// interruption is what ends a pool's runners one after the other that is not the fault of their template; the zero value for nothing.
type interruption struct {
	// row has the last runners that nodes or others ended; the newest last.
	row []runners.Failure
	// reason of the condition Healthy; "" while nothing is reported. nodes are those that ended runners, and lastMessage is about the last end.
	reason      string
	nodes       []string
	lastMessage string
	// well is when the last runner that did well began to, and last when the last of the row ended.
	well, last time.Time
	// isNew is true in the pass that reports it first.
	isNew bool
}

// after returns what is known after another pass, with the failures since the last one. Only runners that began after the last one that did well
// began to are reported.
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

// recalled returns it without what is about one pass. A process that has just begun goes on with what the pool's status records.
func (i interruption) recalled(o observation) interruption {
	i.isNew = false
	if h := o.pool.Status.Health; o.memory.health.failures == nil && h != nil && h.Interruption != nil {
		i.reason, i.nodes = h.Interruption.Reason, h.Interruption.Nodes
		i.lastMessage, i.last = h.Interruption.Message, h.Interruption.Last.Time
	}
	return i
}

// status returns what another process needs to go on with it; nil if nothing is reported.
func (i interruption) status() *v1alpha1.Interruption {
	if i.reason == "" {
		return nil
	}
	return &v1alpha1.Interruption{Reason: i.reason, Nodes: i.nodes, Message: i.lastMessage, Last: metav1.Time{Time: i.last.Truncate(time.Second)}}
}

// endedBy returns the reason that a row of runners ended by nodes or others is reported for, by the last one, and the nodes that ended some.
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

// cause returns who ends the runners.
func (i interruption) cause() catalog.Cause {
	if i.reason == v1alpha1.PodsDeletedReason {
		return catalog.PodsDeletedByOthers.With()
	}
	return catalog.NodesEndRunners.With(wording.List(i.nodes, maxNamed))
}

// causes are the cause and the last end, if this process saw that.
func (i interruption) causes() []catalog.Cause {
	all := []catalog.Cause{i.cause()}
	if i.lastMessage != "" {
		all = append(all, catalog.LastEnd.With(i.lastMessage))
	}
	return all
}

// wellSince is when the last runner of the pool began to do well; zero if none is known to.
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
