// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cuemodule "cuelang.org/go/mod/module"
	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// templates holds the files that init writes to a repository of pools, to a repository that many teams share, and to a
// repository of guard rails.
//
//go:embed all:new
var templates embed.FS

//go:embed new/install-steps.yaml
var installSteps string

// exampleURL is the placeholder that users replace by the URL of their organization.
const exampleURL = "https://github.com/YOUR_ORG"

// newRepository holds the flags of init.
type newRepository struct {
	module, url, version string
	guard, schemaOnly    bool
	// registry is true to require the schema in the module file instead of copying the schema.
	registry bool
	// teams are the first teams of a shared repository; nil for a repository that is not shared.
	teams []string
}

func newInit(version string) *cobra.Command {
	r := newRepository{module: "corral.local/pools@v0", url: exampleURL, version: installableVersion(version)}
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Create a repository of pool definitions or of guard rails",
		Long: `Write a repository of pool definitions to DIR (default: the current folder): a CUE
module with a connection and a pool, a policy with its scenario, a PoolSource with which
a cluster follows the repository, CODEOWNERS, a workflow that checks pull requests, and copies of
the schemas, so that editors, the cue command and opa check work without a network.

With --teams, write a repository that many teams share: the platform team's sizes, image and
building block, a folder and a PoolSource for each team, prices, CODEOWNERS and the workflow. A
second folder, DIR-guard, becomes the repository of guard rails.

With --guard, write a repository of guard rails instead: a ClusterRunnerPolicy that binds the
pools of a cluster, its scenarios, CODEOWNERS and a workflow.

The command never overwrites a file. If one exists, it writes nothing. Only --schema-only
replaces an existing file: it renews the copy of the schema.`,
		Example: "  corral init runners --module github.com/acme/runners@v0 --url https://github.com/acme\n  corral init runners --teams=web,data --url https://github.com/acme\n  corral init guard --guard --url https://github.com/acme",
		Args:    cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&r.url, "url", r.url, "URL of the enterprise, organization or repository for which runners work")
	c.Flags().StringVar(&r.module, "module", r.module, "path of the new CUE module; a path such as github.com/acme/runners@v0 also sets the URL of the repository in PoolSources")
	c.Flags().BoolVar(&r.guard, "guard", r.guard, "create a repository of guard rails")
	c.Flags().BoolVar(&r.schemaOnly, "schema-only", r.schemaOnly, "renew the copy of the schema, and write nothing else")
	c.Flags().BoolVar(&r.registry, "schema-from-registry", r.registry, "require the schema in cue.mod/module.cue instead of copying it; editors and the cue command then fetch it from CUE's registry")
	c.Flags().StringSliceVar(&r.teams, "teams", r.teams, "create a repository that many teams share, with these first teams")
	c.Flags().Lookup("teams").NoOptDefVal = "web"
	c.MarkFlagsMutuallyExclusive("guard", "schema-only", "schema-from-registry")
	c.MarkFlagsMutuallyExclusive("guard", "schema-only", "teams")
	c.AddCommand(newInitTeam())
	c.RunE = func(c *cobra.Command, args []string) error {
		folder := folderOf(args)
		files, err := r.files()
		if err != nil {
			return err
		}
		rails := ""
		if r.teams != nil {
			rails, err = r.writeShared(folder, files)
			rails = ", and the guard rail to " + rails
		} else {
			err = writeFiles(folder, files, r.schemaOnly)
		}
		if err != nil {
			return err
		}
		if r.schemaOnly {
			_, err = fmt.Fprintf(c.OutOrStdout(), "wrote the schema %s to %s\n", schema.Version, filepath.Join(folder, schemaCopy))
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s to %s%s\nnext: %s\n", wording.Count(len(files), "file"), folder, rails, r.nextStep())
		return err
	}
	return c
}

// installableVersion returns a version of corral that go install accepts. For a build between two releases, it returns the
// commit.
func installableVersion(version string) string {
	version = strings.TrimSuffix(version, "-dirty")
	if _, commit, found := strings.Cut(version, "-g"); found {
		version = commit
	}
	if version == "" || version == "dev" {
		return "latest"
	}
	return version
}

// nextStep returns the user's next step.
func (r newRepository) nextStep() string {
	switch {
	case r.guard:
		return "run corral vet and corral test there"
	case r.url == exampleURL:
		return "replace YOUR_ORG in all these files, also in hidden folders, then run corral vet"
	}
	return "run corral vet"
}

// placeholders returns a replacer of the placeholders in templates.
func (r newRepository) placeholders(target github.Target) *strings.Replacer {
	owner := cmp.Or(target.Owner, "YOUR_ORG")
	module, _, _ := strings.Cut(r.module, "@")
	address := "https://" + module
	if server, err := url.Parse(r.url); err == nil && strings.HasPrefix(module, "corral.local/") {
		address = "https://" + server.Host + "/" + owner + "/runners"
	}
	const depth = "\n      " // indentation of a job's steps
	return strings.NewReplacer("MODULE", r.module, "IMPORT", module, exampleURL, r.url, "@OWNER", "@"+owner, "REPOSITORY", address,
		"_VERSION: VERSION", "_VERSION: "+r.version, "INSTALL", strings.ReplaceAll(strings.TrimSpace(installSteps), "\n", depth))
}

// files returns the files of the new repository by path.
func (r newRepository) files() (map[string][]byte, error) {
	moduleErr := wrap("--module must be the path of a CUE module such as github.com/acme/runners@v0", cuemodule.CheckPath(r.module))
	target, err := github.ParseURL(r.url)
	err = cmp.Or(moduleErr, wrap("--url must be the URL of an enterprise, an organization or a repository", err))
	if err != nil {
		return nil, err
	}
	files, kind := map[string][]byte{}, "new/pools"
	if r.guard {
		kind = "new/guard"
	}
	if !r.schemaOnly {
		replace := r.placeholders(target).Replace
		if r.teams != nil {
			err = r.addTeams(files, replace)
		} else {
			err = addFiles(files, templates, kind, "", replace)
		}
	}
	switch {
	case err != nil || r.guard:
		return files, err
	case r.registry:
		files[moduleFile] = fmt.Appendf(files[moduleFile], "deps: %q: {v: %q, default: true}\n", schema.Module, schema.Version)
		return files, addInputs(files)
	}
	return files, addSchema(files)
}

// moduleFile is the file with the name and the requirements of a CUE module.
const moduleFile = "cue.mod/module.cue"

// schemaCopy is the folder with the copy of the schema in a repository. Editors and the cue command use the copy.
const schemaCopy = "cue.mod/pkg/" + schema.ImportPath

// addInputs adds the JSON schemas of policy inputs, which users pass to opa check --schema schemas.
func addInputs(files map[string][]byte) error {
	return addFiles(files, schema.Inputs, "policy", "schemas", func(text string) string { return text })
}

// addSchema adds copies of the CUE schema and of the schemas of policy inputs.
func addSchema(files map[string][]byte) error {
	err := addFiles(files, schema.FS, ".", schemaCopy, func(text string) string { return text })
	// The cue command would mistake the copy for a separate module.
	delete(files, path.Join(schemaCopy, "cue.mod/module.cue"))
	return cmp.Or(err, addInputs(files))
}

// addFiles adds the files at and below root of the file system from. Their names in files begin with the folder below. It
// applies adapt to names and contents.
func addFiles(files map[string][]byte, from fs.FS, root, below string, adapt func(string) string) error {
	return wrap("reading the files to write", fs.WalkDir(from, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		files[path.Join(below, adapt(strings.TrimPrefix(name, root+"/")))] = []byte(adapt(string(data)))
		return nil
	}))
}

// writeFiles writes files below folder. If replace is false and one of the files exists, it writes nothing and returns an
// error.
func writeFiles(folder string, files map[string][]byte, replace bool) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the repository: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the repository: %w", err)
	}
	defer root.Close() //nolint:errcheck // each file was closed and checked
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := root.Lstat(name); err == nil && !replace {
			return fmt.Errorf("%s already exists, so nothing was written", filepath.Join(folder, name))
		}
	}
	for _, name := range names {
		if err := cmp.Or(root.MkdirAll(path.Dir(name), 0o755), root.WriteFile(name, files[name], 0o644)); err != nil {
			return fmt.Errorf("writing the repository: %w", err)
		}
	}
	return nil
}
