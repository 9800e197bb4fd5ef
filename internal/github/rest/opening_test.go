// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
)

// When the leader starts, the clients of many connections are opened at the same time. The clients of one namespace share its places for payloads.
func TestClientsAreOpenedAtTheSameTime(t *testing.T) {
	const namespaces, openers = 500, 8
	connections := github.NewConnections(time.Now)
	clients := NewClients(connections, github.Options{Version: "1", Transport: hanging{}, Now: time.Now})
	key := func(i int, name string) string { return fmt.Sprintf("ns-%d/%s", i, name) }
	for i := range namespaces {
		for _, name := range []string{"a", "b"} {
			if err := connections.Set(key(i, name), github.Credentials{ConfigURL: "https://github.com/acme", Token: "x"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var opening sync.WaitGroup
	begin := make(chan struct{})
	for range openers {
		opening.Go(func() {
			<-begin
			for i := range namespaces {
				clients.Get(key(i, "a"))
				clients.Get(key(i, "b"))
			}
		})
	}
	close(begin)
	opening.Wait()
	for i := range namespaces {
		a, isThere := clients.Get(key(i, "a"))
		b, areThere := clients.Get(key(i, "b"))
		if !isThere || !areThere || a.payloads != b.payloads {
			t.Fatalf("the clients of namespace %d do not share its places", i)
		}
	}
}
