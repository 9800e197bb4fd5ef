// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
)

// hanging is a network that does not answer. It counts the requests in flight, by host.
type hanging map[string]*atomic.Int32

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	n := h[r.URL.Host]
	n.Add(1)
	defer n.Add(-1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// The servers of one namespace use a quarter of the slots for payloads, however many connections it has.
func TestAServerThatHangsHoldsAQuarterOfThePayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := hanging{"greedy.example.com": {}, "quiet.example.com": {}}
		connections := github.NewConnections(time.Now)
		clients := NewClients(connections, github.Options{Version: "1", Transport: network, Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		read := func(namespace, name string) {
			key := namespace + "/" + name
			if err := connections.Set(key, github.Credentials{ConfigURL: "https://" + namespace + ".example.com/acme", Token: "x"}); err != nil {
				t.Fatal(err)
			}
			c, _ := clients.Get(key)
			go func() { _, _, _ = c.Payload(ctx, 1, 2) }()
			synctest.Wait()
		}
		for i := range 3 * payloadsAtOnce {
			read("greedy", fmt.Sprint(i%4))
		}
		read("quiet", "acme")
		if greedy, quiet := network["greedy.example.com"].Load(), network["quiet.example.com"].Load(); greedy != payloadsAtOnce/4 || quiet != 1 {
			t.Errorf("%d requests of one namespace are under way, and %d of another", greedy, quiet)
		}
		cancel()
		synctest.Wait()
	})
}
