// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/mod/modfile"
	cuemodule "cuelang.org/go/mod/module"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/corral-dev/corral/schema"
)

// languageVersion is the CUE language version of generated module files.
const languageVersion = "v0.16.0"

// schemaName is the prefix of the schema's file names in positions. No file of a tree can have such a name, because its
// paths are clean.
const schemaName = "//" + schema.Module + "/"

// Folders in which the loader finds the modules that a tree depends on. Folders with a leading dot are not read from a
// tree, so they cannot collide.
const (
	schemaMount = ".corral/schema"
	vendorMount = ".corral/vendor"
)

// importOfMajor matches the host and the major version in an import such as "acme.example/ci@v1".
var importOfMajor = regexp.MustCompile(`"([^"/@\s]+)/[^"@\s]*@(v[0-9]+)[":]`)

// loadable returns m's files as the loader sees them, and the registry that serves the modules they import.
//
// The loader does not find vendored packages in an fs.FS. So each host becomes a separate module, once for each major
// version that an import names, because copies have no version. The schema is always the embedded one, whether a
// repository lists it in deps or has a copy below cue.mod/pkg, because this build only supports its own schema.
func (m *module) loadable() (Files, registry, error) {
	files := make(Files, len(m.files)+8)
	hosts := map[string]bool{}
	for name, data := range m.files {
		if rest, ok := m.vendored(name); ok {
			host, _, _ := strings.Cut(rest, "/")
			hosts[host] = true
			name = path.Join(vendorMount, rest)
		}
		files[name] = data
	}
	schemaFiles, err := embeddedSchema()
	if err != nil {
		return nil, registry{}, err
	}
	for name, data := range schemaFiles {
		files[path.Join(schemaMount, name)] = data
	}
	reg := registry{files: files, folders: map[string]string{schema.Module + " " + schema.Version: schemaMount}}
	for host := range hosts {
		reg.addCopies(host, "v0")
		files[path.Join(vendorMount, host, "cue.mod/module.cue")] = emptyModuleFile(host + "@v0")
	}
	for name, data := range m.files {
		if path.Ext(name) != ".cue" {
			continue
		}
		for _, found := range importOfMajor.FindAllSubmatch(data, -1) {
			if host := string(found[1]); hosts[host] {
				reg.addCopies(host, string(found[2]))
			}
		}
	}
	if err := reg.addVendored(m); err != nil {
		return nil, registry{}, err
	}
	moduleFile := path.Join(m.root, "cue.mod/module.cue")
	files[moduleFile], err = reg.adapt(files[moduleFile], moduleFile)
	return files, reg, err
}

// vendorFolders hold vendored packages, as in the cue command.
var vendorFolders = []string{"cue.mod/pkg", "cue.mod/gen", "cue.mod/usr"}

// vendored returns the path of a vendored file below its folder.
func (m *module) vendored(name string) (string, bool) {
	for _, folder := range vendorFolders {
		if rest, ok := strings.CutPrefix(name, path.Join(m.root, folder)+"/"); ok {
			return rest, true
		}
	}
	return "", false
}

// embeddedSchema returns the files of the embedded schema.
func embeddedSchema() (Files, error) {
	files := Files{}
	err := fs.WalkDir(schema.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = schema.FS.ReadFile(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded schema: %w", err)
	}
	return files, nil
}

// registry serves the modules of one tree and no others. It implements modconfig.Registry.
type registry struct {
	files Files
	// folders holds the folder of each module in files, by "PATH VERSION".
	folders map[string]string
}

// adapt checks that a module file requires no newer schema than the embedded one, and adds the registry's modules to
// its requirements. If there is no module file, it generates one, so that a folder with one CUE file is enough to
// begin.
func (r registry) adapt(data []byte, name string) ([]byte, error) {
	if len(data) == 0 {
		data = emptyModuleFile("corral.local/pools@v0")
	}
	file, err := modfile.ParseNonStrict(data, name)
	if err != nil {
		return nil, err
	}
	if err := r.checkDeps(file, data, name); err != nil {
		return nil, err
	}
	if file.Deps == nil {
		file.Deps = map[string]*modfile.Dep{}
	}
	for key := range r.folders {
		dep, served, _ := strings.Cut(key, " ")
		if at, listed := file.Deps[dep]; listed && at.Version == served {
			continue
		}
		file.Deps[dep] = &modfile.Dep{Version: served, Default: dep == schema.Module || strings.HasSuffix(dep, "@v0")}
	}
	return modfile.Format(file)
}

// checkDeps checks the requirements of a module file, and removes the requirements of vendored modules.
func (r registry) checkDeps(file *modfile.File, data []byte, name string) error {
	for _, dep := range slices.Sorted(maps.Keys(file.Deps)) {
		at := file.Deps[dep]
		importPath, _, _ := strings.Cut(dep, "@")
		switch {
		case dep == schema.Module:
			if err := checkSchemaVersion(at.Version); err != nil {
				return err
			}
		case importPath == schema.ImportPath:
			return fmt.Errorf("%s is not known to this version of Corral, which has %s", dep, schema.Module)
		case r.hasCopy(importPath): // the copy is used, regardless of the version
			delete(file.Deps, dep)
		default:
			if err := r.checkVendored(dep, at.Version, data, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// addCopies serves the vendored packages of a host as a module with a major version.
func (r registry) addCopies(host, major string) {
	r.folders[fmt.Sprintf("%s@%s %s.0.0", host, major, major)] = path.Join(vendorMount, host)
}

// hasCopy reports whether a folder of vendored packages contains a module.
func (r registry) hasCopy(importPath string) bool {
	folder := path.Join(vendorMount, importPath) + "/"
	for name := range r.files {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	return false
}

// checkSchemaVersion refuses a version of the schema that is newer than the embedded one. The embedded version accepts
// everything that older versions with the same major number accepted.
func checkSchemaVersion(wanted string) error {
	newest, err := version.ParseSemantic(schema.Version)
	if err != nil {
		return err
	}
	if v, err := version.ParseSemantic(wanted); err != nil || newest.LessThan(v) {
		return fmt.Errorf("the repository needs %s of %s, and this version of Corral has %s: upgrade Corral", wanted, schema.Module, schema.Version)
	}
	return nil
}

// emptyModuleFile returns the text of a module file without dependencies.
func emptyModuleFile(module string) []byte {
	return fmt.Appendf(nil, "module: %q\nlanguage: version: %q\n", module, languageVersion)
}

// ModFile returns the module file of a served module.
func (r registry) ModFile(_ context.Context, m cuemodule.Version) (*modfile.File, error) {
	folder, err := r.folder(m)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(folder, modulesMount) {
		return r.vendoredModFile(folder)
	}
	return modfile.Parse(emptyModuleFile(m.Path()), "module.cue")
}

// Fetch returns the location of a served module's files.
func (r registry) Fetch(_ context.Context, m cuemodule.Version) (cuemodule.SourceLoc, error) {
	folder, err := r.folder(m)
	if err != nil {
		return cuemodule.SourceLoc{}, err
	}
	sub, err := fs.Sub(r.files, folder)
	if err != nil {
		return cuemodule.SourceLoc{}, err
	}
	return cuemodule.SourceLoc{FS: mounted{FS: sub, root: "/" + folder}, Dir: "."}, nil
}

// ModuleVersions returns none, because versions are fixed.
func (r registry) ModuleVersions(context.Context, string) ([]string, error) { return nil, nil }

func (r registry) folder(m cuemodule.Version) (string, error) {
	folder, ok := r.folders[m.Path()+" "+m.Version()]
	if !ok {
		return "", notVendored(m.Path(), m.Version())
	}
	return folder, nil
}

// mounted is the file system of a module. It gives the loader the location of the module's files in load.Config.FS
// (module.OSRootFS).
type mounted struct {
	fs.FS
	root string
}

func (m mounted) OSRoot() string { return m.root }
