// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/webhook"
)

// A server may list 50,000 deliveries, and a namespace may have any number of connections. The list of connections, for which all tenants need
// one lock, is read once for each look, not for each delivery.
func TestALookReadsTheConnectionsOnce(t *testing.T) {
	allocations := func(connections int) float64 {
		k := crowd(t)
		k.setPool(hostile(0))
		for i := range connections {
			conn := connOf(fmt.Sprint("connection-", i), "acme")
			conn.Namespace = greedy
			k.setConnection(conn)
		}
		c, _ := k.connection(types.NamespacedName{Namespace: greedy, Name: "acme"})
		gh, _ := k.GitHub(c.key)
		now := time.Now()
		w := k.window(c, gh, now)
		d := rest.Delivery{GUID: "lost", Event: webhook.WorkflowJobEvent, StatusCode: 503, DeliveredAt: now}
		if len(w.connections) != connections+1 || !k.isMissed(c, d, w) {
			t.Errorf("a look knows %d connections, or a lost delivery is not missed", len(w.connections))
		}
		return testing.AllocsPerRun(10, func() { k.isMissed(c, d, w) })
	}
	if few, many := allocations(10), allocations(1000); few != many {
		t.Errorf("beside 10 connections, a delivery takes %v allocations, and beside 1000 it takes %v", few, many)
	}
}

// That a space has to forget its jobs may be noticed when the space was just dropped. Then nothing is counted for its namespace any more.
func TestASpaceThatWasDroppedCountsNothing(t *testing.T) {
	k := crowd(t)
	guest := poolOf("guest")
	guest.Namespace = "guests"
	guest.Spec.ConnectionRef.Namespace = greedy
	before := k.unmatched.Open()
	k.setPool(guest)
	s := k.spaces[greedy]["guests"]
	k.removePool(client.ObjectKeyFromObject(guest))
	s.loseUnmatched()
	if n := k.unmatched.Open(); s.own() || n != before {
		t.Errorf("%d namespaces are counted, and %d before", n, before)
	}
}
