// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is a controller's work queue.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// EventSource is a source.Source that triggers reconciliations without a watch event. Each wake-up reaches all controllers
// that use it as a source. Wake-ups are lost while no controller runs and when the process ends. This is harmless, because
// controllers reconcile everything when they start. The zero value is ready for use.
type EventSource struct {
	mu     sync.Mutex
	queues []Queue
}

// Start implements source.Source.
func (s *EventSource) Start(_ context.Context, q Queue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
	return nil
}

// Wake triggers a reconciliation of an object.
func (s *EventSource) Wake(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// WakeAfter triggers a reconciliation of an object after a delay.
func (s *EventSource) WakeAfter(key types.NamespacedName, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		q.AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}
