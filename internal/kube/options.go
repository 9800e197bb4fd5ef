// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/fairqueue"
)

// retryMin and retryMax bound the exponential back-off after failures.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 2 * time.Minute
)

// Fair returns the options of a controller whose work waits for remote ends: classify
// names the remote end that a key's work waits for, and whose turn it is among those
// that need the same. One remote end holds a quarter of the workers at most; those of one
// namespace, by names of the form NAMESPACE/NAME, three eighths.
func Fair(concurrent int, classify func(reconcile.Request) (group, flow string)) controller.Options {
	perGroup := max(1, concurrent/4)
	return controller.Options{
		MaxConcurrentReconciles: concurrent,
		// Without the usual limit of 10 retries a second for all together: it lets the trouble
		// of one remote end delay the others.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return fairqueue.New(fairqueue.Options{Name: name, Classify: classify, PerGroup: perGroup, PerOwner: perGroup + max(1, perGroup/2), Limiter: limiter})
		},
	}
}
