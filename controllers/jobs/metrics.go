// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/share"
)

const (
	// pollTick is the minimum interval between checks for due metrics.
	pollTick = 100 * time.Millisecond
	// pollRest is the maximum interval between these checks.
	pollRest = time.Second
	// pollSpread is the period over which the first polls of metrics are spread.
	pollSpread = 2 * time.Second
	// pollsAtOnce is the maximum number of concurrent polls at one endpoint, which is a server or a connection to GitHub. An
	// endpoint that does not answer blocks no more polls than this. At each endpoint, a pool may have one poll at a time,
	// and a namespace a quarter of pollsAtOnce.
	pollsAtOnce = 32
	// endpointsAtOnce is the number of endpoints at which a namespace may use its full quarter at once. This limits the
	// namespace's polls at all endpoints together, because its pools may name any number of endpoints.
	endpointsAtOnce = 8
	// mostBegun limits the number of entries in Poller.begun. One namespace may have a quarter. A namespace whose entry was
	// dropped counts as if it had never polled the endpoint.
	mostBegun = 10_000
	// partlyHeld is how long the earlier, larger number stays in force while polls return an incomplete number.
	partlyHeld = 15 * time.Minute
	// pollLimit limits the duration of a poll, including polls of GitHub's job lists.
	pollLimit = 2 * time.Minute
	// observeInterval is the interval between polls of GitHub's state for a pool that observes.
	observeInterval = 30 * time.Second
	// shortestInterval and longestInterval limit the interval that a pool declares.
	shortestInterval, longestInterval = 10 * time.Second, time.Hour
)

var (
	polls       = meter.Counters("corral_demand_metric_looks_total", "Reads of metrics, by kind of source and result.", "of", "result")
	pollSeconds = meter.Histograms("corral_demand_metric_look_seconds",
		"Duration of reads of metrics.", []float64{.01, .05, .1, .5, 1, 5, 10, 30, 120}, "of")
)

func pollerCollectors() []prometheus.Collector { return []prometheus.Collector{polls, pollSeconds} }

// JobLister lists the objects of a connection through GitHub's REST API.
type JobLister interface {
	Repositories(ctx context.Context, patterns []string) ([]string, error)
	Jobs(ctx context.Context, repository string, maxAge time.Duration) (rest.JobList, error)
	Runners(ctx context.Context, maxAge time.Duration) (rest.RunnerList, error)
}

// SetFinder finds scale sets of a connection.
type SetFinder interface {
	RunnerGroupID(ctx context.Context, name string) (int64, error)
	Find(ctx context.Context, groupID int64, name string) (*scaleset.Set, error)
	Get(ctx context.Context, id int64) (*scaleset.Set, error)
}

// Prometheus queries one of the configured servers, given by its name.
type Prometheus interface {
	Query(ctx context.Context, server, query string, maxAge time.Duration) (float64, error)
}

// ExternalMetrics queries the cluster's external metrics API.
type ExternalMetrics interface {
	Value(ctx context.Context, namespace, metric string, selector *metav1.LabelSelector, maxAge time.Duration) (float64, error)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;runners,verbs=list;watch
// +kubebuilder:rbac:groups=external.metrics.k8s.io,resources=*,verbs=list

// PollerConfig is the configuration of a Poller.
type PollerConfig struct {
	// Client reads pools and Runners from the cache.
	Client client.Reader
	// GitHub and ScaleSets return the clients of a connection; false while the connection is not ready.
	GitHub    func(connection types.NamespacedName) (JobLister, bool)
	ScaleSets func(connection types.NamespacedName) (SetFinder, bool)
	// Prometheus and External query the values of metrics.
	Prometheus Prometheus
	External   ExternalMetrics
	// Access reports which connections of other namespaces may be used. If nil, none may be used.
	Access Access
	// Now is the clock.
	Now func() time.Time
	// Random returns a number from 0 up to 1, for spreading polls.
	Random func() float64
}

// Poller polls the metrics of pools, each at its interval. It is a manager.Runnable that runs on the leader.
type Poller struct {
	PollerConfig
	// Events wakes pools when their demand changes.
	Events kube.EventSource

	kick chan struct{}

	mu      sync.Mutex
	targets map[types.NamespacedName]*target
	running map[pollPlace]int             // number of running polls
	begun   *share.Map[pollPlace, uint64] // number of the last poll that a namespace began at an endpoint
	looks   uint64                        // number of polls that have begun
	work    sync.WaitGroup
}

// target is a pool whose metrics are polled.
type target struct {
	key    types.NamespacedName
	uid    types.UID
	probes []*probe // in the order of the spec
	actual *demand.Actual
}

// probe is one metric of a pool or, for a pool that observes, GitHub's state of the pool. It is replaced when its definition
// changes.
type probe struct {
	of       string // jobs, busy, prometheus, external, or observe
	endpoint string // the polled endpoint, for which limits apply
	metric   *v1alpha1.MetricSource
	print    string // fingerprint of everything on which the poll depends
	interval time.Duration

	due     time.Time
	running bool
	asked   bool
	// partly is when the result became incomplete; zero while it is complete.
	partly time.Time
	// signal is the last result, and last is the last result that contained a number. Their names are empty if the probe
	// reports no demand.
	signal, last demand.Signal
}

// asksGitHub reports whether a poll needs the pool's connection.
func (q *probe) asksGitHub() bool { return q.of == "observe" || q.of == "jobs" || q.of == "busy" }

// NewPoller returns a Poller without pools.
func NewPoller(c PollerConfig) *Poller {
	return &Poller{PollerConfig: c, kick: make(chan struct{}, 1), targets: map[types.NamespacedName]*target{}, running: map[pollPlace]int{}, begun: share.New[pollPlace, uint64](mostBegun, nil)}
}

// SetupWithManager adds the Poller to the manager, which runs it on the leader, and watches pools.
func (p *Poller) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("adding the poller: %w", err)
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	if err := ctrl.NewControllerManagedBy(mgr).Named("demand-metrics").For(&v1alpha1.RunnerPool{}, changed).WithOptions(kube.Places(placers, 1, 1, tenant)).Complete(reconcile.Func(p.reconcile)); err != nil {
		return fmt.Errorf("watching pools: %w", err)
	}
	return nil
}

// NeedLeaderElection returns true, because only the leader needs the demand.
func (*Poller) NeedLeaderElection() bool { return true }

func (p *Poller) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	err := p.Client.Get(ctx, req.NamespacedName, pool)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !pool.DeletionTimestamp.IsZero():
		p.mu.Lock()
		delete(p.targets, req.NamespacedName)
		p.mu.Unlock()
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
	}
	p.setPool(pool)
	return ctrl.Result{}, nil
}

// setPool adds a pool, or updates its metrics. Metrics whose definition has not changed keep their state. If the pool is
// unreadable, setPool changes nothing.
func (p *Poller) setPool(pool *v1alpha1.RunnerPool) {
	if pool.Unreadable() != nil {
		return
	}
	key, probes := client.ObjectKeyFromObject(pool), probesOf(pool) // before locking, because this may take long
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[key]
	if t == nil || t.uid != pool.UID {
		t = &target{key: key, uid: pool.UID}
		p.targets[key] = t
	}
	before := t.probes
	t.probes = probes
	if pool.Spec.GetMode() != v1alpha1.Observe {
		t.actual = nil
	}
	now := p.Now()
	for i, q := range t.probes {
		if at := slices.IndexFunc(before, func(b *probe) bool { return b.print == q.print }); at >= 0 {
			t.probes[i] = before[at]
			continue
		}
		q.due = now.Add(time.Duration(p.Random() * float64(min(pollSpread, q.interval))))
	}
	if !slices.Equal(before, t.probes) {
		p.Events.Wake(key)
		p.poke()
	}
}

// probesOf returns the probes of a pool.
func probesOf(pool *v1alpha1.RunnerPool) []*probe {
	var all []*probe
	conn := connectionOf(pool)
	if pool.Spec.GetMode() == v1alpha1.Observe {
		all = append(all, newProbe(pool, &probe{of: "observe", endpoint: "github/" + conn.String(), interval: observeInterval}))
	}
	for i := range pool.Spec.Demand.Metrics {
		m := pool.Spec.Demand.Metrics[i].DeepCopy()
		q := &probe{of: "jobs", endpoint: "github/" + conn.String(), metric: m, interval: min(max(m.GetInterval(), shortestInterval), longestInterval)}
		switch {
		case m.Busy != nil:
			q.of = "busy"
		case m.Prometheus != nil:
			q.of, q.endpoint = "prometheus", "prometheus/"+m.Prometheus.Server
		case m.External != nil:
			q.of, q.endpoint = "external", "external"
		case m.Jobs == nil:
			continue // the API server now rejects this
		}
		q.signal.Name = m.Name
		all = append(all, newProbe(pool, q))
	}
	return all
}

// newProbe adds the fingerprint to a probe, and the name of the signal if the pool observes a scale set.
func newProbe(pool *v1alpha1.RunnerPool, q *probe) *probe {
	if q.of == "observe" && pool.Spec.GetRegistration() == v1alpha1.RegisterScaleSet {
		q.signal.Name = v1alpha1.DemandScaleSet
	}
	raw, err := json.Marshal(struct {
		Of, Endpoint, Set, Group string
		Metric                   *v1alpha1.MetricSource
		Labels                   []string
		Mode                     v1alpha1.PoolMode
		Registration             v1alpha1.Registration
	}{q.of, q.endpoint, pool.GetScaleSetName(), pool.Spec.GetRunnerGroup(), q.metric, labelsOf(pool), pool.Spec.GetMode(), pool.Spec.GetRegistration()})
	if err != nil {
		raw = []byte(fmt.Sprint(q.of, err)) // cannot fail for these values
	}
	q.print = string(raw)
	return q
}

// Start polls metrics until ctx ends.
func (p *Poller) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		next := p.startDue(ctx)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.kick:
		}
		timer.Stop()
		select {
		case <-ctx.Done():
		case <-time.After(pollTick):
		}
	}
	p.work.Wait()
	return nil
}

// look is a poll that is due.
type look struct {
	target *target
	probe  *probe
}

// startDue begins the polls that are due, and returns the delay until the next one. Namespaces take turns at an endpoint.
// Within a namespace, the probe that has been due longest comes first.
func (p *Poller) startDue(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	due, next := p.first(p.Now())
	for _, d := range due {
		if p.mayAsk(d) && !d.target.asks(d.probe.endpoint) {
			p.begin(ctx, d)
		}
	}
	return next
}

// lookedAtOnce is how many pools are checked before the lock is released for others. betweenParts is called when the lock is
// released. Only tests set it.
const lookedAtOnce = 64

var betweenParts = func() {}

// first returns the polls that are due and may begin, and the delay until the next one. For each namespace, it returns no
// more polls than may run at once. The caller must hold the lock, which this method releases from time to time.
func (p *Poller) first(now time.Time) (due []look, next time.Duration) {
	firsts, seen := map[string]shares{}, 0 // by namespace
	next = pollRest
	for _, t := range p.targets {
		if seen++; seen%lookedAtOnce == 0 {
			p.mu.Unlock()
			betweenParts()
			p.mu.Lock()
		}
		for endpoint, q := range t.first(now, &next) {
			d := look{t, q}
			if p.mayAsk(d) && !t.asks(endpoint) {
				if firsts[t.key.Namespace] == nil {
					firsts[t.key.Namespace] = shares{}
				}
				p.add(firsts[t.key.Namespace], d)
			}
		}
	}
	for _, of := range firsts {
		for _, some := range of {
			due = append(due, some...)
		}
	}
	slices.SortFunc(due, func(a, b look) int {
		if order := cmp.Compare(p.lastAt(a.share()), p.lastAt(b.share())); order != 0 {
			return order
		}
		return sooner(a, b)
	})
	return due, next
}

// shares holds the polls of a namespace that are due and may begin, by endpoint. It has no more endpoints, and no more polls
// for each, than a namespace may use at once.
type shares map[pollPlace][]look

// add adds a poll of a namespace. At each endpoint, it keeps the polls that have been due longest. If there are too many
// endpoints, it keeps those where the namespace has not begun a poll for the longest time.
func (p *Poller) add(to shares, d look) {
	own := d.share()
	if to[own] == nil && len(to) >= endpointsAtOnce {
		latest := own
		for other := range to {
			if p.lastAt(other) > p.lastAt(latest) {
				latest = other
			}
		}
		if latest == own {
			return
		}
		delete(to, latest)
	}
	at, _ := slices.BinarySearchFunc(to[own], d, sooner)
	some := slices.Insert(to[own], at, d)
	to[own] = some[:min(len(some), pollsAtOnce/4)]
}

// lastAt returns the number of the last poll that a namespace began at an endpoint; 0 if it never began one. Polls are
// numbered in the order in which they begin.
func (p *Poller) lastAt(of pollPlace) uint64 {
	at, _ := p.begun.Get(of.namespace, of)
	return at
}

// first returns, for each endpoint, the metric that has been due longest. If another metric is due sooner than next, first
// sets next to the delay until then.
func (t *target) first(now time.Time, next *time.Duration) (firsts map[string]*probe) {
	for _, q := range t.probes {
		switch left := q.due.Sub(now); {
		case q.running:
		case left > 0:
			*next = min(*next, left)
		case firsts == nil:
			firsts = map[string]*probe{q.endpoint: q}
		case firsts[q.endpoint] == nil || q.due.Before(firsts[q.endpoint].due):
			firsts[q.endpoint] = q
		}
	}
	return firsts
}

// sooner orders polls by due time, and then by name.
func sooner(a, b look) int {
	if order := a.probe.due.Compare(b.probe.due); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(a.target.key.String(), b.target.key.String()), cmp.Compare(a.probe.signal.Name, b.probe.signal.Name))
}

// mayAsk reports whether a poll may begin now. One namespace gets at most a quarter of an endpoint's places, so that its
// many or slow metrics do not delay the metrics of other namespaces. It also has a limited number of polls at all endpoints
// together.
func (p *Poller) mayAsk(d look) bool {
	return !slices.ContainsFunc(d.places(), func(at pollPlace) bool { return p.running[at] >= at.most() })
}

// pollPlace identifies a limit for concurrent polls: the polls of a namespace at an endpoint. If namespace or endpoint is
// empty, the limit applies to all namespaces or to all endpoints together.
type pollPlace struct{ endpoint, namespace string }

// most returns how many polls may run at once.
func (at pollPlace) most() int {
	switch {
	case at.namespace == "":
		return pollsAtOnce
	case at.endpoint == "":
		return endpointsAtOnce * pollsAtOnce / 4
	}
	return pollsAtOnce / 4
}

// share returns the limit for the polls of the namespace at the endpoint.
func (d look) share() pollPlace { return pollPlace{d.probe.endpoint, d.target.key.Namespace} }

// places returns all limits that apply to a poll.
func (d look) places() []pollPlace {
	of := d.share()
	return []pollPlace{{endpoint: of.endpoint}, of, {namespace: of.namespace}}
}

// asks reports whether a poll of the pool is in progress at an endpoint.
func (t *target) asks(endpoint string) bool {
	return slices.ContainsFunc(t.probes, func(q *probe) bool { return q.running && q.endpoint == endpoint })
}

// begin polls a metric in the background.
func (p *Poller) begin(ctx context.Context, d look) {
	d.probe.running = true
	for _, at := range d.places() {
		p.running[at]++
	}
	p.looks++
	p.begun.Push(d.target.key.Namespace, d.share(), p.looks)
	p.work.Go(func() {
		within, cancel := context.WithTimeout(ctx, pollLimit)
		defer cancel()
		began := p.Now()
		f, err := p.find(within, d)
		pollSeconds.WithLabelValues(d.probe.of).Observe(p.Now().Sub(began).Seconds())
		if ctx.Err() == nil {
			p.finish(d, f, err)
		}
	})
}

// finding is the result of a poll.
type finding struct {
	signal demand.Signal
	actual *demand.Actual
}

// finish stores the result of a poll, and wakes the pool if it changed.
func (p *Poller) finish(d look, f finding, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.poke()
	q, now := d.probe, p.Now()
	for _, at := range d.places() {
		if p.running[at]--; p.running[at] == 0 {
			delete(p.running, at)
		}
	}
	before, asked := q.signal, q.asked
	f.signal.Name, f.signal.At = before.Name, now
	if err != nil {
		f.signal = q.last
		f.signal.Name, f.signal.Stale, f.signal.Reason = before.Name, true, "no signal: "+reasonOf(err)
	}
	if err == nil {
		q.trust(&f.signal, now)
	}
	if f.signal.Jobs != nil || f.signal.Total != nil {
		q.last = f.signal
	}
	q.signal, q.asked, q.running = f.signal, true, false
	q.due = now.Add(max(p.spread(q.interval), retryOf(err)))
	count(q.of, err, f.signal.Stale)
	t := p.targets[d.target.key]
	if t != d.target || !slices.Contains(t.probes, q) {
		return // the probe was replaced or removed in the meantime
	}
	changed := !asked || !alike(before, q.signal)
	if q.of == "observe" {
		changed = changed || !sameActual(t.actual, f.actual)
		t.actual = f.actual
	}
	if changed {
		p.Events.Wake(t.key)
	}
}

// trust treats an incomplete result as complete if the results have been incomplete for partlyHeld. Otherwise, the earlier,
// larger number would never decrease.
func (q *probe) trust(s *demand.Signal, now time.Time) {
	switch {
	case !s.Stale:
		q.partly = time.Time{}
	case q.partly.IsZero():
		q.partly = now
	default:
		s.Stale = now.Sub(q.partly) < partlyHeld
	}
}

func count(of string, err error, held bool) {
	result := "signal"
	switch {
	case err != nil:
		result = "none"
	case held:
		result = "part"
	}
	polls.WithLabelValues(of, result).Inc()
}

// alike reports whether two signals have the same numbers. A changed reason alone wakes no pool.
func alike(a, b demand.Signal) bool {
	return a.Stale == b.Stale && sameNumber(a.Jobs, b.Jobs) && sameNumber(a.Total, b.Total)
}

func sameNumber(a, b *int32) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func sameActual(a, b *demand.Actual) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// spread varies an interval by up to a tenth.
func (p *Poller) spread(interval time.Duration) time.Duration {
	return time.Duration(float64(interval) * (0.9 + 0.2*p.Random()))
}

// Reading returns the demand of a pool according to its metrics. It is unknown until each metric has been polled once.
func (p *Poller) Reading(key types.NamespacedName) demand.Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[key]
	if t == nil {
		return demand.Reading{}
	}
	r := demand.Reading{Known: true, Actual: t.actual}
	for _, q := range t.probes {
		switch {
		case !q.asked:
			r.Known = false
		case q.signal.Name != "":
			r.Signals = append(r.Signals, q.signal)
		}
	}
	return r
}

// poke makes Start check for due polls soon.
func (p *Poller) poke() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
