// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// granting limits each team's max to the number in the policy's data.
const granting = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": data.grants[input.pool.metadata.labels.team], "reason": "the team's grant"}
`

// teams returns the CUE of pools with the given team label and max.
func teams(t *testing.T, team string, most int, names ...string) string {
	t.Helper()
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
	for _, name := range names {
		text += fmt.Sprintf("\t%s: {metadata: labels: %s, spec: {connectionRef: name: \"acme\", scale: max: %d, template: #T}}\n", name, team, most)
	}
	return text + "}\n"
}

func rego(text string) string { return strings.ReplaceAll(text, "pool.metadata.labels", "pool.labels") }

// A change of a policy is reported with the part that changed and its position.
func TestDataOfPoliciesIsToldAsSuch(t *testing.T) {
	pools := teams(t, `{team: "ads"}`, 100, "ads")
	inCUE := func(most int) string {
		return "package pools\n\nimport \"corral.dev/schema@v0\"\n\n" + `policies: schema.#Policies & {caps: spec: {
	modules: "a.rego": ` + strconv.Quote(rego(granting)) + `
	data: grants: {ads: ` + strconv.Itoa(most) + `, web: 1}
	parameters: note: ["a", "b"]
}}
`
	}
	for name, tt := range map[string]struct {
		base, head files
		want       []string
	}{
		"in YAML": {
			files{"p.cue": pools, "r/g.rego": rego(granting), "r/data.yaml": "# the grants\ngrants:\n  ads: 30\n"},
			files{"p.cue": pools, "r/g.rego": rego(granting), "r/data.yaml": "grants:\n  web: 5\n  ads: 60\n"},
			[]string{"[data]", "data.grants.ads 30 60 r/data.yaml:3 r/data.yaml:3", "data.grants.web  5 - r/data.yaml:2"},
		},
		"in JSON": {
			files{"p.cue": pools, "r/g.rego": rego(granting), "r/data.json": `{"grants": {"ads": 30}}`},
			files{"p.cue": pools, "r/g.rego": rego(granting), "r/data.json": "{\n\"grants\": {\n\"ads\": 60}}"},
			[]string{"[data]", "data.grants.ads 30 60 r/data.json:1 r/data.json:3"},
		},
		"in CUE": {
			files{"p.cue": pools, "q.cue": inCUE(30)}, files{"p.cue": pools, "q.cue": change(t, inCUE(60), `"b"`, `"c"`)},
			[]string{"[data parameters]", `parameters.note ["a","b"] ["a","c"] q.cue:8 q.cue:8`, "data.grants.ads 30 60 q.cue:7 q.cue:7"},
		},
		"rules and data": {
			files{"p.cue": pools, "r/g.rego": rego(granting), "r/data.yaml": "grants: {ads: 30}\n"},
			files{"p.cue": pools, "r/g.rego": rego(granting) + "\n", "r/data.yaml": "grants: {ads: 60}\n"},
			[]string{"[rules data]", "data.grants.ads 30 60 r/data.yaml:1 r/data.yaml:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, tt.base, tt.head)
			if len(r.Policies) != 1 {
				t.Fatalf("%d policies", len(r.Policies))
			}
			got := []string{fmt.Sprint(r.Policies[0].What)}
			for _, f := range r.Policies[0].Fields {
				got = append(got, fmt.Sprintf("%s %s %s %s %s", f.Path, f.Before, f.After, placed(f.BaseAt), placed(f.HeadAt)))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The review warns if a deleted policy or a changed label removes a limit.
func TestPoolsThatAreFreedOfALimitAreWarnedOf(t *testing.T) {
	data, grant := "grants: {ads: 30}\n", rego(granting)
	pools := teams(t, `{team: "ads"}`, 100, "a", "b")
	ruled := files{"p.cue": pools, "r/g.rego": grant, "r/data.yaml": data}
	caps := func(spec string) string {
		return "package pools\n\nimport \"corral.dev/schema@v0\"\n\n" + `policies: schema.#Policies & {caps: spec: {` + spec + `modules: "a.rego": ` + strconv.Quote(ceiling) + "}}\n"
	}
	for name, tt := range map[string]struct {
		base, head files
		want       []string
	}{
		"a policy that goes": {ruled, files{"p.cue": pools}, []string{
			"RunnerPolicy/ci/repository is gone: 2 pools are free of it: ci/a, ci/b."}},
		"a policy that goes and limited nothing": {files{"p.cue": pools, "d.rego": denyOld}, files{"p.cue": pools}, []string{
			"RunnerPolicy/ci/repository is gone: 2 pools are free of it: ci/a, ci/b."}},
		"a policy that is only audited": {files{"p.cue": pools, "c.cue": caps("")}, files{"p.cue": pools, "c.cue": caps(`mode: "Audit", `)}, []string{
			"RunnerPolicy/ci/caps is only audited from now on: 2 pools are free of it: ci/a, ci/b."}},
		"a selector": {files{"p.cue": pools, "c.cue": caps("")}, files{"p.cue": pools, "c.cue": caps(`selector: matchLabels: team: "web", `)}, []string{
			"RunnerPolicy/ci/caps selects other pools: 2 pools are free of it: ci/a, ci/b."}},
		"a label that a rule reads": {ruled, files{"p.cue": teams(t, `{}`, 100, "a", "b"), "r/g.rego": grant, "r/data.yaml": data}, []string{
			"Without team=ads: 2 pools are free of limits that depend on labels: ci/a, ci/b."}},
		"another value of a label": {ruled, files{"p.cue": teams(t, `{team: "web"}`, 100, "a", "b"), "r/g.rego": grant, "r/data.yaml": "grants: {ads: 30, web: 40}\n"}, []string{
			"Without team=ads: 2 pools are free of limits that depend on labels: ci/a, ci/b."}},
		"a label that a selector reads": {
			files{"p.cue": pools, "c.cue": caps(`selector: matchLabels: team: "ads", `)}, files{"p.cue": teams(t, `{}`, 100, "a", "b"), "c.cue": caps(`selector: matchLabels: team: "ads", `)},
			[]string{"Without team=ads: 2 pools are free of limits that depend on labels: ci/a, ci/b."}},
		"a label on which none hangs": {
			files{"p.cue": teams(t, `{team: "ads", x: "y"}`, 100, "a"), "r/g.rego": grant, "r/data.yaml": data}, files{"p.cue": teams(t, `{team: "ads"}`, 100, "a"), "r/g.rego": grant, "r/data.yaml": data}, nil},
		"a limit that the declared numbers keep": {files{"p.cue": teams(t, `{team: "ads"}`, 20, "a"), "r/g.rego": grant, "r/data.yaml": data},
			files{"p.cue": teams(t, `{}`, 20, "a"), "r/g.rego": grant, "r/data.yaml": data}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, compareSides(t, tt.base, tt.head).Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// While a policy fails, the limits in force are those that the controller keeps: the last decision's, narrowed by all limits
// that do not fail.
func TestLimitsThatDoNotFailStayInForce(t *testing.T) {
	const failing = `package corral.scaling

limit contains {"field": "max", "atMost": -1, "reason": "nonsense"} if input.pool.name
`
	pools := func(most int) files { return files{"p.cue": teams(t, `{team: "ads"}`, most, "ads")} }
	with := func(f files, more files) files {
		maps.Copy(f, more)
		return f
	}
	for name, tt := range map[string]struct {
		base, head files
		want       int32
	}{
		"only the failing rule":       {pools(100), with(pools(100), files{"f.rego": failing}), 100},
		"a lower declaration":         {pools(100), with(pools(50), files{"f.rego": failing}), 50},
		"a new limit next to it":      {pools(100), with(pools(100), files{"f.rego": failing, "c.rego": ceiling}), 60},
		"a limit that the base had":   {with(pools(100), files{"c.rego": ceiling}), with(pools(100), files{"f.rego": failing}), 60},
		"a pool without any decision": {files{"p.cue": teams(t, `{team: "ads"}`, 100, "web")}, with(files{"p.cue": teams(t, `{team: "web"}`, 100, "web", "ads")}, files{"f.rego": failing}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, tt.base, tt.head)
			i := slices.IndexFunc(r.Pools, func(p Pool) bool { return p.Name == "ads" })
			if i < 0 || r.Pools[i].After.Effective != nil {
				t.Fatalf("no policy fails: %v", summary(r))
			}
			if got := r.Pools[i].After.inForce; got != tt.want {
				t.Errorf("max %d in force, want %d", got, tt.want)
			}
		})
	}
}
