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
	// historyInterval is the minimum time between two writes of a pool's history.
	historyInterval = time.Minute
	// historyTimeout limits such a write, because scaling must not wait for it.
	historyTimeout = 5 * time.Second
	// historyNotKept is the event reason if a foreign ConfigMap has the history's name.
	historyNotKept = "HistoryNotKept"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;patch

// history is the list of decisions about a pool, and how much of it is stored. Only the worker that reconciles the pool
// uses it. If it is lost, Corral loses nothing except records of past decisions.
type history struct {
	entries explain.History
	begun   bool
	last    *v1alpha1.Decision        // added last, or from the status when this process first saw the pool
	verdict *v1alpha1.TemplateVerdict // added last, or from the status when this process first saw the pool

	unwritten bool
	loaded    bool      // the entries include what earlier processes stored
	version   string    // resourceVersion of the ConfigMap; empty if unknown or if there is none
	next      time.Time // earliest time of the next write
	trouble   string    // last logged error
}

// note adds a decision to the pool's history if the decision or the verdict on the template is new. before is the status at
// the beginning of the pass; the decision and the verdict in it are not new to a process that has just started. d is nil in
// a pass without a decision, which may still have a new verdict.
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

// recordHistory adds the result of a pass and stores the history, at most once a minute. Nothing depends on it, so an error
// is only logged. It returns the delay until the next write; 0 for none.
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
	isNew := h.trouble != err.Error()
	h.trouble = err.Error()
	// If only the ConfigMap was deleted, the next attempt creates it. Otherwise its pool was deleted, too.
	if isNew && !apierrors.IsNotFound(err) {
		log.FromContext(ctx).Error(err, "Writing the decision history")
	}
	return historyInterval
}

// writeHistory writes the whole history to the ConfigMap, if that belongs to the pool and has not changed since it was read
// or written.
func (r *Reconciler) writeHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: explain.HistoryName(pool.Name)}}
	if h.version == "" {
		if err := r.readHistory(ctx, pool, h, config); err != nil {
			return err
		}
	}
	err := r.putHistory(ctx, pool, h, config)
	if err != nil {
		h.version = "" // read it first, next time
		return err
	}
	h.version = config.ResourceVersion
	return nil
}

// readHistory reads the ConfigMap with the history's name, and appends the entries to the history that were stored before
// this process began.
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
			log.FromContext(ctx).Error(err, "The stored decision history can't be read; starting a new one")
		}
	}
	h.version = config.ResourceVersion
	return nil
}

// nameTaken reports, once, a ConfigMap that has the history's name but does not belong to the pool. It emits no event for
// the ConfigMap of an earlier pool with this name, which Kubernetes will soon delete.
func (r *Reconciler) nameTaken(pool *v1alpha1.RunnerPool, h *history, config *corev1.ConfigMap) error {
	err := fmt.Errorf("ConfigMap %s does not belong to this pool, so Corral does not change it, and keeps no history: rename or delete it", config.Name)
	owner := metav1.GetControllerOf(config)
	former := owner != nil && owner.Kind == "RunnerPool" && owner.Name == pool.Name
	if !former && h.trouble != err.Error() {
		r.Event(pool, corev1.EventTypeWarning, historyNotKept, err.Error())
	}
	return err
}

// putHistory creates the ConfigMap, or updates its known version.
func (r *Reconciler) putHistory(ctx context.Context, pool *v1alpha1.RunnerPool, h *history, config *corev1.ConfigMap) error {
	config.Data = map[string]string{explain.HistoryKey: h.entries.String()}
	config.Labels, config.Annotations = pool.Spec.LabelsOfObjects(), pool.Spec.AnnotationsOfObjects()
	if len(validation.IsValidLabelValue(pool.Name)) == 0 {
		config.Labels = with(config.Labels, v1alpha1.PoolLabel, pool.Name)
	}
	if err := controllerutil.SetControllerReference(pool, config, r.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of the history: %w", err)
	}
	return kube.PutConfigMap(ctx, r.Client, config, h.version)
}
