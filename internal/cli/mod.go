// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"cuelang.org/go/mod/modconfig"
	cuemodule "cuelang.org/go/mod/module"
	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

func newMod() *cobra.Command {
	c := &cobra.Command{Use: "mod", Short: "Work with the CUE modules that definitions depend on"}
	c.AddCommand(newModVendor())
	return c
}

func newModVendor() *cobra.Command {
	c := &cobra.Command{
		Use:   "vendor [DIR]",
		Short: "Copy the CUE modules that cue.mod/module.cue requires into the repository",
		Long: `Copy each CUE module that cue.mod/module.cue requires to cue.mod/vendor, with its version
and a digest of its files. Corral downloads nothing when it compiles definitions: it uses
these copies, and vet reports a copy that does not match cue.mod/module.cue or its digest.
The cue command ignores the folder and continues to use its registry.

Modules are fetched as the cue command fetches them: from the registries in CUE_REGISTRY, with
the credentials of "cue login" or of Docker. Corral's own schema is built in and not copied.

Run "cue mod get" or "cue mod tidy" first, and this command after each change of the
requirements. Commit the folder.`,
		Example: "  cue mod get github.com/acme/ci@v0.3.0\n  corral mod vendor",
		Args:    cobra.MaximumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		root, _, err := locate(folderOf(args))
		if err != nil {
			return err
		}
		modules, err := fetchModules(c.Context(), root)
		if err != nil {
			return err
		}
		folder := filepath.Join(root, filepath.FromSlash(compile.VendorFolder))
		err = wrap("removing the previous copies", os.RemoveAll(folder))
		if err == nil && len(modules) > 0 {
			err = writeFiles(root, compile.VendorFiles(modules), true)
		}
		if err == nil {
			_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s to %s\n", wording.Count(len(modules), "module"), folder)
		}
		return err
	}
	return c
}

// fetchModules downloads the modules that the module at root requires.
func fetchModules(ctx context.Context, root string) (map[cuemodule.Version]compile.Files, error) {
	name := filepath.Join(root, "cue.mod", "module.cue")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the module file; corral init or cue mod init creates one: %w", err)
	}
	required, err := compile.Requirements(data, name)
	if err != nil {
		return nil, err
	}
	registry, err := modconfig.NewRegistry(&modconfig.Config{ClientType: "corral"})
	if err != nil {
		return nil, fmt.Errorf("reading CUE's registry configuration: %w", err)
	}
	modules := map[cuemodule.Version]compile.Files{}
	for _, m := range required {
		location, err := registry.Fetch(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("fetching module %s: %w", m, err)
		}
		fsys, err := fs.Sub(location.FS, location.Dir)
		if err == nil {
			modules[m], err = compile.ModuleFiles(fsys)
		}
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m, err)
		}
	}
	return modules, nil
}
