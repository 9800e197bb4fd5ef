// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"sync/atomic"
	"time"
)

// serverClock is an API server's, by the dates of its answers: what is read has times of the cluster, and the own clock may differ.
type serverClock struct{ ahead atomic.Int64 }

// Now is the server's time; the own one until it has answered.
func (c *serverClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// wrap returns a network that reads the clock off answers.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper { return clockReader{next, c} }

type clockReader struct {
	next  http.RoundTripper
	clock *serverClock
}

// RoundTrip sends a request.
func (r clockReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.clock.ahead.Store(int64(time.Until(at)))
	}
	return resp, nil
}
