// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// terminatedEvent is the event reason for a runner that a user ended with the annotation.
const terminatedEvent = "Terminated"

// terminate deletes a Runner that a user annotated with a reason. This also stops the runner's job. Corral stops a job in
// no other case.
func (p pass) terminate(ctx context.Context, reason string) error {
	message := "by " + v1alpha1.TerminateAnnotation + ": " + reason
	if job := p.runner.CurrentJob(); job != nil {
		message += fmt.Sprintf("; its job %s of %s fails", job.ID, job.Repository)
	}
	known := p.Memory.isDeleted(client.ObjectKeyFromObject(p.runner), p.runner.UID) // the cache may not show the deletion yet
	if err := p.Memory.end(ctx, p.Client, p.runner, message); err != nil {
		return err
	}
	if !known {
		p.Event(p.runner, corev1.EventTypeWarning, terminatedEvent, message)
	}
	return kube.Progress(0, catalog.RunnerEnding.With(message))
}

// terminationReason returns the user's reason for ending the runner; empty if there is none.
func (p pass) terminationReason() string { return p.runner.Annotations[v1alpha1.TerminateAnnotation] }
