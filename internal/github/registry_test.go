// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"fmt"
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
	connections.Drop("ns/main") // a second Drop does not prolong it
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

// Looking up one connection does not iterate over the others, however many there are, including dropped ones. Expired
// connections are forgotten in time.
func TestALookAtAConnectionGoesThroughNoOther(t *testing.T) {
	for _, n := range []int{10, 5000} {
		now, asked := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0
		connections := NewConnections(func() time.Time {
			asked++
			return now
		})
		drop := func(from, to int) {
			for i := range to - from {
				key := fmt.Sprint("greedy/", from+i)
				if err := connections.Set(key, Credentials{ConfigURL: "https://github.com/acme", Token: "t"}); err != nil {
					t.Fatal(err)
				}
				connections.Drop(key)
			}
		}
		drop(0, n)
		now = now.Add(afterlife / 2)
		drop(0, 1) // exists again, and is dropped again
		asked = 0
		if connections.Serves("quiet/main"); asked > 1 {
			t.Errorf("%d connections are looked at", asked)
		}
		now = now.Add(afterlife / 2)
		if connections.Serves(fmt.Sprint("greedy/", n-1)) {
			t.Error("a connection that is over serves until it is forgotten")
		}
		for range n / forgetAtOnce {
			asked = 0
			if connections.Serves("quiet/main"); asked > 2*forgetAtOnce {
				t.Fatalf("%d connections that are over are looked at", asked)
			}
		}
		if len(connections.byKey) != 1 || !connections.Serves("greedy/0") {
			t.Errorf("of %d connections that were dropped %d are left", n, len(connections.byKey))
		}
		now = now.Add(afterlife / 2)
		if connections.Serves("greedy/0") {
			t.Error("it serves for longer than an hour")
		}
	}
}

// Opening one connection's client, which can be slow, does not block the clients of other connections.
func TestAClientIsOpenedWithoutTheLock(t *testing.T) {
	connections := NewConnections(time.Now)
	var clients *Clients[string]
	opened := 0
	clients = NewClients(connections, func(key string, _ Credentials) (string, error) {
		if opened++; key == "greedy/main" {
			clients.Get("quiet/main")
		}
		return fmt.Sprint(key, opened), nil
	}, func(string) {})
	for _, key := range []string{"greedy/main", "quiet/main"} {
		if err := connections.Set(key, Credentials{ConfigURL: "https://github.com/acme", Token: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"greedy/main", "quiet/main", "greedy/main"} {
		if got, ok := clients.Get(key); !ok || got[:len(key)] != key {
			t.Errorf("%s got %s", key, got)
		}
	}
	if opened != 2 {
		t.Errorf("%d were opened", opened)
	}
}
