// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// dated answers each request with the time as its Date header.
type dated func() time.Time

// RoundTrip answers a request.
func (d dated) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Date", d().UTC().Format(http.TimeFormat))
	return w.Result(), nil
}

// Each connection has its own clock of GitHub. All of the connection's clients share it, and it is forgotten together
// with the connection.
func TestClocksOfConnections(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c, woken, reported := NewConnections(func() time.Time { return now }), 0, time.Duration(0)
	c.OnTrouble(func(string) { woken++ })
	c.Report = func(_ string, ahead time.Duration, _ bool) { reported = ahead }
	creds := Credentials{ConfigURL: "https://github.com/acme", Token: "t"}
	if err := c.Set("ci/a", creds); err != nil {
		t.Fatal(err)
	}
	options := func(key string, ahead time.Duration) Options {
		return c.Watch(Options{Now: func() time.Time { return now }, Transport: dated(func() time.Time { return now.Add(ahead) })}, key).For(creds)
	}
	ask := func(o Options) {
		resp, err := o.Transport.RoundTrip(httptest.NewRequest(http.MethodGet, "https://api.github.com/", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	o := options("ci/a", time.Hour)
	for range 3 {
		ask(o)
	}
	ask(options("ci/b", 0))
	if woken != 1 || reported != 0 || c.Ahead("ci/a") != time.Hour || c.Ahead("ci/b") != 0 {
		t.Errorf("woken %d times, reported last %s, ahead are %s and %s", woken, reported, c.Ahead("ci/a"), c.Ahead("ci/b"))
	}
	other := options("ci/a", time.Hour)
	if theirs := now.Add(time.Hour); !other.Theirs().Equal(theirs) || !other.Ours(theirs).Equal(now) || !other.Ours(time.Time{}).IsZero() {
		t.Errorf("GitHub has %s, which is %s here", other.Theirs(), other.Ours(theirs))
	}
	ask(options("ci/a", 0)) // it was corrected, which counts once it lasts
	now = now.Add(time.Minute)
	ask(options("ci/a", 0))
	if woken != 2 || c.Ahead("ci/a") != 0 {
		t.Errorf("woken %d times, ahead are %s", woken, c.Ahead("ci/a"))
	}
	ask(o)
	c.Drop("ci/a")
	now = now.Add(2 * afterlife)
	if c.Serves("ci/a") || c.Ahead("ci/a") != 0 {
		t.Errorf("of a connection that is gone, ahead are %s", c.Ahead("ci/a"))
	}
}
