// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"maps"
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

// maxFailures limits how many failures of a pool are stored until the pool's next pass.
const maxFailures = 100

// Memory is what this process knows about runners before the cache shows it: what the process did or observed. It prevents
// the process from repeating actions and requests. Each part has methods that take the lock, and other packages use only
// these methods:
//
//   - runners: one runnerMemory per Runner. It belongs to the worker that reconciles the Runner; other goroutines access a
//     few of its fields through methods.
//   - results: how runners ended, until the pool's controller takes the results with SinceLastPass.
//   - suspects: which registrations need a check, set by Suspect and SuspectSome.
//   - claims: which cache claim each runner has.
//   - replaced: when the placeholders of pools were replaced.
//
// When the process ends, results that no pool has read are lost. Everything else can be found again with a few requests.
type Memory struct {
	wakes kube.EventSource // wakes a runner's controller

	mu       sync.Mutex
	runners  map[types.NamespacedName]*runnerMemory
	results  map[types.NamespacedName]*Results
	suspects map[types.NamespacedName]suspicion
	starting map[string]int // number of registered runners that wait only for their pods, by namespace
	claims   claimNotes
	stored   map[types.NamespacedName]bool // pools for which this process stored a Secret: their next runner names are new
	replaced map[types.UID]time.Time       // when placeholders were replaced during the last placeholderLife, by the pool's UID
	ends     singleflight.Group            // merges concurrent deletions of a Runner, by UID

	// recording limits how many job records are written concurrently, and whileStarting limits them while runners are
	// starting. In both, namespaces take turns.
	recording, whileStarting *turns.Limiter
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{
		runners: map[types.NamespacedName]*runnerMemory{}, results: map[types.NamespacedName]*Results{},
		suspects: map[types.NamespacedName]suspicion{}, stored: map[types.NamespacedName]bool{}, replaced: map[types.UID]time.Time{}, starting: map[string]int{}, recording: turns.New(recordParallel), whileStarting: turns.New(recordWhileStarting),
	}
}

const (
	// SuspectInterval is the minimum time between two checks of one runner's registration.
	SuspectInterval = time.Minute
	// suspectLongest is the maximum interval between two checks of one runner. While each check finds the runner online,
	// the interval grows up to this maximum, because GitHub's counts can be wrong for hours. The maximum also limits how
	// long a runner that lost its connection counts as idle.
	suspectLongest = 4 * time.Minute
	// suspectLeast is the minimum number of a pool's runners that are checked per SuspectInterval if GitHub counts fewer
	// runners than the pool has. Checking one at a time would take hours in a large pool.
	suspectLeast = 10
)

// suspicion records that GitHub may not know a runner any more, or may not be connected to it.
type suspicion struct {
	at    time.Time
	open  bool          // no pass has checked the runner yet
	pause time.Duration // minimum time before the runner may be suspected again
	// wasOnline is true if the runner has ever been connected. offline is true if it was not connected at the last check.
	wasOnline, offline bool
}

// runnerMemory is what this process knows about one runner. Only the worker that reconciles the Runner uses it. The
// exceptions are the fields of the first group and pod.last, pod.deleted, end.deleted, persistent.id and claim.name, which
// methods of Memory use under its lock.
type runnerMemory struct {
	uid          types.UID
	registration int64                  // its ID on GitHub; 0 until registered
	startsIn     string                 // its namespace while it is registered and has no pod yet; empty at other times
	completion   completion             // the end of its job
	failed       *poolstatus.Assessment // why it is being ended, if it failed

	registered bool        // this process registered the runner, so the ID is trusted
	unstored   *github.JIT // a registration or registration token whose Secret could not be created yet, or nil
	pod        podMemory
	container  containerMemory
	end        endMemory
	busy       bool // GitHub kept its registration because it has a job
	hadNoJob   bool // it ended without an error, and GitHub reported that it had no job
	refused    int  // consecutive attempts in which GitHub was unavailable or already had a registration with this name
	persistent persistentMemory
	claim      claimMemory
	absence    absence
}

// podMemory is what this process did with a runner's pod and last saw of it.
type podMemory struct {
	created time.Time   // when this process created it, until the cache shows it
	deleted types.UID   // UID of the pod whose deletion was requested
	asked   time.Time   // when the deletion was requested
	stuck   bool        // an event reported that it outlives its deletion
	stopped time.Time   // when this process made the node stop the pod's containers without deleting the pod
	last    *corev1.Pod // the pod's last state before it was deleted; nil while it exists, or if the deletion was missed. Guarded by Memory
}

// hadPod reports whether the runner's pod was ever created, even if the cache shows none.
func (m *runnerMemory) hadPod() bool { return !m.pod.created.IsZero() || m.claim.seen }

// containerMemory is what this process observed of a runner's container.
type containerMemory struct {
	awaited bool // a pass saw the pod before the container started
	ran     bool // a pass saw the container while it was running
	started time.Time
	ended   time.Time            // when a pass first saw its end
	down    time.Time            // when a container that will restart ended, by its node's clock; zero while it runs
	turned  time.Time            // when this process noticed the last change of down
	exit    *v1alpha1.RunnerExit // how it ended, with the taints of its node; nil until the taints were read
}

// endMemory is what this process did to end a runner.
type endMemory struct {
	deleted      time.Time // when this process deleted the Runner; guarded by Memory
	deregistered bool
	abandoned    bool      // an event reported that the registration may stay on GitHub
	released     time.Time // when this process removed its finalizer
}

// isRecent reports whether the cache may not show yet what this process did at the given time. If the cache does not show
// it later, the process repeats the action, because a restore of etcd may have undone it.
func isRecent(at time.Time) bool { return time.Since(at) < podShown }

// completion is the end of a runner's job as GitHub reported it.
type completion struct {
	at        time.Time // zero if the job is not known to be over
	forgotten bool      // GitHub itself has removed the runner's registration
	result    string    // result of the job; empty if GitHub did not report it
}

// Failure describes a failed runner.
type Failure struct {
	Runner, Revision string
	// Cause is empty if the runner failed during a job, because the job rather than the template is responsible.
	Cause   v1alpha1.RunnerCause
	HadJob  bool
	Message string
	// Node is the node of its pod; empty if there was none.
	Node string
	// Exit is how its container ended; nil if it did not end or ended with exit code 0.
	Exit *v1alpha1.RunnerExit
	// Began is when the runner was created, and At is when it failed.
	Began, At time.Time
	// Clean is true if the container ended with exit code 0; the runner may then have had a job.
	Clean bool
	// NameTaken is true if another object has the runner's name.
	NameTaken bool
}

// Results holds the failures and successes of a pool's runners since its last pass.
type Results struct {
	Failures []Failure
	// Worked maps each revision to the runner of that revision that got a job last.
	Worked map[string]Worked
	// Missed is the last runner that started without a cache claim; nil if none did.
	Missed *v1alpha1.CacheMiss
}

// Worked identifies a runner that got a job, and when the job began.
type Worked struct {
	Runner string
	Began  time.Time
}

// of returns the memory of a runner, for the worker that reconciles it. A new runner with the name of an earlier one gets
// an empty memory.
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

// outside returns the memory of a runner for a goroutine other than its worker. If there was none, it wakes the worker,
// which drops the new memory if the runner is gone. The caller holds the lock.
func (m *Memory) outside(key types.NamespacedName, uid types.UID) *runnerMemory {
	if known := m.runners[key]; known == nil || known.uid != uid {
		m.wakes.Wake(key)
	}
	return m.locked(key, uid)
}

// seen returns the memory of a runner, or an empty value that is not stored. The caller holds the lock.
func (m *Memory) seen(key types.NamespacedName, uid types.UID) *runnerMemory {
	if known := m.runners[key]; known != nil && known.uid == uid {
		return known
	}
	return &runnerMemory{}
}

func (m *Memory) dropLocked(key types.NamespacedName) {
	if known := m.runners[key]; known != nil {
		m.endStartLocked(known)
		if known.claim.name != "" {
			m.claims.release(types.NamespacedName{Namespace: key.Namespace, Name: known.claim.name}, known.uid)
		}
	}
	delete(m.runners, key)
}

// beginStart records that a registered runner of a namespace waits only for its pod.
func (m *Memory) beginStart(r *runnerMemory, namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.startsIn == "" {
		r.startsIn = namespace
		m.starting[namespace]++
	}
}

// endStart records that a runner has or had its pod, or no longer needs one.
func (m *Memory) endStart(r *runnerMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endStartLocked(r)
}

func (m *Memory) endStartLocked(r *runnerMemory) {
	if r.startsIn == "" {
		return
	}
	m.starting[r.startsIn]--
	if m.starting[r.startsIn] == 0 {
		delete(m.starting, r.startsIn)
	}
	r.startsIn = ""
}

// recordParallel is the maximum number of job records, of all pools, that are written at once. recordWhileStarting is the
// maximum for the namespaces where runners are starting. The record of a completed job deletes its Runner, which costs as much
// as starting a runner. Without the lower limit, the deletions after a burst's first jobs would delay the runners for its last
// jobs.
const (
	recordParallel      = 32
	recordWhileStarting = 4
)

// acquireRecord waits until a record for a namespace may be written, and returns the function to call afterwards.
func (m *Memory) acquireRecord(ctx context.Context, namespace string) (release func(), err error) {
	m.mu.Lock()
	line := m.recording
	if m.starting[namespace] > 0 {
		line = m.whileStarting
	}
	m.mu.Unlock()
	round, err := line.Enter(ctx, turns.Looking, namespace)
	if err != nil {
		return nil, err
	}
	return func() { line.Leave(round, turns.Unknown) }, nil
}

// recordCompletion records when and how a runner's job ended, and whether GitHub has removed the runner's registration.
func (m *Memory) recordCompletion(key types.NamespacedName, uid types.UID, c completion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outside(key, uid).completion = c
}

// end deletes a Runner as End does, but merges concurrent requests, because several goroutines may notice that a runner is
// over before the cache shows the first deletion. All of them receive the error of the same request, which continues if the
// first caller's context is canceled.
func (m *Memory) end(ctx context.Context, c client.Client, r *v1alpha1.Runner, why string) error {
	key := client.ObjectKeyFromObject(r)
	_, err, _ := m.ends.Do(string(r.UID), func() (any, error) {
		if m.isDeleted(key, r.UID) {
			return nil, nil
		}
		isThere, err := End(context.WithoutCancel(ctx), c, r, why)
		if isThere {
			m.setDeleted(key, r.UID)
		}
		return nil, err
	})
	return err
}

// isDeleted reports whether this process deleted a Runner so recently that the cache may not show it yet.
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

// setStoredSecret records that a pool's runner has a Secret under a new name. The names of the pool's later runners are new
// as well.
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

// forgetSecrets drops the record that this process stored Secrets for a pool, because the pool is gone.
func (m *Memory) forgetSecrets(pool types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stored, pool)
}

// mayReplacePlaceholder reports whether the last replacement of a pool's placeholder was long enough ago.
func (m *Memory) mayReplacePlaceholder(pool types.UID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known := m.replaced[pool]
	return !known || now.Sub(at).Abs() >= placeholderLife // the clock may be set back
}

// notePlaceholderReplaced records that a pool's placeholder was removed because its pool needs another one.
func (m *Memory) notePlaceholderReplaced(pool types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.replaced, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= placeholderLife })
	m.replaced[pool] = now
}

// setRegistration records the ID of a runner's registration.
func (m *Memory) setRegistration(r *runnerMemory, id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.registration, r.refused = id, 0
}

// registration returns the ID under which this process registered a runner or found it registered; 0 if it did neither.
func (m *Memory) registration(key types.NamespacedName, uid types.UID) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.seen(key, uid)
	return cmp.Or(known.registration, known.persistent.id)
}

// recordGone stores the last state of a deleted pod for its runner, because possibly no pass has seen how the pod ended.
func (m *Memory) recordGone(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen(client.ObjectKeyFromObject(pod), types.UID(pod.Annotations[v1alpha1.RunnerUIDAnnotation])).pod.last = pod
}

// lastPod returns the last state of a runner's deleted pod; nil if the deletion was missed.
func (m *Memory) lastPod(r *runnerMemory) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.pod.last
}

// MarkFailed records why a runner failed. The caller is about to delete the Runner.
func (m *Memory) MarkFailed(key types.NamespacedName, uid types.UID, why poolstatus.Assessment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outside(key, uid).failed = &why
}

// failure returns why a runner failed; nil if it did not.
func (m *Memory) failure(key types.NamespacedName, uid types.UID) *poolstatus.Assessment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked(key, uid).failed
}

// HasFailed reports whether a failure of the runner is recorded.
func (m *Memory) HasFailed(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen(key, uid).failed != nil
}

// SuspectSome requests checks for a pool's runners when GitHub counts fewer runners than the pool has. Per SuspectInterval,
// it requests as many checks as runners are missing, but at least suspectLeast. It starts with the runners that were not
// checked for the longest time, so that every runner has its turn. wereOnline contains the names of the runners that were
// connected before.
func (m *Memory) SuspectSome(namespace string, s poolstatus.Suspects, wereOnline map[string]bool, now time.Time) {
	at, looks := map[string]time.Time{}, max(s.Missing, suspectLeast)
	for _, name := range s.Names { // recent checks count
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

// Suspect requests a check of the registration of a runner whose state on GitHub seems to differ from Corral's, at a
// limited rate. Set wasOnline if the runner was connected before. Suspect reports whether it requested a check.
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

// popSuspicion reports whether a requested check of a runner is pending, and removes the request.
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

// suspectStill makes the next pass check a runner again, because the check in this pass failed.
func (m *Memory) suspectStill(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.suspects[key]
	s.open = true
	m.suspects[key] = s
}

// looked records the result of checking a suspected runner, and returns the previous state.
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
	case known.offline: // the second check, which confirms that the runner is offline, follows soon
		now.pause = 0
	}
	m.suspects[key] = now
	return before
}

// completion returns the known end of a runner's job.
func (m *Memory) completion(key types.NamespacedName, uid types.UID) completion {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen(key, uid).completion
}

// Completion returns when a runner's job ended, and whether it is known to have ended.
func (m *Memory) Completion(key types.NamespacedName, uid types.UID) (at time.Time, over bool) {
	at = m.completion(key, uid).at
	return at, !at.IsZero()
}

// isPodDeleted reports whether this process requested the deletion of the pod recently.
func (m *Memory) isPodDeleted(key types.NamespacedName, pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.runners[key]
	return known != nil && known.pod.deleted == pod && isRecent(known.pod.asked)
}

// forget drops the state of a runner that is gone. podShown is false if the cache shows no pod with its name either.
func (m *Memory) forget(key types.NamespacedName, podShown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.runners[key]; known != nil && known.claim.name != "" {
		m.claims.forget(types.NamespacedName{Namespace: key.Namespace, Name: known.claim.name}, known.uid, !podShown && known.claim.podIsGone())
	}
	m.dropLocked(key)
	delete(m.suspects, key)
}

// recordFailure stores a failure until the pool's next pass.
func (m *Memory) recordFailure(pool types.NamespacedName, f Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resultsOf(pool); len(o.Failures) < maxFailures {
		o.Failures = append(o.Failures, f)
	}
}

// recordWorked records that a runner got a job. The runner may be gone before its pool's next pass.
func (m *Memory) recordWorked(pool types.NamespacedName, revision string, w Worked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.resultsOf(pool); w.Began.After(o.Worked[revision].Began) {
		o.Worked[revision] = w
	}
}

// recordMissed records that a runner started without a claim.
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

// SinceLastPass returns the results of a pool's runners since the previous call.
func (m *Memory) SinceLastPass(pool types.NamespacedName) Results {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.results[pool]
	delete(m.results, pool)
	return ptr.Deref(taken, Results{})
}
