// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/turns"
)

// maxFailures bounds how many failures of a pool are kept until somebody takes them.
const maxFailures = 100

// Memory is the state of runners that only this process knows: what it did and saw, and the cache may not show yet. It prevents the process
// from doing something twice, and from asking again. Each part has methods that lock it, and other packages use those only:
//
//   - runners: one runnerMemory for each Runner. Its worker owns it; a few fields have methods for other goroutines.
//   - results: how runners ended, until their pools take that by SinceLastPass.
//   - suspects: which registrations are to be looked at, by Suspect and SuspectSome.
//   - claims: which claim of a cache each runner has.
//
// When the process ends, results that no pool has taken are lost. Everything else costs a few requests to find out again.
type Memory struct {
	wakes kube.EventSource // wakes a runner's controller

	mu       sync.Mutex
	runners  map[types.NamespacedName]*runnerMemory
	results  map[types.NamespacedName]*Results
	suspects map[types.NamespacedName]suspicion
	starting int // how many runners wait for nothing but their pods
	claims   claimNotes
	stored   map[types.NamespacedName]bool // pools for which this process stored a Secret: their next names are new
	ends     singleflight.Group            // of Runners, by UID

	// recording are the turns of records, and beside those while runners are to be started. Namespaces take turns.
	recording, beside *turns.Limiter
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		runners: map[types.NamespacedName]*runnerMemory{}, results: map[types.NamespacedName]*Results{},
		suspects: map[types.NamespacedName]suspicion{}, stored: map[types.NamespacedName]bool{}, recording: turns.New(recordParallel), beside: turns.New(recordBeside),
	}
}

const (
	// SuspectInterval is the least time between two looks at one runner's registration.
	SuspectInterval = time.Minute
	// suspectLongest is that time for a runner that was found online again and again: GitHub's counts can be wrong for hours. It also bounds
	// how long a runner that lost its connection meanwhile counts as idle.
	suspectLongest = 4 * time.Minute
	// suspectLeast is how many of a pool's runners are looked at in that least time, if any is missing: to look
	// at one at a time would take hours among many.
	suspectLeast = 10
)

// suspicion that GitHub doesn't know a runner any more, or isn't connected with it.
type suspicion struct {
	at    time.Time
	open  bool          // nobody looked yet
	pause time.Duration // until it may be raised again
	// wasOnline is true if it was seen to be connected, and offline if it wasn't at the last look.
	wasOnline, offline bool
}

// runnerMemory is the state of one runner. Only the worker that has the runner uses it. The exceptions are the fields of the first group,
// pod.last, pod.deleted, end.deleted, persistent.id and claim.name: methods of Memory use them with its lock.
type runnerMemory struct {
	uid          types.UID
	registration int64                  // its id on GitHub; 0 until registered
	starting     bool                   // registered, and without a pod yet
	completion   completion             // the end of its job
	failed       *poolstatus.Assessment // why it is being ended, if it failed

	registered bool        // by this process, which knows what is registered
	unstored   *github.JIT // a registration or registration token whose Secret could not be created yet, or nil
	pod        podMemory
	container  containerMemory
	end        endMemory
	busy       bool // GitHub kept its registration because it has a job
	hadNoJob   bool // it ended without an error, and GitHub reported that it had no job
	refused    int  // how often in a row GitHub was away, or had a registration of this name
	persistent persistentMemory
	claim      claimMemory
	absence    absence
}

// podMemory is what this process did about a runner's pod.
type podMemory struct {
	created time.Time   // when it was, while the cache doesn't show it
	deleted types.UID   // of the pod whose deletion was asked for
	asked   time.Time   // when that was
	stopped time.Time   // when it was asked to end, without its deletion
	last    *corev1.Pod // as it was when it went; nil while it is there, or if that was missed. Guarded by Memory
}

// hadPod reports whether the runner's pod was created, also if the cache shows none.
func (m *runnerMemory) hadPod() bool { return !m.pod.created.IsZero() || m.claim.seen }

// containerMemory is about a runner's container.
type containerMemory struct {
	awaited bool // it was seen before it started
	ran     bool // it was seen before it ended
	started time.Time
	ended   time.Time            // when its end was first seen
	down    time.Time            // when it ended that is to run again, by its node's clock; zero while it runs
	turned  time.Time            // when down was first seen to change
	exit    *v1alpha1.RunnerExit // how it ended, with the taints of its node; nil until they were read
}

// endMemory is about a runner's end.
type endMemory struct {
	deleted      time.Time // when this process deleted the Runner; guarded by Memory
	deregistered bool
	released     time.Time // when this process removed its finalizer
}

// isRecent reports whether the cache may not show yet what this process did at a time. What it does not show later is done again: a restore of
// etcd undoes it.
func isRecent(at time.Time) bool { return time.Since(at) < podShown }

// completion of a runner's job, by GitHub's word.
type completion struct {
	at        time.Time // zero if it isn't known to be over
	forgotten bool      // GitHub has removed the runner's registration by itself
	result    string    // of the job; "" if GitHub didn't say
}

// Failure of a runner.
type Failure struct {
	Runner, Revision string
	// Cause is "" of one that failed with a job: it's the job's matter, not the template's.
	Cause   v1alpha1.RunnerCause
	HadJob  bool
	Message string
	// Node that its pod was on; "" for none.
	Node string
	// Exit is how its container ended; nil if it didn't, or with exit code 0.
	Exit *v1alpha1.RunnerExit
	// Began is when the runner was created, At when it failed.
	Began, At time.Time
	// Clean is true of a container that ended with exit code 0: it may have had a job.
	Clean bool
	// NameTaken is true if another object has the runner's name.
	NameTaken bool
}

// Results holds the failures and successes of a pool's runners since its last pass.
type Results struct {
	Failures []Failure
	// Worked holds the last runner of each revision that got a job.
	Worked map[string]Worked
	// Missed is the last runner that started without a claim of the cache; nil for none.
	Missed *v1alpha1.CacheMiss
}

// Worked names a runner that got a job, and when the job began.
type Worked struct {
	Runner string
	Began  time.Time
}

// of returns the memory of a runner for its worker. Another runner of the same name starts with an empty one.
func (m *Memory) of(key types.NamespacedName, uid types.UID) *runnerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked(key, uid)
}

func (m *Memory) locked(key types.NamespacedName, uid types.UID) *runnerMemory {
	if known := m.runners[key]; known != nil && known.uid == uid {
		return known
	}
	m.dropLocked(key)
	m.runners[key] = &runnerMemory{uid: uid}
	return m.runners[key]
}

// outside returns the memory of a runner for somebody else than its worker, which is woken if
// there was none: it drops that of a runner that is gone.
func (m *Memory) outside(key types.NamespacedName, uid types.UID) *runnerMemory {
	if known := m.runners[key]; known == nil || known.uid != uid {
		m.wakes.Wake(key)
	}
	return m.locked(key, uid)
}

// seen returns the memory of a runner, or an empty one that nothing keeps.
func (m *Memory) seen(key types.NamespacedName, uid types.UID) *runnerMemory {
	if known := m.runners[key]; known != nil && known.uid == uid {
		return known
	}
	return &runnerMemory{}
}

func (m *Memory) dropLocked(key types.NamespacedName) {
	if known := m.runners[key]; known != nil {
		if known.starting {
			m.starting--
		}
		if known.claim.name != "" {
			m.claims.release(types.NamespacedName{Namespace: key.Namespace, Name: known.claim.name}, known.uid)
		}
	}
	delete(m.runners, key)
}

// beginStart notes that a runner waits for nothing but its pod.
func (m *Memory) beginStart(r *runnerMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.starting {
		r.starting = true
		m.starting++
	}
}

// endStart notes that a runner has or had its pod, or needs none any more.
func (m *Memory) endStart(r *runnerMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.starting {
		r.starting = false
		m.starting--
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

// acquireRecord waits until a record of a namespace may be written, and returns what to call after it.
func (m *Memory) acquireRecord(ctx context.Context, namespace string) (release func(), err error) {
	m.mu.Lock()
	line := m.recording
	if m.starting > 0 {
		line = m.beside
	}
	m.mu.Unlock()
	round, err := line.Enter(ctx, turns.Looking, namespace)
	if err != nil {
		return nil, err
	}
	return func() { line.Leave(round, turns.Unknown) }, nil
}

// recordCompletion notes when and how a runner's job was over, and whether GitHub has forgotten the runner.
func (m *Memory) recordCompletion(key types.NamespacedName, uid types.UID, c completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outside(key, uid).completion = c
}

// end is End for those who notice at the same time that a runner is over: its job ends, and then its pod, before the cache shows what the
// first of them did. One request is made for all, and all get its error. It does not end with the work of the one that came first.
func (m *Memory) end(ctx context.Context, c client.Client, r *v1alpha1.Runner, why string) error {
	key := client.ObjectKeyFromObject(r)
	_, err, _ := m.ends.Do(string(r.UID), func() (any, error) {
		if m.isDeleted(key, r.UID) {
			return nil, nil
		}
		isThere, err := deleteRunner(context.WithoutCancel(ctx), c, r, why)
		if isThere {
			m.setDeleted(key, r.UID)
		}
		return nil, err
	})
	return err
}

// isDeleted reports whether this process deleted a Runner just now. The cache may not show it yet.
func (m *Memory) isDeleted(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return isRecent(m.seen(key, uid).end.deleted)
}

func (m *Memory) setDeleted(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen(key, uid).end.deleted = time.Now()
}

// setStoredSecret records that a pool's runner has a Secret under a new name. Names that follow are new as well.
func (m *Memory) setStoredSecret(pool types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored[pool] = true
}

// storedSecret reports whether this process stored a Secret for a pool.
func (m *Memory) storedSecret(pool types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored[pool]
}

// setRegistration notes the id of a runner's registration.
func (m *Memory) setRegistration(r *runnerMemory, id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.registration, r.refused = id, 0
}

// registration returns the id that a runner was registered under by this process, or that this process found; 0 for
// none.
func (m *Memory) registration(key types.NamespacedName, uid types.UID) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.seen(key, uid)
	return cmp.Or(known.registration, known.persistent.id)
}

// recordGone keeps a pod that is gone for the runner that had it: no pass may have seen how it ended.
func (m *Memory) recordGone(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen(client.ObjectKeyFromObject(pod), types.UID(pod.Annotations[v1alpha1.RunnerUIDAnnotation])).pod.last = pod
}

// lastPod returns the pod of a runner that is gone, nil if that was missed.
func (m *Memory) lastPod(r *runnerMemory) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.pod.last
}

// MarkFailed notes why a runner failed that is about to be ended.
func (m *Memory) MarkFailed(key types.NamespacedName, uid types.UID, why poolstatus.Assessment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outside(key, uid).failed = &why
}

// failure returns why a runner failed, nil if it didn't.
func (m *Memory) failure(key types.NamespacedName, uid types.UID) *poolstatus.Assessment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked(key, uid).failed
}

// HasFailed reports whether it is recorded that a runner failed.
func (m *Memory) HasFailed(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen(key, uid).failed != nil
}

// SuspectSome asks for looks at runners of which GitHub misses some: at as many as are missing or a few more, those first
// that nobody looked at for longest, so that each has its turn. wereOnline has those that were connected before.
func (m *Memory) SuspectSome(namespace string, s poolstatus.Suspects, wereOnline map[string]bool, now time.Time) {
	at, looks := map[string]time.Time{}, max(s.Missing, suspectLeast)
	for _, name := range s.Names { // those of late count
		if at[name] = m.suspectedAt(types.NamespacedName{Namespace: namespace, Name: name}); !at[name].IsZero() && now.Sub(at[name]) < SuspectInterval {
			looks--
		}
	}
	names := slices.SortedStableFunc(slices.Values(s.Names), func(a, b string) int { return at[a].Compare(at[b]) })
	for _, name := range names {
		if looks > 0 && m.Suspect(types.NamespacedName{Namespace: namespace, Name: name}, wereOnline[name], now) {
			looks--
		}
	}
}

// suspectedAt returns when a runner was last suspected.
func (m *Memory) suspectedAt(key types.NamespacedName) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspects[key].at
}

// Suspect asks for a look at the registration of a runner that GitHub doesn't count as we
// do; now and then at most. wasOnline says that it was connected before. It reports whether it is time for a look.
func (m *Memory) Suspect(key types.NamespacedName, wasOnline bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.suspects[key]
	if known && now.Sub(s.at) < max(SuspectInterval, s.pause) {
		return false
	}
	s.at, s.open, s.wasOnline = now, true, s.wasOnline || wasOnline
	m.suspects[key] = s
	m.wakes.Wake(key)
	return true
}

// popSuspicion reports whether a runner is suspected, once for each suspicion.
func (m *Memory) popSuspicion(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.suspects[key]
	if !s.open {
		return false
	}
	s.open = false
	m.suspects[key] = s
	return true
}

// suspectStill has the next pass look at a runner again, as this one's look failed.
func (m *Memory) suspectStill(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.suspects[key]
	s.open = true
	m.suspects[key] = s
}

// looked notes what a look at a suspected runner found, and returns what was known before.
func (m *Memory) looked(key types.NamespacedName, known *registered) (before suspicion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.suspects[key]
	now := before
	now.offline = known.offline
	switch {
	case known.online:
		now.wasOnline = true
		now.pause = min(suspectLongest, 2*max(now.pause, SuspectInterval/2))
	case known.offline: // the second look that proves it comes soon
		now.pause = 0
	}
	m.suspects[key] = now
	return before
}

// completion returns what is known of the end of a runner's job.
func (m *Memory) completion(key types.NamespacedName, uid types.UID) completion {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen(key, uid).completion
}

// Completion returns when a runner's job was over, and whether it is known to be.
func (m *Memory) Completion(key types.NamespacedName, uid types.UID) (at time.Time, over bool) {
	at = m.completion(key, uid).at
	return at, !at.IsZero()
}

// isPodDeleted reports whether the deletion of a pod was asked for just now.
func (m *Memory) isPodDeleted(key types.NamespacedName, pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.runners[key]
	return known != nil && known.pod.deleted == pod && isRecent(known.pod.asked)
}

// forget drops what is known of a runner that is gone. PodShown is false if the cache shows no pod of its name, either.
func (m *Memory) forget(key types.NamespacedName, podShown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.runners[key]; known != nil && known.claim.name != "" {
		m.claims.forget(types.NamespacedName{Namespace: key.Namespace, Name: known.claim.name}, known.uid, !podShown && known.claim.podIsGone())
	}
	m.dropLocked(key)
	delete(m.suspects, key)
}

// recordFailure keeps a failure for the pool, which takes it in its next pass.
func (m *Memory) recordFailure(pool types.NamespacedName, f Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resultsOf(pool); len(o.Failures) < maxFailures {
		o.Failures = append(o.Failures, f)
	}
}

// recordWorked notes that a runner got a job. It may be gone before its pool looks at it.
func (m *Memory) recordWorked(pool types.NamespacedName, revision string, w Worked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resultsOf(pool); w.Began.After(o.Worked[revision].Began) {
		o.Worked[revision] = w
	}
}

// recordMissed notes that a runner started without a claim.
func (m *Memory) recordMissed(pool types.NamespacedName, miss v1alpha1.CacheMiss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resultsOf(pool).Missed = &miss
}

func (m *Memory) resultsOf(pool types.NamespacedName) *Results {
	if m.results[pool] == nil {
		m.results[pool] = &Results{Worked: map[string]Worked{}}
	}
	return m.results[pool]
}

// SinceLastPass returns the results of a pool's runners since it was called last.
func (m *Memory) SinceLastPass(pool types.NamespacedName) Results {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.results[pool]
	delete(m.results, pool)
	return ptr.Deref(taken, Results{})
}
