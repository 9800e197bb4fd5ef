// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/memfs"
)

const unknownToGit = "Cannot determine which files Git ignores: "

// committedFiles is a work tree as a source would read it if all files were committed: without the files that Git ignores,
// and without the content of submodules.
type committedFiles struct {
	fs.FS
	submodules, ignored []string
}

// asCommitted returns the tree as a source would read it. It does not change a tree outside of a Git repository.
func (t tree) asCommitted() (*committedFiles, error) {
	c := &committedFiles{FS: t.fsys}
	files, _ := compile.Gather(t.fsys, t.path) // the compiler reports these diagnostics
	var err error
	c.submodules, c.ignored, err = gitsource.LeftOut(t.root, slices.Sorted(maps.Keys(files)))
	return c, err
}

// checkWhole returns an error if a sparse checkout leaves out files of the definitions, because results without them would
// be wrong.
func (t tree) checkWhole() error {
	missing, err := gitsource.Sparse(t.root)
	if err != nil {
		return fmt.Errorf("checking for a sparse checkout: %w", err)
	}
	missing = slices.DeleteFunc(missing, func(name string) bool {
		return t.path != "." && !strings.HasPrefix(name, t.path+"/") && path.Ext(name) != ".cue" && path.Base(name) != pricesFile
	})
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("a sparse checkout leaves out %s%s: run git sparse-checkout disable, or compare commits instead of the work tree: corral review --head HEAD", displayPath(t.root, missing[0]), more(missing))
}

// uncommitted reports files that the command read, but that a source would not have.
func (t tree) uncommitted() (found []v1alpha1.Diagnostic) {
	c, err := t.asCommitted()
	if err != nil {
		found = append(found, v1alpha1.Diagnostic{Message: unknownToGit + err.Error()})
	}
	if len(c.ignored) > 0 {
		found = append(found, v1alpha1.Diagnostic{File: displayPath(t.root, c.ignored[0]), Message: "Git ignores the file" + more(c.ignored) + ", so no source has it"})
	}
	_, diagnostics := compile.Gather(c, t.path)
	for _, d := range diagnostics {
		if slices.Contains(c.submodules, d.File) {
			found = append(found, v1alpha1.Diagnostic{File: displayPath(t.root, d.File), Message: d.Message})
		}
	}
	return found
}

// notes returns a note on the ignored files, which are left out.
func (c *committedFiles) notes(root string) []string {
	if len(c.ignored) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Git ignores %s%s: left out, as no source has it.", displayPath(root, c.ignored[0]), more(c.ignored))}
}

// more returns the number of files after the first as text. It does not return their names, because there may be thousands.
func more(files []string) string {
	if len(files) < 2 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(files)-1)
}

// Open implements fs.FS.
func (c *committedFiles) Open(name string) (fs.File, error) {
	if slices.Contains(c.ignored, name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return c.FS.Open(name)
}

// Lstat implements fs.ReadLinkFS.
func (c *committedFiles) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(c.FS, name) }

// ReadLink implements fs.ReadLinkFS.
func (c *committedFiles) ReadLink(name string) (string, error) { return fs.ReadLink(c.FS, name) }

// ReadDir implements fs.ReadDirFS.
func (c *committedFiles) ReadDir(folder string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, folder)
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(c.ignored, path.Join(folder, e.Name())) })
	for i, e := range entries {
		if slices.Contains(c.submodules, path.Join(folder, e.Name())) {
			entries[i] = submodule{e}
		}
	}
	return entries, err
}

// submodule is the folder of a Git submodule in a work tree. A source does not fetch its files.
type submodule struct{ fs.DirEntry }

func (submodule) IsDir() bool       { return false }
func (submodule) Type() fs.FileMode { return memfs.Submodule.Mode }
