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
	// stopFor is how long a pod to keep may take to end, and stopLook the time between two looks; if it takes longer, it is deleted.
	stopFor, stopLook = time.Minute, 5 * time.Second
)

// mayKeep reports whether the pod is to be kept: its runner failed, and its pool wants that. One with a claim would hold the claim, one that
// never was on a node has no log, and one that policies deny is to go.
func (p pass) mayKeep(state poolstatus.Assessment) bool {
	return p.pool != nil && p.pool.Spec.GetFailedPodTTL() > 0 && p.pool.DeletionTimestamp.IsZero() && p.terminationReason() == "" &&
		state.State == v1alpha1.RunnerFailed && state.Cause != v1alpha1.CauseRefused &&
		p.pod != nil && p.pod.DeletionTimestamp.IsZero() && p.pod.Spec.NodeName != "" && p.pod.Annotations[v1alpha1.CacheClaimAnnotation] == ""
}

// keepPod leaves the pod behind, ended, without the labels of a job. The pool deletes it when its time is over, or a later one is kept. Kept is
// false if it doesn't end.
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

// stopPod has the node end the pod, which its API object outlives, and waits for that.
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

// KeptUntil is when a pod is to be deleted that is kept; the zero time for none. An annotation with a much later time than failedPodTTL
// allows is ignored.
func KeptUntil(pod *corev1.Pod, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.KeptUntilAnnotation])
	if err != nil || until.After(now.Add(2*v1alpha1.MaxFailedPodTTL)) {
		return time.Time{}
	}
	return until
}
