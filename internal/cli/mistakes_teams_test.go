// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corral-dev/corral/test/golden"
	"github.com/corral-dev/corral/test/inprocess"
)

// teamMistake is one edit of a repository of 40 teams that makes a command report a problem.
type teamMistake struct {
	file string
	// becomes replaces was. If was is empty, becomes is appended to the file, or is a new file. If both are empty, the file is removed.
	was, becomes string
	// args of corral. Default: vet, of the team's folder if the file is there.
	args string
}

// maxMistakeLines is the maximum number of lines that a command prints about one mistake, without the line that counts the problems.
const maxMistakeLines = 4

// rowsOfTeams are the rows of each team. The first five teams have one more row, with defaults only, so that the tree has 125 pools.
const rowsOfTeams = `		build: {size: "large", max: 20, cache: "50Gi"}
		test: {size: "medium", max: 40, officeHours: 4}
		e2e: {size: "medium", max: 10, docker: true}
`

const lintRow = "\t\tlint: {}\n"

// teamNames are the names of 40 teams.
func teamNames() []string {
	names := []string{"web", "data", "payments", "search"}
	for i := len(names); i < 40; i++ {
		names = append(names, fmt.Sprintf("team-%d", i))
	}
	return names
}

// fortyTeams writes a repository that 40 teams share, and returns its folder. The guard rail is in a folder next to it.
func fortyTeams(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	tree := filepath.Join(folder, "runners")
	if got := corralAnywhere(t, "init", tree, "--teams="+strings.Join(teamNames(), ","), "--url", "https://github.com/acme"); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	for i, team := range teamNames() {
		rows := rowsOfTeams
		if i < 5 {
			rows += lintRow
		}
		file := filepath.Join(tree, "teams", team, "pools.cue")
		before, rest, _ := strings.Cut(readFile(t, file), "\trows: {\n")
		_, after, _ := strings.Cut(rest, "\t}\n")
		writeFile(t, file, before+"\trows: {\n"+rows+"\t}\n"+after)
	}
	for _, name := range []string{"schemas", "cue.mod/pkg", ".github/workflows"} { // no mistake is about these
		if err := os.RemoveAll(filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// isOfOneTeam reports whether the command checks the folder of one team.
func (m teamMistake) isOfOneTeam() bool {
	return m.args == "" && strings.HasPrefix(m.file, "teams/web/")
}

// apply makes the mistake in a tree, and returns a description of it.
func (m teamMistake) apply(t *testing.T, tree string) string {
	t.Helper()
	name := filepath.Join(tree, m.file)
	before, err := os.ReadFile(name)
	lines := func(prefix, text string) string {
		return prefix + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+prefix) + "\n"
	}
	switch {
	case m.file == "":
		return ""
	case m.was == "" && m.becomes == "":
		if err != nil || os.RemoveAll(name) != nil {
			t.Fatalf("no file %s", m.file)
		}
		return "removed " + m.file + "\n"
	case m.was == "":
		writeFile(t, name, string(before)+m.becomes)
		return m.file + "\n" + lines("+ ", m.becomes)
	}
	after := strings.Replace(string(before), m.was, m.becomes, 1)
	if after == string(before) {
		t.Fatalf("%s has no %q", m.file, m.was)
	}
	writeFile(t, name, after)
	return m.file + "\n" + lines("- ", m.was) + lines("+ ", m.becomes)
}

// Each mistake is reported in few lines, at the place that has to change, with a fix. CORRAL_MUTATIONS adds two thirds of the
// mistakes that need a check of all teams.
func TestMistakesOfFortyTeams(t *testing.T) {
	original := fortyTeams(t)
	for group, mistakes := range teamMistakes {
		archive := filepath.Join(top, "testdata/mistakes/teams", group+".txtar")
		for i, name := range slices.Sorted(maps.Keys(mistakes)) {
			m := mistakes[name]
			if i%3 > 0 && !m.isOfOneTeam() && os.Getenv("CORRAL_MUTATIONS") == "" && !golden.Updating() {
				continue // to check all pools takes most of the time of the test
			}
			t.Run(group+"/"+name, func(t *testing.T) {
				t.Parallel()
				folder := t.TempDir()
				if err := os.CopyFS(folder, os.DirFS(original)); err != nil {
					t.Fatal(err)
				}
				change := m.apply(t, filepath.Join(folder, "runners"))
				command, got := m.run(t, folder)
				if got.code == exitOK && got.stderr == "" {
					t.Error("the mistake is not reported")
				}
				if n := strings.Count(got.stderr, "\n"); n > maxMistakeLines+1 {
					t.Errorf("%d lines", n)
				}
				golden.CompareIn(t, archive, name, change+"$ corral "+command+"\n"+got.stdout+got.stderr)
			})
		}
	}
}

// run runs the command of a mistake in the tree of a folder. It returns the command and what it prints, as if it ran in the tree.
func (m teamMistake) run(t *testing.T, folder string) (string, outcome) {
	t.Helper()
	tree := filepath.Join(folder, "runners")
	command := m.args
	switch {
	case command != "":
	case m.isOfOneTeam():
		command = "vet teams/web"
	default:
		command = "vet"
	}
	args := strings.Fields(command)
	if len(args) == 1 || strings.HasPrefix(args[1], "-") {
		args = append([]string{args[0], "."}, args[1:]...)
	}
	args[1] = filepath.Join(tree, args[1])
	for i := range args {
		if strings.HasPrefix(args[i], "../") {
			args[i] = filepath.Join(tree, args[i])
		}
	}
	got := corralAnywhere(t, args...)
	inTree := strings.NewReplacer(tree+"-", "../runners-", tree+"/", "", tree, ".", folder+"/", "../").Replace
	return command, outcome{inTree(got.stdout), inTree(got.stderr), got.code}
}

// corralAnywhere runs a command that does not depend on the current folder, so that tests can run in parallel.
func corralAnywhere(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := NewRoot("v1.2.3")
	root.SetContext(WithEngines(t.Context(), inprocess.Compiler{}, &inprocess.Evaluator{}))
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code := Run(root)
	return outcome{stdout.String(), stderr.String(), code}
}
