// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pulse distinguishes a slow machine from a slow controller. It measures how long the API server takes to answer a
// trivial request.
type pulse struct {
	mu    sync.Mutex
	began time.Time
	slow  []string // answers that took a second or more
}

const (
	beat     = time.Second
	maxBeats = 1000
)

// feel sends a request every second until the test ends.
func (p *pulse) feel(t *testing.T, namespace string) {
	p.began = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case due := <-tick.C:
				err := w.Client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
				p.note(due, time.Now(), err)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// note records a slow answer.
func (p *pulse) note(due, now time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took := now.Sub(due); took >= beat && len(p.slow) < maxBeats {
		p.slow = append(p.slow, fmt.Sprintf("after %s: %s, %v", due.Sub(p.began).Round(time.Second), took.Round(time.Millisecond), err))
	}
}

// summary describes the slow answers for a failure message.
func (p *pulse) summary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d of the requests sent to the API server once a second took a second or more: %v", len(p.slow), p.slow)
}
