// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// GitHub posts to a replica that isn't the leader, and the leader is lost without a word in
// the middle of a storm.
func TestALeaderLostInAStormOfWebhooksLosesNoEvent(t *testing.T) {
	w := newStory(t, "replicas")
	replica := func() (*world.Controller, string) {
		address, err := world.FreeAddress()
		must(t, err)
		return w.start(t, "--leader-elect", "--webhook-addr="+address), address
	}
	leader, _ := replica()
	d := w.newDemandWorld(t, "replicas", "127.0.0.1:1")
	d.example("webhooks", "max: 50", "max: 20")
	d.until("linux-web", ready)
	second, address := replica()
	measures(t, leader, `leader_election_master_status{name="corral.corral.dev"} 1`) // without it, CorralNobodyLeads fires
	measures(t, second, `leader_election_master_status{name="corral.corral.dev"} 0`)
	w.GitHub.ChangeHook(d.hook, func(h *githubsim.Hook) {
		h.URL, h.Parallel = world.WebhookURL(address, d.namespace, "acme"), 8
	})
	first := d.jobs(20, "web-shop", "linux", "web")
	eventually(t, func(context.Context) error {
		if accepted, all := d.accepted(); accepted < 20 {
			return fmt.Errorf("%d of %d events were accepted", accepted, all)
		}
		return nil
	})
	ids := append(first, d.jobs(40, "web-shop", "linux", "web")...)
	time.AfterFunc(100*time.Millisecond, leader.Kill)
	for range 10 {
		ids = append(ids, d.jobs(4, "web-shop", "linux", "web")...)
		must(t, w.GitHub.WaitDelivered(t.Context()))
	}
	<-leader.Ended()
	w.allDone(t, ids)
	accepted, all := d.accepted()
	t.Logf("%d of %d events were accepted at once", accepted, all)
	d.idle("linux-web", 0)
	d.end()
}

// accepted counts the events that the controller said it has.
func (d *demandWorld) accepted() (accepted, all int) {
	for _, delivery := range d.w.GitHub.Deliveries(d.hook) {
		all++
		if delivery.Code == http.StatusAccepted {
			accepted++
		}
	}
	return accepted, all
}
