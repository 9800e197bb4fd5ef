// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"testing"
	"time"
)

func TestClientsAreKeptAsLongAsTheyAreNeeded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	advance := func(d time.Duration) { now = now.Add(d) }
	connections := NewConnections(func() time.Time { return now })
	var closed []string
	type testClient struct{ creds Credentials }
	clients := NewClients(connections, func(_ string, creds Credentials) (*testClient, error) { return &testClient{creds}, creds.Validate() },
		func(key string) { closed = append(closed, key) })
	set := func(token string) *testClient {
		t.Helper()
		if err := connections.Set("ns/main", Credentials{ConfigURL: "https://github.com/acme", Token: token}); err != nil {
			t.Fatal(err)
		}
		c, _ := clients.Get("ns/main")
		return c
	}
	serves := func(want *testClient) {
		t.Helper()
		got, ok := clients.Get("ns/main")
		if got != want || ok != (want != nil) || connections.Serves("ns/main") != ok {
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
	if connections.Set("ns/main", Credentials{ConfigURL: "https://github.com/acme"}) == nil {
		t.Error("took credentials that can't work")
	}
	serves(second)

	connections.Drop("ns/main")
	advance(afterlife - time.Second)
	connections.Drop("ns/main") // again, which doesn't prolong it
	serves(second)
	if set("two") != second {
		t.Error("a connection that came back got another client")
	}
	advance(2 * afterlife)
	serves(second)
	connections.Drop("ns/main")
	advance(afterlife)
	serves(nil)
	if len(closed) != 1 || len(clients.byKey) != 0 {
		t.Errorf("closed are %v, kept are %v", closed, clients.byKey)
	}
}
