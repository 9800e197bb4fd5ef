// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// maxFailures bounds how many failures of a pool are kept until somebody takes them.
const maxFailures = 100

// Notes are what this process did or saw and the cache may not show yet, so that it
// neither does it twice nor asks for it. All of it can be found out again: nothing is
// lost with the process but a few requests.
type Notes struct {
	mu       sync.Mutex
	runners  map[types.NamespacedName]*note
	outcomes map[types.NamespacedName]*Outcomes
	doubts   map[types.NamespacedName]doubt
	queue    queue // of the Runners' controller; nil until it runs
	starting int   // runners that wait for nothing but their pods

	recording *semaphore.Weighted
}

// NewNotes returns empty Notes.
func NewNotes() *Notes {
	return &Notes{
		runners: map[types.NamespacedName]*note{}, outcomes: map[types.NamespacedName]*Outcomes{}, doubts: map[types.NamespacedName]doubt{},
		recording: semaphore.NewWeighted(recordParallel),
	}
}

// queue is a controller's work queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// doubtInterval is the least time between two looks at one runner's registration.
const doubtInterval = time.Minute

// doubt of a runner.
type doubt struct {
	at   time.Time
	open bool
}

// note is about one runner.
type note struct {
	uid          types.UID
	registration int64     // 0 until registered
	made         bool      // by this process, which knows what is registered
	starting     bool      // registered, and without a pod yet; guarded by Notes
	podMade      bool      // and not in the cache yet
	started      time.Time // when its container did
	ended        time.Time // when its container's end was first seen
	completed    time.Time // when its job was over, by GitHub's word
	forgotten    bool      // GitHub has removed its registration by itself
	deregistered bool
	busy         bool                // GitHub kept its registration, for it has a job
	jobless      bool                // it ended in peace, and GitHub told that it had no job
	podEnded     types.UID           // of the pod whose deletion was asked for
	released     bool                // its finalizer is off
	refused      int                 // how often GitHub was away
	failed       *poolstatus.Verdict // why it is being ended, if it failed
}

// Failure of a runner that never had a job.
type Failure struct {
	Runner, Revision string
	Cause            v1alpha1.RunnerCause
	Message          string
	// Began is when the runner was created, At when it failed.
	Began, At time.Time
	// Clean is true of a container that ended with exit code 0: it may have had a job.
	Clean bool
}

// Outcomes are what became of a pool's runners.
type Outcomes struct {
	Failures []Failure
	// Worked holds, by revision, when the last began of the jobs that runners got.
	Worked map[string]time.Time
}

// of returns the note of a runner; another of the same name starts afresh. It is for
// the one worker that has the runner, but for its fields completed, forgotten and failed.
func (n *Notes) of(key types.NamespacedName, uid types.UID) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.locked(key, uid)
}

func (n *Notes) locked(key types.NamespacedName, uid types.UID) *note {
	if known := n.runners[key]; known != nil && known.uid == uid {
		return known
	}
	n.dropLocked(key)
	n.runners[key] = &note{uid: uid}
	return n.runners[key]
}

// outside returns the note of a runner for somebody else than its worker, which is woken if
// there was none: it drops that of a runner that is gone.
func (n *Notes) outside(key types.NamespacedName, uid types.UID) *note {
	if known := n.runners[key]; (known == nil || known.uid != uid) && n.queue != nil {
		n.queue.Add(reconcile.Request{NamespacedName: key})
	}
	return n.locked(key, uid)
}

func (n *Notes) dropLocked(key types.NamespacedName) {
	if known := n.runners[key]; known != nil && known.starting {
		n.starting--
	}
	delete(n.runners, key)
}

// begin says that a runner waits for nothing but its pod.
func (n *Notes) begin(r *note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !r.starting {
		r.starting = true
		n.starting++
	}
}

// begun says that a runner has or had its pod, or needs none any more.
func (n *Notes) begun(r *note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.starting {
		r.starting = false
		n.starting--
	}
}

// recordParallel bounds how many records of all pools are written at once, and
// recordBeside how many while runners are to be started. A record leads to a runner's
// end, which costs as much as to start one: in a burst, the ends of the first jobs would
// hold up the runners of the last.
const (
	recordParallel = 32
	recordBeside   = 4
)

// giveWay waits until a record may be written, and returns what to call after it.
func (n *Notes) giveWay(ctx context.Context) (release func(), err error) {
	n.mu.Lock()
	weight := 1
	if n.starting > 0 {
		weight = recordParallel / recordBeside
	}
	n.mu.Unlock()
	if err := n.recording.Acquire(ctx, int64(weight)); err != nil {
		return nil, err
	}
	return func() { n.recording.Release(int64(weight)) }, nil
}

// complete notes when a runner's job was over, and whether GitHub has forgotten the runner.
func (n *Notes) complete(key types.NamespacedName, uid types.UID, at time.Time, forgotten bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.outside(key, uid)
	known.completed, known.forgotten = at, forgotten
}

// register notes the id of a runner's registration.
func (n *Notes) register(r *note, id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.registration, r.refused = id, 0
}

// registration returns the id that a runner was registered under by this process; 0 if
// it wasn't.
func (n *Notes) registration(key types.NamespacedName, uid types.UID) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.runners[key]; known != nil && known.uid == uid {
		return known.registration
	}
	return 0
}

// Condemn notes why the pool gave a runner up that it is about to end.
func (n *Notes) Condemn(key types.NamespacedName, uid types.UID, why poolstatus.Verdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outside(key, uid).failed = &why
}

// failure returns why a runner failed, nil if it didn't.
func (n *Notes) failure(key types.NamespacedName, uid types.UID) *poolstatus.Verdict {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.locked(key, uid).failed
}

// Doubt asks for a look at the registration of a runner that GitHub doesn't count as we
// do; now and then at most.
func (n *Notes) Doubt(key types.NamespacedName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last, doubted := n.doubts[key]; doubted && now.Sub(last.at) < doubtInterval {
		return
	}
	n.doubts[key] = doubt{at: now, open: true}
	if n.queue != nil {
		n.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// takeDoubt says whether a runner is doubted, once for each doubt.
func (n *Notes) takeDoubt(key types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.doubts[key]
	if d.open {
		n.doubts[key] = doubt{at: d.at}
	}
	return d.open
}

// source wakes the controller of a doubted runner.
func (n *Notes) source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.queue = q
		return nil
	})
}

// completion returns when a runner's job was over, the zero time if it isn't known to be,
// and whether GitHub has forgotten the runner since.
func (n *Notes) completion(key types.NamespacedName, uid types.UID) (at time.Time, forgotten bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.runners[key]; known != nil && known.uid == uid {
		return known.completed, known.forgotten
	}
	return time.Time{}, false
}

// Completion returns when a runner's job was over, and whether it is known to be.
func (n *Notes) Completion(key types.NamespacedName, uid types.UID) (at time.Time, over bool) {
	at, _ = n.completion(key, uid)
	return at, !at.IsZero()
}

// isEnding says whether the deletion of a pod was asked for.
func (n *Notes) isEnding(key types.NamespacedName, pod types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.runners[key]
	return known != nil && known.podEnded != "" && known.podEnded == pod
}

func (n *Notes) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(key)
	delete(n.doubts, key)
}

func (n *Notes) fail(pool types.NamespacedName, f Failure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.outcomesOf(pool); len(o.Failures) < maxFailures {
		o.Failures = append(o.Failures, f)
	}
}

// worked says that a runner got a job. It may be gone before its pool has a look at it.
func (n *Notes) worked(pool types.NamespacedName, revision string, began time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.outcomesOf(pool); began.After(o.Worked[revision]) {
		o.Worked[revision] = began
	}
}

func (n *Notes) outcomesOf(pool types.NamespacedName) *Outcomes {
	if n.outcomes[pool] == nil {
		n.outcomes[pool] = &Outcomes{Worked: map[string]time.Time{}}
	}
	return n.outcomes[pool]
}

// TakeOutcomes returns what became of a pool's runners since it was last asked.
func (n *Notes) TakeOutcomes(pool types.NamespacedName) Outcomes {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.outcomes[pool]
	delete(n.outcomes, pool)
	if taken == nil {
		return Outcomes{}
	}
	return *taken
}
