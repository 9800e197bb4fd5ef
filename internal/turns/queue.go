// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/meter"
)

// QueueOptions configures a work queue.
type QueueOptions struct {
	// Name of the controller, for metrics.
	Name string
	// Classify returns the group of a key, and the key's flow within the group. A group contains the keys whose processing
	// needs the same remote API. The name of a group may have the form OWNER/NAME, and the name of a flow the form
	// TENANT/NAME. The queue calls Classify at each addition, without holding a lock; it must be quick.
	Classify func(reconcile.Request) (group, flow string)
	// PerGroup is the maximum number of keys of one group that are processed at once; less than 1 means no limit.
	PerGroup int
	// PerOwner is the same limit for all groups of one owner together.
	PerOwner int
	// Limiter decides how long a failed key waits.
	Limiter workqueue.TypedRateLimiter[reconcile.Request]
}

// queue is a work queue for controllers in which no group of keys can occupy all workers. Owners take turns, then the
// groups of an owner, and then the flows of a group. So a group whose work hangs delays no other group, and an owner
// with many such groups delays no other owner. A key is in the queue at most once, however often it is requested; the
// request with the shortest delay counts. If a key is added during its processing, it is processed once more
// afterwards, never by two workers at once.
type queue struct {
	QueueOptions
	metrics metrics

	mu sync.Mutex
	// work is signaled when a key may be served, and idle when no key is being processed.
	work, idle *sync.Cond
	// entries holds every key that waits, is delayed or is being processed.
	entries map[reconcile.Request]*entry
	line    node[*entry]
	// waiting and processing count keys.
	waiting, processing int

	shuttingDown, drain bool
}

// entry is the state of one key.
type entry struct {
	key         reconcile.Request
	group, flow string // as last classified
	since       time.Time

	waiting *node[*entry] // the leaf in which it waits; nil if it is not waiting
	place   *list.Element // its place in that leaf
	running *node[*entry] // the leaf that it came from; nil if it is not being processed
	again   bool          // it was added during its processing

	at    time.Time   // when its delay ends
	delay *time.Timer // nil if it is not delayed
}

// NewQueue returns a work queue. The queue needs no goroutine of its own: a timer runs only while a key is delayed.
func NewQueue(o QueueOptions) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return newQueue(o)
}

func newQueue(o QueueOptions) *queue {
	q := &queue{QueueOptions: o, metrics: metricsOf(o.Name), entries: map[reconcile.Request]*entry{}}
	q.work = sync.NewCond(&q.mu)
	q.idle = sync.NewCond(&q.mu)
	return q
}

// Add requests the processing of a key as soon as it is the key's turn.
func (q *queue) Add(key reconcile.Request) {
	group, flow := q.Classify(key)
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown {
		return
	}
	e := q.entry(key)
	e.stopDelay()
	moved := e.group != group || e.flow != flow
	e.group = group
	e.flow = flow
	switch {
	case e.running != nil:
		if !e.again {
			e.again = true
			e.since = now
		}
	case e.waiting == nil:
		e.since = now
		q.wait(e)
	case moved:
		e.waiting.remove(e.place)
		q.push(e)
	}
}

// AddAfter requests the processing of a key after a delay. It has no effect if the key is already requested for an
// earlier time.
func (q *queue) AddAfter(key reconcile.Request, after time.Duration) {
	if after <= 0 {
		q.Add(key)
		return
	}
	at := time.Now().Add(after)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown {
		return
	}
	e := q.entry(key)
	if e.waiting == nil && !e.again && (e.delay == nil || at.Before(e.at)) {
		e.stopDelay()
		e.at = at
		e.delay = time.AfterFunc(after, func() { q.ripen(key, at) })
	}
}

// AddRateLimited requests the processing of a key after the delay that the limiter returns.
func (q *queue) AddRateLimited(key reconcile.Request) {
	q.metrics.retries.Inc()
	q.AddAfter(key, q.Limiter.When(key))
}

// Forget resets the limiter's state for the key.
func (q *queue) Forget(key reconcile.Request) { q.Limiter.Forget(key) }

// NumRequeues returns how often the key was requeued since it was last forgotten.
func (q *queue) NumRequeues(key reconcile.Request) int { return q.Limiter.NumRequeues(key) }

// Get waits for a key whose turn it is. The caller must call Done with each key. After a shutdown, Get still returns
// the waiting keys; after the last one, it returns true for shutdown.
func (q *queue) Get() (key reconcile.Request, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if e := q.pop(); e != nil {
			return e.key, false
		}
		if q.shuttingDown && q.waiting == 0 {
			return reconcile.Request{}, true
		}
		q.work.Wait()
	}
}

// pop returns the entry whose turn it is, or nil if there is none. The caller holds the lock.
func (q *queue) pop() *entry {
	e, leaf := q.line.pop()
	if leaf == nil {
		return nil
	}
	e.waiting = nil
	e.running = leaf
	q.waiting--
	q.processing++
	q.metrics.depth.Dec()
	q.metrics.wait.Observe(time.Since(e.since).Seconds())
	if q.shuttingDown && q.waiting == 0 {
		q.work.Broadcast()
	}
	return e
}

// Done ends the processing of a key. If it was added in the meantime, it waits again.
func (q *queue) Done(key reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[key]
	if e == nil || e.running == nil {
		return
	}
	q.processing--
	e.running.done()
	e.running = nil
	q.work.Signal() // a limit may now allow another key
	if e.again {
		e.again = false
		q.wait(e)
	}
	q.forgetIdle(e)
	if q.processing == 0 {
		q.idle.Broadcast()
	}
}

// Len returns the number of waiting keys. Delayed keys do not count.
func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// ShutDown makes the queue ignore further additions. It drops delayed keys; Get still returns waiting keys.
func (q *queue) ShutDown() { q.shutDown(false) }

// ShutDownWithDrain does what ShutDown does, and then waits until no key is waiting or being processed, or until
// ShutDown is called.
func (q *queue) ShutDownWithDrain() {
	q.shutDown(true)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.drain && (q.processing > 0 || q.waiting > 0) {
		q.idle.Wait()
	}
}

// ShuttingDown reports whether the queue was shut down.
func (q *queue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shuttingDown
}

func (q *queue) shutDown(drain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shuttingDown = true
	q.drain = drain
	for _, e := range q.entries {
		e.stopDelay()
		q.forgetIdle(e)
	}
	q.work.Broadcast()
	q.idle.Broadcast()
}

// entry returns the state of a key, and creates it if there is none.
func (q *queue) entry(key reconcile.Request) *entry {
	e := q.entries[key]
	if e == nil {
		e = &entry{key: key}
		q.entries[key] = e
	}
	return e
}

// wait adds a key to the end of its flow.
func (q *queue) wait(e *entry) {
	q.waiting++
	q.metrics.depth.Inc()
	q.push(e)
}

func (q *queue) push(e *entry) {
	owner, _, found := strings.Cut(e.group, "/")
	perGroup := q.PerGroup
	if !found && q.PerOwner > 0 { // without a slash, the group is its owner's only group
		perGroup = q.PerOwner
	}
	perTenant := 0
	if !strings.HasPrefix(e.flow, owner+"/") { // tenants share the group, such as a connection; each leaves a quarter of it to the others
		perTenant = perGroup - perGroup/4
	}
	e.waiting = q.line.branch(owner, q.PerOwner).branch(e.group, perGroup).flow(e.flow, perTenant)
	e.place = e.waiting.push(e)
	q.work.Signal()
}

// forgetIdle drops the entry of a key that is not waiting, being processed or delayed.
func (q *queue) forgetIdle(e *entry) {
	if e.waiting == nil && e.running == nil && e.delay == nil {
		delete(q.entries, e.key)
	}
}

func (e *entry) stopDelay() {
	if e.delay != nil {
		e.delay.Stop()
		e.delay = nil
	}
}

// ripen adds a key whose delay is over, unless a later request replaced the delay.
func (q *queue) ripen(key reconcile.Request, at time.Time) {
	q.mu.Lock()
	e := q.entries[key]
	isDue := e != nil && e.delay != nil && e.at.Equal(at)
	q.mu.Unlock()
	if isDue {
		q.Add(key)
	}
}

// metrics of one controller's queue.
type metrics struct {
	depth   prometheus.Gauge
	wait    prometheus.Observer
	retries prometheus.Counter
}

var (
	queueDepth = meter.Gauges("corral_queue_depth", "Objects that wait for a worker of a controller.", "controller")
	queueWait  = meter.Histograms("corral_queue_wait_seconds",
		"Time from an event to a worker of a controller.", []float64{.001, .01, .1, 1, 10, 60, 300}, "controller")
	queueRetries = meter.Counters("corral_queue_retries_total", "Objects queued again because their reconciliation failed.", "controller")
)

func metricsOf(name string) metrics {
	return metrics{
		depth: queueDepth.WithLabelValues(name), wait: queueWait.WithLabelValues(name),
		retries: queueRetries.WithLabelValues(name),
	}
}

// Collectors returns the metrics of all queues. They must be registered only once.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{queueDepth, queueWait, queueRetries}
}
