// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

func newEngine() *Engine { return NewEngine(func() time.Time { return time.Unix(1_800_000_000, 0) }) }

// put loads a policy with one module or of the library.
func put(t *testing.T, e *Engine, source policy.Source) {
	t.Helper()
	loaded, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatalf("loading %s: %+v", source.Ref(), diagnostics)
	}
	e.Put(loaded, source)
}

// ask evaluates a pool's limits and grants it what it wants within them, as the plan does for jobs that wait where a limit
// is hard. Existing runners are never taken away.
func ask(e *Engine, p policy.Pool, jobs, has int32) (int32, policy.Scaling) {
	in := policy.ScalingInput{Pool: p, Jobs: jobs, Now: e.Now().UnixNano(), Zone: "UTC"}
	for {
		asked := e.Scaling(context.Background(), e.For(p), in)
		granted := max(has, min(jobs, asked.Answer.Scale.Max))
		if e.Commit(asked, Grant{Granted: granted, Wanted: min(jobs, p.Scale.Max)}) {
			return granted, asked.Answer
		}
	}
}

// The column MODE would be empty for a policy without a mode if the status did not have it.
func TestAPolicysStatusHasItsMode(t *testing.T) {
	for declared, want := range map[v1alpha1.PolicyMode]v1alpha1.PolicyMode{"": v1alpha1.PolicyEnforce, v1alpha1.PolicyAudit: v1alpha1.PolicyAudit} {
		p := &v1alpha1.RunnerPolicy{}
		p.Spec.Mode = declared
		(&Reconciler{Engine: NewEngine(time.Now)}).report(p, "RunnerPolicy/ci/p")
		if p.Status.Mode != want {
			t.Errorf("%q: %q", declared, p.Status.Mode)
		}
	}
}

// For any order of evaluations, the sum of grants under a shared ceiling never exceeds it.
func TestGrantsNeverSumAboveACeiling(t *testing.T) {
	const ceiling = 40
	sources := map[string]policy.Source{
		"a rule of one's own": {Modules: map[string]string{"c.rego": fmt.Sprintf(
			"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": max([0, %d - input.usage.namespace.granted]), \"assignedJobs\": \"Wait\", \"reason\": \"ceiling\"}\n", ceiling)}},
		"fair shares": {Library: &v1alpha1.PolicyLibrary{Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: ceiling, Share: v1alpha1.ShareFair}}}},
		"first come":  {Library: &v1alpha1.PolicyLibrary{Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: ceiling, Share: v1alpha1.ShareFirstCome}}}},
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(40) {
				neverAbove(t, source, ceiling, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

// neverAbove makes pools of two namespaces grow and shrink at random.
func neverAbove(t *testing.T, source policy.Source, ceiling int32, random *rand.Rand) {
	t.Helper()
	e := newEngine()
	source.Kind, source.Name = policy.KindClusterRunnerPolicy, "ceiling"
	put(t, e, source)
	pools := 2 + random.IntN(6)
	has := make([]int32, pools)
	for range 40 {
		i := random.IntN(pools)
		p := facts("ci", fmt.Sprint("p", i), "acme", nil)
		p.Scale.Max = int32(10 + random.IntN(60))
		jobs := int32(random.IntN(50))
		has[i] = int32(random.IntN(int(has[i]) + 1)) // some have ended since
		granted, answer := ask(e, p, jobs, has[i])
		if len(answer.Failures) > 0 {
			t.Fatalf("failures %+v", answer.Failures)
		}
		has[i] = granted
		sum := int32(0)
		for _, n := range has {
			sum += n
		}
		if sum > ceiling {
			t.Fatalf("%d are granted under a ceiling of %d: %v", sum, ceiling, has)
		}
		ask(e, facts("other", "q", "acme", nil), int32(random.IntN(50)), 0) // has no effect
	}
}

func TestOnlyThoseThatShareACeilingAreAskedAboutAfterAChange(t *testing.T) {
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10}},
	}})
	for _, namespace := range []string{"a", "b"} {
		for i := range 3 {
			p := facts(namespace, fmt.Sprint("p", i), "acme", nil)
			p.Scale.Max = 10
			ask(e, p, 1, 0)
		}
	}
	e.Pass(t.Context())
	p := facts("a", "p0", "acme", nil)
	p.Scale.Max = 10
	ask(e, p, 5, 0)
	if n := e.Pass(t.Context()); n != 2 {
		t.Errorf("%d pools were asked about, want the 2 others of the namespace", n)
	}
	if n := e.Pass(t.Context()); n != 0 {
		t.Errorf("%d pools were asked about although nothing changed", n)
	}
}

func TestAVerdictIsRememberedUntilPoliciesChange(t *testing.T) {
	e := newEngine()
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}}
	template := []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`)
	permit := func() int {
		answer, err := e.Permit(t.Context(), pool, "r1", template, podspec.Network{})
		if err != nil || len(answer.Failures) > 0 {
			t.Fatalf("%v, %+v", err, answer.Failures)
		}
		return len(answer.Denials)
	}
	source := func(module string) policy.Source {
		return policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": "package corral.template\n\n" + module}}
	}
	if permit() != 0 {
		t.Error("denied by no policy")
	}
	put(t, e, source(`deny contains "no" if input.pod.spec.containers[_].image == "i"`))
	for range 2 { // evaluated, then remembered
		if permit() != 1 {
			t.Error("not denied")
		}
	}
	put(t, e, source(`deny contains "no" if input.pod.spec.containers[_].image == "j"`))
	if permit() != 0 {
		t.Error("denied by a policy that is another now")
	}
	pool.Spec.Trust = "public"
	put(t, e, source(`deny contains "no" if input.pool.trust == "public"`))
	if permit() != 1 {
		t.Error("not denied for what the pool declares")
	}
}

// queueOf gives an engine a queue of the pools that it wakes.
func queueOf(t *testing.T, e *Engine) kube.Queue {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return watch(t, &e.Pools, queue)
}

// watch makes an event source add to a queue.
func watch[Q kube.Queue](t *testing.T, s *kube.EventSource, q Q) Q {
	t.Helper()
	if err := s.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return q
}

// The first evaluation has no time left; the second one does.
func TestAFailureIsNotRemembered(t *testing.T) {
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": "package corral.template\n\ndeny contains \"no\""}})
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}}
	ended, end := context.WithCancel(t.Context())
	end()
	for want, ctx := range []context.Context{ended, t.Context()} {
		answer, err := e.Permit(ctx, pool, "r1", []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`), podspec.Network{})
		if err != nil || len(answer.Denials) != want || len(answer.Failures) != 1-want {
			t.Errorf("%v, %+v, want %d denials and %d failures", err, answer, want, 1-want)
		}
	}
}

// The limits do not change, but the treatment of jobs beyond them does.
func TestAPoolIsWokenWhenItsMaxBecomesHard(t *testing.T) {
	e := newEngine()
	woken := queueOf(t, e)
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Modules: map[string]string{
		"c.rego": "package corral.scaling\n\nassigned := {true: \"Wait\", false: \"Serve\"}\n\nlimit contains {\"field\": \"max\", \"atMost\": 10, \"assignedJobs\": assigned[input.usage.namespace.granted > 5], \"reason\": \"r\"}\n",
	}})
	p, other := facts("ci", "a", "acme", nil), facts("ci", "b", "acme", nil)
	p.Scale.Max, other.Scale.Max = 10, 10
	ask(e, p, 1, 0)
	for _, step := range []struct {
		granted int32
		woken   int
	}{{5, 0}, {6, 1}} {
		ask(e, other, step.granted, 0)
		e.Pass(t.Context())
		if n := woken.Len(); n != step.woken {
			t.Errorf("with %d runners of another, %d pools are woken, want %d", step.granted, n, step.woken)
		}
	}
}

// After a start, nothing is decided before every policy is loaded and the runners of all pools are known.
func TestAnEngineKnowsAllBeforeItDecides(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	running := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	running.Status.Decision = &v1alpha1.Decision{Desired: 7}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.ClusterRunnerPolicySpec{Namespaces: []string{"c*"}}}, running,
	).Build()
	e := newEngine()
	woken := queueOf(t, e)
	e.Cache = c
	unasked, err := e.Permit(t.Context(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "b"}}, "r1", []byte(`{}`), podspec.Network{})
	if err != nil || len(unasked.Failures) != 1 {
		t.Errorf("a template is judged by a policy that isn't loaded: %+v, %v", unasked, err)
	}
	p := facts("ci", "b", "acme", nil)
	p.Scale.Max = 100
	if knows, err := e.Knows(t.Context(), c, p); err != nil || knows {
		t.Fatalf("knows all: %t, %v although a policy isn't loaded", knows, err)
	}
	if knows, err := e.Knows(t.Context(), c, facts("elsewhere", "b", "acme", nil)); err != nil || !knows {
		t.Fatalf("knows all: %t, %v although the policy is for other pools", knows, err)
	}
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Namespaces: []string{"c*"}, Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10}},
	}})
	if n := woken.Len(); n != 2 {
		t.Errorf("%d pools are woken, want the one that it binds and the one that waited for it", n)
	}
	if knows, err := e.Knows(t.Context(), c, p); err != nil || !knows {
		t.Fatalf("knows all: %t, %v", knows, err)
	}
	if _, answer := ask(e, p, 10, 0); answer.Scale.Max != 3 {
		t.Errorf("max %d although another pool has 7 of 10: %+v", answer.Scale.Max, answer)
	}
}

// This includes runners beyond the last decision, and runners of pools that are gone.
func TestRunnersThatAreThereCountAfterAStart(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	pool.Status.Decision = &v1alpha1.Decision{Desired: 2}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool)
	for i, of := range []string{"a", "a", "a", "gone"} {
		b.WithObjects(&v1alpha1.Runner{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: fmt.Sprint("r", i)},
			Spec:       v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: of}},
		})
	}
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10, Share: v1alpha1.ShareFirstCome}},
	}})
	p := facts("ci", "b", "acme", nil)
	p.Scale.Max = 100
	e.Cache = b.Build()
	unwatched := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x"}}).Build()
	if _, err := e.Knows(t.Context(), unwatched, p); err != nil {
		t.Fatal(err)
	}
	if e.ledger.entry(types.NamespacedName{Namespace: "other", Name: "x"}) != nil {
		t.Error("it counts a pool of a namespace that isn't watched")
	}
	if _, answer := ask(e, p, 10, 0); answer.Scale.Max != 6 {
		t.Errorf("max %d although there are 4 other runners under a ceiling of 10: %+v", answer.Scale.Max, answer)
	}
}

// The text is as broken as before, but the policy now binds other pools.
func TestABrokenPolicyIsTakenAnewWhenItBindsOthers(t *testing.T) {
	e := newEngine()
	broken := func(mode v1alpha1.PolicyMode, namespaces ...string) {
		s := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Mode: mode, Namespaces: namespaces}
		e.Put(policy.Broken(s, []v1alpha1.Diagnostic{{Message: "broken"}}), s)
	}
	fails := func(namespace string) bool {
		_, answer := ask(e, facts(namespace, "p", "acme", nil), 1, 0)
		return len(answer.Failures) > 0
	}
	broken(v1alpha1.PolicyEnforce, "a")
	if !fails("a") || fails("b") {
		t.Error("it binds others than it says")
	}
	broken(v1alpha1.PolicyEnforce, "b")
	if fails("a") || !fails("b") {
		t.Error("it still binds those that it bound before")
	}
	broken(v1alpha1.PolicyAudit, "b")
	if fails("b") {
		t.Error("an audited policy voids decisions")
	}
}

// The pods of a deleted pool run until their jobs are done.
func TestRunnersOfAPoolThatIsGoneCountAsLongAsTheyAreThere(t *testing.T) {
	e := newEngine()
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10, Share: v1alpha1.ShareFirstCome}},
	}})
	gone, other := facts("ci", "gone", "acme", nil), facts("ci", "other", "acme", nil)
	gone.Scale.Max, other.Scale.Max = 100, 100
	ask(e, gone, 8, 0)
	for _, step := range []struct{ left, want int32 }{{6, 4}, {0, 10}} {
		e.Forget(keyOf(gone), step.left)
		if granted, _ := ask(e, other, 50, 0); granted != step.want {
			t.Errorf("with %d runners left, %d are granted to another, want %d", step.left, granted, step.want)
		}
	}
}

func TestPoliciesTogetherAreBounded(t *testing.T) {
	e := newEngine()
	source := func(namespace, name string) policy.Source {
		return policy.Source{Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: name, Data: map[string]any{"d": strings.Repeat("x", v1alpha1.MaxPolicyBytes-100)}}
	}
	for i := range 4 {
		s := source("a", fmt.Sprint("p", i))
		if why := e.tooMuch(s); why != "" {
			t.Fatalf("policy %d: %s", i, why)
		}
		put(t, e, s)
	}
	if e.tooMuch(source("a", "p4")) == "" {
		t.Error("a fifth is not too much")
	}
	if why := e.tooMuch(source("a", "p3")); why != "" {
		t.Errorf("one that is there already: %s", why)
	}
	if why := e.tooMuch(source("b", "p0")); why != "" {
		t.Errorf("one of another namespace: %s", why)
	}
	guard := source("", "guard")
	guard.Kind = policy.KindClusterRunnerPolicy
	if why := e.tooMuch(guard); why != "" {
		t.Errorf("the guard rail: %s", why)
	}
}

// Ceilings take few bytes, and each pool of the namespace keeps them.
func TestCeilingsOfANamespaceAreBounded(t *testing.T) {
	e := newEngine()
	source := func(namespace string, i int) policy.Source {
		s := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: fmt.Sprint("p", i), Library: &v1alpha1.PolicyLibrary{}}
		for k := range 16 {
			s.Library.Ceilings = append(s.Library.Ceilings, v1alpha1.Ceiling{Name: fmt.Sprint("c", k), By: v1alpha1.CeilingAll, Max: 5})
		}
		return s
	}
	for i := range maxNamespaceCeilings / 16 {
		if why := e.tooMuch(source("a", i)); why != "" {
			t.Fatalf("policy %d: %s", i, why)
		}
		put(t, e, source("a", i))
	}
	if e.tooMuch(source("a", 4)) == "" {
		t.Error("16 more are not too many")
	}
	if why := e.tooMuch(source("b", 0)); why != "" {
		t.Errorf("of another namespace: %s", why)
	}
}

// However many namespaces use all the space allowed for policies, another namespace's policies are loaded. The policies of
// the namespace with the most give way.
func TestPoliciesOfManyNamespacesLeaveRoomForAnother(t *testing.T) {
	e := newEngine()
	r := &Reconciler{Engine: e, Rules: &costly{isCheap: true}}
	load := func(namespace, name string, size int) string {
		t.Helper()
		s := policy.Source{
			Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: name, Library: &v1alpha1.PolicyLibrary{}, Data: map[string]any{"d": strings.Repeat("x", size)},
		}
		if err := r.compile(t.Context(), s, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		return wording.Lines(e.Loaded(s.Ref()).Diagnostics(), 1, compile.Format)
	}
	const namespaces = maxAllBytes / maxNamespaceBytes
	for n := range namespaces {
		for i := range 4 {
			if why := load(fmt.Sprint("greedy-", n), fmt.Sprint(i), v1alpha1.MaxPolicyBytes-100); why != "" {
				t.Fatalf("namespace %d, policy %d: %s", n, i, why)
			}
		}
	}
	for i := range 2 {
		if why := load("small", fmt.Sprint(i), v1alpha1.MaxPolicyBytes/4); why != "" {
			t.Errorf("policy %d of a namespace that has little: %s", i, why)
		}
	}
	gone := ""
	for n := range namespaces {
		for i := range 4 {
			if p := e.Loaded(fmt.Sprintf("RunnerPolicy/greedy-%d/%d", n, i)); len(p.Diagnostics()) > 0 {
				gone += fmt.Sprint(n, "/", i, " ")
				if load(fmt.Sprint("greedy-", n), fmt.Sprint(i), v1alpha1.MaxPolicyBytes-100) == "" {
					t.Error("what made room is loaded again, although nothing else went")
				}
			}
		}
	}
	if all := e.others(policy.Source{Kind: policy.KindRunnerPolicy}).all; len(strings.Fields(gone)) != 1 || all > maxAllBytes {
		t.Errorf("what gave way: %s; all have %d bytes", gone, all)
	}
}

// The changes that an audited policy would make are reported but not applied.
func TestWhatAnAuditWouldChangeIsTold(t *testing.T) {
	e := newEngine()
	put(t, e, policy.Source{
		Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Mode: v1alpha1.PolicyAudit,
		Modules: map[string]string{"p.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"few\"}\n"},
	})
	p := facts("ci", "a", "acme", nil)
	p.Scale.Max = 10
	_, answer := ask(e, p, 5, 0)
	if answer.Scale.Max != 10 || len(answer.Bounds) != 0 {
		t.Errorf("it changed %+v", answer)
	}
	before := []v1alpha1.AuditFinding{{Pool: "ci/a", Decision: "scaling", Message: "of a former process"}, {Pool: "ci/gone", Decision: "scaling"}}
	found := e.findings(policy.Broken(policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p"}, nil), before)
	if len(found) != 1 || found[0].Pool != "ci/a" || found[0].Decision != "scaling" {
		t.Errorf("findings %s", cmp.Diff(nil, found))
	}
	if n := e.bound(e.Loaded("RunnerPolicy/ci/p")); n != 1 {
		t.Errorf("it binds %d pools", n)
	}
	e = newEngine() // the process starts again
	e.For(p)
	if found := e.findings(policy.Broken(policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p"}, nil), before); len(found) != 1 || found[0].Message != "of a former process" {
		t.Errorf("of a pool that wasn't asked about yet it finds %+v", found)
	}
}

// slowRules answer once they are released.
type slowRules struct{ asked, letGo chan struct{} }

func (h slowRules) Ask(context.Context, *policy.Policy, policy.Question) ([]byte, error) {
	h.asked <- struct{}{}
	<-h.letGo
	return []byte("{}"), nil
}

// Slow rules of one namespace do not delay the pools of another.
func TestAPassWaitsForNoOthersRules(t *testing.T) {
	e := newEngine()
	queue := queueOf(t, e)
	put(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "quiet", Name: "share", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "c", By: v1alpha1.CeilingNamespace, Max: 10, Share: v1alpha1.ShareFirstCome}},
	}})
	slow := slowRules{make(chan struct{}, 9), make(chan struct{})}
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "greedy", Name: "slow", Modules: map[string]string{"p.rego": "package corral.scaling"}}
	e.Put(policy.Elsewhere(source, policy.Facts{Decisions: []string{policy.DecisionScaling}, Needs: policy.Needs{Reads: []string{"usage.namespace"}}}, slow), source)
	grant := func(namespace, name string, n int32) {
		p := facts(namespace, name, "acme", nil)
		p.Scale.Max = 20
		asked := e.Scaling(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Now: e.Now().UnixNano(), Zone: "UTC"})
		e.Commit(asked, Grant{Granted: n, Wanted: n})
	}
	close(slow.letGo)
	for _, namespace := range []string{"greedy", "quiet"} {
		grant(namespace, "a", 1)
		grant(namespace, "b", 1)
	}
	e.Pass(t.Context())
	slow.letGo = make(chan struct{})
	source.Modules = map[string]string{"p.rego": "package corral.scaling # another"}
	e.Put(policy.Elsewhere(source, policy.Facts{Decisions: []string{policy.DecisionScaling}, Needs: policy.Needs{Reads: []string{"usage.namespace"}}}, slow), source)
	for len(slow.asked) > 0 {
		<-slow.asked
	}
	for queue.Len() > 0 {
		key, _ := queue.Get()
		queue.Done(key)
	}
	ctx, end := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Start(ctx) }()
	e.reconsider(e.ledger.enter(policy.ScalingInput{Pool: facts("greedy", "c", "acme", nil)}, policy.Needs{}, Grant{Granted: 1}))
	<-slow.asked // the question stays unanswered
	grant("quiet", "a", 5)
	if key, _ := queue.Get(); key.Namespace != "quiet" || key.Name != "b" {
		t.Errorf("%s was woken", key)
	}
	end()
	close(slow.letGo)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// greedyRules always take too much, and call a function meanwhile.
type greedyRules func()

func (g greedyRules) Ask(context.Context, *policy.Policy, policy.Question) ([]byte, error) {
	g()
	return nil, &policy.Excess{Message: "too much"}
}

// elsewhere puts a policy of namespace ci into force.
func elsewhere(e *Engine, name, text string, rules policy.Asker) {
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: name, Modules: map[string]string{"p.rego": text}}
	e.Put(policy.Elsewhere(source, policy.Facts{Decisions: []string{policy.DecisionScaling}}, rules), source)
}

func TestWhatIsInForceNoMoreIsNotAskedOnceAnotherTookTooMuch(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*Engine)
		asked     int
	}{
		"nothing happens": {func(*Engine) {}, 3},
		"one is deleted":  {func(e *Engine) { e.Remove("RunnerPolicy/ci/b") }, 2},
		"one is another":  {func(e *Engine) { elsewhere(e, "b", "package corral.scaling # another", nil) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e, asked := newEngine(), 0
			rules := greedyRules(func() {
				if asked++; asked == 1 {
					tc.meanwhile(e)
				}
			})
			for _, name := range []string{"a", "b", "c"} {
				elsewhere(e, name, "package corral.scaling", rules)
			}
			p := facts("ci", "linux", "acme", nil)
			answer := e.Scaling(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Now: e.Now().UnixNano(), Zone: "UTC"}).Answer
			if asked != tc.asked || len(answer.Failures) != tc.asked {
				t.Errorf("%d policies were asked, want %d: %+v", asked, tc.asked, answer.Failures)
			}
		})
	}
}

// waits records the keys added to a queue, and their delays.
type waits struct {
	kube.Queue
	whom []string
	of   []time.Duration
}

func (w *waits) AddAfter(r reconcile.Request, d time.Duration) {
	w.whom, w.of = append(w.whom, r.String()), append(w.of, d)
}

func TestAPolicyIsWokenWhenItBindsMorePoolsOrFewer(t *testing.T) {
	e, woken := newEngine(), &waits{}
	rule := map[string]string{"rule.rego": "package corral.template\n\ndeny contains {\"msg\": \"no\"} if false\n"}
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "all", Modules: rule})
	gpus := &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}
	put(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "gpu", Modules: rule, Selector: gpus})
	for _, source := range e.Policies {
		watch(t, source, woken)
	}
	plain, gpu := facts("ci", "linux", "acme", nil), facts("ci", "linux", "acme", map[string]string{"gpu": "yes"})
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a pool comes", func() { e.For(plain) }, []string{"/all"}},
		{"it is the same", func() { e.For(plain) }, nil},
		{"it gets a label", func() { e.For(gpu) }, []string{"ci/gpu"}},
		{"it goes", func() { e.Forget(types.NamespacedName{Namespace: "ci", Name: "linux"}, 0) }, []string{"/all", "ci/gpu"}},
	} {
		woken.whom = nil
		step.do()
		if slices.Sort(woken.whom); !cmp.Equal(woken.whom, step.want) {
			t.Errorf("%s: %v are woken, want %v", step.name, woken.whom, step.want)
		}
	}
}

func TestChangesOfPoliciesThatComeTogetherWakeAPoolOnceASecond(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e, woken := NewEngine(func() time.Time { return now }), &waits{}
	watch(t, &e.Pools, woken)
	e.For(facts("ci", "linux", "acme", nil))
	for i, milliseconds := range []int64{0, 300, 300, 500, 3000, 999} { // after the previous one
		now = time.UnixMilli(now.UnixMilli() + milliseconds)
		elsewhere(e, "p", fmt.Sprint("package corral.scaling # ", i), nil)
	}
	want := []time.Duration{0, 700 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond, 0, time.Millisecond}
	if !cmp.Equal(woken.of, want) {
		t.Errorf("it is woken after %v, want %v", woken.of, want)
	}
}

// A policy changes while the policies of a new pool are determined. The pool must be woken, or it would keep the previous
// ones.
func TestAPoolIsWokenByAChangeDuringItsFirstLook(t *testing.T) {
	e, woken := newEngine(), &added{}
	watch(t, &e.Pools, woken)
	former := betweenParts
	t.Cleanup(func() { betweenParts = former })
	betweenParts = func() {
		betweenParts = former
		put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "late", Modules: map[string]string{"rule.rego": "package corral.template\n\ndeny contains {\"msg\": \"no\"} if false\n"}})
	}
	e.For(facts("ci", "linux", "acme", nil))
	if !slices.Contains(woken.whom, "ci/linux") {
		t.Errorf("woken are %v", woken.whom)
	}
}

// added is a queue that records the added keys.
type added struct {
	kube.Queue
	whom []string
}

func (a *added) Add(r reconcile.Request) { a.whom = append(a.whom, r.String()) }

func (a *added) AddAfter(r reconcile.Request, _ time.Duration) {}
