// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/mod/modfile"
	cuemodule "cuelang.org/go/mod/module"

	"github.com/corral-dev/corral/schema"
)

// VendorFolder is the folder, relative to the module's root, into which "corral mod vendor" writes the modules that
// cue.mod/module.cue requires. The cue command ignores this folder and continues to use its registry.
const VendorFolder = "cue.mod/vendor"

// vendorList is the file in VendorFolder that lists the modules with their digests.
const vendorList = "modules.cue"

// modulesMount is the folder in which the loader finds the modules of VendorFolder.
const modulesMount = ".corral/modules"

// VendoredModule is one module in VendorFolder.
type VendoredModule struct {
	// Version is the exact version, such as v0.1.0.
	Version string `json:"v"`
	// Digest is the SHA-256 digest of the module's files.
	Digest string `json:"digest"`
}

// Requirements returns the modules that a module file requires, without Corral's schema, which is built in.
func Requirements(moduleFile []byte, name string) ([]cuemodule.Version, error) {
	file, err := modfile.ParseNonStrict(moduleFile, name)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(file.DepVersions(), func(v cuemodule.Version) bool { return v.BasePath() == schema.ImportPath }), nil
}

// ModuleFiles returns the files of a module that Corral compiles: its definitions and, if one of them embeds files, the
// other files as well. It omits policy files and VendorFolder. It returns an error if the files exceed the limits.
func ModuleFiles(fsys fs.FS) (Files, error) {
	m := &module{root: ".", path: ".", files: Files{}}
	g := &gatherer{fsys: fsys, tree: &tree{path: "."}}
	g.gatherModule(m)
	for _, d := range g.diagnostics {
		return nil, fmt.Errorf("%s", Format(d))
	}
	maps.DeleteFunc(m.files, func(name string, _ []byte) bool { return isPolicyFile(name) || inVendorFolder(name) })
	return m.files, nil
}

// inVendorFolder reports whether a file belongs to another module that this module vendors.
func inVendorFolder(name string) bool { return within(VendorFolder, name) }

// VendorFiles returns the content of VendorFolder for modules with the given files. Paths are relative to the root of
// the repository's module.
func VendorFiles(modules map[cuemodule.Version]Files) Files {
	list := bytes.NewBufferString("// \"corral mod vendor\" writes this folder. Do not edit it.\n\nmodules: {\n")
	all := Files{}
	for _, m := range slices.SortedFunc(maps.Keys(modules), cuemodule.Version.Compare) {
		files := modules[m]
		fmt.Fprintf(list, "\t%q: {v: %q, digest: %q}\n", m.Path(), m.Version(), digest(files))
		for name, data := range files {
			all[path.Join(VendorFolder, vendoredFolder(m.Path(), m.Version()), name)] = data
		}
	}
	list.WriteString("}\n")
	all[path.Join(VendorFolder, vendorList)] = list.Bytes()
	return all
}

// vendoredFolder returns a module's folder below VendorFolder.
func vendoredFolder(modulePath, version string) string {
	importPath, _, _ := strings.Cut(modulePath, "@")
	return importPath + "@" + version
}

// digest returns the SHA-256 digest of the names and contents of files.
func digest(files Files) string {
	sum := sha256.New()
	for _, name := range files.sortedNames() {
		fmt.Fprintf(sum, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// addVendored adds the modules of VendorFolder to the registry. It returns an error if the files of a module do not
// match the digest in the list.
func (r registry) addVendored(m *module) error {
	folder := path.Join(m.root, VendorFolder)
	data, found := m.files[path.Join(folder, vendorList)]
	if !found {
		return nil
	}
	var list map[string]VendoredModule
	value := cuecontext.New().CompileBytes(data)
	if err := value.LookupPath(cue.ParsePath("modules")).Decode(&list); err != nil {
		return fmt.Errorf("%s cannot be read (%w): run corral mod vendor", path.Join(folder, vendorList), err)
	}
	for _, modulePath := range slices.Sorted(maps.Keys(list)) {
		listed := list[modulePath]
		// The module path and the version become parts of file paths, so both must be valid. No module may replace the
		// embedded schema.
		if v, err := cuemodule.NewVersion(modulePath, listed.Version); err != nil || v.BasePath() == schema.ImportPath {
			return fmt.Errorf("%s lists %q %q, which cannot be vendored: run corral mod vendor", path.Join(folder, vendorList), modulePath, listed.Version)
		}
		base := vendoredFolder(modulePath, listed.Version)
		files := Files{}
		for name, data := range m.files {
			if rest, ok := strings.CutPrefix(name, path.Join(folder, base)+"/"); ok {
				files[rest] = data
				r.files[path.Join(modulesMount, base, rest)] = data
			}
		}
		if digest(files) != listed.Digest {
			return fmt.Errorf("the files in %s are not those of module %s %s: run corral mod vendor", path.Join(folder, base), modulePath, listed.Version)
		}
		r.folders[modulePath+" "+listed.Version] = path.Join(modulesMount, base)
	}
	return nil
}

// checkVendored returns an error if VendorFolder does not have the version of a module that the repository requires.
// The error has the position of the requirement in the module file.
func (r registry) checkVendored(modulePath, version string, moduleFile []byte, name string) error {
	have := r.vendoredVersion(modulePath)
	if have == version {
		return nil
	}
	message := notVendored(modulePath, version).Error()
	if have != "" {
		message = fmt.Sprintf("the repository requires %s of module %s, and %s has %s: run corral mod vendor", version, modulePath, VendorFolder, have)
	}
	offset := max(bytes.Index(moduleFile, []byte(strconv.Quote(modulePath))), 0)
	file := token.NewFile(name, -1, len(moduleFile))
	file.SetLinesForContent(moduleFile)
	return cueerrors.Newf(file.Pos(offset, token.NoRelPos), "%s", message)
}

// notVendored returns the error for a module that the repository does not contain.
func notVendored(modulePath, version string) error {
	return fmt.Errorf("module %s %s is not in the repository, and Corral downloads nothing: run corral mod vendor, or copy its packages to cue.mod/pkg", modulePath, version)
}

// vendoredVersion returns the vendored version of a module, or "" if it is not vendored.
func (r registry) vendoredVersion(modulePath string) string {
	for key, folder := range r.folders {
		if name, version, _ := strings.Cut(key, " "); name == modulePath && strings.HasPrefix(folder, modulesMount) {
			return version
		}
	}
	return ""
}

// vendoredModFile returns the module file of a vendored module. It replaces the required versions of other modules with
// the vendored versions, because no other versions are available.
func (r registry) vendoredModFile(folder string) (*modfile.File, error) {
	name := path.Join(folder, "cue.mod/module.cue")
	file, err := modfile.ParseNonStrict(r.files[name], name)
	if err != nil {
		return nil, err
	}
	for dep, at := range file.Deps {
		if dep == schema.Module {
			if err := checkSchemaVersion(at.Version); err != nil {
				return nil, err
			}
			at.Version = schema.Version
		} else if version := r.vendoredVersion(dep); version != "" {
			at.Version = version
		}
	}
	data, err := modfile.Format(file)
	if err != nil {
		return nil, err
	}
	return modfile.ParseNonStrict(data, name)
}
