// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
)

const shared = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 4 - input.usage.namespace.granted, \"assignedJobs\": \"Wait\", \"reason\": \"ceiling\"}\n"

// The memory has shared limits, but the pool as read has no decision: the cache lags, or a status write failed.
func TestASharedLimitHoldsWithoutADecision(t *testing.T) {
	b := newBench(t)
	b.put("p", shared)
	b.start()
	p := b.pool()
	p.Status.Decision = nil
	must(t, b.Client.Status().Update(t.Context(), p))
	b.put("p", brokenModule)
	b.reconcile()
}

// A delayed status write leaves an old, larger number in the stored limits.
func TestAShareIsHeldAtWhatWasGrantedNotAtWhatWasWritten(t *testing.T) {
	for _, gathers := range []bool{false, true} {
		heldShare(t, gathers)
	}
}

func heldShare(t *testing.T, gathers bool) {
	b := newBench(t)
	b.put("p", shared)
	b.start()
	if gathers {
		b.Gathered = kube.Gather(2*time.Second, 25, func() time.Time { return b.now })
	}
	b.snapshot.Assigned = 4
	b.reconcile()
	b.now = b.now.Add(20 * time.Second)
	b.reconcile()
	b.now = b.now.Add(20 * time.Second)
	b.reconcile()
	// The jobs are done.
	b.snapshot.Assigned = 0
	for _, r := range b.runners() {
		r.Finalizers = nil
		must(t, b.Client.Update(t.Context(), &r))
		must(t, b.Client.Delete(t.Context(), &r))
	}
	b.memory.of(key).expectations.created = map[string]*v1alpha1.Runner{}
	b.reconcile()
	// Another pool takes the whole ceiling.
	other := policy.Pool{Namespace: "ci", Name: "other", Connection: "acme", Scale: policy.Scale{Max: 4}}
	bound := b.Policies.For(other)
	a := b.Policies.Scaling(t.Context(), bound, policy.ScalingInput{Pool: other, Jobs: 4, Zone: "UTC", Now: b.now.UnixNano()})
	if a.Answer.Scale.Max != 4 || !b.Policies.Commit(a, policies.Grant{Granted: 4, Wanted: 4}) {
		t.Fatalf("%+v", a.Answer)
	}
	b.put("p", brokenModule)
	b.snapshot.Assigned = 4
	b.now = b.now.Add(time.Second)
	b.reconcile()
	if n := len(b.runners()); n > 0 {
		t.Errorf("%d runners here and 4 elsewhere under a ceiling of 4; announced %d", n, b.lastAnnounced())
	}
}

// busy commits a grant of another pool each time that the bench's pool is evaluated.
type busy struct {
	t       *testing.T
	b       *bench
	rules   *policy.Policy
	grants  []int32
	nesting bool
}

func (s *busy) Ask(ctx context.Context, _ *policy.Policy, q policy.Question) ([]byte, error) {
	answer, err := s.rules.Answer(ctx, q)
	if !s.nesting && len(s.grants) > 0 {
		s.nesting = true
		other := policy.Pool{Namespace: "ci", Name: "other", Connection: "acme", Scale: policy.Scale{Max: 4}}
		n := s.grants[0]
		for isEntered := false; !isEntered; { // in the end the pool is evaluated alone, for a short time
			a := s.b.Policies.Scaling(ctx, s.b.Policies.For(other), policy.ScalingInput{Pool: other, Jobs: 4, Zone: "UTC", Now: s.b.now.UnixNano()})
			if a.Answer.Scale.Max < n {
				s.t.Fatalf("the other may have %d, not %d", a.Answer.Scale.Max, n)
			}
			isEntered = s.b.Policies.Commit(a, policies.Grant{Granted: n, Wanted: 4})
		}
		s.grants, s.nesting = s.grants[1:], false
	}
	return answer, err
}

// A shared ceiling comes into force for a pool that already has a decision, while other pools get grants.
func TestAPoolThatIsAskedInVainGoesNoFurther(t *testing.T) {
	b := newBench(t)
	b.put("p", limit(5, ""))
	b.start()
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": shared}}
	rules, d := policy.Load(source)
	if len(d) > 0 {
		t.Fatal(d)
	}
	b.Policies.Put(policy.Elsewhere(source, rules.Facts(), &busy{t: t, b: b, rules: rules, grants: []int32{1, 2, 4}}), source)
	b.snapshot.Assigned = 4
	b.reconcile()
	if n := len(b.runners()); n > 0 {
		t.Errorf("%d runners here and 4 granted elsewhere, under a ceiling of 4; announced %d", n, b.lastAnnounced())
	}
}
