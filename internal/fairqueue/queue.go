// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package fairqueue is a work queue for controllers in which no group of keys can take
// all workers. Keys that need the same remote end are a group; a group holds a bounded
// number of workers and takes its turn with the others, so one whose work hangs delays
// nobody else. So do the groups of one owner together, so that many that hang delay no other owner's.
package fairqueue

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/meter"
)

// Options of a queue.
type Options struct {
	// Name of the controller, in the metrics.
	Name string
	// Classify tells to which group a key belongs, and to which flow within the group. Names may be of the form OWNER/NAME.
	// It is called at each addition and outside of any lock; it must be quick.
	Classify func(reconcile.Request) (group, flow string)
	// PerGroup is how many keys of one group are processed at once; less than 1 is no bound.
	PerGroup int
	// PerOwner is that of all groups of one owner together.
	PerOwner int
	// Limiter says how long a key that failed waits.
	Limiter workqueue.TypedRateLimiter[reconcile.Request]
}

// queue hands out keys fairly. Whatever is asked for a key, the earliest wins: it waits
// once, however often it was added, and an addition now takes the place of a later one.
// A key that is added while it is processed is processed once more afterwards, never
// twice at once.
type queue struct {
	classify func(reconcile.Request) (group, flow string)
	limiter  workqueue.TypedRateLimiter[reconcile.Request]
	metrics  metrics

	mu sync.Mutex
	// work is signalled when a key may be handed out, idle when none is processed.
	work, idle *sync.Cond
	// entries holds every key that waits, is delayed or is processed.
	entries    map[reconcile.Request]*entry
	line       line
	delays     delays
	timer      *time.Timer
	processing int

	shuttingDown, drain bool
}

// entry is all that is known of a key.
type entry struct {
	key         reconcile.Request
	group, flow string // as last classified
	since       time.Time

	place   link[*entry] // in its flow's line
	waiting *flow        // nil if it doesn't wait
	running *group       // nil if it isn't processed
	again   bool         // to be processed once more

	at      time.Time // when its delay ends
	delayed int       // its place in delays; notDelayed if none
}

// New makes a queue. It starts nothing: a timer runs only while a key is delayed.
func New(o Options) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return newQueue(o)
}

func newQueue(o Options) *queue {
	q := &queue{
		classify: o.Classify, limiter: o.Limiter, metrics: metricsOf(o.Name),
		entries: map[reconcile.Request]*entry{}, line: newLine(o.PerGroup, o.PerOwner),
	}
	q.work, q.idle = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// Add lets the key be processed as soon as it is its turn.
func (q *queue) Add(key reconcile.Request) {
	group, flow := q.classify(key)
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown {
		return
	}
	e := q.entry(key)
	q.delays.remove(e)
	moved := e.group != group || e.flow != flow
	e.group, e.flow = group, flow
	switch {
	case e.running != nil:
		if !e.again {
			e.again, e.since = true, now
		}
	case e.waiting == nil:
		e.since = now
		q.wait(e)
	case moved:
		q.line.remove(e)
		q.line.push(e)
		q.work.Signal()
	}
}

// AddAfter lets the key be processed after a time, or sooner if it was asked for sooner.
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
	if e.waiting == nil && !e.again && q.delays.put(e, at) {
		q.arm()
	}
}

// AddRateLimited lets the key be processed after the time that the limiter names.
func (q *queue) AddRateLimited(key reconcile.Request) {
	q.metrics.retries.Inc()
	q.AddAfter(key, q.limiter.When(key))
}

// Forget ends what the limiter remembers of the key.
func (q *queue) Forget(key reconcile.Request) { q.limiter.Forget(key) }

// NumRequeues returns how often the key failed in a row.
func (q *queue) NumRequeues(key reconcile.Request) int { return q.limiter.NumRequeues(key) }

// Get waits for a key whose turn it is. Each key must be given back with Done. After a
// shut-down, what waits is still handed out; then shutdown is true.
func (q *queue) Get() (key reconcile.Request, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if e := q.pop(); e != nil {
			return e.key, false
		}
		if q.shuttingDown && q.line.waiting == 0 {
			return reconcile.Request{}, true
		}
		q.work.Wait()
	}
}

// pop returns the key whose turn it is, nil if there is none. The lock is held.
func (q *queue) pop() *entry {
	e := q.line.pop()
	if e == nil {
		return nil
	}
	q.processing++
	q.metrics.depth.Dec()
	q.metrics.wait.Observe(time.Since(e.since).Seconds())
	if q.shuttingDown && q.line.waiting == 0 {
		q.work.Broadcast()
	}
	return e
}

// Done gives a key back. One that was added meanwhile waits again.
func (q *queue) Done(key reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[key]
	if e == nil || e.running == nil {
		return
	}
	q.processing--
	if q.line.done(e) {
		q.work.Signal()
	}
	if e.again {
		e.again = false
		q.wait(e)
	}
	q.forgetIdle(e)
	if q.processing == 0 {
		q.idle.Broadcast()
	}
}

// Len is the number of keys that wait, without those that are delayed.
func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.waiting
}

// ShutDown ends additions; what is delayed is dropped, what waits is still handed out.
func (q *queue) ShutDown() { q.shutDown(false) }

// ShutDownWithDrain is ShutDown and waits until no key is processed any more, or until
// ShutDown is called.
func (q *queue) ShutDownWithDrain() {
	q.shutDown(true)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.drain && (q.processing > 0 || q.line.waiting > 0) {
		q.idle.Wait()
	}
}

// ShuttingDown tells whether the queue was shut down.
func (q *queue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shuttingDown
}

func (q *queue) shutDown(drain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shuttingDown, q.drain = true, drain
	for e := q.delays.first(); e != nil; e = q.delays.first() {
		q.delays.remove(e)
		q.forgetIdle(e)
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.work.Broadcast()
	q.idle.Broadcast()
}

// entry returns what is known of a key, newly made if nothing is.
func (q *queue) entry(key reconcile.Request) *entry {
	e := q.entries[key]
	if e == nil {
		e = &entry{key: key, delayed: notDelayed}
		e.place.of = e
		q.entries[key] = e
	}
	return e
}

// wait puts a key at the end of its flow.
func (q *queue) wait(e *entry) {
	q.line.push(e)
	q.metrics.depth.Inc()
	q.work.Signal()
}

// forgetIdle drops a key of which nothing is asked.
func (q *queue) forgetIdle(e *entry) {
	if e.waiting == nil && e.running == nil && e.delayed == notDelayed {
		delete(q.entries, e.key)
	}
}

// arm lets the timer end with the first delay.
func (q *queue) arm() {
	first := q.delays.first()
	switch {
	case first == nil:
	case q.timer == nil:
		q.timer = time.AfterFunc(time.Until(first.at), q.ripen)
	default:
		q.timer.Reset(time.Until(first.at))
	}
}

// ripen adds the keys whose delay is over.
func (q *queue) ripen() {
	for _, key := range q.ripe() {
		q.Add(key)
	}
}

// ripe takes the keys whose delay is over out of the delays.
func (q *queue) ripe() []reconcile.Request {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []reconcile.Request
	for e := q.delays.first(); e != nil && !e.at.After(now); e = q.delays.first() {
		q.delays.remove(e)
		q.forgetIdle(e)
		keys = append(keys, e.key)
	}
	if !q.shuttingDown {
		q.arm()
	}
	return keys
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
	queueRetries = meter.Counters("corral_queue_retries_total", "Objects put back because their reconciliation failed.", "controller")
)

func metricsOf(name string) metrics {
	return metrics{
		depth: queueDepth.WithLabelValues(name), wait: queueWait.WithLabelValues(name),
		retries: queueRetries.WithLabelValues(name),
	}
}

// Collectors returns the metrics of all queues, to be registered once.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{queueDepth, queueWait, queueRetries}
}
