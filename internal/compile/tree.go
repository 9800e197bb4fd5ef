// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/memfs"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// maxEntries is the maximum number of directory entries that Corral visits to find the files.
const maxEntries = 100_000

// vendored is the folder in which a module keeps its copy of the schema, for editors and the cue command. Corral uses
// the embedded schema instead.
const vendored = "cue.mod/pkg/" + schema.ImportPath

// Codes of diagnostics with a specific remedy.
const (
	FolderMissing = "FolderMissing"
	PoolsMissing  = "PoolsMissing"
)

// Submodule is the message for a folder that is a Git submodule, which a source does not fetch.
const Submodule = "a submodule, which is not fetched; commit the files themselves, or compile a folder without it"

// tree is the input of one compilation.
type tree struct {
	path    string
	modules []*module
}

// poolsMissing returns the message for a tree that declares no pools.
func (t *tree) poolsMissing() string {
	if !slices.ContainsFunc(t.modules, func(m *module) bool { return slices.ContainsFunc(m.files.sortedNames(), m.compiles) }) {
		return fmt.Sprintf("there are no definitions in %s: declare pools in *.cue files there, or choose another folder", t.path)
	}
	return fmt.Sprintf("no pools found in %s: declare at least one RunnerPool, as `pools: schema.#Pools & {NAME: spec: …}`; if other folders import this one, choose one of them", t.path)
}

// module is one CUE module of a tree, or the part of it that is compiled.
type module struct {
	// root is the folder that contains cue.mod; path is the folder to compile with all subfolders.
	root, path string
	files      Files
}

// Gather returns the files that Compile would read for path, by their path in fsys. These are the CUE files of the
// module around path (the closest folder at or above it with a cue.mod) and of modules below path, and the Rego files
// below path with the data next to them. If a CUE file embeds files, the other files are included, too. Gather reports
// exceeded limits and unreadable files as diagnostics. It also reports links and submodules at or below path, because
// it reads neither, and their content would be missing without an error.
func Gather(fsys fs.FS, path string) (Files, []v1alpha1.Diagnostic) {
	t, diagnostics := gather(fsys, path)
	all := Files{}
	if t != nil {
		for _, m := range t.modules {
			maps.Copy(all, m.files)
		}
		if _, err := fs.Stat(all, t.path); err != nil {
			all[t.path+"/"] = nil // the folder exists, but has nothing to compile
		}
	}
	return all, diagnostics
}

func gather(fsys fs.FS, folder string) (*tree, []v1alpha1.Diagnostic) {
	folder = path.Clean("./" + folder)
	info, err := fs.Stat(fsys, folder)
	if err != nil || !info.IsDir() {
		return nil, []v1alpha1.Diagnostic{{Code: FolderMissing, Message: shorten(fmt.Sprintf("there is no folder %q to compile", folder))}}
	}
	g := &gatherer{fsys: fsys, tree: &tree{path: folder}}
	pending := []*module{{root: moduleRoot(fsys, folder), path: folder}}
	for len(pending) > 0 && len(g.diagnostics) == 0 {
		m := pending[0]
		m.files = Files{}
		nested := g.gatherModule(m)
		pending = append(pending[1:], nested...)
		g.tree.modules = append(g.tree.modules, m)
	}
	return g.tree, g.diagnostics
}

// moduleRoot returns the closest folder at or above folder with a cue.mod, or else folder itself.
func moduleRoot(fsys fs.FS, folder string) string {
	for dir := folder; ; dir = path.Dir(dir) {
		if hasModule(fsys, dir) {
			return dir
		}
		if dir == "." {
			return folder
		}
	}
}

func hasModule(fsys fs.FS, dir string) bool {
	_, err := fs.Lstat(fsys, path.Join(dir, "cue.mod", "module.cue"))
	return err == nil
}

// gatherer reads files within the limits.
type gatherer struct {
	fsys                  fs.FS
	tree                  *tree
	files, total, entries int
	diagnostics           []v1alpha1.Diagnostic
}

// errLimit ends a walk after its diagnostic was reported.
var errLimit = errors.New("limit reached")

// gatherModule reads the files of m and returns the modules below m.path.
func (g *gatherer) gatherModule(m *module) []*module {
	w := &walk{gatherer: g, module: m}
	err := fs.WalkDir(g.fsys, m.root, w.visit)
	if err == nil && w.embeds {
		err = w.readOthers()
	}
	if err != nil && !errors.Is(err, errLimit) {
		g.diagnostics = append(g.diagnostics, v1alpha1.Diagnostic{Message: shorten(fmt.Sprintf("reading %s: %v", m.root, err))})
	}
	return w.nested
}

// walk is one pass over the folder of a module.
type walk struct {
	*gatherer
	module *module
	// nested are the modules below the path to compile.
	nested []*module
	// embeds is true if a definition embeds files, and globs if it may do so by a pattern. others are the files that
	// may be embedded.
	embeds, globs bool
	others        []string
}

func (w *walk) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if w.entries++; w.entries > maxEntries {
		return w.refuse("", "more than %d files and folders: compile a smaller folder with a cue.mod of its own", maxEntries)
	}
	if entry.IsDir() {
		return w.visitFolder(name)
	}
	if why := w.notRead(name, entry); why != "" {
		return w.refuse(name, "%s", why)
	}
	if !isDefinition(name) && (!isPolicyFile(name) || !within(w.tree.path, name)) {
		w.others = append(w.others, name)
		return nil
	}
	if err := w.read(w.module, name); err != nil {
		return err
	}
	w.embeds = w.embeds || bytes.Contains(w.module.files[name], []byte("@embed("))
	w.globs = w.globs || bytes.Contains(w.module.files[name], []byte("glob"))
	return nil
}

// notRead returns the reason why an entry of the folder to compile cannot be read. It returns "" if the entry can be
// read, or if Corral does not need to read it.
func (w *walk) notRead(name string, entry fs.DirEntry) string {
	switch {
	case !within(w.tree.path, name) || skipped(w.module.root, name):
	case entry.Type() == memfs.Submodule.Mode:
		return Submodule
	case entry.Type() == fs.ModeSymlink && linksFolder(w.fsys, name, maxLinks):
		return "a link to a folder, which is not followed; commit the folder itself, or make its name begin with a dot"
	}
	return ""
}

// visitFolder skips folders that are not part of the module, and records the modules nested in it.
func (w *walk) visitFolder(name string) error {
	if skipped(w.module.root, name) {
		return fs.SkipDir
	}
	if name == w.module.root || within(path.Join(w.module.root, "cue.mod"), name) || !hasModule(w.fsys, name) {
		return nil
	}
	if within(w.module.path, name) {
		w.nested = append(w.nested, &module{root: name, path: name})
	}
	return fs.SkipDir
}

func (w *walk) readOthers() error {
	for _, name := range w.others {
		if path.Ext(name) == ".cue" {
			continue
		}
		// CUE reports an error for a link that is embedded by name, but not for a link that matches a pattern.
		if info, err := fs.Lstat(w.fsys, name); err == nil && isLink(info) && !w.globs {
			continue
		}
		if err := w.read(w.module, name); err != nil {
			return err
		}
	}
	return nil
}

// Link is the reason why a link is not read.
const Link = "a link, which is not followed; commit the file itself"

// maxLinks is the maximum length of a chain of links that linksFolder follows.
const maxLinks = 8

// linksFolder reports whether a link leads to a folder. For a link that leaves the tree, it guesses from the name: a
// name without an extension is probably a folder's.
func linksFolder(fsys fs.FS, name string, links int) bool {
	target, err := fs.ReadLink(fsys, name)
	if err != nil || path.IsAbs(target) || links == 0 {
		return false
	}
	to := path.Join(path.Dir(name), target)
	if !fs.ValidPath(to) {
		return path.Ext(name) == ""
	}
	info, err := fs.Lstat(fsys, to)
	if err != nil {
		return false
	}
	return info.IsDir() || isLink(info) && linksFolder(fsys, to, links-1)
}

func isLink(info fs.FileInfo) bool { return info.Mode()&fs.ModeSymlink != 0 }

// read adds one file to m.
func (g *gatherer) read(m *module, name string) error {
	if shown := wording.Escape(name, ""); shown != name {
		return g.refuse(shown, "control characters in the name; rename the file or its folder")
	}
	info, err := fs.Lstat(g.fsys, name)
	if err != nil {
		return g.refuse(name, "the file can't be read: %v", err)
	}
	if isLink(info) {
		return g.refuse(name, Link)
	}
	if !info.Mode().IsRegular() {
		return g.refuse(name, "not a regular file")
	}
	file, err := g.fsys.Open(name)
	if err != nil {
		return g.refuse(name, "the file can't be read: %v", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return g.refuse(name, "the file can't be read: %v", err)
	}
	if !within(path.Join(m.root, "cue.mod"), name) { // vendored packages have many files
		g.files++
	}
	g.total += len(data)
	switch {
	case len(data) > MaxFileBytes:
		return g.refuse(name, "the file is larger than %d bytes, the limit", MaxFileBytes)
	case g.files > MaxFiles:
		return g.refuse(name, "more than %d files, the limit: compile a smaller folder with a cue.mod of its own", MaxFiles)
	case g.total > MaxTotalBytes:
		return g.refuse(name, "more than %d bytes in total, the limit", MaxTotalBytes)
	}
	m.files[name] = data
	return nil
}

func (g *gatherer) refuse(file, format string, args ...any) error {
	g.diagnostics = append(g.diagnostics, v1alpha1.Diagnostic{File: shorten(file), Message: shorten(fmt.Sprintf(format, args...))})
	return errLimit
}

// isDefinition reports whether Corral compiles a file. These are the files that CUE compiles, except tests, tools, and
// the file that replaces modules on a developer's machine.
func isDefinition(name string) bool {
	base := path.Base(name)
	return path.Ext(base) == ".cue" && !strings.HasPrefix(base, ".") && !strings.HasPrefix(base, "_") &&
		!strings.HasSuffix(base, "_test.cue") && !strings.HasSuffix(base, "_tool.cue") &&
		!strings.HasSuffix(name, "cue.mod/local-module.cue")
}

// skipped reports whether a folder of the module at root is ignored: a hidden folder by CUE's rule, or the vendored
// schema.
func skipped(root, folder string) bool {
	if folder == root {
		return false
	}
	base := path.Base(folder)
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || folder == path.Join(root, vendored)
}

// within reports whether name is folder or below it.
func within(folder, name string) bool {
	return folder == "." || name == folder || strings.HasPrefix(name, folder+"/")
}

// sortedNames returns the paths of f in order.
func (f Files) sortedNames() []string {
	return slices.Sorted(maps.Keys(f))
}
