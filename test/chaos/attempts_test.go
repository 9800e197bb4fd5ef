// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// maxExcess is how long a pool may have more live Runners than its max. A failed Runner's status is written only
// after its replacement exists.
const maxExcess = 30 * time.Second

// attempts records how many Runners the controller creates for each pool, in total and at once.
type attempts struct {
	mu    sync.Mutex
	pools map[string]*poolAttempts
	pods  map[string][]nodeplay.FaultKind // the faults that struck each pod
}

// poolAttempts records the Runners of one pool.
type poolAttempts struct {
	lives  map[types.UID]life // by Runner
	causes map[v1alpha1.RunnerCause]string
	struck map[nodeplay.FaultKind]int // number of pods
}

// life is the period in which a Runner was live. It begins with its creation, and ends when its status reports the
// end or its deletion is requested. The times are the API server's, because a watch may be late.
type life struct {
	name        string
	from, until time.Time
}

// crowded returns the longest time during which the pool had more than maxRunners live Runners.
func (p *poolAttempts) crowded() (longest time.Duration) {
	type change struct {
		at   time.Time
		more int
	}
	var changes []change
	for _, l := range p.lives {
		changes = append(changes, change{l.from, 1})
		if !l.until.IsZero() {
			changes = append(changes, change{l.until, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.more, b.more)) })
	live, since := 0, time.Time{}
	for _, c := range changes {
		was := live
		switch live += c.more; {
		case was == maxRunners && live > was:
			since = c.at
		case was > maxRunners && live == maxRunners:
			longest = max(longest, c.at.Sub(since))
		}
	}
	return longest
}

func (a *attempts) of(pool string) *poolAttempts {
	if a.pools == nil {
		a.pools = map[string]*poolAttempts{}
	}
	if a.pools[pool] == nil {
		a.pools[pool] = &poolAttempts{
			lives: map[types.UID]life{}, causes: map[v1alpha1.RunnerCause]string{}, struck: map[nodeplay.FaultKind]int{},
		}
	}
	return a.pools[pool]
}

// namedOnce returns the names that only one Runner ever had. A pool that was restored or recreated reuses names.
func (a *attempts) namedOnce() map[string]bool {
	once := map[string]bool{}
	for _, p := range a.pools {
		for _, l := range p.lives {
			_, isKnown := once[l.name]
			once[l.name] = !isKnown
		}
	}
	return once
}

// see records the state of a Runner from a watch event.
func (a *attempts) see(r *v1alpha1.Runner, gone bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of(r.Spec.PoolRef.Name)
	l, isOver := t.lives[r.UID], r.Status.State == v1alpha1.RunnerFailed || r.Status.State == v1alpha1.RunnerFinished
	l.name = r.Name
	switch l.from = r.CreationTimestamp.Time; {
	case !l.until.IsZero():
	case !r.DeletionTimestamp.IsZero():
		l.until = r.DeletionTimestamp.Time
	case gone:
		l.until = now
	case isOver:
		for _, f := range r.ManagedFields {
			if f.Subresource == "status" && f.Time.After(l.until) {
				l.until = f.Time.Time
			}
		}
	}
	t.lives[r.UID] = l
	if r.Status.State == v1alpha1.RunnerFailed && r.Status.Cause != "" {
		t.causes[r.Status.Cause] = r.Name + ": " + r.Status.Reason
	}
}

// strike records a fault that hit a pod.
func (a *attempts) strike(pod *corev1.Pod, kind nodeplay.FaultKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(pod.Labels[v1alpha1.PoolLabel]).struck[kind]++
	if a.pods == nil {
		a.pods = map[string][]nodeplay.FaultKind{}
	}
	a.pods[pod.Name] = append(a.pods[pod.Name], kind)
}

// purged marks a pod whose runner GitHub removed.
const purged nodeplay.FaultKind = "purged"

var lost = []nodeplay.FaultKind{nodeplay.NodeLost, nodeplay.NodeLostAfterEnd}

// origins lists the pod faults that can explain a cause. A cause that is not in the map may also come from GitHub,
// the API server or a slow machine.
var origins = map[v1alpha1.RunnerCause][]nodeplay.FaultKind{
	v1alpha1.CauseImagePull: {nodeplay.ImageRefused},
	v1alpha1.CauseRemoved:   slices.Concat(external, lost, []nodeplay.FaultKind{purged}),
	v1alpha1.CauseNode:      slices.Concat(external, lost, []nodeplay.FaultKind{nodeplay.KilledInJob}), // without a memory limit, the node runs out of memory
	v1alpha1.CauseDeadline:  nil,
	v1alpha1.CauseConfig:    nil,
	v1alpha1.CauseOutdated:  nil,
	v1alpha1.CauseRefused:   nil,
}

// attempted checks that no pool created too many Runners, had too many at once, or reported a cause that no fault
// explains.
func (s *storm) attempted() {
	s.Helper()
	jobs := map[string]int{}
	for _, j := range s.schedule.arrivals {
		jobs[j.job.Labels[0]]++
	}
	s.attempts.mu.Lock()
	defer s.attempts.mu.Unlock()
	for pool, t := range s.attempts.pools {
		strikes := 0
		for _, n := range t.struck {
			strikes += n
		}
		needed := jobs[pool] + maxRunners + strikes
		if isSteady(pool) {
			needed += updates * maxRunners * s.storms
		}
		if n := len(t.lives); n > 2*needed+spareAttempts*s.storms {
			s.complain("%s made %d runners; it had %d jobs, and %d of its pods were struck", pool, n, jobs[pool], strikes)
		}
		if longest := t.crowded(); longest > maxExcess && !strings.HasPrefix(pool, staying) {
			s.complain("%s had more than %d live runners for %s", pool, maxRunners, longest)
		}
		for cause, runner := range t.causes {
			kinds, isKnown := origins[cause]
			if isKnown && !slices.ContainsFunc(kinds, func(k nodeplay.FaultKind) bool { return t.struck[k] > 0 }) {
				s.complain("%s: cause %s of runner %s, but only these faults struck its pods: %v", pool, cause, runner, t.struck)
			}
		}
	}
}

// failed is a log entry about a failed runner.
type failed struct {
	Message string               `json:"msg"`
	Runner  string               `json:"runner"`
	Cause   v1alpha1.RunnerCause `json:"cause"`
	Reason  string               `json:"reason"`
}

// blamed checks that no runner that was ended by a node or by an external actor counts as a failure of its
// template, and that no crash counts as a failure of a node.
func (s *storm) blamed() {
	s.Helper()
	s.attempts.mu.Lock()
	defer s.attempts.mu.Unlock()
	ofTemplates := []v1alpha1.RunnerCause{v1alpha1.CauseCrash, v1alpha1.CauseConfig, v1alpha1.CauseImagePull, v1alpha1.CauseOutdated}
	counts := map[v1alpha1.RunnerCause]int{}
	once := s.attempts.namedOnce()
	for _, f := range s.log.failures() {
		if !once[f.Runner] {
			continue // the log does not identify which Runner of this name failed
		}
		kinds := s.attempts.pods[f.Runner]
		byOthers := slices.ContainsFunc(kinds, func(k nodeplay.FaultKind) bool { return k == nodeplay.NodeLost || slices.Contains(external, k) })
		crashed := len(kinds) == 1 && (kinds[0] == nodeplay.CrashBeforeConnecting || kinds[0] == nodeplay.CrashConnected)
		byItself := slices.ContainsFunc(kinds, func(k nodeplay.FaultKind) bool { return slices.Contains(blaming, k) })
		if byOthers && !byItself && slices.Contains(ofTemplates, f.Cause) || crashed && f.Cause == v1alpha1.CauseNode {
			s.complain("%s was struck by %v, and failed for %s: %s", f.Runner, kinds, f.Cause, f.Reason)
		}
		if byOthers {
			counts[f.Cause]++
		}
	}
	s.Logf("seed %d: causes of runners that nodes or others ended: %v", s.seed, counts)
}

// updated checks that pools with new templates use the latest one, and that no good template was rolled back.
func (s *storm) updated() {
	s.Helper()
	events := &eventsv1.EventList{}
	harness.Must(s.T, w.Client.List(s.Context(), events, client.InNamespace(s.namespace)))
	for _, e := range events.Items {
		if isSteady(e.Regarding.Name) && e.Reason == v1alpha1.RolledBackReason {
			s.complain("a good template of %s was rolled back: %s", e.Regarding.Name, e.Note)
		}
	}
	for _, p := range s.allPools() {
		if !isSteady(p.Name) {
			continue
		}
		s.eventually(func(ctx context.Context) error {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if !conditions.IsTrue(p, v1alpha1.UpdatedCondition) {
				return fmt.Errorf("the update status of %s is %+v", p.Name, p.Status.Update)
			}
			return nil
		})
	}
}
