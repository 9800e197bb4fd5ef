// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// queue is a controller's work queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// eventSource has pools reconciled whose demand is another. What it sent and nobody has worked off is lost with the process; the next
// reconciles all pools at its start.
type eventSource struct {
	mu     sync.Mutex
	queues []queue
}

// Events is an event source that wakes pools when their demand changes.
func (s *eventSource) Events() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queues = append(s.queues, q)
		return nil
	})
}

// send has a pool reconciled after a time.
func (s *eventSource) send(key types.NamespacedName, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}
