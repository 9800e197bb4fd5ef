// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// terminatedEvent is the reason of the event that tells who was ended by hand.
const terminatedEvent = "Terminated"

// terminate ends a runner that somebody annotated, with its job: nothing else in Corral does so.
func (x *run) terminate(ctx context.Context) error {
	why := x.terminated()
	if why == "" {
		return nil
	}
	words := "by " + v1alpha1.TerminateAnnotation + ": " + why
	if job := x.runner.Status.Job; job != nil {
		words += fmt.Sprintf("; its job %s of %s fails", job.ID, job.Repository)
	}
	x.Event(x.runner, corev1.EventTypeWarning, terminatedEvent, words)
	if err := End(ctx, x.Client, x.runner); err != nil {
		return err
	}
	return kube.Progress(0, "ended %s", words)
}

// terminated is the reason that somebody gave to end the runner; empty if nobody did.
func (x *run) terminated() string { return x.runner.Annotations[v1alpha1.TerminateAnnotation] }
