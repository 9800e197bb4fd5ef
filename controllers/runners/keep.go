// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// stopFor is how long a pod that should be kept may take to stop. If it takes longer, it is deleted. stopLook is the
	// interval between checks.
	stopFor, stopLook = time.Minute, 5 * time.Second
)

// mayKeep reports whether the failed runner's pod should be kept because its pool asks for that. A pod with a claim is not
// kept, because it would hold the claim. Pods that never had a node are not kept either, because they have no logs, and
// neither are pods that policies deny.
func (p pass) mayKeep(state poolstatus.Assessment) bool {
	return p.pool != nil && p.pool.Spec.GetFailedPodTTL() > 0 && p.pool.DeletionTimestamp.IsZero() && p.terminationReason() == "" &&
		state.State == v1alpha1.RunnerFailed && state.Cause != v1alpha1.CauseRefused &&
		p.pod != nil && p.pod.DeletionTimestamp.IsZero() && p.pod.Spec.NodeName != "" && p.pod.Annotations[v1alpha1.CacheClaimAnnotation] == ""
}

// keepPod leaves the stopped pod in place and removes the labels of its job. The pool deletes the pod when its time expires
// or when a later pod is kept. While the pod is stopping, err is an outcome that waits. If the pod does not stop in time,
// keepPod returns false and no error.
func (p pass) keepPod(ctx context.Context) (kept bool, err error) {
	if p.pod.Annotations[v1alpha1.KeptUntilAnnotation] != "" {
		return true, nil
	}
	if !poolstatus.HasEnded(p.pod) {
		return p.stopPod(ctx)
	}
	until := p.Now().Add(p.pool.Spec.GetFailedPodTTL()).UTC().Format(time.RFC3339)
	annotations := map[string]any{v1alpha1.KeptUntilAnnotation: until}
	maps.Copy(annotations, podspec.IdleAnnotations(p.pod))
	err = p.patchPod(ctx, map[string]any{"metadata": map[string]any{
		"uid": p.pod.UID, "annotations": annotations, "labels": map[string]any{v1alpha1.JobRepositoryLabel: nil, v1alpha1.JobRunIDLabel: nil, v1alpha1.JobIDLabel: nil},
	}})
	if err != nil {
		return false, fmt.Errorf("keeping the pod: %w", err)
	}
	log.FromContext(ctx).Info("Keeping the pod of a runner that failed", "pod", p.pod.Name, "until", until)
	return true, nil
}

// stopPod makes the node stop the pod without deleting its API object. It returns the same values as keepPod.
func (p pass) stopPod(ctx context.Context) (kept bool, err error) {
	if p.memory.pod.stopped.IsZero() {
		if err := p.patchPod(ctx, map[string]any{"metadata": map[string]any{"uid": p.pod.UID}, "spec": map[string]any{"activeDeadlineSeconds": 1}}); err != nil {
			return false, fmt.Errorf("ending the pod: %w", err)
		}
		p.memory.pod.stopped = p.Now()
	}
	left := stopFor - p.Now().Sub(p.memory.pod.stopped)
	if left <= 0 {
		return false, nil
	}
	return false, kube.Progress(min(left, stopLook), catalog.KeptPodEnding.With())
}

func (p pass) patchPod(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return client.IgnoreNotFound(p.Client.Patch(ctx, p.pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// KeptUntil returns when a kept pod should be deleted, and the zero time for other pods. It ignores an annotation whose
// time is much later than failedPodTTL allows.
func KeptUntil(pod *corev1.Pod, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.KeptUntilAnnotation])
	if err != nil || until.After(now.Add(2*v1alpha1.MaxFailedPodTTL)) {
		return time.Time{}
	}
	return until
}
