// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"net/http"
	"testing"
	"time"
)

func TestRegistryKeepsClientsAsLongAsTheyAreNeeded(t *testing.T) {
	clock := newTestClock()
	r := NewRegistry(Options{Now: clock.now, Transport: http.DefaultTransport})
	set := func(token string) *Client {
		t.Helper()
		c, err := r.Set("ns/main", Credentials{ConfigURL: "https://github.com/acme", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	serves := func(want *Client) {
		t.Helper()
		got, ok := r.Get("ns/main")
		if got != want || ok != (want != nil) {
			t.Errorf("got %p, %v; want %p", got, ok, want)
		}
	}

	serves(nil)
	first := set("one")
	if set("one") != first {
		t.Error("replaced though nothing changed")
	}
	second := set("two")
	if second == first {
		t.Error("not replaced though the token changed")
	}
	if _, err := r.Set("ns/main", Credentials{ConfigURL: "https://github.com/acme"}); err == nil {
		t.Error("took credentials that can't work")
	}
	serves(second)

	r.Drop("ns/main")
	clock.advance(afterlife - time.Second)
	r.Drop("ns/main") // again, which doesn't prolong it
	serves(second)
	if set("two") != second {
		t.Error("a connection that came back got another client")
	}
	clock.advance(2 * afterlife)
	serves(second)
	r.Drop("ns/main")
	clock.advance(afterlife)
	serves(nil)
}
