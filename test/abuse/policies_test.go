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
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/recorder"
)

// court is a fixture with a running pool and a second namespace. A cluster-wide guard rail binds both namespaces,
// and each has a policy of its own.
type court struct {
	*fixture
	pool   *v1alpha1.RunnerPool
	beside string // the second namespace
	guard  *v1alpha1.ClusterRunnerPolicy
}

// guardModules contains a rule whose cost depends on a label of the pool, and a rule that denies an image.
var guardModules = map[string]string{
	"limits.rego": `package corral.scaling

limit contains {"field": "max", "atMost": 9, "reason": "room for 9 each"} if {
	rounds := to_number(object.get(input.pool.labels, "rounds", "1"))
	count([i | some i in numbers.range(1, rounds); some j in numbers.range(1, rounds); i + j == 0]) == 0
}
`,
	"images.rego": `package corral.template

deny contains sprintf("image %s is forbidden", [container.image]) if {
	some container in data.corral.pod.containers
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

// makeCourt creates a court for a test that runs before the parallel ones.
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

// limitModule returns a module with a limit, which applies if the body is true.
func limitModule(most int, body string) string {
	if body != "" {
		body = " if {\n\t" + body + "\n}"
	}
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"for now\"}%s\n", most, body)
}

// push creates a policy that binds only the fixture's pool.
func (c *court) push(name, body string) *v1alpha1.RunnerPolicy {
	c.Helper()
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "bound"}}
	p.Spec.Modules = map[string]string{"pushed.rego": limitModule(5, body)}
	c.create(p)
	return p
}

// blames waits until the last decision about a pool of the fixture stays in force, because a policy failed in one of these ways.
func (c *court) blames(pool *v1alpha1.RunnerPool, ref string, kinds ...policy.FailureKind) {
	c.Helper()
	eventually(c.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(c.namespace, pool.Name), pool); err != nil {
			return err
		}
		causes := v1alpha1.CausesOf(pool.Status.Causes, v1alpha1.ReadyCondition)
		stays := slices.ContainsFunc(causes, func(cause v1alpha1.Cause) bool { return cause.Code == "DecisionStays" })
		if stays && conditions.GetReason(pool, v1alpha1.ReadyCondition) == v1alpha1.PolicyFailedReason && causes[0].Parameter("policy") == ref && slices.Contains(kinds, policy.FailureKind(causes[0].Parameter("kind"))) {
			return nil
		}
		return fmt.Errorf("the causes are %+v, want %s: %q", causes, ref, kinds)
	})
}

// goesOn checks that the fixture's pools run their jobs, and everything that besideGoesOn checks.
func (c *court) goesOn() {
	c.Helper()
	c.allDone(c.addJobs("bound", 2, time.Millisecond))
	c.othersGoOn()
	c.besideGoesOn()
}

// besideGoesOn checks that jobs in the second namespace run, that no policy there is blamed, that the guard rail
// still denies new pools there, and that the controller's memory is normal.
func (c *court) besideGoesOn() {
	c.Helper()
	harness.AllDone(c.T, w.GitHub, harness.AddJobs(c.T, w.GitHub, c.beside, "linux", 2, time.Millisecond))
	denied := newPool(c.beside, "denied", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:forbidden"}]}}`)
	})
	c.create(denied)
	c.says(denied, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.PolicyDeniedReason, Stalled: true,
		Causes: fmt.Sprintf("PodDenied denials=%q", "image runner:forbidden is forbidden [ClusterRunnerPolicy/"+c.namespace+" corral.template.deny (images.rego:3)]"),
	})
	must(c.T, w.Client.Delete(c.Context(), denied))
	besides := &v1alpha1.RunnerPool{}
	must(c.T, w.Client.Get(c.Context(), key(c.beside, "linux"), besides))
	if !conditions.IsTrue(besides, v1alpha1.PolicyCondition) || !conditions.IsReady(besides) {
		c.Errorf("the pool beside says %+v", besides.Status.Conditions)
	}
	c.processIsWell()
}

// longText is a rule body that builds a string of a million bytes.
const longText = `s := concat("", ["xxxxxxxxxxxxxxxxxxxx" | some _ in numbers.range(1, 50000)])` + "\n\t"

// tooCostly lists what a rule without bounds ends with. A slow child comes last, so it may get too little CPU time to
// exceed its limits before its answer is late, if other tests keep the machine busy.
var tooCostly = []policy.FailureKind{policy.TimedOut, policy.Quarantined, policy.EvaluationError}

func TestARuleThatTakesAllMemory(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it exceeds its budget, and when it is quarantined
	pushed := c.push("greedy", longText+`replace(s, "x", s) != ""`)
	c.ready(pushed)
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/greedy", tooCostly...)
	c.goesOn()
	must(t, w.Client.Delete(t.Context(), pushed))
	c.ready(c.pool)
}

func TestARuleThatNeverEnds(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it exceeds its budget, and when it is quarantined
	pushed := c.push("endless", "some i in numbers.range(1, 60000)\n\tsome j in numbers.range(1, 60000)\n\ti * j == -1")
	c.ready(pushed)
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/endless", tooCostly...)
	c.goesOn()
	c.patch(pushed, fmt.Sprintf(`{"spec":{"modules":{"pushed.rego":%q}}}`, limitModule(5, ""))) // the changed policy is evaluated at once
	c.ready(c.pool)
}

// Nested comprehensions keep OPA's compiler busy. Each policy is compiled separately, and there are more policies
// than workers. Each takes two seconds of CPU time, and a longer test compiles more of them. The test therefore
// does not run in parallel with others.
func TestPoliciesThatTakeLongToLoad(t *testing.T) {
	c := makeCourt(t)
	c.checkMessages(120) // one for each policy that cannot be loaded
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
			if causes, _ := recorder.Causes(&p, v1alpha1.ReadyCondition); !strings.HasPrefix(causes, "PolicyBroken ") || !strings.Contains(causes, "CPU time") {
				t.Fatalf("it has %q", causes)
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
	c.besideGoesOn() // other policies of the same namespace wait for its quota
	for _, p := range pushed {
		must(t, w.Client.Delete(t.Context(), p))
	}
	c.ready(c.pool)
}

// tried returns the policies of the namespace that could not be loaded.
func (c *court) tried(ctx context.Context) ([]v1alpha1.RunnerPolicy, error) {
	list := &v1alpha1.RunnerPolicyList{}
	err := w.Client.List(ctx, list, client.InNamespace(c.namespace))
	return slices.DeleteFunc(list.Items, func(p v1alpha1.RunnerPolicy) bool {
		return conditions.GetReason(&p, v1alpha1.ReadyCondition) != v1alpha1.PolicyInvalidReason
	}), err
}

// Each line expands to nine copies of the previous one.
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
	c.has(pushed, metav1.Condition{Type: v1alpha1.StalledCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.PolicyInvalidReason})
	const file = "bomb/data.yaml: "
	if causes, _ := recorder.Causes(pushed, v1alpha1.ReadyCondition); !strings.HasPrefix(causes, `PolicyBroken problems="`+file) || !strings.HasSuffix(causes, "\nLastDecisionHolds") {
		t.Errorf("the policy has %s", causes)
	}
	c.blames(c.pool, "RunnerPolicy/"+c.namespace+"/bomb", policy.NotLoaded)
	c.look(file, 1, "pool/bound")
	c.goesOn()
}

func TestATemplateOf8000Containers(t *testing.T) {
	c := newCourt(t)
	names := []string{`{"name":"runner"}`}
	for i := range 7999 {
		names = append(names, fmt.Sprintf(`{"name":"%x"}`, i))
	}
	with := func(count int) string { return `{"spec":{"containers":[` + strings.Join(names[:count], ",") + `]` }
	huge := newPool(c.namespace, "huge", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Template.Raw = []byte(with(len(names)) + `}}`) })
	if err := w.Client.Create(t.Context(), huge); err == nil || !strings.Contains(err.Error(), "spec.template.spec.containers: Too many: 8000: must have at most 64 items") {
		t.Errorf("the API server says %v", err)
	}
	c.refusesTemplate(with(64)+`,"initContainers":[{"name":"init"}]}}`, "PodInvalid", "spec.template.spec.containers", "65", "64")
	c.goesOn()
	must(t, w.Client.Get(t.Context(), key("", c.guard.Name), c.guard))
	if !conditions.IsReady(c.guard) || len(c.guard.Status.Causes) > 0 {
		t.Errorf("the guard rail has %+v", c.guard.Status)
	}
}

// Findings beyond the reported maximum still count: a pool that was accepted before is denied, and its idle runner
// is removed.
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
		Causes: fmt.Sprintf("PodDenied denials=%q", wording.Truncate(strings.Join(lines, "\n"), v1alpha1.MaxCauseText)),
	})
	if message := conditions.GetMessage(accepted, v1alpha1.ReadyCondition); !strings.Contains(message, lines[15]+"\nand at least 984 more") {
		t.Errorf("the pool says %s", message)
	}
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

// If labels of a pool make a guard rail expensive, only pools of that namespace are affected.
func TestAGuardRailThatIsCostlyForOneNamespace(t *testing.T) {
	c := newCourt(t)
	c.checkMessages(2) // when it exceeds its budget, and when it is quarantined
	c.patch(c.pool, `{"metadata":{"labels":{"rounds":"60000"}}}`)
	// A pool is reconciled once a minute, or on request.
	quarantined := func() bool {
		must(t, w.Client.Get(t.Context(), key(c.namespace, "bound"), c.pool))
		return slices.ContainsFunc(c.pool.Status.Causes, func(cause v1alpha1.Cause) bool { return cause.Parameter("kind") == string(policy.Quarantined) })
	}
	eventually(t, func(context.Context) error {
		if quarantined() {
			return nil
		}
		c.request(c.pool)
		return fmt.Errorf("the pool says %+v", c.pool.Status.Conditions)
	})
	c.blames(c.pool, "ClusterRunnerPolicy/"+c.namespace, policy.Quarantined)
	c.request(c.guard)
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key("", c.guard.Name), c.guard); err != nil {
			return err
		}
		if message := conditions.GetMessage(c.guard, v1alpha1.ReadyCondition); !conditions.IsReady(c.guard) || !strings.HasSuffix(message, ": "+c.namespace) {
			return fmt.Errorf("it reports %q", message)
		}
		return nil
	})
	c.goesOn()
}
