// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exampleTeams returns the names of the teams of examples/teams, and their folder.
func exampleTeams(t *testing.T) ([]string, string) {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(top, "examples", "teams"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(folder, "teams"))
	if err != nil || len(entries) < 12 {
		t.Fatalf("%d teams, %v", len(entries), err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, folder
}

// The files of the example are equal to those that init writes for the same teams, except for the rows.
func TestTheExampleOfTeamsIsWhatInitWrites(t *testing.T) {
	teams, example := exampleTeams(t)
	folder := t.TempDir()
	if got := corral(t, folder, "init", "runners", "--teams="+strings.Join(teams, ","), "--url", "https://github.com/acme"); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	names := []string{".github/CODEOWNERS", "platform/platform.cue", "connections/connections.cue", "cluster/00-platform.yaml", "prices.yaml"}
	for _, team := range teams {
		names = append(names, "cluster/"+team+".yaml")
	}
	for _, name := range names {
		if diff := cmp.Diff(readFile(t, filepath.Join(folder, "runners", name)), readFile(t, filepath.Join(example, name))); diff != "" {
			t.Errorf("%s (-init +example):\n%s", name, diff)
		}
	}
}

// A change of the building block affects the pools of all teams, and a change of a row affects one pool.
func TestAReviewOfTheExampleOfTeams(t *testing.T) {
	_, example := exampleTeams(t)
	for name, tc := range map[string]struct {
		file, old, replacement, want string
	}{
		"the image": {"platform/platform.cue", "actions-runner:2.331.0", "actions-runner:2.332.0", "\n24 pools: replaces runners"},
		"a row":     {"teams/web/pools.cue", `size: "large", max: 20`, `size: "large", max: 30`, "\npool ci-web/web-build: limits"},
		"a new row": {"teams/web/pools.cue", "rows: {", "rows: {\n\t\tlint: {}", "\npool ci-web/web-lint: "},
	} {
		t.Run(name, func(t *testing.T) {
			base, head := t.TempDir(), t.TempDir()
			for _, side := range []string{base, head} {
				if err := os.CopyFS(side, os.DirFS(example)); err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(side, "cue.mod/module.cue"), "module: \"corral.dev/examples/teams@v0\"\nlanguage: version: \"v0.16.0\"\n")
			}
			changed := filepath.Join(head, tc.file)
			writeFile(t, changed, strings.Replace(readFile(t, changed), tc.old, tc.replacement, 1))
			got := corral(t, head, "review", base, head)
			if got.code != exitOK || !strings.Contains(got.stdout, tc.want) || !strings.Contains(got.stdout, "EUR") {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}

// The first commit of a repository, and a commit that adds a team, are reviewed in the namespaces of their sources.
func TestAReviewOfANewTeam(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams=web,data", "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	gitIn(t, tree, "init", "-q", "-b", "main")
	gitIn(t, tree, "commit", "-q", "--allow-empty", "-m", "nothing yet")
	for _, want := range []string{"pools ci-data/data-build, ci-web/web-build: added", "pool ci-payments/payments-build: added"} {
		gitIn(t, tree, "add", ".")
		if got := corral(t, tree, "review"); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("got %+v, want %q", got, want)
		}
		gitIn(t, tree, "commit", "-qm", "more")
		corral(t, tree, "init", "team", "payments")
	}
	removed := filepath.Join(tree, "cluster/data.yaml")
	text := readFile(t, removed)
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	if got := corral(t, tree, "review"); !strings.Contains(got.stdout, "The head declares no PoolSource ci-data/pools for a folder of this repository.") {
		t.Errorf("without the source of a team: got %+v", got)
	}
	writeFile(t, removed, text)
	rows := filepath.Join(tree, "teams/web/pools.cue")
	writeFile(t, rows, readFile(t, rows)+"pools: \"web-build\": metadata: namespace: \"ci-data\"\n")
	if got := corral(t, tree, "review"); got.code != exitError || !strings.Contains(got.stdout, "PoolSource ci-web/pools refuses it") {
		t.Errorf("of another namespace: got %+v", got)
	}
}

func TestInitTeam(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams", "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	owners := filepath.Join(tree, ownersFile)
	writeFile(t, owners, strings.TrimSpace(readFile(t, owners)))
	for _, tc := range []struct{ folder, name, want string }{
		{tree, "data", ""},
		{tree, "data", "Error: adding the team: cluster/data.yaml already exists, so nothing was written\n"},
		{tree, "00-platform", "Error: team \"00-platform\": a name has "},
		{tree, strings.Repeat("a", 22), "Error: team \"aaaaaaaaaaaaaaaaaaaaaa\": a name has at most 21 "},
		{folder, "data", "Error: no folder .team here; run the command at the top of a repository that corral init --teams created\n"},
	} {
		got := corral(t, tc.folder, "init", "team", tc.name)
		if (got.code == exitOK) != (tc.want == "") || !strings.HasPrefix(got.stderr, tc.want) {
			t.Errorf("%s: got %+v", tc.name, got)
		}
	}
	if got := readFile(t, owners); !strings.HasSuffix(got, "\n* @acme/platform\n/teams/web/ @acme/web\n/teams/data/ @acme/data\n") {
		t.Errorf("owners are\n%s", got)
	}
	if got := corral(t, folder, "init", "runners", "--teams"); got.code != exitError || !strings.HasSuffix(got.stderr, " already exists, so nothing was written\n") {
		t.Errorf("a second time: got %+v", got)
	}
}

// The connection in the docs works for the pools of its team.
func TestATeamHasItsOwnGitHubApp(t *testing.T) {
	connection := fenced(t, "A team with its own GitHub App", "cue")[0]
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams=payments", "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	rows := filepath.Join(tree, "teams/payments/pools.cue")
	writeFile(t, rows, strings.Replace(readFile(t, rows), "rows:", "connection: \"payments\"\n\trows:", 1))
	writeFile(t, filepath.Join(tree, "teams/payments/connections.cue"), connection)
	if got := corral(t, tree, "vet"); got.code != exitOK || got.stdout != "ok: 1 pool, 2 connections\n" {
		t.Errorf("vet: got %+v", got)
	}
	if got := corral(t, tree, "build", "teams/payments"); !strings.Contains(got.stdout, "connectionRef:\n    name: payments\n") {
		t.Errorf("build: got %+v", got)
	}
}

// fenced returns the code blocks in this language below a heading of docs/gitops/teams.md.
func fenced(t *testing.T, heading, language string) []string {
	t.Helper()
	_, section, found := strings.Cut(readFile(t, filepath.Join(top, "docs/gitops/teams.md")), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, match[1])
	}
	if !found || len(blocks) == 0 {
		t.Fatalf("no block of %s below %q", language, heading)
	}
	return blocks
}

// The guard rail in the docs allows Docker in the namespaces that it lists, and nowhere else.
func TestTheGuardRailAllowsDockerByNamespace(t *testing.T) {
	policy := fenced(t, "Docker and the guard rail", "yaml")[0]
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams=web,data", "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	guard := filepath.Join(folder, "guard.yaml")
	writeFile(t, guard, policy)
	for team, want := range map[string]int{"web": exitOK, "data": exitDenied} {
		rows := filepath.Join(tree, "teams", team, "pools.cue")
		writeFile(t, rows, strings.Replace(readFile(t, rows), "max: 5", `max: 5, docker: true, cache: "10Gi"`, 1))
		if got := corral(t, tree, "vet", "teams/"+team, "--policy", guard); got.code != want {
			t.Errorf("%s: got %+v", team, got)
		}
	}
}

// The columns in the docs are a file of the platform's package, and change the pools that set them.
func TestAddAColumn(t *testing.T) {
	blocks := fenced(t, "Add a column", "cue")
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams=web", "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	writeFile(t, filepath.Join(tree, "platform/columns.cue"), "package platform\n\n"+strings.Join(blocks, "\n"))
	rows := filepath.Join(tree, "teams/web/pools.cue")
	writeFile(t, rows, strings.Replace(readFile(t, rows), "max: 5", `max: 5, gpu: 2, warm: 1, labels: ["web-build", "gpu"]`, 1))
	got := corral(t, tree, "build", "teams/web")
	for _, want := range []string{"nvidia.com/gpu: 2\n", "accelerator: nvidia\n", "idle: 1\n", "- gpu\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in %+v", want, got)
		}
	}
}

// The placeholder for a team's name does not match a part of the organization's URL.
func TestATeamOfAnOrganizationNamedTEAM(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams=web", "--url", "https://github.com/TEAM-steam")
	tree := filepath.Join(folder, "runners")
	corral(t, tree, "init", "team", "data")
	if got, want := readFile(t, filepath.Join(tree, ownersFile)), "/teams/web/ @TEAM-steam/web\n/teams/data/ @TEAM-steam/data\n"; !strings.HasSuffix(got, want) {
		t.Errorf("owners are\n%s", got)
	}
}

// A repository with forty teams is valid, and a mistake in one team is a single line of output.
func TestFortyTeams(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("team-%d", i))
	}
	folder := t.TempDir()
	corral(t, folder, "init", "runners", "--teams="+strings.Join(names, ","), "--url", "https://github.com/acme")
	tree := filepath.Join(folder, "runners")
	if got := corral(t, tree, "vet", "--policy", "../runners-guard/policies"); got.code != exitOK || got.stdout != "ok: 40 pools, 1 connection, 1 policy\n" {
		t.Errorf("got %+v", got)
	}
	rows := filepath.Join(tree, "teams/team-7/pools.cue")
	writeFile(t, rows, strings.Replace(readFile(t, rows), "size:", "sise:", 1))
	const want = "teams/team-7/pools.cue:9:11: _team.rows.build.sise: field not allowed; did you mean size?\nError: 1 problem\n"
	if got := corral(t, tree, "vet"); got.stderr != want {
		t.Errorf("got %+v", got)
	}
}

// folderWith returns a new folder with files.
func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(folder, name), text)
	}
	return folder
}

// writeFile writes a file, and creates its folder if necessary.
func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
