// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// historyInterval is the least time between two writes of a pool's history.
	historyInterval = time.Minute
	// historyTimeout bounds such a write: scaling must not wait for it.
	historyTimeout = 5 * time.Second
	// historyNotKept is the reason of the event about a ConfigMap in the way.
	historyNotKept = "HistoryNotKept"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;patch

// history is what was decided on a pool, and what of it is written down. It is for the one
// worker that has the pool. If it is lost, only the past is.
type history struct {
	entries explain.History
	begun   bool
	last    *v1alpha1.Decision        // entered last, or in the status when the process met the pool
	verdict *v1alpha1.TemplateVerdict // alike

	unwritten bool
	loaded    bool      // what was written before the process began is among the entries
	version   string    // resourceVersion of the ConfigMap; "" if it isn't known or there is none
	next      time.Time // when it may be written again
	trouble   string    // logged last
}

// note enters a decision into the pool's history if it is news, or the template's verdict is. Before is the status as it was when the
// pass began: what it says is known. The decision is nil in a pass that came to none; a template may be judged in it nevertheless.
func (h *history) note(now time.Time, before, after v1alpha1.RunnerPoolStatus, d *v1alpha1.Decision) {
	if !h.begun {
		h.begun, h.last, h.verdict = true, before.Decision, before.Policy
	}
	if d == nil {
		d = h.last
	}
	isJudged := !explain.SameVerdict(h.verdict, after.Policy)
	if explain.SameDecision(h.last, d) && !isJudged {
		return
	}
	e := explain.Entry{Time: metav1.Time{Time: now}, Jobs: after.Jobs, Runners: after.Runners, Decision: d.DeepCopy()}
	if e.Decision != nil {
		e.Decision.Before = explain.Numbers(h.last)
	}
	if isJudged {
		e.Template = after.Policy.DeepCopy()
	}
	h.entries.Add(e)
	h.last, h.verdict, h.unwritten = d, after.Policy, true
}

// recordHistory notes what a pass decided, and writes the history down, at most once a minute. Nothing depends on it, so a
// failure is only logged. It returns the time to the next write; 0 for none.
func (r *Reconciler) recordHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history, after v1alpha1.RunnerPoolStatus, d *v1alpha1.Decision) time.Duration {
	now := r.Now()
	h.note(now, pool.Status, after, d)
	if !h.unwritten {
		return 0
	}
	if wait := h.next.Sub(now); wait > 0 {
		return wait
	}
	h.next = now.Add(historyInterval)
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	err := r.writeHistory(ctx, pool, h)
	if err == nil {
		h.unwritten, h.trouble = false, ""
		return 0
	}
	if h.trouble != err.Error() {
		h.trouble = err.Error()
		log.FromContext(ctx).Error(err, "The decision history is not written")
	}
	return historyInterval
}

// writeHistory writes the ConfigMap as a whole, if it is the pool's own and nobody else has
// changed it since it was read or written.
func (r *Reconciler) writeHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: explain.HistoryName(pool.Name)}}
	if h.version == "" {
		if err := r.readHistory(ctx, pool, h, config); err != nil {
			return err
		}
	}
	err := r.putHistory(ctx, pool, h, config)
	if err != nil {
		h.version = "" // look first, next time
		return err
	}
	h.version = config.ResourceVersion
	return nil
}

// readHistory reads what is there under the history's name. What was written before the
// process began is appended to what it has to tell.
func (r *Reconciler) readHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history, config *corev1.ConfigMap) error {
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(config), config)
	switch {
	case apierrors.IsNotFound(err):
		h.loaded = true
		return nil
	case err != nil:
		return fmt.Errorf("reading ConfigMap %s: %w", config.Name, err)
	case !metav1.IsControlledBy(config, pool):
		return r.nameTaken(pool, h, config)
	}
	if !h.loaded {
		h.loaded = true
		if err := h.entries.Load(config.Data[explain.HistoryKey]); err != nil {
			log.FromContext(ctx).Error(err, "The decision history begins anew")
		}
	}
	h.version = config.ResourceVersion
	return nil
}

// nameTaken reports, once, a ConfigMap that has the history's name and isn't the pool's. One of a
// former pool of this name is about to go.
func (r *Reconciler) nameTaken(pool *v1alpha1.RunnerPool, h *history, config *corev1.ConfigMap) error {
	err := fmt.Errorf("ConfigMap %s is not of this pool: it is left alone, and no history is kept; rename or delete it", config.Name)
	owner := metav1.GetControllerOf(config)
	former := owner != nil && owner.Kind == "RunnerPool" && owner.Name == pool.Name
	if !former && h.trouble != err.Error() {
		r.Event(pool, corev1.EventTypeWarning, historyNotKept, err.Error())
	}
	return err
}

// putHistory creates the ConfigMap, or changes the version of it that is known.
func (r *Reconciler) putHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history, config *corev1.ConfigMap) error {
	config.Data = map[string]string{explain.HistoryKey: h.entries.String()}
	config.Labels, config.Annotations = pool.Spec.LabelsOfObjects(), pool.Spec.AnnotationsOfObjects()
	if len(validation.IsValidLabelValue(pool.Name)) == 0 {
		config.Labels = with(config.Labels, v1alpha1.PoolLabel, pool.Name)
	}
	if err := controllerutil.SetControllerReference(pool, config, r.Client.Scheme()); err != nil {
		return fmt.Errorf("owning the history: %w", err)
	}
	return kube.PutConfigMap(ctx, r.Client, config, h.version)
}
