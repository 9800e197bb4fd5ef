// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/policy"
)

// limits returns a module of corral.scaling with the elements.
func limits(elements ...string) string {
	text := "package corral.scaling\n"
	for _, e := range elements {
		text += "limit contains " + e + "\n"
	}
	return text
}

// when returns a limit with the given body.
func when(body string) string {
	return limits(`{"field": "max", "atMost": 1, "reason": "r"} if {` + "\n" + body + "\n}")
}

// doubled returns a body that builds values, each containing the previous value twice, and reads the last one.
func doubled(first, step, last string) string {
	var b strings.Builder
	b.WriteString("x0 := " + first + "\n")
	for i := 1; i <= 40; i++ {
		b.WriteString(strings.NewReplacer("NEW", fmt.Sprintf("x%d", i), "OLD", fmt.Sprintf("x%d", i-1)).Replace(step) + "\n")
	}
	return b.String() + last
}

// long is a text of a million bytes.
const long = `concat("", ["aaaaaaaaaaaaaaaaaaaa" | some _ in numbers.range(1, 50000)])`

// hostile rules use all memory or all time. The process that evaluates them could not stop most of these.
var hostile = map[string]string{
	"never ends":               when("some i in numbers.range(1, 1000000)\nsome j in numbers.range(1, 1000000)\ni + j == 0"),
	"grows a text":             when("s := " + long + "\nreplace(s, \"a\", s) != \"\""),
	"replaces many":            when("s := " + long + "\nstrings.replace_n({\"a\": s}, s) != \"\""),
	"large units":              when(`units.parse("1e999999999") > 0`),
	"large bytes":              when(`units.parse_bytes("1e999999999") > 0`),
	"a quantity's exponent":    when(`corral.quantity("1e-2147483647") > 0`),
	"a number's digits":        when(`to_number("1e999999999") * 3 > 1`),
	"shifted bits":             when("bits.lsh(1, 90000000000) > 0"),
	"a power of powers":        when(doubled("7", "NEW := OLD * OLD", "x40 > 0")),
	"JSON of shared values":    when(doubled("[1, 1]", "NEW := [OLD, OLD]", "json.marshal(x40) != \"\"")),
	"a pattern that backs up":  when("s := " + long + "\nregex.match(\"((a{1,30}){1,30})*b\", s)"),
	"values out of a text":     when("s := concat(\",\", [\"[{},{}]\" | some _ in numbers.range(1, 300000)])\ncount(json.unmarshal(concat(\"\", [\"[\", s, \"]\"]))) == 1"),
	"a YAML document":          when("s := concat(\"\", [\"- {}\\n\" | some _ in numbers.range(1, 1000000)])\ncount(yaml.unmarshal(s)) == 1"),
	"reached by a graph":       when("g := {sprintf(\"%d\", [i]): [sprintf(\"%d\", [j]) | some j in numbers.range(1, 2000)] | some i in numbers.range(1, 2000)}\ncount(graph.reachable_paths(g, {\"1\"})) == 1"),
	"addresses of a network":   when(`count(net.cidr_expand("10.0.0.0/4")) == 1`),
	"recursion of a structure": when("s := concat(\"\", [\"[\" | some _ in numbers.range(1, 5000000)])\njson.is_valid(s)\njson.unmarshal(s)"),
}

// small returns limits on CPU and memory that a normal rule keeps and a hostile one quickly exceeds. Wall time is not
// limited much, because other tests may keep the machine busy.
func small() EvaluatorLimits {
	l := DefaultEvaluatorLimits()
	l.Ask.CPU, l.Load.CPU = 400*time.Millisecond, 4*time.Second
	l.Ask.Memory, l.Load.Memory = 64<<20, 64<<20
	l.Ask.Wall, l.Load.Wall = 10*time.Minute, 10*time.Minute
	return l
}

func newEvaluator(t testing.TB, children int) *Evaluator {
	t.Helper()
	e := NewEvaluator(children, small())
	t.Cleanup(e.Close)
	return e
}

func of(namespace, name, text string) policy.Source {
	return policy.Source{Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: name, Modules: map[string]string{"p.rego": text}}
}

// load loads a valid policy.
func load(t testing.TB, e *Evaluator, source policy.Source) *policy.Policy {
	t.Helper()
	facts, diagnostics, err := e.Load(t.Context(), source, nil)
	if err != nil || len(diagnostics) > 0 {
		t.Fatalf("loading %s: %v, %v", source.Ref(), diagnostics, err)
	}
	return policy.Elsewhere(source, facts, e)
}

// ask returns the max of a pool in a namespace, and the kinds of failures.
func ask(t testing.TB, namespace string, policies ...*policy.Policy) (int32, []policy.FailureKind) {
	t.Helper()
	pool := policy.Pool{Namespace: namespace, Name: "linux", Scale: policy.Scale{Max: 100}}
	answer := policy.NewSet(policies...).For(pool).Scaling(t.Context(), policy.ScalingInput{Pool: pool, Jobs: 1})
	var kinds []policy.FailureKind
	for _, f := range answer.Failures {
		kinds = append(kinds, f.Kind)
	}
	return answer.Scale.Max, kinds
}

const honest = `{"field": "max", "atMost": 7, "reason": "r"}`

func TestHostileRulesEndAndOthersGoOn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory and CPU time are limited on Linux only")
	}
	e := newEvaluator(t, 2)
	quiet := load(t, e, of("quiet", "p", limits(honest)))
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			greedy := load(t, e, of("greedy", "p", text))
			if _, kinds := ask(t, "greedy", greedy); len(kinds) != 1 {
				t.Errorf("failures are %v, want one", kinds)
			}
			if got, kinds := ask(t, "quiet", quiet); got != 7 || kinds != nil {
				t.Errorf("another is asked for its max: %d, %v", got, kinds)
			}
		})
	}
}

// A request that fails together with a greedy one in the same child is not charged.
func TestOnlyWhatFailsAloneIsCharged(t *testing.T) {
	e := newEvaluator(t, 1)
	quiet, greedy := load(t, e, of("quiet", "p", limits(honest))), load(t, e, of("greedy", "p", hostile["never ends"]))
	for range 4 {
		ask(t, "greedy", greedy)
	}
	if _, kinds := ask(t, "greedy", greedy); !cmp.Equal(kinds, []policy.FailureKind{policy.Quarantined}) {
		t.Errorf("after four time-outs: %v", kinds)
	}
	ask(t, "quiet", quiet)
	e.idle[0].kill() // like the kernel when memory runs out
	if got, kinds := ask(t, "quiet", quiet); got != 7 || kinds != nil || len(quiet.Quarantined()) > 0 {
		t.Errorf("the end of a child is charged to who is asked next: %d, %v", got, kinds)
	}
}

func TestANamespaceHasOneChildAtATime(t *testing.T) {
	e := newEvaluator(t, 2)
	slow := make([]*policy.Policy, 6)
	for i := range slow {
		slow[i] = load(t, e, of("greedy", fmt.Sprint("p", i), hostile["never ends"]))
	}
	quiet := load(t, e, of("quiet", "p", limits(honest)))
	var asking sync.WaitGroup
	for _, p := range slow {
		asking.Go(func() { ask(t, "greedy", p) })
	}
	most := 0
	for range 50 {
		if got, kinds := ask(t, "quiet", quiet); got != 7 || kinds != nil {
			t.Fatalf("%d, %v", got, kinds)
		}
		e.mu.Lock()
		most = max(most, len(e.idle))
		e.mu.Unlock()
	}
	asking.Wait()
	if most == 0 {
		t.Error("no child was ever left for others")
	}
}

// A slow namespace gives up its turn, however many namespaces have rules that never end.
func TestWhoIsSlowGivesItsTurnToTheNext(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU time is known on Linux only")
	}
	e := newEvaluator(t, 2)
	e.limits.Ask.CPU, e.limits.Ask.Wall = time.Hour, time.Hour
	quiet := load(t, e, of("quiet", "p", limits(honest)))
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer end()
	for _, namespace := range []string{"a", "b"} {
		endless := load(t, e, of(namespace, "p", hostile["never ends"]))
		asking.Go(func() {
			_, _ = e.Ask(ctx, endless, policy.Question{Decision: policy.DecisionScaling, Namespace: namespace, Input: json.RawMessage(`{}`)})
		})
	}
	for range 20 {
		if got, kinds := ask(t, "quiet", quiet); got != 7 || kinds != nil {
			t.Fatalf("%d, %v", got, kinds)
		}
	}
}

// A new child takes a tenth of a second to start and to load a policy.
func TestAHostileNamespaceEndsNoChildOfAnother(t *testing.T) {
	e := newEvaluator(t, 2)
	quiet := load(t, e, of("quiet", "p", limits(honest)))
	ask(t, "quiet", quiet)
	warm := e.idle[0]
	for i := range 3 {
		greedy := load(t, e, of("greedy", fmt.Sprint("p", i), hostile["never ends"]))
		for range 2 {
			ask(t, "greedy", greedy)
		}
	}
	if warm.isOver() {
		t.Error("the child that has the other namespace's policy was ended")
	}
}

func TestAPolicyIsLoadedAgainInEachFreshChild(t *testing.T) {
	e := newEvaluator(t, 1)
	p := load(t, e, of("ci", "p", limits(honest)))
	e.limits.Rest = 1 // each child has grown too much
	for range 3 {
		if got, kinds := ask(t, "ci", p); got != 7 || kinds != nil {
			t.Fatalf("%d, %v", got, kinds)
		}
	}
}

// Deep, wide and tangled rules that keep OPA's compiler busy for minutes, or fill the memory.
func TestPoliciesThatCannotBeLoadedAreTold(t *testing.T) {
	deep := "package corral.scaling\nlimit contains x if x := " + strings.Repeat("[y | y := ", 24) + "1" + strings.Repeat("]", 24) + "\n"
	alias := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'j'; c++ {
		alias += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	for name, tc := range map[string]struct {
		source policy.Source
		want   string
		excess bool
	}{
		"comprehensions in comprehensions": {of("ci", "p", deep), "loading the policy: it took more than ", true},
		"types of arrays in arrays":        {of("ci", "p", when(doubled("input.jobs", "NEW := [OLD, OLD]", "x40 == [1]"))), "loading the policy: it took more than ", true},
		"an alias bomb":                    {policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", DataFiles: map[string]string{"config/data.yaml": alias}}, "config/data.yaml: it can't be read as a JSON or YAML object: it has an alias", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, diagnostics, err := newEvaluator(t, 1).Load(t.Context(), tc.source, nil)
			var excess *policy.Excess
			if isExcess := errors.As(err, &excess); isExcess == tc.excess && isExcess {
				diagnostics, err = excess.Diagnostics(), nil
			}
			if err != nil || len(diagnostics) != 1 || !strings.HasPrefix(diagnostics[0].Message, tc.want) {
				t.Errorf("%v, %v", diagnostics, err)
			}
		})
	}
}

func TestTestsRunInAChild(t *testing.T) {
	e := newEvaluator(t, 1)
	source := of("ci", "p", limits(honest))
	source.Modules["p_test.rego"] = "package corral.scaling_test\nimport data.corral.scaling\ntest_it if count(scaling.limit) == 1\n"
	report, diagnostics, err := e.Test(t.Context(), source, policy.TestOptions{Coverage: true})
	if err != nil || len(diagnostics) > 0 || len(report.Tests) != 1 || !report.Tests[0].Passed || len(report.Coverage) != 1 {
		t.Errorf("%+v, %v, %v", report, diagnostics, err)
	}
}

func TestAPolicyThatChangedBeforeItsTurnIsNotTried(t *testing.T) {
	e := newEvaluator(t, 1)
	source := of("ci", "p", hostile["never ends"])
	if _, _, err := e.Load(t.Context(), source, func() bool { return false }); !errors.Is(err, policy.ErrOutdated) {
		t.Errorf("got %v", err)
	}
	if n := e.idle[0].requests; n != 0 {
		t.Errorf("its child got %d requests", n)
	}
}

func TestAChildThatDoesNotStartIsAnError(t *testing.T) {
	e := newEvaluator(t, 1)
	e.Executable = "/nonexistent"
	if _, _, err := e.Load(t.Context(), of("ci", "p", limits(honest)), nil); err == nil {
		t.Error("got no error")
	}
}

// After the caller has left, the child is free for others, and no policy is charged.
func TestTheCallersEndEndsTheChild(t *testing.T) {
	e := newEvaluator(t, 1)
	e.limits.Ask.CPU = time.Hour
	p := load(t, e, of("ci", "p", hostile["never ends"]))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := e.Ask(ctx, p, policy.Question{Decision: policy.DecisionScaling, Namespace: "ci", Input: json.RawMessage(`{}`)})
	var excess *policy.Excess
	if err == nil || errors.As(err, &excess) {
		t.Errorf("got %v", err)
	}
}

// Texts are longer when JSON escapes them.
func TestADenialIsToldHoweverLongItIs(t *testing.T) {
	e := newEvaluator(t, 1)
	e.limits.Ask.CPU, e.limits.Ask.Memory = time.Hour, 8*e.limits.Ask.Memory
	p := load(t, e, of("ci", "p", `package corral.template

deny contains {"msg": m, "path": m, "remediation": m} if {
	some i in numbers.range(1, 1000)
	m := sprintf("%d %s", [i, input.pod.spec.containers[0].image])
}
`))
	pool := policy.Pool{Namespace: "ci", Name: "linux"}
	pod := `{"spec":{"containers":[{"image":"` + strings.Repeat(`\u003c`, 1000) + `"}]}}`
	answer := policy.NewSet(p).For(pool).Template(t.Context(), policy.TemplateInput{Pool: pool, Pod: []byte(pod)})
	if len(answer.Denials) == 0 {
		t.Errorf("denials are lost: %+v", answer.Failures)
	}
}

// A bug in Corral or OPA is reported as such. The policy is neither charged for it nor evaluated without a pause.
func TestAPanicOfTheChildIsNotThePolicysExcess(t *testing.T) {
	e := newEvaluator(t, 1)
	q := policy.Question{Decision: policy.DecisionScaling, Namespace: "ci", Input: json.RawMessage(`{}`)}
	began := 0
	err := e.inTurn(t.Context(), "ci", "", func(child *process) error {
		began++
		_, err := child.request(t.Context(), evaluation{Program: "never loaded", Question: &q}, e.limits.Ask)
		return err
	})
	var excess *policy.Excess
	var crash *crashError
	if errors.As(err, &excess) || !errors.As(err, &crash) || !strings.Contains(crash.message, "nil pointer") {
		t.Errorf("got %v", err)
	}
	if began != 1 {
		t.Errorf("asked %d times", began)
	}
	quiet := load(t, e, of("ci", "p", limits(honest)))
	if got, kinds := ask(t, "ci", quiet); got != 7 || kinds != nil {
		t.Errorf("asked for its max afterwards: %d, %v", got, kinds)
	}
}
