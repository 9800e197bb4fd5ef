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

// maxTaints bounds how many taints are told of a node.
const maxTaints = 10

// withTaints returns how the runner ended, with the taints of its node if it failed, ended with an error, or its pod was deleted by somebody. They are
// read once, as soon as the end is seen: a node that is reclaimed is gone soon.
func (p pass) withTaints(ctx context.Context, o observation, state poolstatus.Assessment) *v1alpha1.RunnerExit {
	if p.memory.container.exit != nil {
		return p.memory.container.exit
	}
	evicted := p.pod != nil && !p.pod.DeletionTimestamp.IsZero() && p.memory.pod.deleted != p.pod.UID
	amiss := o.Exit != nil || state.State == v1alpha1.RunnerFailed || evicted
	if !amiss || p.pod == nil || p.pod.Spec.NodeName == "" || o.EndedAt.IsZero() {
		return o.Exit
	}
	exit := o.Exit
	if exit == nil {
		exit = &v1alpha1.RunnerExit{Node: p.pod.Spec.NodeName}
	}
	exit.Taints = p.taints(ctx, p.pod.Spec.NodeName)
	p.memory.container.exit = exit
	return exit
}

// taints of a node; none if it is gone, or may not be read.
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
