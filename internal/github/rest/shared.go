// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/corral-dev/corral/internal/github"
)

// mostShared is the maximum number of cached answers of one kind, and sharedLife is how long they are cached at most. A
// separate limit for the size applies to all connections of a namespace together.
const (
	mostShared = 1000
	sharedLife = 10 * time.Minute
)

// shared caches answers. Concurrent requests for the same answer share one call.
type shared[T any] struct {
	options github.Options
	flights singleflight.Group

	mu   sync.Mutex
	kept map[string]timed[T]
}

type timed[T any] struct {
	value *github.Kept[T]
	at    time.Time // when the answer was complete: a listing can take longer than its cache lifetime
}

// get returns a cached answer that is no older than maxAge, or fetches one.
func (s *shared[T]) get(ctx context.Context, now func() time.Time, key string, maxAge time.Duration, fetch func(context.Context) (T, error)) (T, error) {
	if value, ok := s.fresh(key, now(), maxAge); ok {
		return value, nil
	}
	// The call continues if the caller that began it leaves, because other callers may wait for its result. Each of its
	// requests has a deadline.
	flight := s.flights.DoChan(key, func() (any, error) {
		if value, ok := s.fresh(key, now(), maxAge); ok { // from a call that finished in the meantime
			return value, nil
		}
		value, err := fetch(context.WithoutCancel(ctx))
		if err == nil {
			s.put(key, value, now())
		}
		return value, err
	})
	var none T
	select {
	case <-ctx.Done():
		return none, github.NewError(github.KindUnavailable, "waiting for an answer", 0, 0, "GitHub took too long", ctx.Err())
	case landed := <-flight:
		if landed.Err != nil {
			return none, landed.Err
		}
		return landed.Val.(T), nil
	}
}

func (s *shared[T]) fresh(key string, now time.Time, maxAge time.Duration) (value T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.kept[key]
	if ok = ok && now.Sub(t.at) <= maxAge; ok {
		value, ok = t.value.Get()
	}
	return value, ok
}

func (s *shared[T]) put(key string, value T, at time.Time) {
	size, _ := github.Fit(&value) // fetch has already checked the sizes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]timed[T]{}
	}
	for other, known := range s.kept {
		isMuch := len(s.kept) >= mostShared // evicts any entry, because an evicted answer is fetched again when it is needed
		if other == key || isMuch || at.Sub(known.at) > sharedLife {
			known.value.Leave()
			delete(s.kept, other)
		}
	}
	s.kept[key] = timed[T]{github.Keep(s.options, value, size), at}
}
