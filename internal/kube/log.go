// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"github.com/fluxcd/pkg/runtime/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// warning is the level between info and error, for which logr has no name. The log sink writes it as a warning.
const warning = -1

// Warn logs a problem that is temporary or retried. Log data loss and broken components as errors instead.
func Warn(ctx context.Context, message string, about ...any) {
	if sink := log.FromContext(ctx).GetSink(); sink != nil {
		sink.Info(warning, message, about...)
	}
}

// logResult logs the result of every reconciliation at debug level, even if nothing changed.
func (a *Attempt) logResult(ctx context.Context, result ctrl.Result, outcome error) {
	debug := log.FromContext(ctx).V(1)
	if !debug.Enabled() {
		return
	}
	about := []any{"requeueAfter", result.RequeueAfter.String()}
	if ready := conditions.Get(a.obj, v1alpha1.ReadyCondition); ready != nil {
		about = append(about, "status", ready.Status, "reason", ready.Reason, "message", ready.Message)
	}
	if outcome != nil {
		about = append(about, "error", outcome.Error())
	}
	debug.Info("Reconciled", about...)
}

// LogDeleted logs the deletion of an object, with its revision and the reason. revision is "" if the object has none.
func LogDeleted(ctx context.Context, c client.Client, obj client.Object, revision, reason string) {
	kind, _ := apiutil.GVKForObject(obj, c.Scheme()) // the kind is "" if it is unknown
	log.FromContext(ctx).Info("Deleted", "deleted", kind.Kind+" "+client.ObjectKeyFromObject(obj).String(), "revision", revision, "reason", reason)
}
