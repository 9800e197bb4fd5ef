// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// labelled returns the CUE of one pool for each list of labels.
func labelled(labels ...string) string {
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
	for i, list := range labels {
		text += fmt.Sprintf("\t%c: spec: {connectionRef: name: \"acme\", runnerLabels: [%s], template: #T}\n", 'a'+i, list)
	}
	return text + "}\n"
}

func TestALabelThatMovesSaysWhoseJobsGoWhere(t *testing.T) {
	for name, tt := range map[string]struct {
		base, head string
		want       []string
	}{
		"swapped": {labelled(`"x64"`, `"arm"`), labelled(`"arm"`, `"x64"`), []string{
			"a: Jobs that request x64 no longer run here: ci/b takes them.",
			"a: Jobs that request arm, which ran on ci/b, run here from now on.",
			"b: Jobs that request arm no longer run here: ci/a takes them.",
			"b: Jobs that request x64, which ran on ci/a, run here from now on.",
		}},
		"given away and lost": {labelled(`"x64", "old"`, `"arm"`), labelled(`"arm"`, `"arm", "X64"`), []string{
			"a: Jobs that request old no longer run here: they wait, because no other pool matches them.",
			"a: Jobs that request x64 no longer run here: ci/b takes them.",
			"a: Jobs that request arm may run here from now on.",
			"b: Jobs that request X64, which ran on ci/a, run here from now on.",
		}},
		"of nobody": {labelled(`"x64"`), labelled(`"x64", "arm"`), []string{"a: Jobs that request arm may run here from now on."}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range compareSides(t, files{"p.cue": tt.base}, files{"p.cue": tt.head}).Pools {
				for _, e := range p.Effects {
					got = append(got, p.Name+": "+e)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestADeniedTemplateHasNoRollout(t *testing.T) {
	newer := change(t, linux, "template: #T", `template: #T & {spec: containers: [{image: "runner:2"}]}`)
	denyNew := change(t, denyOld, `"runner:1"`, `"runner:2"`)
	if p := compareSides(t, files{"p.cue": linux, "d.rego": denyNew}, files{"p.cue": newer, "d.rego": denyNew}).Pools[0]; p.Rollout != nil || p.Class() != ReplacesRunners {
		t.Errorf("%s: got the rollout %+v", p.Class(), p.Rollout)
	}
	if p := compareSides(t, files{"p.cue": linux, "d.rego": denyOld}, files{"p.cue": newer, "d.rego": denyOld}).Pools[0]; p.Rollout == nil {
		t.Error("an allowed template rolls out")
	}
}

func TestLongValuesAreShortenedAsWhatTheyAre(t *testing.T) {
	long := strings.Repeat("é", 90)
	for name, tt := range map[string]struct {
		value any
		want  string
	}{
		"a list":       {[]any{long, long, long, "x"}, `["` + long + `","` + long + `","… and 2 more"]`},
		"a short list": {[]any{"a && b", int64(3)}, `["a && b",3]`},
		"a text":       {strings.Repeat(long, 4), `"` + strings.Repeat("é", 198) + `…"`},
	} {
		if got := string(shown(tt.value)); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
