// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"strings"
	"testing"
)

// A mistake in the use of a building block of another package is one line, at the caller, with the name that was meant.
func TestMistakesInTheUseOfABuildingBlock(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../examples/teams/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	platform, team := read("platform/platform.cue"), read("teams/web/pools.cue")
	for _, tt := range []struct{ old, new, want string }{
		{"", "", ""},
		{`name: "web"`, `naem: "web"`, "teams/web/pools.cue:6:2: _team.naem: field not allowed; did you mean name?"},
		{"rows:", "row:", "teams/web/pools.cue:7:2: _team.row: field not allowed; did you mean rows?"},
		{"docker:", "dokcer:", "teams/web/pools.cue:10:34: _team.rows.e2e.dokcer: field not allowed; did you mean docker?"},
		{"#Team", "Team", "teams/web/pools.cue:5:17: undefined field: Team; did you mean #Team?"},
		{"#Team", "#Taem", "teams/web/pools.cue:5:17: undefined field: #Taem; did you mean #Team?"},
		{"max: 40", "max: 400", "teams/web/pools.cue:9:31: _team.rows.test.max: invalid value 400 (out of bound <=60)"},
	} {
		files := Files{
			"cue.mod/module.cue":    []byte("module: \"corral.dev/examples/teams@v0\"\nlanguage: version: \"v0.16.0\"\n"),
			"platform/platform.cue": []byte(platform),
			"teams/web/pools.cue":   []byte(strings.Replace(team, tt.old, tt.new, 1)),
		}
		result := Compile(files, Options{Path: "teams/web"}) // as the team's PoolSource does
		if tt.want == "" && len(result.Objects) != 3 {
			t.Errorf("%d pools, want 3", len(result.Objects))
		}
		if got := strings.Join(texts(result), "\n"); got != tt.want {
			t.Errorf("%s instead of %s:\n got %s\nwant %s", tt.new, tt.old, got, tt.want)
		}
	}
}
