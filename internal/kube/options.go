// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/turns"
)

// retryMin and retryMax bound the exponential back-off after failures.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 2 * time.Minute
)

// Fair returns the options of a controller whose work waits for remote ends. classify names the remote end that the work on a key waits for,
// and the flow whose turn it is among the keys that need the same remote end. The remote ends of one namespace, by names of the form
// NAMESPACE/NAME, hold a quarter of the workers at most, and one remote end three quarters of that. So one that hangs delays neither other
// namespaces nor, where there are enough workers, the others of its own.
func Fair(concurrent int, classify func(reconcile.Request) (group, flow string)) controller.Options {
	perOwner := max(1, concurrent/4)
	return Places(concurrent, max(1, perOwner*3/4), perOwner, classify)
}

// Places is Fair with other numbers of workers for one remote end, and for those of one namespace.
func Places(concurrent, perGroup, perOwner int, classify func(reconcile.Request) (group, flow string)) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrent,
		// Without the usual limit of 10 retries a second for all together: it lets the trouble
		// of one remote end delay the others.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return turns.NewQueue(turns.QueueOptions{Name: name, Classify: classify, PerGroup: perGroup, PerOwner: perOwner, Limiter: limiter})
		},
	}
}
