// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bulk returns 220 texts with their numbers, in one line.
func bulk(format string) string {
	var b strings.Builder
	for i := range 220 {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// listing describes which of the changed fields are listed.
type listing struct {
	First        []string
	Listed, More int
}

func listed(fields []FieldChange, more, first int) listing {
	l := listing{Listed: len(fields), More: more}
	for _, f := range fields[:first] {
		l.First = append(l.First, f.Path)
	}
	return l
}

// The author of a change can add any number of fields without an effect.
func TestManyFieldsHideNoOtherOfAPool(t *testing.T) {
	const maxWas = "max: 50"
	annotated := change(t, linux, "\tlinux: spec: {", "\tlinux: metadata: annotations: {"+bulk("a%03d: \"x\", ")+"}\n\tlinux: spec: {")
	others := []string{"template: #T", `template: #T & {spec: containers: [{image: "runner:2"}]}`, maxWas, "max: 900", "scale:", `scaleSetName: "other"` + "\n\t\tscale:"}
	schedules := strings.Repeat(`{name: "NAME", weekly: {days: ["Monday"], from: "01:00", to: "02:00"}, scale: {min: 1, idle: 1, max: 1}}, `, 32)
	for i := range 32 {
		schedules = strings.Replace(schedules, "NAME", fmt.Sprint("s", i), 1)
	}
	type outcome struct {
		Verdict   Verdict
		Classes   []Class
		LosesJobs bool
		Rolls     bool
		Fields    listing
	}
	for name, tt := range map[string]struct {
		head string
		want outcome
	}{
		"annotations": {change(t, annotated, others...), outcome{Allowed, []Class{ReroutesJobs, ReplacesRunners, OtherLimits, Settings}, false, true,
			listing{[]string{"spec.scaleSetName", "spec.template.spec.containers[0].image", "spec.scale.max"}, 200, 23}}},
		"annotations and another connection": {change(t, annotated, `"acme"`, `"other"`), outcome{Allowed, []Class{Replaced, Settings}, true, false,
			listing{[]string{"spec.connectionRef.name"}, 200, 21}}},
		"annotations and an immutable field": {change(t, annotated, "scale:", "registration: \"REST\"\n\t\tscale:"), outcome{Broken, []Class{Replaced, Settings}, true, false,
			listing{[]string{"spec.registration"}, 200, 21}}},
		"annotations and a suspension": {change(t, annotated, "scale:", "stopPolicy: \"Drain\"\n\t\tscale:"), outcome{Allowed, []Class{ReroutesJobs, Settings}, false, false,
			listing{[]string{"spec.stopPolicy"}, 200, 21}}},
		"schedules": {change(t, change(t, linux, others...), "scale: {", "scale: {schedules: ["+schedules+"], "), outcome{Allowed, []Class{ReroutesJobs, ReplacesRunners, OtherLimits}, false, true,
			listing{[]string{"spec.scaleSetName", "spec.template.spec.containers[0].image", "spec.scale.max"}, 200, 27}}},
		"environment": {change(t, linux, "template: #T", `template: {metadata: labels: {}, spec: containers: [{name: "runner", image: "runner:2", resources: requests: {cpu: "2", memory: "4Gi"}, env: [`+bulk(`{name: "E%03d", value: "x"}, `)+`]}]}`), outcome{Allowed, []Class{ReplacesRunners}, false, true,
			listing{slices.Concat(envFields(10), []string{"spec.template.spec.containers[0].image"}), 200, 241}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, files{"p.cue": linux}, files{"p.cue": tt.head})
			if len(r.Pools) != 1 {
				t.Fatal(r.Head.Diagnostics)
			}
			p := r.Pools[0]
			got := outcome{r.Verdict, p.Classes, p.LosesJobs, p.Rollout != nil, listed(p.Fields, p.MoreFields, len(tt.want.Fields.First))}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			isSuspended := slices.ContainsFunc(r.Worst, func(c Consequence) bool { return c.Class == "Suspended" })
			if want := strings.Contains(tt.head, "stopPolicy"); isSuspended != want {
				t.Errorf("suspended: %v, want %v", isSuspended, want)
			}
		})
	}
}

// envFields returns the paths of the first fields of environment variables.
func envFields(n int) (paths []string) {
	for i := range n / 2 {
		paths = append(paths, fmt.Sprintf("spec.template.spec.containers[0].env[%d].name", i), fmt.Sprintf("spec.template.spec.containers[0].env[%d].value", i))
	}
	return paths
}

func TestManyFieldsHideNoOtherOfAPolicy(t *testing.T) {
	const head = "package pools\n\nimport \"corral.dev/schema@v0\"\n\n"
	caps := func(data, rules, note string) string {
		return head + `policies: schema.#Policies & {caps: spec: {data: {` + data + `}, parameters: note: [` + strconv.Quote(note) + `], modules: "a.rego": ` + strconv.Quote(rules) + "}}\n"
	}
	r := compareSides(t,
		files{"p.cue": linux, "q.cue": caps("", ceiling, "a")},
		files{"p.cue": linux, "q.cue": caps(bulk("a%03d: 1, "), change(t, ceiling, "60", "6000"), "b")})
	if len(r.Policies) != 1 {
		t.Fatalf("%d policies", len(r.Policies))
	}
	p := r.Policies[0]
	if diff := cmp.Diff([]string{"rules", "data", "parameters"}, p.What); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(listing{[]string{"parameters.note", "data.a000"}, 200, 21}, listed(p.Fields, p.MoreFields, 2)); diff != "" {
		t.Error(diff)
	}
}

func TestManyFieldsHideNoOtherOfAConnection(t *testing.T) {
	const head = "package pools\n\nconnections: acme: "
	annotations := head + "metadata: annotations: {" + bulk("a%03d: \"x\", ") + "}\n"
	for name, tt := range map[string]struct {
		head  string
		class Class
		want  listing
	}{
		"allowed namespaces": {annotations + "connections: acme: spec: allowedNamespaces: [\"web\"]\n", ReroutesJobs, listing{[]string{"spec.allowedNamespaces"}, 200, 21}},
		"only annotations":   {annotations, Settings, listing{[]string{"metadata.annotations.a000"}, 200, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, files{"p.cue": linux}, files{"p.cue": linux, "c.cue": tt.head})
			if len(r.Connections) != 1 {
				t.Fatalf("%d connections, %v", len(r.Connections), r.Head.Diagnostics)
			}
			c := r.Connections[0]
			if diff := cmp.Diff(tt.want, listed(c.Fields, c.MoreFields, 1)); diff != "" || c.Class != tt.class {
				t.Errorf("%s, %s", c.Class, diff)
			}
		})
	}
}

func TestManyFieldsHideNoOtherOfAPriceFile(t *testing.T) {
	labels := "labels:\n" + bulk("- {label: l%03d, perRunnerHour: 1}\n")
	r := compareSides(t,
		files{"p.cue": linux, "prices.yaml": "currency: EUR\nperVCPUHour: 1\n"},
		files{"p.cue": linux, "prices.yaml": "currency: EUR\nperVCPUHour: 0.5\n" + labels})
	if diff := cmp.Diff(listing{append(labelFields(10), "perVCPUHour"), 200, 241}, listed(r.Prices.Fields, r.Prices.MoreFields, 11)); diff != "" {
		t.Error(diff)
	}
	if c := r.Worst[len(r.Worst)-1]; c.Count != 441 || c.Text != "441 prices changed" {
		t.Errorf("%+v", c)
	}
}

// labelFields returns the paths of the first fields of prices of labels.
func labelFields(n int) (paths []string) {
	for i := range n / 2 {
		paths = append(paths, fmt.Sprintf("labels[%d].label", i), fmt.Sprintf("labels[%d].perRunnerHour", i))
	}
	return paths
}

// A value is shortened even if its type allows no shorter value. Long lists of names take no quadratic time.
func TestValuesAreShortenedWhateverTheirType(t *testing.T) {
	long := strings.Repeat("x", 1000)
	var many []any
	for i := range 100_000 {
		many = append(many, map[string]any{"name": fmt.Sprint("n", i)})
	}
	for name, tt := range map[string]struct {
		value any
		most  int
		part  string
	}{
		"a text":            {long, maxValue + 2, "xxx…"},
		"a map":             {map[string]any{"key": long}, maxValue + 10, `{\"key\":\"xxx`},
		"a list":            {[]any{"a", "b", long}, maxValue, `["a","b","… and 1 more"]`},
		"a list of lists":   {[]any{[]any{long}}, maxValue, `["… and 1 more"]`},
		"a list of numbers": {slices.Repeat([]any{1}, 100_000), maxValue, `and 99811 more"]`},
	} {
		if got := string(shown(tt.value)); len(got) > tt.most || !strings.Contains(got, tt.part) {
			t.Errorf("%s: %d bytes, %.50s … %s", name, len(got), got, got[max(0, len(got)-30):])
		}
	}
	if names := namesOf(many); len(names) != len(many) {
		t.Errorf("%d names", len(names))
	}
	if names := namesOf(append(many, many[0])); names != nil {
		t.Errorf("%d names are unique", len(names))
	}
}
