// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
)

// court is a fixture with a pool that runs, and a namespace beside it. A guard rail with rules of its own binds both, and
// each has such a policy itself.
type court struct {
	*fixture
	pool   *v1alpha1.RunnerPool
	beside string // the namespace
	guard  *v1alpha1.ClusterRunnerPolicy
}

// guardModules cost what a pool's labels ask for, and deny an image.
var guardModules = map[string]string{
	"limits.rego": `package corral.scaling

limit contains {"field": "max", "atMost": 9, "reason": "room for 9 each"} if {
	rounds := to_number(object.get(input.pool.labels, "rounds", "1"))
	count([i | some i in numbers.range(1, rounds); some j in numbers.range(1, rounds); i + j == 0]) == 0
}
`,
	"images.rego": `package corral.template

deny contains sprintf("image %s is forbidden", [container.image]) if {
	some container in input.pod.spec.containers
	endswith(container.image, ":forbidden")
}

deny contains sprintf("finding %04d", [i]) if {
	findings := to_number(input.pool.labels.findings)
	some i in numbers.range(1, findings)
}
`,
}

func newCourt(t *testing.T) *court {
	t.Helper()
	t.Parallel()
	return makeCourt(t)
}

// makeCourt makes one for a test that runs before those that run beside each other.
func makeCourt(t *testing.T) *court {
	t.Helper()
	c := &court{fixture: makeFixture(t, w.GitHub)}
	c.beside = c.namespace + "-beside"
	must(t, w.Connect(t.Context(), c.beside, "acme", c.beside))
	c.guard = &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	c.guard.Spec.Namespaces = []string{c.namespace, c.beside}
	c.guard.Spec.Modules = guardModules
	c.create(c.guard)
	for _, namespace := range []string{c.namespace, c.beside} {
		own := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
		own.Spec.Modules = map[string]string{"own.rego": limitModule(8, "")}
		c.create(own)
	}
	c.create(newPool(c.beside, "linux", "acme"))
	c.pool = c.fixture.pool("bound", func(p *v1alpha1.RunnerPool) { p.Labels = map[string]string{"name": "bound"} })
	c.ready(c.pool)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, w.Client.Delete(ctx, c.guard))
		must(t, w.Client.Delete(ctx, newPool(c.beside, "linux", "acme")))
	})
	return c
}

// limitModule is a limit that holds if a body does.
func limitModule(most int, body string) string {
	if body != "" {
		body = " if {\n\t" + body + "\n}"
	}
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"for now\"}%s\n", most, body)
}

// push makes a policy that binds the pool, and only it.
func (c *court) push(name, body string) *v1alpha1.RunnerPolicy {
	c.Helper()
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "bound"}}
	p.Spec.Modules = map[string]string{"pushed.rego": limitModule(5, body)}
	c.create(p)
	return p
}

// blames waits until a pool of the fixture goes on with what was decided last, because of a policy that failed in one of these ways.
func (c *court) blames(pool *v1alpha1.RunnerPool, policy string, ways ...string) {
	c.Helper()
	eventually(c.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(c.namespace, pool.Name), pool); err != nil {
			return err
		}
		ready := conditions.Get(pool, v1alpha1.ReadyCondition)
		for _, way := range ways {
			if ready.Reason == v1alpha1.PolicyFailedReason && ready.Message == "the last decision stays in force: "+policy+": "+way {
				return nil
			}
		}
		return fmt.Errorf("Ready is %+v, want %s: %q", ready, policy, ways)
	})
}

const (
	cheaper  = ": look for loops over loops, large ranges, and texts that grow"
	tooLong  = "TimedOut: it took more than 250ms of CPU time" + cheaper
	tooLarge = "TimedOut: it took more than 96 MiB of memory" + cheaper
)

// isQuarantined is the failure of a policy that took too much three times in a row.
func (c *court) isQuarantined() string {
	return "Quarantined: it took too much time or memory 3 times in a row for pools of namespace " + c.namespace + "; Corral asks it again from time to time, and at once when it changes: make its rules cheaper"
}

// goesOn shows that the fixture's pools do their jobs, and all of besideGoesOn.
func (c *court) goesOn() {
	c.Helper()
	c.allDone(c.addJobs("bound", 2, time.Millisecond))
	c.othersGoOn()
	c.besideGoesOn()
}

// besideGoesOn shows that jobs beside are done, that nobody beside is blamed, that the guard rail still denies there what is
// new, and that the controller is well.
func (c *court) besideGoesOn() {
	c.Helper()
	harness.AllDone(c.T, w.GitHub, harness.AddJobs(c.T, w.GitHub, c.beside, "linux", 2, time.Millisecond))
	denied := newPool(c.beside, "denied", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:forbidden"}]}}`)
	})
	c.create(denied)
	c.says(denied, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PolicyDeniedReason, Stalled: true,
		Message: "image runner:forbidden is forbidden [ClusterRunnerPolicy/" + c.namespace + " corral.template.deny (images.rego:3)]",
	})
	must(c.T, w.Client.Delete(c.Context(), denied))
	besides := &v1alpha1.RunnerPool{}
	must(c.T, w.Client.Get(c.Context(), key(c.beside, "linux"), besides))
	if !conditions.IsTrue(besides, v1alpha1.PolicyCondition) || !conditions.IsReady(besides) {
		c.Errorf("the pool beside says %+v", besides.Status.Conditions)
	}
	c.processIsWell()
}

// longText is a text of a million bytes.
const longText = `s := concat("", ["xxxxxxxxxxxxxxxxxxxx" | some _ in numbers.range(1, 50000)])` + "\n\t"

func TestARuleThatTakesAllMemory(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it costs too much, and when it isn't asked any more
	pushed := c.push("greedy", longText+`replace(s, "x", s) != ""`)
	c.ready(pushed)
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/greedy", tooLarge, tooLong, c.isQuarantined())
	c.goesOn()
	must(t, w.Client.Delete(t.Context(), pushed))
	c.ready(c.pool)
}

func TestARuleThatNeverEnds(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it costs too much, and when it isn't asked any more
	pushed := c.push("endless", "some i in numbers.range(1, 60000)\n\tsome j in numbers.range(1, 60000)\n\ti * j == -1")
	c.ready(pushed)
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/endless", tooLong, c.isQuarantined())
	c.goesOn()
	c.patch(pushed, fmt.Sprintf(`{"spec":{"modules":{"pushed.rego":%q}}}`, limitModule(5, ""))) // it is another one now
	c.ready(c.pool)
}

// Comprehensions in comprehensions keep OPA's compiler busy. Each is tried alone, and there are more than the controller has workers. Each takes
// two seconds of CPU time, and the longer the test the more are tried: it runs alone.
func TestPoliciesThatTakeLongToLoad(t *testing.T) {
	c := makeCourt(t)
	c.checkMessages(120) // one of each that can't be loaded
	var pushed []*v1alpha1.RunnerPolicy
	for i := range 120 {
		pushed = append(pushed, c.push(fmt.Sprintf("deep-%02d", i), fmt.Sprintf("x := %s%d%s\n\tx == 1", strings.Repeat("[y | y := ", 24), i, strings.Repeat("]", 24))))
	}
	eventually(t, func(ctx context.Context) error {
		tried, err := c.tried(ctx)
		if err == nil && len(tried) == 0 {
			err = fmt.Errorf("none of %d was tried", len(pushed))
		}
		for _, p := range tried {
			if said := conditions.GetMessage(&p, v1alpha1.ReadyCondition); !strings.HasPrefix(said, "loading the policy: it took more than ") {
				t.Fatalf("it says %q", said)
			}
		}
		return err
	})
	own := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.beside, Name: "own"}}
	c.patch(own, fmt.Sprintf(`{"spec":{"modules":{"own.rego":%q}}}`, limitModule(3, "")))
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, key(c.beside, "linux"), p); err != nil {
			return err
		}
		if d := p.Status.Decision; d == nil || d.Limits == nil || d.Limits.GetMax() != 3 {
			return fmt.Errorf("what was decided is %+v", d)
		}
		return nil
	})
	tried, err := c.tried(t.Context())
	must(t, err)
	if len(tried) > len(pushed)/2 {
		t.Errorf("%d of %d were tried before the one beside", len(tried), len(pushed))
	}
	c.besideGoesOn() // the others of the same namespace wait for its turns
	for _, p := range pushed {
		must(t, w.Client.Delete(t.Context(), p))
	}
	c.ready(c.pool)
}

// tried are the policies of the namespace that can't be loaded.
func (c *court) tried(ctx context.Context) ([]v1alpha1.RunnerPolicy, error) {
	list := &v1alpha1.RunnerPolicyList{}
	err := w.Client.List(ctx, list, client.InNamespace(c.namespace))
	return slices.DeleteFunc(list.Items, func(p v1alpha1.RunnerPolicy) bool {
		return conditions.GetReason(&p, v1alpha1.ReadyCondition) != v1alpha1.PolicyInvalidReason
	}), err
}

// Each line stands for nine times what the one before does.
func TestAnAliasBombInPolicyData(t *testing.T) {
	c := newCourt(t)
	var bomb strings.Builder
	bomb.WriteString("l0: &l0 [" + strings.Repeat("x, ", 15000) + "x]\n")
	for i := 1; i <= 200; i++ {
		fmt.Fprintf(&bomb, "l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 9), ", "))
	}
	if n := bomb.Len(); n < 50_000 || n > 70_000 {
		t.Fatalf("the bomb has %d bytes", n)
	}
	c.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "bomb"}, Data: map[string]string{"data.yaml": bomb.String()}})
	pushed := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "bomb"}}
	pushed.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "bound"}}
	pushed.Spec.Modules = map[string]string{"pushed.rego": limitModule(5, "")}
	pushed.Spec.ModulesFrom = []v1alpha1.ModulesSource{{ConfigMapRef: v1alpha1.LocalObjectReference{Name: "bomb"}}}
	c.create(pushed)
	const complaint = "bomb/data.yaml: it can't be read as a JSON or YAML object: it has an alias (*NAME): write out what it stands for"
	c.says(pushed, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PolicyInvalidReason, Stalled: true,
		Message: complaint + "\nThe pools that it binds keep what was decided last",
	})
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/bomb", "NotLoaded: "+complaint)
	c.look("it has an alias (*NAME): write out what it stands for", 1, "pool/bound")
	c.goesOn()
}

func TestATemplateOf8000Containers(t *testing.T) {
	c := newCourt(t)
	names := []string{`{"name":"runner"}`}
	for i := range 7999 {
		names = append(names, fmt.Sprintf(`{"name":"%x"}`, i))
	}
	c.refusesTemplate(`{"spec":{"containers":[`+strings.Join(names, ",")+`]}}`, "spec.template.spec.containers: 8000 containers and init containers, more than 64")
	c.goesOn()
	must(t, w.Client.Get(t.Context(), key("", c.guard.Name), c.guard))
	if said := conditions.GetMessage(c.guard, v1alpha1.ReadyCondition); said != "Loaded; it decides on scaling, template" {
		t.Errorf("the guard rail says %q", said)
	}
}

// More findings than are told of are findings still: what was accepted before is denied, and its idle runner ends.
func TestAGuardRailWithMoreFindingsThanAreTold(t *testing.T) {
	c := newCourt(t)
	accepted := c.fixture.pool("many", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	c.ready(accepted)
	eventually(t, func(ctx context.Context) error { return c.idle(ctx, "many", 1) })
	c.patch(accepted, `{"metadata":{"labels":{"findings":"3000"}}}`)
	c.request(accepted)
	var lines []string
	for i := 1; i <= 16; i++ {
		lines = append(lines, fmt.Sprintf("finding %04d [ClusterRunnerPolicy/%s corral.template.deny (images.rego:8)]", i, c.namespace))
	}
	c.says(accepted, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PolicyDeniedReason, Stalled: true,
		Message: strings.Join(lines, "\n") + "\nand at least 984 more",
	})
	c.look("finding 0001", 1, "pool/many")
	eventually(t, func(ctx context.Context) error {
		runners, err := c.runners(ctx, "many")
		if err == nil && len(runners) > 0 {
			return fmt.Errorf("%d runners are left", len(runners))
		}
		return err
	})
	c.goesOn()
	c.patch(accepted, `{"metadata":{"labels":{"findings":null}}}`)
	c.request(accepted)
	c.ready(accepted)
}

// What a pool's labels make a guard rail cost falls on the pools of that namespace alone.
func TestAGuardRailThatIsCostlyForOneNamespace(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it costs too much, and when it isn't asked any more
	c.patch(c.pool, `{"metadata":{"labels":{"rounds":"60000"}}}`)
	// A pool is looked at again each minute, or when it is asked for.
	quarantined := func() bool {
		must(t, w.Client.Get(t.Context(), key(c.namespace, "bound"), c.pool))
		return strings.Contains(conditions.GetMessage(c.pool, v1alpha1.ReadyCondition), c.isQuarantined())
	}
	eventually(t, func(context.Context) error {
		if quarantined() {
			return nil
		}
		c.request(c.pool)
		return fmt.Errorf("the pool says %+v", c.pool.Status.Conditions)
	})
	c.blames(c.pool, "ClusterRunnerPolicy/"+c.namespace, c.isQuarantined())
	c.request(c.guard)
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key("", c.guard.Name), c.guard); err != nil {
			return err
		}
		want := "Loaded; it decides on scaling, template; it took too much too often for pools of these namespaces, and is asked for them only from time to time: " + c.namespace
		if said := conditions.GetMessage(c.guard, v1alpha1.ReadyCondition); said != want {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	c.goesOn()
}
