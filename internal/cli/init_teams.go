// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/wording"
)

const (
	// teamFolder is the folder of a shared repository with the files that are copied for a new team.
	teamFolder = ".team"
	ownersFile = ".github/CODEOWNERS"
	// teamPlaceholder stands for a team's name. No organization's name contains it, because GitHub allows no underscores there.
	teamPlaceholder = "TEAM_NAME"
)

// teamName is the pattern for the names of teams. It is the same as the pattern of platform.#Team in the files that init
// writes. The namespace of a team is ci-NAME.
var teamName = regexp.MustCompile("^[a-z]([a-z0-9-]{0,19}[a-z0-9])?$")

func newInitTeam() *cobra.Command {
	return &cobra.Command{
		Use:   "team NAME",
		Short: "Add a team to a repository that many teams share",
		Long: `Add a team to the repository in the current folder, which corral init --teams created: its pools in
teams/NAME, its namespace, account and PoolSource in cluster/NAME.yaml, and its line in
.github/CODEOWNERS.

The command copies the folder .team of the repository, and replaces TEAM_NAME with NAME. Change the
files there to change what new teams get. The command never overwrites a file.`,
		Example: "  corral init team payments",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Stat(teamFolder); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("no folder %s here; run the command at the top of a repository that corral init --teams created", teamFolder)
			}
			files := map[string][]byte{}
			owners, err := addTeam(files, os.DirFS(teamFolder), args[0], strings.Clone)
			if err == nil {
				err = wrap("adding the team", writeTeam(files, owners))
			}
			if err == nil {
				_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s, and the team's owners to %s\nnext: change the rows in %s, then run corral vet\n",
					wording.Count(len(files), "file"), ownersFile, filepath.Join("teams", args[0], "pools.cue"))
			}
			return err
		},
	}
}

// addTeams adds the files of a shared repository and of its teams.
func (r newRepository) addTeams(files map[string][]byte, replace func(string) string) error {
	newTeam, err := fs.Sub(templates, "new/teams/"+teamFolder)
	for from, to := range map[string]string{"pools/cue.mod": "cue.mod", "pools/.github/workflows": ".github/workflows", "pools/.vscode": ".vscode", "teams": ""} {
		err = cmp.Or(err, addFiles(files, templates, "new/"+from, to, replace))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.teams))) {
		owners, teamErr := addTeam(files, newTeam, name, replace)
		err = cmp.Or(err, teamErr)
		files[ownersFile] = append(files[ownersFile], owners...)
	}
	return err
}

// addTeam adds the files of a team, and returns the lines of the team for CODEOWNERS.
func addTeam(files map[string][]byte, from fs.FS, name string, replace func(string) string) ([]byte, error) {
	if !teamName.MatchString(name) {
		return nil, fmt.Errorf("team %q: a name has at most 21 lowercase letters, digits and dashes, begins with a letter, and does not end with a dash", name)
	}
	err := addFiles(files, from, ".", "", func(text string) string { return strings.ReplaceAll(replace(text), teamPlaceholder, name) })
	owners := files["CODEOWNERS"]
	delete(files, "CODEOWNERS")
	return owners, err
}

// writeTeam writes the files of a team, and appends the lines of the team to CODEOWNERS. It writes nothing if it cannot open
// or read CODEOWNERS, or if one of the files exists.
func writeTeam(files map[string][]byte, owners []byte) (err error) {
	list, err := os.OpenFile(ownersFile, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, list.Close()) }()
	before, err := io.ReadAll(list)
	if len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) {
		owners = append([]byte("\n"), owners...)
	}
	if err == nil {
		err = writeFiles(".", files, false)
	}
	if err == nil {
		_, err = list.Write(owners)
	}
	return err
}

// writeShared writes a shared repository and, next to it, a repository of guard rails. If one of the files exists, it writes
// nothing. It returns the folder of the guard rails.
func (r newRepository) writeShared(folder string, files map[string][]byte) (string, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	rails, err := newRepository{module: r.module, url: r.url, version: r.version, guard: true}.files()
	if err != nil {
		return "", err
	}
	both, name := map[string][]byte{}, filepath.Base(absolute)
	for folder, repository := range map[string]map[string][]byte{name: files, name + "-guard": rails} {
		for file, data := range repository {
			both[path.Join(folder, file)] = data
		}
	}
	return absolute + "-guard", writeFiles(filepath.Dir(absolute), both, false)
}
