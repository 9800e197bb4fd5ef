// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// lines formats diagnostics as FILE:LINE:COLUMN: MESSAGE.
func lines(list []v1alpha1.Diagnostic) []string {
	var all []string
	for _, d := range list {
		all = append(all, d.String())
	}
	return all
}

// namespaced returns a policy in the namespace ci with one module, p.rego.
func namespaced(text string) Source {
	return Source{Kind: KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": text}}
}

// fieldsOfScaling lists the fields of corral.scaling's input.
func fieldsOfScaling() string {
	return strings.Join(slices.Sorted(maps.Keys(InputSchema(DecisionScaling)["properties"].(map[string]any))), ", ")
}

func TestLoadTellsWhatIsWrongInAModule(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"default deny": {
			text: "package corral.template\ndefault deny := false",
			want: []string{"p.rego:2:1: corral.template.deny can't have a default: it is a set, empty if no rule adds to it; remove the default"},
		},
		"complete deny": {
			text: "package corral.template\ndeny if input.pool.name == \"a\"",
			want: []string{`p.rego:2:1: corral.template.deny would be true, and say nothing: it is a set; write deny contains "…" if { … }`},
		},
		"deny with value": {
			text: "package corral.template\ndeny := \"no\" if input.pool.name == \"a\"",
			want: []string{`p.rego:2:1: corral.template.deny can't have one value: it is a set that rules add to; write deny contains "…" if { … }`},
		},
		"deny by key": {
			text: "package corral.template\ndeny[msg] if {\n\tmsg := input.pool.name\n}",
			want: []string{`p.rego:2:1: corral.template.deny would have the value true for each key, and say nothing: it is a set; write deny contains "…" if { … }`},
		},
		"deny function": {
			text: "package corral.template\ndeny(x) if x == 1",
			want: []string{`p.rego:2:1: corral.template.deny can't be a function: it is a set; write deny contains "…" if { … }`},
		},
		"deny.foo": {
			text: "package corral.template\ndeny.foo contains \"a\" if input.pool.name",
			want: []string{`p.rego:2:1: corral.template.deny can't have sets in it: it is a set itself; write deny contains "…" if { … }`},
		},
		"deny true": {
			text: "package corral.template\ndeny contains true if input.pool.name == \"a\"",
			want: []string{`p.rego:2:15: an element of corral.template.deny can't be true, which says nothing: write deny contains "…" if { … }`},
		},
		"v0 set": {
			text: "package corral.template\ndeny[msg] { msg := \"x\" }",
			want: []string{"p.rego:2:1: `contains` keyword is required for partial set rules: write deny contains msg if { … }", "p.rego:2:1: `if` keyword is required before rule body: write RULE if { … }"},
		},
		"limit string": {
			text: "package corral.scaling\nlimit contains \"a\"",
			want: []string{`p.rego:2:16: an element of corral.scaling.limit can't be a string: write limit contains {"field": "max", "atMost": 10, "reason": "…"} if { … }`},
		},
		"limit typo": {
			text: "package corral.scaling\nlimit contains {\"feild\": \"max\", \"atMost\": 3, \"reason\": \"x\"}",
			want: []string{`p.rego:2:16: an element of corral.scaling.limit must have field: write limit contains {"field": "max", "atMost": 10, "reason": "…"} if { … }`, `p.rego:2:17: an element of corral.scaling.limit has no "feild": did you mean field?`},
		},
		"limit field": {
			text: "package corral.scaling\nlimit contains {\"field\": \"maxx\", \"atMost\": 3, \"reason\": \"x\"}",
			want: []string{`p.rego:2:26: "field" of corral.scaling.limit can't be "maxx": did you mean max?`},
		},
		"dney": {
			text: "package corral.template\ndney contains \"a\" if input.pool.name",
			want: []string{"p.rego:2:1: rule dney of the package corral.template is read by no decision and no test: did you mean deny?"},
		},
		"unread": {
			text: "package corral.template\ndeny contains \"a\" if input.pool.name\nhelper if input.pool.trust",
			want: []string{"p.rego:3:1: rule helper of the package corral.template is read by no decision and no test: remove it, or read it in a rule of deny or warn"},
		},
		"scalling": {
			text: "package corral.scalling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"x\"}",
			want: []string{"p.rego:1:1: package corral.scalling is read by no decision: did you mean package corral.scaling?"},
		},
		"nam": {
			text: "package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"x\"} if input.pool.nam == \"a\"",
			want: []string{`p.rego:2:64: undefined ref: input.pool.nam: input.pool has no "nam"; did you mean name?`},
		},
		"pod in scaling": {
			text: "package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"x\"} if input.pod",
			want: []string{`p.rego:2:64: undefined ref: input.pod: input has no "pod"; there are ` + fieldsOfScaling()},
		},
		"container": {
			text: "package corral.template\ndeny contains \"a\" if input.pod.spec.containers[_].imagee",
			want: []string{`p.rego:2:22: undefined ref: input.pod.spec.containers[_].imagee: input.pod.spec.containers[_] has no "imagee"; did you mean image?`},
		},
		"some container": {
			text: "package corral.template\ndeny contains \"a\" if {\n\tsome c in input.pod.spec.containers\n\tc.securityContext.privilegd\n}",
			want: []string{`p.rego:4:2: undefined ref: c.securityContext.privilegd: c.securityContext has no "privilegd"; did you mean privileged?`},
		},
		"some of what isn't there": {
			text: "package corral.template\ndeny contains \"a\" if {\n\tsome c in input.pod.spec.containerz\n\tc.image\n}",
			want: []string{`p.rego:3:12: undefined ref: input.pod.spec.containerz[_]: input.pod.spec has no "containerz"; did you mean containers?`},
		},
		"types": {
			text: "package corral.template\ndeny contains \"a\" if input.pool.name == 1",
			want: []string{"p.rego:2:22: match error: the two sides can never be equal, string and number; compare values of one type"},
		},
		"http": {
			text: "package corral.template\ndeny contains \"a\" if http.send({\"url\": \"http://x\", \"method\": \"get\"})",
			want: []string{"p.rego:2:22: undefined function http.send: policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data"},
		},
		"now": {
			text: "package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"x\"} if time.now_ns() > 1",
			want: []string{"p.rego:2:64: undefined function time.now_ns: policies have no clock: use input.now"},
		},
		"rand": {
			text: "package corral.template\ndeny contains \"a\" if rand.intn(\"a\", 3) == 1",
			want: []string{"p.rego:2:22: undefined function rand.intn: policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data"},
		},
		"jwt": {
			text: "package corral.template\ndeny contains \"a\" if io.jwt.decode_verify(input.pool.name, {})",
			want: []string{"p.rego:2:22: undefined function io.jwt.decode_verify: policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data"},
		},
		"unknown function": {
			text: "package corral.template\ndeny contains \"a\" if startwith(input.pool.name, \"a\")",
			want: []string{"p.rego:2:22: undefined function startwith: did you mean startswith?"},
		},
		"unused": {
			text: "package corral.template\ndeny contains \"a\" if {\n\tx := input.pool.name\n}",
			want: []string{"p.rego:3:2: assigned var x unused: remove it, or use _ for what isn't read"},
		},
		"unused import": {
			text: "package corral.template\nimport data.foo\ndeny contains \"a\" if input.pool.name",
			want: []string{"p.rego:2:1: import data.foo unused: remove it"},
		},
		"unsafe": {
			text: "package corral.template\ndeny contains msg if input.pool.name",
			want: []string{"p.rego:2:15: var msg is unsafe in rule deny: it has no value; bind it in the body, outside of a negation, as in x := input.pool.name"},
		},
		"recursion": {
			text: "package corral.template\ndeny contains \"a\" if count(deny) > 1",
			want: []string{"p.rego:2:1: rule data.corral.template.deny is recursive: data.corral.template.deny -> data.corral.template.deny: rules can't read themselves; break the circle"},
		},
		"syntax": {
			text: "package corral.template\ndeny contains \"a\" if {",
			want: []string{"p.rego:2:1: the { of this line is never closed"},
		},
		"no package": {
			text: "deny contains \"a\" if true",
			want: []string{"p.rego:1:1: package expected: begin the file with its package, as in package corral.template"},
		},
		"empty": {
			text: "",
			want: []string{"p.rego: empty module: begin the file with its package, as in package corral.template"},
		},
		"comment": {
			text: "# nothing",
			want: []string{"p.rego: empty module: begin the file with its package, as in package corral.template"},
		},
		"package library": {
			text: "package library.x\nfoo := 1",
			want: []string{"p.rego:1:1: a package can't be named library.x: data.library is what spec.library says; rename it"},
		},
		"nothing asked": {
			text: "package limits\nlimit contains {\"field\": \"max\"}",
			want: []string{"p.rego:1:1: package limits is read by no decision: write package corral.scaling or corral.template or corral.update"},
		},
		"reserved name": {
			text: "package corral.template\n__answers contains \"a\"\ndeny contains \"b\"",
			want: []string{"p.rego:2:1: names that begin with __ are for the engine: rename __answers"},
		},
		"no such rule": {
			text: "package corral.template\ndeny contains \"a\" if data.corral.helpers.isbad(input.pool.name)",
			want: []string{"p.rego:2:22: undefined function data.corral.helpers.isbad: define it in a module of this policy"},
		},
		"no such rule two": {
			text: "package corral.template\ndeny contains \"a\" if data.corral.helpers.bad",
			want: []string{"p.rego:2:22: data.corral.helpers.bad: this policy has no such rule; define it, or switch on the part of the library (spec.library) that has it"},
		},
		"brackets": {
			text: "package corral.template\ndeny contains \"a\" if " + strings.Repeat("[", 60000),
			want: []string{"p.rego:2:50018: max parsing recursion depth exceeded: nest it less deeply"},
		},
		"conflict": {
			text: "package corral.template\ndeny contains \"a\" if f\nf := 1\nf contains 2",
			want: []string{"p.rego:3:1: conflicting rules data.corral.template.f found: rules of one name must be all sets, all functions or all values"},
		},
		"data conflict": {
			text: "package teams.limits\nci := 1",
			want: []string{"p.rego:2:1: conflicting rule for data path teams/limits/ci found: spec.data has a value there; rename the key or the package"},
		},
		"override": {
			text: "package corral.template\ninput := 1\ndeny contains \"a\"",
			want: []string{"p.rego:2:1: rules must not shadow input (use a different rule name): choose another name"},
		},
		"arity": {
			text: "package corral.template\ndeny contains \"a\" if startswith(input.pool.name)",
			want: []string{"p.rego:2:22: startswith: arity mismatch: give it as many arguments as it takes"},
		},
		"v0 if": {
			text: "package corral.template\nx { true }\ndeny contains \"a\" if x",
			want: []string{"p.rego:2:1: `if` keyword is required before rule body: write RULE if { … }"},
		},
		"recursion in data": {
			text: "package corral.template\ndeny contains \"a\" if data[input.pool.name]",
			want: []string{"p.rego:2:1: the rule may read itself by a computed name: begin the reference with names, as in data.teams[input.pool.name]"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := namespaced(c.text)
			source.Data = map[string]any{"teams": map[string]any{"limits": map[string]any{"ci": 1}}}
			p, found := Load(source)
			if diff := cmp.Diff(c.want, lines(found)); diff != "" {
				t.Errorf("Load(%.200q) differs (-want +got):\n%s", c.text, diff)
			}
			if got := p.Decisions(); got != nil {
				t.Errorf("a policy that isn't loaded takes part in %v", got)
			}
		})
	}
}

func TestLoadTellsWhatIsWrongInASource(t *testing.T) {
	const fine = "package corral.template\ndeny contains \"a\" if input.pool.name == \"b\"\n"
	many := map[string]string{}
	for i := range v1alpha1.MaxPolicyModules + 1 {
		many[fmt.Sprintf("m%d.rego", i)] = fine
		many[fmt.Sprintf("m%d_test.rego", i)] = "package a"
	}
	deep := any(1)
	for range maxNesting + 2 {
		deep = []any{deep}
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	cases := map[string]struct {
		source Source
		want   []string
	}{
		"too many modules": {Source{Modules: many}, []string{"the policy has 65 modules, more than 64: join some, or make two policies of it"}},
		"too many bytes": {
			Source{Modules: map[string]string{"p.rego": fine}, Data: map[string]any{"a": strings.Repeat("a", v1alpha1.MaxPolicyBytes)}},
			[]string{"the policy's modules and data take 131154 bytes, more than 131072: make two policies of it"},
		},
		"name":         {Source{Modules: map[string]string{"p.txt": fine}}, []string{"p.txt: a module is named NAME.rego: rename it"}},
		"no text":      {Source{Modules: map[string]string{"p.rego": fine + "# \xff"}}, []string{"p.rego: the module isn't UTF-8 text: save it as UTF-8"}},
		"deep data":    {Source{Data: map[string]any{"a": deep}}, []string{"spec.data is nested more than 64 deep: make it flatter"}},
		"no JSON":      {Source{Parameters: map[string]any{"a": func() {}}}, []string{"spec.data and spec.parameters must be JSON: ast: interface conversion: json: unsupported type: func()"}},
		"pattern":      {Source{Kind: KindClusterRunnerPolicy, Namespaces: []string{"[a"}}, []string{`namespaces: "[a" is no pattern; write a name, with * for any characters`}},
		"selector":     {Source{Selector: bad}, []string{`selector: "Near" is not a valid label selector operator; without one that holds, the policy binds every pool in reach`}},
		"data.library": {Source{Data: map[string]any{"library": 1}}, []string{"spec.data must not have the key library: data.library is what spec.library says; rename it"}},
		"data.parameters": {
			Source{Data: map[string]any{"parameters": 1}}, []string{"spec.data must not have the key parameters: data.parameters is what spec.parameters says; rename it"},
		},
		"data.corral": {Source{Data: map[string]any{"corral": 1}}, []string{"spec.data must not have the key corral: data.corral has the packages of the decisions; rename it"}},
		"time zone": {
			Source{Library: &v1alpha1.PolicyLibrary{Hours: &v1alpha1.HourRules{TimeZone: "Mars/Olympus"}}},
			[]string{`spec.library.hours.timeZone: there is no time zone "Mars/Olympus": use a name of the IANA database, such as Europe/Berlin`},
		},
		"a rule of the library": {
			Source{
				Library: &v1alpha1.PolicyLibrary{Images: &v1alpha1.ImageRules{RequireDigest: true}},
				Modules: map[string]string{"p.rego": "package corral.library.images\nundigested contains \"a\"\n"},
			},
			[]string{"p.rego:2:1: the built-in library already has a rule corral.library.images.undigested: rename this rule"},
		},
		"several modules": {
			Source{Modules: map[string]string{"b.rego": "package corral.template\ndeny contains a", "a.rego": "package"}},
			[]string{"a.rego:1:7: unexpected eof token at \"package\""},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.source.Name = "p"
			if _, found := Load(c.source); !cmp.Equal(c.want, lines(found)) {
				t.Errorf("Load differs (-want +got):\n%s", cmp.Diff(c.want, lines(found)))
			}
		})
	}
}

func TestLoadAcceptsWhatMeansSomething(t *testing.T) {
	cases := map[string]map[string]string{
		"a set of strings": {"p.rego": `package corral.template
deny contains "no" if input.pool.trust == "none"
warn contains msg if msg := sprintf("pool %s", [input.pool.name])
`},
		"an element made in the body": {"p.rego": `package corral.scaling
limit contains l if {
	some n in [1, 2]
	l := {"field": "max", "atMost": n, "reason": "r"}
}
`},
		"keys that aren't known before": {"p.rego": `package corral.scaling
limit contains {"field": "max", k: 3, "reason": "r"} if some k in ["atMost"]
`},
		"helpers in packages of their own": {"p.rego": `package corral.template
import data.corral.helpers
import data.names
deny contains "a" if helpers.bad(input.pod)
deny contains "b" if names.taken[input.pool.name]
`, "helpers.rego": `package corral.helpers
bad(pod) if pod.spec.hostNetwork
bad(_) if input.jobs > 3
`, "names.rego": `package names
taken contains "x"
unused := 1
`},
		"helpers read by a computed name": {"p.rego": `package corral.template
deny contains msg if some msg in data.corral.checks[_].found
`, "a.rego": "package corral.checks.a\nfound contains \"x\" if input.pool.stopPolicy == \"Drain\"\n", "b.rego": "package corral.checks.b\nfound contains \"y\"\n"},
		"a rule for tests": {"p.rego": `package corral.scaling
limit contains {"field": "max", "atMost": 3, "reason": "r"}
fixture := {"a": 1}
`, "p_test.rego": "package corral.scaling_test\nimport data.corral.scaling\ntest_a if scaling.fixture.a == 1\n"},
		"tests among the rules": {"p.rego": `package corral.scaling
limit contains {"field": "max", "atMost": 3, "reason": "r"}
test_limit if count(limit) == 1
`},
		"what may be there or not": {"p.rego": `package corral.scaling
limit contains {"field": "max", "atMost": n, "reason": "r"} if n := object.get(data.parameters, ["max", input.pool.name], 3)
limit contains {"field": "min", "atMost": n, "reason": "r"} if n := capped with data.caps as {"a": 1}
capped := data.caps[input.pool.name]
`},
		"metadata, its own schemas included": {"p.rego": `# METADATA
# schemas:
#   - input: schema.mine
package corral.template

# METADATA
# title: No host
# schemas:
#   - input: {type: object}
deny contains rego.metadata.rule().title if input.pod.spec.hostNetwork
`},
		"quantities and ports of both types": {"p.rego": `package corral.template
deny contains "a" if {
	some c in input.pod.spec.containers
	units.parse(c.resources.limits.cpu) > 4
	c.livenessProbe.httpGet.port == 80
	c.livenessProbe.httpGet.port == "http"
	input.pod.metadata.labels["a/b"] == "c"
}
`},
		"print, which says nothing": {"p.rego": "package corral.template\ndeny contains \"a\" if {\n\tprint(input.pool)\n\tinput.pool.stopPolicy == \"Drain\"\n}\n"},
		"else and every": {"p.rego": `package corral.update
rollout contains {"strategy": chosen, "reason": "r"}
chosen := "OnIdle" if {
	every k, v in input.pool.labels { k != v }
} else := "Recreate" if input.change.phase == ""
`},
		"nothing at all": {},
	}
	for name, modules := range cases {
		t.Run(name, func(t *testing.T) {
			if _, found := Load(Source{Kind: KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: modules}); found != nil {
				t.Errorf("Load refuses it: %v", lines(found))
			}
		})
	}
}

// Each pool that a policy binds keeps the labels that its rules name.
func TestRulesNameFewLabelsOfTheUsage(t *testing.T) {
	for n, isRefused := range map[int]bool{maxUsageLabels: false, maxUsageLabels + 1: true} {
		var read []string
		for i := range n {
			read = append(read, fmt.Sprintf("input.usage.labels.l%d.granted", i))
		}
		_, diagnostics := Load(namespaced("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"} if " + strings.Join(read, " + ") + " > 3\n"))
		if refused := len(diagnostics) == 1 && strings.Contains(diagnostics[0].Message, "the usage of 17 labels in input.usage.labels, more than 16"); refused != isRefused || len(diagnostics) > 1 {
			t.Errorf("%d labels: %v", n, lines(diagnostics))
		}
	}
}

func TestTheLibraryLoadsByFamily(t *testing.T) {
	hours := &v1alpha1.HourRules{Open: []v1alpha1.WeeklyWindow{{From: "08:00", To: "18:00"}}}
	cases := map[string]struct {
		library v1alpha1.PolicyLibrary
		want    []string
	}{
		"none":   {want: nil},
		"images": {library: v1alpha1.PolicyLibrary{Images: &v1alpha1.ImageRules{RequireDigest: true}}, want: []string{DecisionTemplate}},
		"hours":  {library: v1alpha1.PolicyLibrary{Hours: hours}, want: []string{DecisionScaling, DecisionUpdate}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, found := Load(Source{Kind: KindRunnerPolicy, Name: "p", Library: &c.library})
			if found != nil || !cmp.Equal(c.want, p.Decisions()) {
				t.Errorf("decisions are %v, want %v; diagnostics %v", p.Decisions(), c.want, lines(found))
			}
		})
	}
}

func TestDigestsTellPoliciesApart(t *testing.T) {
	base := func() Source { return namespaced("package corral.template\ndeny contains \"a\"\n") }
	changes := map[string]func(*Source){
		"a module":    func(s *Source) { s.Modules["p.rego"] += "# more" },
		"its name":    func(s *Source) { s.Modules = map[string]string{"q.rego": s.Modules["p.rego"]} },
		"data":        func(s *Source) { s.Data = map[string]any{"a": 1} },
		"parameters":  func(s *Source) { s.Parameters = map[string]any{"a": 1} },
		"the library": func(s *Source) { s.Library = &v1alpha1.PolicyLibrary{} },
		"its families": func(s *Source) {
			s.Library = &v1alpha1.PolicyLibrary{Images: &v1alpha1.ImageRules{RequireDigest: true}}
		},
	}
	first, _ := Load(base())
	seen := map[string]string{first.Digest(): "nothing"}
	for name, change := range changes {
		source := base()
		change(&source)
		p, _ := Load(source)
		if other := seen[p.Digest()]; other != "" {
			t.Errorf("with %s changed, the digest is that of %s changed", name, other)
		}
		seen[p.Digest()] = name
	}
	same := base()
	same.Modules["p_test.rego"] = "package a"
	if p, _ := Load(same); p.Digest() != first.Digest() {
		t.Error("a test changes the digest")
	}
}

// A rule that reads missing data is undefined and would silently never apply.
func TestLoadRefusesReferencesToDataThatIsNotThere(t *testing.T) {
	const rules = `package corral.template
import data.teams
deny contains "a" if not data.parameters.maxCPU
deny contains "b" if teams.web.max > 1
deny contains "c" if data.team[input.pool.name]
deny contains "d" if data.parameters.sizes[2]
deny contains "e" if data.parameters.maxCpu.cores
deny contains "f" if data.parameters[input.pool.name]
deny contains "g" if data.limits.max
`
	source := Source{
		Kind: KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": rules},
		Data: map[string]any{"teams": map[string]any{"ml": 1}}, Parameters: map[string]any{"maxCpu": "4", "sizes": []any{"1", "2"}},
	}
	want := []string{
		"p.rego:3:26: data.parameters.maxCPU: data.parameters has no \"maxCPU\"; did you mean maxCpu?",
		"p.rego:4:22: data.teams.web.max: data.teams has no \"web\"; add it to the policy's data",
		"p.rego:5:22: data.team: data has no \"team\"; did you mean teams?",
		"p.rego:6:22: data.parameters.sizes[2]: data.parameters.sizes has no 2; set it in spec.parameters; one that may be left out is read as object.get(data.parameters.sizes, 2, …)",
		"p.rego:7:22: data.parameters.maxCpu.cores: data.parameters.maxCpu has no \"cores\"; set it in spec.parameters; one that may be left out is read as object.get(data.parameters.maxCpu, \"cores\", …)",
		"p.rego:9:22: data.limits.max: data has no \"limits\"; add it to the policy's data",
	}
	_, found := Load(source)
	if diff := cmp.Diff(want, lines(found)); diff != "" {
		t.Error("(-want +got)", diff)
	}
	source.Partial = true
	if _, found := Load(source); found != nil {
		t.Errorf("Load refuses what the rest may define: %v", lines(found))
	}
}
