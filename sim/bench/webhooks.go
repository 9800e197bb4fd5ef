// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// hookPools is the number of pools that receive events.
	hookPools = 50
	// In each of stormRounds rounds, stormDeliveries events of queued jobs arrive at once, and then as many of
	// completed jobs.
	stormDeliveries, stormRounds = 5000, 3
	// senders is the number of concurrent deliveries.
	senders = 12
	// payloadSize is about the size of a workflow_job event of an organization on github.com, in bytes.
	payloadSize = 12 << 10
	// reservedLimit bounds the time until all accepted jobs are recorded.
	reservedLimit = 30 * time.Second
	// floodAddress is the pattern of the addresses that forged events come from, and forgers the number of addresses.
	floodAddress, forgers = "127.7.0.%d", 64
	// floodSenders is the number of concurrent forged requests: a refusal takes half a second, and one address can have
	// at most 512 connections.
	floodSenders = 480
)

// hookBed is a world with pools that have no scale sets.
type hookBed struct {
	*bed
	url      string
	accounts *accounts
}

// runWebhooks measures the webhook server in a flood of irrelevant events, and in storms of job events.
func runWebhooks(ctx context.Context, o *options, latency time.Duration) (f figures, err error) {
	w, err := world.Start(ctx, world.Options{GitHub: githubsim.Options{Latency: latency, Seed: o.seed}, Audit: true})
	if err != nil {
		return nil, err
	}
	b := &hookBed{bed: &bed{World: w}, accounts: &accounts{reserved: map[int64]time.Time{}, over: map[int64]bool{}}}
	defer func() {
		b.failed = err != nil
		b.accounts.stop()
		err = errors.Join(err, b.remove())
	}()
	if err := b.make(ctx, o); err != nil {
		return nil, err
	}
	f = figures{"hook_pools": hookPools}
	// The memory that the first storm takes is kept: connections, buffers, the pools' accounts.
	if err := b.storms(ctx, figures{}, 1); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	if err := b.storms(ctx, f, stormRounds); err != nil {
		return nil, err
	}
	if err := b.flood(ctx, f, o.flood); err != nil {
		return nil, fmt.Errorf("the flood: %w", err)
	}
	return f, nil
}

func (b *hookBed) make(ctx context.Context, o *options) (err error) {
	if b.client, err = client.New(ownConnections(b.Cluster.Config), client.Options{Scheme: b.Client.Scheme()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if b.eyes, err = client.NewWithWatch(ownConnections(b.Cluster.Config), client.Options{Scheme: b.Client.Scheme()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	address, err := world.FreeAddress()
	if err != nil {
		return err
	}
	b.url = world.WebhookURL(address, namespace, connection)
	if b.controller, err = b.RunController(ctx, o.corral, "--webhook-addr="+address); err != nil {
		return err
	}
	if _, err := b.ConnectHook(ctx, namespace, connection, organization, address); err != nil {
		return err
	}
	if err := b.GitHub.AddRepository(githubsim.Repository{FullName: organization + "/app"}); err != nil {
		return fmt.Errorf("making the repository: %w", err)
	}
	if err := b.accounts.watch(ctx, b.eyes); err != nil {
		return err
	}
	for i := range hookPools {
		if err := b.createHookPool(ctx, hookPool(i)); err != nil {
			return err
		}
	}
	return b.listen(ctx)
}

func hookPool(i int) string { return fmt.Sprintf("hook-%02d", i+1) }

// createHookPool creates a pool that may have no runners, so that its recorded jobs stay and can be examined.
func (b *hookBed) createHookPool(ctx context.Context, name string) error {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: connection}, RunnerLabels: []string{name},
			Registration: v1alpha1.RegisterREST, Scale: v1alpha1.ScaleSpec{Max: new(int32(0))},
			Demand:   v1alpha1.DemandSpec{Webhook: &v1alpha1.WebhookDemand{}},
			Template: runtime.RawExtension{Raw: []byte(template)},
		},
	}
	if err := b.client.Create(ctx, pool); err != nil {
		return fmt.Errorf("creating pool %s: %w", name, err)
	}
	return nil
}

// listen waits until a delivery is accepted and the account of each pool contains a job.
func (b *hookBed) listen(ctx context.Context) error {
	sender := newSender("")
	defer sender.close()
	var firsts []*delivery
	for i := range hookPools {
		firsts = append(firsts, jobDelivery(b.url, "queued", hookPool(i), int64(i+1)))
	}
	err := world.Until(ctx, readyLimit, func(ctx context.Context) error {
		for _, d := range firsts {
			d.reseal()
			if code, err := sender.send(ctx, d); err != nil || code != http.StatusAccepted {
				return fmt.Errorf("the first delivery is answered %d: %w", code, err)
			}
		}
		if n := b.accounts.count(firsts); n != len(firsts) {
			return fmt.Errorf("%d of %d pools have their first job", n, len(firsts))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pause(ctx, settle)
}

// storms sends events of jobs that are queued and completed, as fast as they are answered.
func (b *hookBed) storms(ctx context.Context, f figures, rounds int) error {
	before, err := b.settledMemory(ctx)
	if err != nil {
		return err
	}
	var accepted, reserved []time.Duration
	var took time.Duration
	for range rounds {
		s, err := b.storm(ctx)
		if err != nil {
			return err
		}
		accepted, reserved, took = append(accepted, s.accepted...), append(reserved, s.reserved...), max(took, s.took)
	}
	after, err := b.settledMemory(ctx)
	if err != nil {
		return err
	}
	f["deliveries"], f["deliveries_per_s"] = stormDeliveries, stormDeliveries/took.Seconds()
	f["storm_s"], f["storm_growth_mib"] = took.Seconds(), after-before
	f.latencies("accept", accepted)
	f.latencies("reserve", reserved)
	f["lost"] = float64(len(accepted) - len(reserved))
	memory, err := b.controller.Memory()
	f["peak_mib"] = memory.Peak
	return err
}

// storm contains the measurements of one storm.
type storm struct {
	accepted, reserved []time.Duration
	took               time.Duration
}

// nextJob is the ID of the next job. Jobs of storms have higher IDs than the first jobs.
var nextJob atomic.Int64

func (b *hookBed) storm(ctx context.Context) (s storm, err error) {
	nextJob.CompareAndSwap(0, 1000)
	queued, completed := make([]*delivery, stormDeliveries), make([]*delivery, stormDeliveries)
	for i := range queued {
		id := nextJob.Add(1)
		queued[i] = jobDelivery(b.url, "queued", hookPool(i%hookPools), id)
		completed[i] = jobDelivery(b.url, "completed", hookPool(i%hookPools), id)
	}
	began := time.Now()
	if err := sendAll(ctx, queued); err != nil {
		return s, err
	}
	s.took = time.Since(began)
	if err := b.accounts.wait(ctx, queued, b.accounts.count); err != nil {
		return s, err
	}
	for _, d := range queued {
		s.accepted = append(s.accepted, d.answered.Sub(d.sent))
		if at, ok := b.accounts.at(d.job); ok {
			s.reserved = append(s.reserved, max(0, at.Sub(d.answered)))
		}
	}
	if err := sendAll(ctx, completed); err != nil {
		return s, err
	}
	return s, b.accounts.wait(ctx, completed, b.accounts.countOver)
}

// delivery is a request to the webhook server.
type delivery struct {
	job              int64
	url, event, guid string
	body             []byte
	signature        string
	want             int // expected status; 0 for any
	sent, answered   time.Time
	tries            int
}

// padding makes events as large as GitHub's, whose repositories and users contain many URLs.
var padding = strings.Repeat(`"keys_url":"https://api.github.com/repos/bench-org/app/keys{/key_id}",`, payloadSize/70)

func jobDelivery(url, action, label string, id int64) *delivery {
	body := fmt.Sprintf(`{"action":%q,"workflow_job":{"id":%d,"run_id":%d,"status":%q,"labels":["self-hosted",%q],"name":"build","workflow_name":"CI","head_branch":"main"},`+
		`"repository":{"id":1,%s"full_name":"%s/app","owner":{"type":"Organization","login":%q}},"organization":{"login":%q}}`,
		action, id, id, action, label, padding, organization, organization, organization)
	d := &delivery{job: id, url: url, event: webhook.WorkflowJobEvent, guid: fmt.Sprintf("%s-%d", action, id), body: []byte(body), want: http.StatusAccepted}
	d.sign()
	return d
}

func (d *delivery) sign() { d.signature = webhook.Sign([]byte(world.WebhookSecret), d.body) }

// reseal turns it into a different event with the same content.
func (d *delivery) reseal() {
	d.tries++
	d.body = append(d.body, ' ')
	d.sign()
}

// sender sends deliveries over its own connections, optionally from a given address.
type sender struct{ client *http.Client }

func newSender(from string) *sender {
	dialer := &net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return &sender{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: floodSenders}}}
}

func (s *sender) close() { s.client.CloseIdleConnections() }

func (s *sender) send(ctx context.Context, d *delivery) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(d.body))
	if err != nil {
		return 0, fmt.Errorf("making a delivery: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", d.event)
	request.Header.Set("X-GitHub-Delivery", d.guid)
	request.Header.Set("X-Hub-Signature-256", d.signature)
	d.sent = time.Now()
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("sending a delivery: %w", err)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	d.answered = time.Now()
	if err == nil && d.want != 0 && answer.StatusCode != d.want {
		err = fmt.Errorf("a delivery is answered %s", answer.Status)
	}
	return answer.StatusCode, err
}

// sendAll sends each delivery once, several concurrently.
func sendAll(ctx context.Context, all []*delivery) error {
	s := newSender("")
	defer s.close()
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range senders {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				if _, err := s.send(ctx, all[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// flood sends n irrelevant requests from few addresses: forged requests, requests for connections that do not exist,
// and signed requests that match no pool.
func (b *hookBed) flood(ctx context.Context, f figures, n int) error {
	memory, err := b.settledMemory(ctx)
	if err != nil {
		return err
	}
	var codes map[int]int
	before, after, audit, err := b.during(ctx, func() (err error) {
		if codes, err = b.sendFlood(ctx, n); err != nil {
			return err
		}
		return pause(ctx, settle)
	})
	if err != nil {
		return err
	}
	settled, err := b.settledMemory(ctx)
	if err != nil {
		return err
	}
	if codes[http.StatusAccepted] == 0 || codes[http.StatusUnauthorized] == 0 {
		return fmt.Errorf("answers by code: %v; want some 202 and 401", codes)
	}
	f["flood"], f["flood_per_s"] = float64(n), float64(n)/(after.at.Sub(before.at)-settle).Seconds()
	f["flood_refused"] = float64(codes[http.StatusUnauthorized] + codes[http.StatusTooManyRequests])
	f["flood_writes"], f["flood_growth_mib"] = float64(writes(audit)), settled-memory
	for name, count := range audit {
		say("during the flood: %s: %d", name, count)
	}
	return nil
}

// sendFlood returns the number of responses by status.
func (b *hookBed) sendFlood(ctx context.Context, n int) (map[int]int, error) {
	forged := jobDelivery(b.url, "queued", hookPool(0), 1)
	forged.signature = webhook.Sign([]byte("guessed"), forged.body)
	unknown := jobDelivery(b.url+"-other", "queued", hookPool(0), 1)
	irrelevant := jobDelivery(b.url, "queued", "nobody", 1)
	unused := jobDelivery(b.url, "queued", hookPool(0), 1)
	unused.event = "issues"
	kinds := []*delivery{forged, irrelevant, unknown, unused}
	codes, mu := map[int]int{}, sync.Mutex{}
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for i := range floodSenders {
		g.Go(func() error {
			mine := map[int]int{}
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				for code, count := range mine {
					codes[code] += count
				}
			}()
			bad, good := newSender(fmt.Sprintf(floodAddress, 1+i%forgers)), newSender("")
			defer bad.close()
			defer good.close()
			for k := next.Add(1); k <= int64(n); k = next.Add(1) {
				d := *kinds[k%int64(len(kinds))]
				d.want, d.guid = 0, fmt.Sprintf("flood-%d", k)
				from := bad
				if k%2 == 1 {
					from = good
				}
				code, err := from.send(ctx, &d)
				if err != nil {
					return err
				}
				mine[code]++
			}
			return nil
		})
	}
	return codes, g.Wait()
}

// settledMemory waits until the controller is idle, and returns the memory that the last garbage collection found in
// use, in MiB. Resident memory also contains garbage, which varies with the load of the machine.
func (b *hookBed) settledMemory(ctx context.Context) (float64, error) {
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	metrics, err := goMetrics(ctx, b.controller.MetricsURL)
	live, isThere := metrics["go_gc_heap_live_bytes"]
	if err == nil && !isThere {
		err = errors.New("the controller's metrics have no memory in use")
	}
	return live / (1 << 20), err
}

// accounts contains the recorded jobs, as seen through a watch.
type accounts struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	err      error
	reserved map[int64]time.Time // jobs that count, and when each was first seen
	over     map[int64]bool      // jobs that no longer count
}

// watch must be called before pools are created.
func (a *accounts) watch(ctx context.Context, c client.WithWatch) error {
	ctx, a.cancel = context.WithCancel(ctx)
	f := &follower{client: c, kind: "ConfigMaps", newList: func() client.ObjectList { return &corev1.ConfigMapList{} }, note: a.note, cut: func() {}}
	events, err := f.begin(ctx)
	if err != nil {
		return err
	}
	a.running.Go(func() {
		if err := f.follow(ctx, events); err != nil && ctx.Err() == nil {
			a.fail(err)
		}
	})
	return nil
}

func (a *accounts) stop() {
	if a.cancel != nil {
		a.cancel()
	}
	a.running.Wait()
}

func (a *accounts) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = errors.Join(a.err, err)
}

func (a *accounts) note(_ watch.EventType, object client.Object) {
	now := time.Now()
	config, ok := object.(*corev1.ConfigMap)
	if !ok || len(config.BinaryData["jobs"]) == 0 {
		return
	}
	ledger, err := reservation.Decode(config.BinaryData["jobs"], now)
	if err != nil {
		a.fail(err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ledger.All(func(id int64, s reservation.State) bool {
		switch s {
		case reservation.Queued, reservation.Running:
			if _, known := a.reserved[id]; !known {
				a.reserved[id] = now
			}
		case reservation.Done:
			a.over[id] = true
		}
		return true
	})
}

func (a *accounts) at(job int64) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.reserved[job]
	return at, ok
}

// count and countOver return how many of the jobs are recorded as waiting and as done.
func (a *accounts) count(all []*delivery) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range all {
		if _, ok := a.reserved[d.job]; ok {
			n++
		}
	}
	return n
}

func (a *accounts) countOver(all []*delivery) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range all {
		if a.over[d.job] {
			n++
		}
	}
	return n
}

func (a *accounts) wait(ctx context.Context, all []*delivery, count func([]*delivery) int) error {
	return world.Until(ctx, reservedLimit, func(context.Context) error {
		if n := count(all); n != len(all) {
			return fmt.Errorf("%d of %d jobs are written down", n, len(all))
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.err
	})
}
