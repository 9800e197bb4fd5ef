// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"sync"
)

// alone gives each name, such as a namespace, one turn at a time. The zero value is ready to use. It keeps a few bytes for
// each name that it has ever seen.
type alone struct {
	mu     sync.Mutex
	byName map[string]chan struct{}
}

// enter waits until the name has no turn, or until ctx ends. It returns the function that ends the turn.
func (a *alone) enter(ctx context.Context, name string) (end func(), err error) {
	a.mu.Lock()
	place := a.byName[name]
	if place == nil {
		if a.byName == nil {
			a.byName = map[string]chan struct{}{}
		}
		place = make(chan struct{}, 1)
		a.byName[name] = place
	}
	a.mu.Unlock()
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
