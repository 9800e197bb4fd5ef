// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// maxTaints limits how many taints of a node are recorded.
const maxTaints = 10

// withTaints returns how the runner ended. It adds the taints of the node if the runner failed or ended with an error, or
// if another actor deleted its pod. It reads the taints once, as soon as it sees the end, because a reclaimed node soon
// disappears.
func (p pass) withTaints(ctx context.Context, o observation, state poolstatus.Assessment) *v1alpha1.RunnerExit {
	if p.memory.container.exit != nil {
		return p.memory.container.exit
	}
	exit, failed := o.Exit, state.State == v1alpha1.RunnerFailed
	switch {
	case exit == nil && p.pod == nil && failed && state.Cause == v1alpha1.CauseRemoved && p.memory.hadPod(): // deleted before it ran
		return &v1alpha1.RunnerExit{Actor: v1alpha1.ActorUnknown, Reason: poolstatus.ReasonDeleted}
	case exit == nil && !failed, p.pod == nil, o.EndedAt.IsZero(), p.pod.Spec.NodeName == "":
		return exit
	case exit == nil: // it ended without a job
		exit = &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Node: p.pod.Spec.NodeName}
	}
	exit.Taints = p.taints(ctx, p.pod.Spec.NodeName)
	p.memory.container.exit = exit
	return exit
}

// taints returns the taints of a node; none if the node is gone or cannot be read.
func (p pass) taints(ctx context.Context, name string) []string {
	node := &corev1.Node{}
	if err := p.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil
	}
	var taints []string
	for _, t := range node.Spec.Taints[:min(len(node.Spec.Taints), maxTaints)] {
		taints = append(taints, t.ToString())
	}
	return taints
}
