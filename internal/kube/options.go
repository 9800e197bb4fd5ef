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

// retryMin and retryMax limit the exponential back-off after failures.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 2 * time.Minute
)

// Fair returns the options of a controller whose work waits for remote servers. For each key, classify returns a group,
// which is the remote server that the key needs, and a flow, which takes turns with other flows of the same group. The name
// of a group has the form NAMESPACE/NAME, or NAMESPACE if the namespace has only one group. All groups of a namespace
// together use at most a quarter of the workers. If a namespace has several groups, one group uses at most three quarters of
// these. So a server that does not answer delays no other namespace and, if there are enough workers, no other group of its
// namespace.
func Fair(concurrent int, classify func(reconcile.Request) (group, flow string)) controller.Options {
	perOwner := max(1, concurrent/4)
	return Places(concurrent, max(1, perOwner*3/4), perOwner, classify)
}

// Places is Fair with explicit limits on the number of workers for a group, and for all groups of a namespace.
func Places(concurrent, perGroup, perOwner int, classify func(reconcile.Request) (group, flow string)) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrent,
		// Unlike the default, this has no limit of 10 retries per second for all keys together. With such a limit, problems
		// of one server would delay the keys of other servers.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return turns.NewQueue(turns.QueueOptions{Name: name, Classify: classify, PerGroup: perGroup, PerOwner: perOwner, Limiter: limiter})
		},
	}
}
