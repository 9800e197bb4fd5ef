// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/kube"
)

// reportDelay is how long a pool waits for its connection to report that GitHub cannot be used. The connection needs
// several calls to be certain.
const reportDelay = time.Minute

// trouble records a problem of a pool that its connection should report.
type trouble struct {
	// unreported is true while the pool leaves the report to its connection.
	unreported bool
	// wasReady is true if the pool was ready when the problem began.
	wasReady bool
}

// troubleAfter returns the state after a pass that ended with err.
func (o observation) troubleAfter(err error) trouble {
	last, unreported := o.memory.trouble, o.isOfConnection(err)
	return trouble{unreported: unreported, wasReady: unreported && (last.wasReady || !last.unreported && conditions.IsReady(o.pool))}
}

// isLeft reports whether the connection emits this event instead: it is the cause, or it recovered from a failure that this
// pool never reported.
func (o observation) isLeft(now trouble, done kube.Done, err error) bool {
	return now.unreported || err == nil && len(done.Unready) == 0 && o.memory.trouble.wasReady
}

// isOfConnection reports whether the pool's connection reports this outcome, or may still do so. The owner of a pool does
// not see the events of a connection in another namespace. If a ready connection does not report the problem in time, only
// the pool has it.
func (o observation) isOfConnection(err error) bool {
	connection := o.registration.connection
	if connection == nil || o.registration.foreign || !connections.ReportsReason(kube.ReasonOf(err, "")) {
		return false
	}
	if connection.Status != metav1.ConditionTrue {
		return connection.Reason != v1alpha1.WebhookSecretMissingReason && connection.Reason != v1alpha1.SuspendedReason // the connection emits no warning for these reasons, or pools keep working
	}
	since := o.now
	if ready := conditions.Get(o.pool, v1alpha1.ReadyCondition); ready != nil && connections.ReportsReason(ready.Reason) {
		since = ready.LastTransitionTime.Time
	}
	if back := connection.LastTransitionTime.Time; back.After(since) {
		since = back
	}
	return o.now.Sub(since) < reportDelay
}
