// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// GitHub sends webhooks to a replica that is not the leader, and the leader crashes while many events arrive.
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
	measures(t, leader, `leader_election_master_status{name="corral.corral.dev"} 1`) // without this metric, the alert CorralNoLeader would fire
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

// The leader's process is suspended for longer than its lease while GitHub registers a runner. Meanwhile, another
// leader removes that runner. When the first process resumes, it gets GitHub's answer, and must not create the
// pod.
func TestALeaderThatWasSuspendedWritesNothing(t *testing.T) {
	const namespace = "zombie"
	w := newStory(t, namespace)
	w.flags = slices.DeleteFunc(w.flags, func(flag string) bool { return flag == "--leader-elect=false" })
	w.elect(t, namespace+"-lease")
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	args := []string{"--leader-election-lease-duration=15s", "--leader-election-renew-deadline=12s"}
	first := w.start(t, args...)
	answer := w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, HoldAnswer: true})
	pool := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	must(t, w.Client.Create(t.Context(), pool))
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return len(w.GitHub.Report().Runners) == 1 }))
	must(t, syscall.Kill(first.PID(), syscall.SIGSTOP))
	before := pool.DeepCopy()
	pool.Spec.Scale.Idle = new(int32(0))
	must(t, w.Client.Patch(t.Context(), pool, client.MergeFrom(before)))
	answer()
	second := w.start(t, args...)
	eventually(t, func(ctx context.Context) error {
		runners := &v1alpha1.RunnerList{}
		if err := w.Client.List(ctx, runners, client.InNamespace(namespace)); err != nil || len(runners.Items) > 0 {
			return fmt.Errorf("%d runners, %w", len(runners.Items), err)
		}
		return nil
	})
	must(t, syscall.Kill(first.PID(), syscall.SIGCONT))
	<-first.Ended()
	pods := &corev1.PodList{}
	must(t, w.Client.List(t.Context(), pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		t.Errorf("pod %s was created by the process that no longer led", pods.Items[i].Name)
	}
	w.cleanUp(t, namespace)
	must(t, second.Stop())
}

// accepted counts the events that the controller accepted.
func (d *demandWorld) accepted() (accepted, all int) {
	for _, delivery := range d.w.GitHub.Deliveries(d.hook) {
		all++
		if delivery.Code == http.StatusAccepted {
			accepted++
		}
	}
	return accepted, all
}
