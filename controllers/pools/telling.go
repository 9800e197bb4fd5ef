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

// patience is how long a pool leaves it to its connection to tell of what keeps GitHub from being used: that is sure only after some calls.
const patience = time.Minute

// trouble is what is known of what is amiss with a pool.
type trouble struct {
	// unreported is true while it is left for the connection to tell of.
	unreported bool
	// wasReady is true if the pool was ready when that began.
	wasReady bool
}

// troubleAfter is what is known after another pass that ended so.
func (o observation) troubleAfter(err error) trouble {
	last, unreported := o.memory.trouble, o.isOfConnection(err)
	return trouble{unreported: unreported, wasReady: unreported && (last.wasReady || !last.unreported && conditions.IsReady(o.pool))}
}

// isLeft reports whether an outcome is left for the connection to tell of: what is amiss, or the end of what nobody was told that it began.
func (o observation) isLeft(now trouble, done kube.Done, err error) bool {
	return now.unreported || err == nil && len(done.Unready) == 0 && o.memory.trouble.wasReady
}

// isOfConnection reports whether an outcome is one that the pool's connection tells of, or may yet. Where that is in another namespace, the
// pool's owner doesn't see its events. What a connection in good order doesn't tell of in time is the pool's alone.
func (o observation) isOfConnection(err error) bool {
	connection := o.registration.connection
	if connection == nil || o.registration.foreign || !connections.Tells(kube.ReasonOf(err, "")) {
		return false
	}
	if connection.Status != metav1.ConditionTrue {
		return connection.Reason != v1alpha1.WebhookSecretMissingReason && connection.Reason != v1alpha1.SuspendedReason // of which it doesn't warn, or pools go on
	}
	since := o.now
	if ready := conditions.Get(o.pool, v1alpha1.ReadyCondition); ready != nil && connections.Tells(ready.Reason) {
		since = ready.LastTransitionTime.Time
	}
	if back := connection.LastTransitionTime.Time; back.After(since) {
		since = back
	}
	return o.now.Sub(since) < patience
}
