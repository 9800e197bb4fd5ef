// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// terminatedEvent is the reason of the event about a runner that somebody ended by hand.
const terminatedEvent = "Terminated"

// terminate ends a runner that somebody annotated with a reason, and its job with it: nothing else in Corral does so.
func (p pass) terminate(ctx context.Context, reason string) error {
	message := "by " + v1alpha1.TerminateAnnotation + ": " + reason
	if job := p.runner.CurrentJob(); job != nil {
		message += fmt.Sprintf("; its job %s of %s fails", job.ID, job.Repository)
	}
	if err := p.Memory.end(ctx, p.Client, p.runner, message); err != nil {
		return err
	}
	p.Event(p.runner, corev1.EventTypeWarning, terminatedEvent, message)
	return kube.Progress(0, catalog.RunnerEnding.With(message))
}

// terminationReason is why somebody asked to end the runner; empty if nobody did.
func (p pass) terminationReason() string { return p.runner.Annotations[v1alpha1.TerminateAnnotation] }
