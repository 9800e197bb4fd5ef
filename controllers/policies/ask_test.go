// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// counting forwards questions to the rules of a policy, and counts them.
type counting struct {
	rules *policy.Policy
	asked int
}

func (c *counting) Ask(ctx context.Context, _ *policy.Policy, q policy.Question) ([]byte, error) {
	c.asked++
	return c.rules.Answer(ctx, q)
}

// putCounted puts a policy into force and counts its evaluations.
func putCounted(t *testing.T, e *Engine, text string) *counting {
	t.Helper()
	source := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Modules: map[string]string{"c.rego": text}}
	rules, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	c := &counting{rules: rules}
	e.Put(policy.Elsewhere(source, rules.Facts(), c), source)
	return c
}

func TestADecisionIsAskedAgainWhenWhatItsRulesReadChanges(t *testing.T) {
	const rule = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 5, \"reason\": \"r\"%s} if input.%s\n"
	base := policy.ScalingInput{Pool: facts("ci", "a", "acme", nil), Jobs: 1, Runners: policy.Runners{Busy: 1}, Zone: "UTC"}
	base.Pool.Scale.Max = 10
	cases := map[string]struct {
		extra, reads string
		change       func(*policy.ScalingInput)
		after        time.Duration
		want         int
	}{
		"nothing":                   {"", "jobs >= 0", func(*policy.ScalingInput) {}, 0, 1},
		"jobs that it reads":        {"", "jobs >= 0", func(in *policy.ScalingInput) { in.Jobs = 2 }, 0, 2},
		"jobs that it doesn't":      {"", "now > 0", func(in *policy.ScalingInput) { in.Jobs = 2 }, 0, 1},
		"jobs beyond a limit":       {`, "assignedJobs": "Wait"`, "now > 0", func(in *policy.ScalingInput) { in.Jobs = 2 }, 0, 2},
		"runners that it reads":     {"", "runners.busy >= 0", func(in *policy.ScalingInput) { in.Runners.Busy = 2 }, 0, 2},
		"runners that it doesn't":   {"", "now > 0", func(in *policy.ScalingInput) { in.Runners.Busy = 2 }, 0, 1},
		"the pool":                  {"", "now > 0", func(in *policy.ScalingInput) { in.Pool.Scale.Max = 9 }, 0, 2},
		"the clock, for a while":    {"", "now > 0", func(*policy.ScalingInput) {}, 59 * time.Second, 1},
		"the clock, for a minute":   {"", "now > 0", func(*policy.ScalingInput) {}, time.Minute, 2},
		"the clock, before until":   {`, "until": input.now + 10000000000`, "now > 0", func(*policy.ScalingInput) {}, 9 * time.Second, 1},
		"the clock, at until":       {`, "until": input.now + 10000000000`, "now > 0", func(*policy.ScalingInput) {}, 10 * time.Second, 2},
		"the clock, long before it": {`, "until": input.now + 900000000000`, "now > 0", func(*policy.ScalingInput) {}, time.Minute, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			e := NewEngine(func() time.Time { return now })
			c := putCounted(t, e, fmt.Sprintf(rule, tc.extra, tc.reads))
			in := base
			for range 2 {
				in.Now = e.Now().UnixNano()
				a := e.Scaling(t.Context(), e.For(in.Pool), in)
				if len(a.Answer.Failures) > 0 || a.Answer.Scale.Max > 5 {
					t.Fatalf("%+v", a.Answer)
				}
				now = now.Add(tc.after)
				tc.change(&in)
			}
			if c.asked != tc.want {
				t.Errorf("it is asked %d times, want %d", c.asked, tc.want)
			}
		})
	}
}

func TestAnUpdateIsAskedAboutAgainWhenItChanges(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := NewEngine(func() time.Time { return now })
	c := putCounted(t, e, "package corral.update\n\nrollout contains {\"maxSurge\": 1, \"reason\": \"r\"}\n")
	in := policy.UpdateInput{Pool: facts("ci", "a", "acme", nil), Change: policy.Change{Strategy: "RollingUpdate", MaxSurge: 3}, Zone: "UTC"}
	for i, step := range []func(){func() {}, func() { now = now.Add(30 * time.Second) }, func() { in.Jobs++ }, func() { now = now.Add(time.Minute) }} {
		step()
		in.Now = now.UnixNano()
		if answer := e.Update(t.Context(), e.For(in.Pool), in); answer.MaxSurge != 1 {
			t.Fatalf("%+v", answer)
		}
		if want := []int{1, 1, 2, 3}[i]; c.asked != want {
			t.Errorf("after step %d it was asked %d times, want %d", i, c.asked, want)
		}
	}
}

func ceiling(t *testing.T, share v1alpha1.CeilingShare) *Engine {
	t.Helper()
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10, Share: share}},
	}})
	return e
}

// asked evaluates the limits of a pool with a max of 10.
func asked(ctx context.Context, e *Engine, name string, alone bool) *Asked {
	p := facts("ci", name, "acme", nil)
	p.Scale.Max = 10
	in := policy.ScalingInput{Pool: p, Jobs: 10, Now: e.Now().UnixNano(), Zone: "UTC"}
	if alone {
		return e.Alone(ctx, e.For(p), in)
	}
	return e.Scaling(ctx, e.For(p), in)
}

// usageOf returns the usage of other pools that a pool's rules see.
func usageOf(l *ledger, p policy.Pool, needs policy.Needs) policy.Usage {
	a := &Asked{in: policy.ScalingInput{Pool: p}, needs: needs}
	l.look(a)
	return a.in.Usage
}

func TestAGrantIsEnteredOnlyIfItFits(t *testing.T) {
	e := ceiling(t, v1alpha1.ShareFirstCome)
	a, b := asked(t.Context(), e, "a", false), asked(t.Context(), e, "b", false)
	if !e.Commit(b, Grant{Granted: 8, Wanted: 10}) {
		t.Error("nothing changed for the first")
	}
	if e.Commit(a, Grant{Granted: 8, Wanted: 10}) {
		t.Error("two grants of 8 under a ceiling of 10")
	}
	if !e.Commit(asked(t.Context(), e, "a", false), Grant{Wanted: 10}) {
		t.Error("a grant of none")
	}
	c := asked(t.Context(), e, "c", false)
	if !e.Commit(b, Grant{Granted: 9, Wanted: 10}) || !e.Commit(c, Grant{Granted: 1, Wanted: 10}) {
		t.Error("what others were granted meanwhile leaves as much as each of them takes")
	}
	if e.Commit(c, Grant{Granted: 2, Wanted: 10}) || !e.Commit(c, Grant{Granted: 1, Wanted: 9}) {
		t.Error("a pool that is granted no more than it has may always have it, and no more")
	}
	e.Forget(types.NamespacedName{Namespace: "ci", Name: "c"}, 0)
	e.Hold(b, Grant{Granted: 8, Wanted: 10})
	again := asked(t.Context(), e, "a", false)
	if again.Answer.Scale.Max != 2 || !e.Commit(again, Grant{Granted: 2, Wanted: 10}) {
		t.Errorf("asked again: %+v", again.Answer)
	}
}

// A pool of a tenant whose rules read the usage of all pools asks alone. Pools that are not bound by such rules are granted
// more at once, and that does not refuse its grant. Another pool of the tenant is refused more until it is done, and not
// for long.
func TestWhoAsksAloneHoldsPoolsOfTheSameRules(t *testing.T) {
	for name, commits := range map[string]bool{"until it has its grant": true, "not longer than it may": false} {
		synctest.Test(t, func(t *testing.T) {
			e, began := shared(t, 1, 1000, v1alpha1.ShareFirstCome), time.Now()
			putSource(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: large, Name: "rules", Modules: map[string]string{
				"r.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 100 - input.usage.all.granted, \"assignedJobs\": \"Wait\", \"reason\": \"r\"}\n",
			}})
			of := func(pool policy.Pool) *Asked {
				return e.Scaling(t.Context(), e.For(pool), policy.ScalingInput{Pool: pool, Zone: "UTC"})
			}
			ours, other, s := sharing(large, "ours"), of(sharing(large, "p0")), of(sharing(small, "s"))
			a := e.Alone(t.Context(), e.For(ours), policy.ScalingInput{Pool: ours, Zone: "UTC"})
			if !e.Commit(s, Grant{Granted: 8}) || !e.Commit(of(s.in.Pool), Grant{Granted: 9}) {
				t.Errorf("%s: a neighbour is refused", name)
			}
			if !e.Commit(other, Grant{Granted: 1}) || e.Commit(other, Grant{Granted: 2}) || e.Commit(of(other.in.Pool), Grant{Granted: 2}) {
				t.Errorf("%s: another pool of the same rules may keep what it has, and is refused more", name)
			}
			if commits && !e.Commit(a, Grant{Granted: 90}) {
				t.Errorf("%s: it is refused for a neighbour's grant", name)
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("%s: a grant waited %s", name, waited)
			}
			if !commits {
				time.Sleep(aloneTime) // of the test's clock
			}
			synctest.Wait()
			if e.Commit(other, Grant{Granted: 2}) == commits || !e.Commit(of(other.in.Pool), Grant{Granted: 3}) {
				t.Errorf("%s: after that, another pool is granted more if it was asked since", name)
			}
		})
	}
}

// If a cluster rule reads the usage of a pool's namespace, grants in other namespaces do not refuse the pool's grant.
func TestGrantsOfOtherGroupsRefuseNone(t *testing.T) {
	e := newEngine()
	putSource(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "rules", Modules: map[string]string{
		"r.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 10 - input.usage.namespace.granted, \"assignedJobs\": \"Wait\", \"reason\": \"r\"}\n",
	}})
	s, same := sharing(small, "s"), sharing(small, "same")
	a := e.Scaling(t.Context(), e.For(s), policy.ScalingInput{Pool: s, Zone: "UTC"})
	ask(e, sharing(large, "p"), 5, 0)
	alone := sharing(large, "alone")
	e.Alone(t.Context(), e.For(alone), policy.ScalingInput{Pool: alone, Zone: "UTC"})
	if !e.Commit(a, Grant{Granted: 5}) {
		t.Error("refused for a grant in another namespace")
	}
	a = e.Scaling(t.Context(), e.For(s), policy.ScalingInput{Pool: s, Zone: "UTC"})
	if ask(e, same, 2, 0); e.Commit(a, Grant{Granted: 9}) {
		t.Error("granted more although another pool of the namespace was granted more")
	}
}

func TestPoolsAskedAtOnceAreNeverGrantedMoreThanACeiling(t *testing.T) {
	for _, share := range []v1alpha1.CeilingShare{v1alpha1.ShareFirstCome, v1alpha1.ShareFair} {
		e := ceiling(t, share)
		var asking sync.WaitGroup
		for i := range 6 {
			asking.Go(func() {
				for try := range 200 {
					a := asked(t.Context(), e, fmt.Sprint("p", i), try%3 == 2)
					e.Commit(a, Grant{Granted: min(a.Answer.Scale.Max, int32(try%8)), Wanted: 10})
					if sum := usageOf(&e.ledger, facts("ci", "nobody", "acme", nil), policy.Needs{Reads: []string{"usage.namespace"}}).Namespace.Granted; sum > 10 {
						t.Errorf("%s: %d are granted under a ceiling of 10", share, sum)
					}
				}
			})
		}
		asking.Wait()
	}
}

// The name of a revision contains few digits of a hash. Another template with that name is judged separately.
func TestAVerdictIsOfTheWholeTemplate(t *testing.T) {
	e := newEngine()
	putCounted(t, e, "package corral.template\n\ndeny contains \"no\" if input.pod.spec.containers[_].image == \"bad\"\n")
	pool := &v1alpha1.RunnerPool{}
	pool.Namespace, pool.Name = "ci", "linux"
	var got []int
	for _, image := range []string{"good", "bad", "good"} {
		answer, err := e.Permit(t.Context(), pool, "linux-0123456789", fmt.Appendf(nil, `{"spec":{"containers":[{"name":"runner","image":%q}]}}`, image), podspec.Network{})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, len(answer.Denials))
	}
	if diff := cmp.Diff([]int{0, 1, 0}, got); diff != "" {
		t.Error(diff)
	}
}

// Policies judge the pod that is created: it has the connection's certificate volume and proxy variables only while the
// connection has them.
func TestAVerdictIsOfThePodOverItsConnection(t *testing.T) {
	e := newEngine()
	putCounted(t, e, "package corral.template\n\ndeny contains \"a Secret\" if input.pod.spec.volumes[_].secret.secretName == \"linux-specimen-jit\"\n\n"+
		"deny contains \"a proxy\" if input.pod.spec.containers[_].env[_].name == \"HTTPS_PROXY\"\n")
	pool := &v1alpha1.RunnerPool{}
	pool.Namespace, pool.Name = "ci", "linux"
	var got []int
	for _, n := range []podspec.Network{{}, {CA: true}, {CA: true, Proxies: true}, {}} {
		answer, err := e.Permit(t.Context(), pool, "linux-1", []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`), n)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, len(answer.Denials))
	}
	if diff := cmp.Diff([]int{0, 1, 2, 0}, got); diff != "" {
		t.Error(diff)
	}
}

// The numbers of a pool with a schedule, warm capacity or boosts differ from those that it declares.
func TestAPassForgetsNoVerdicts(t *testing.T) {
	e := newEngine()
	c := putCounted(t, e, "package corral.template\n\ndeny contains \"no\" if input.pod.metadata.name == \"x\"\n")
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "ceiling", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10, Share: v1alpha1.ShareFirstCome}},
	}})
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	p.Spec.Template = runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"x"}]}}`)}
	for range 5 {
		if a, err := e.Permit(t.Context(), p, "r", p.Spec.Template.Raw, podspec.Network{}); err != nil || len(a.Failures) > 0 {
			t.Fatal(err, a)
		}
		now := policy.PoolOf(p)
		bound := e.For(now) // as bind does
		now.Scale.Idle = 3  // as question does: x.scale
		a := e.Scaling(t.Context(), bound, policy.ScalingInput{Pool: now, Zone: "UTC", Now: e.Now().UnixNano()})
		e.Commit(a, Grant{})
		known := e.ledger.entry(keyOf(now))
		e.ask(t.Context(), keyOf(now), known)
	}
	if c.asked != 1 {
		t.Errorf("the same template was judged %d times", c.asked)
	}
}

// teamPools returns an engine with a rule that lets the pools of a team have ten runners, and a function that evaluates
// pools with team labels.
func teamPools(t *testing.T) (e *Engine, of func(name, team string) *Asked) {
	t.Helper()
	e = newEngine()
	putSource(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "rules", Modules: map[string]string{
		"r.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 10 - input.usage.labels.team.granted, \"assignedJobs\": \"Wait\", \"reason\": \"r\"}\n",
	}})
	return e, func(name, team string) *Asked {
		p := facts("ci", name, "acme", map[string]string{"team": team})
		return e.Scaling(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Zone: "UTC"})
	}
}

// A pool that a label change moves into a group brings its grant along. Pools of the group that were evaluated before are
// not granted more.
func TestAMoveIntoAGroupCountsAsARise(t *testing.T) {
	e, of := teamPools(t)
	if !e.Commit(of("m", "other"), Grant{Granted: 6}) {
		t.Fatal("the first grant is refused")
	}
	b := of("b", "x")
	if !e.Commit(of("m", "x"), Grant{Granted: 6}) || e.Commit(b, Grant{Granted: 10}) {
		t.Error("16 are granted under a ceiling of 10")
	}
	if !e.Commit(of("b", "x"), Grant{Granted: 4}) {
		t.Error("what is left is refused")
	}
}

func TestAHeldGrantCountsAsARise(t *testing.T) {
	e, of := teamPools(t)
	b, a := of("b", "x"), of("a", "x")
	e.Hold(a, Grant{Granted: 6})
	if e.Commit(b, Grant{Granted: 10}) {
		t.Error("16 are granted under a ceiling of 10")
	}
}

// Two pools ask alone and share one of several domains. The later one does not take over the reservation of the first.
func TestAReservationIsNotTakenOver(t *testing.T) {
	e, _ := teamPools(t)
	putSource(t, e, policy.Source{
		Kind: policy.KindClusterRunnerPolicy, Name: "all", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"wide": "yes"}},
		Modules: map[string]string{"r.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 100 - input.usage.all.granted, \"assignedJobs\": \"Wait\", \"reason\": \"r\"}\n"},
	})
	x, y := facts("ci", "x", "acme", map[string]string{"team": "x", "wide": "yes"}), facts("ci", "y", "acme", map[string]string{"team": "x"})
	first := e.Alone(t.Context(), e.For(x), policy.ScalingInput{Pool: x, Zone: "UTC"})
	second := e.Alone(t.Context(), e.For(y), policy.ScalingInput{Pool: y, Zone: "UTC"})
	if e.Commit(second, Grant{Granted: 1}) || !e.Commit(first, Grant{Granted: 1}) {
		t.Error("the pool that asked alone first is refused")
	}
}

// However many labels a pool has, it shares the ceiling of the label that a policy names.
func TestManyLabelsDoNotLeaveACeiling(t *testing.T) {
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingLabel, LabelKey: "zteam", Max: 10, Share: v1alpha1.ShareFirstCome}},
	}})
	labels := map[string]string{"zteam": "x"}
	for i := range 64 {
		labels[fmt.Sprintf("a%02d", i)] = "y"
	}
	sum := int32(0)
	for i := range 3 {
		p := facts("ci", fmt.Sprint("p", i), "acme", labels)
		p.Scale.Max = 10
		granted, _ := ask(e, p, 10, 0)
		sum += granted
	}
	if sum != 10 {
		t.Errorf("%d are granted under a ceiling of 10", sum)
	}
}

// A pool that cannot be read completely may lack the labels that select its policies. Its pods count as not judged, and not
// as allowed.
func TestAPoolThatCannotBeReadIsNotJudged(t *testing.T) {
	e := newEngine()
	pool := &v1alpha1.RunnerPool{}
	pool.Namespace, pool.Name, pool.Fields = "ci", "p", []string{"metadata: it has too many labels"}
	answer, err := e.Permit(t.Context(), pool, "p-1", []byte("{}"), podspec.Network{})
	if err != nil || len(answer.Failures) != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
}
