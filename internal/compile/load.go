// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// pkg is one evaluated package.
type pkg struct {
	value cue.Value
	// fields finds the positions of the user's fields.
	fields *fieldIndex
	// written returns the index of the user's literals and fields. It is a function, because only packages with errors need
	// the index.
	written func() *written
	// definitions is the schema package.
	definitions cue.Value
	importPath  string
	// importable are the import paths of the module's folders.
	importable []string
	// own holds the names of the package's files.
	own map[string]bool
	// faulty holds the paths of values that contain an error.
	faulty map[string]bool
	// objects are the objects of the package that the schema accepts, and values are their values.
	objects []Object
	values  []cue.Value
}

// compileModule evaluates the packages of one module and collects their objects.
func (c *compilation) compileModule(m *module, tags map[string]string) {
	refused := c.checkPackageClauses(m)
	before := len(c.problems)
	for _, name := range m.files.sortedNames() {
		if folder := path.Dir(name); m.compiles(name) && (strings.ContainsAny(folder, "@:") || strings.Contains(folder, "...")) {
			c.report(v1alpha1.Diagnostic{File: name, Message: badFolder}) // the loader would not see it as a folder
			return
		}
	}
	instances, err := m.load(tags)
	if err != nil {
		c.reportModuleError(m, err)
		return
	}
	c.module, c.files = "", m.files
	if len(instances) > 0 {
		c.module = withoutVersion(instances[0].Module)
	}
	c.importable = m.importable(c.module)
	definitions, err := c.loadSchema(instances)
	if err != nil {
		c.reportError(nil, err)
		return
	}
	for _, instance := range instances {
		if slices.ContainsFunc(instance.BuildFiles, func(f *build.File) bool { return refused[path.Dir(m.shownName(f.Filename))] }) {
			continue
		}
		if instance.Err != nil {
			c.reportModuleError(m, instance.Err)
			continue
		}
		before, packages := len(c.problems), packagesOf(instance, map[string]bool{})
		c.compilePackage(instance, packages, definitions)
		if len(c.problems) > before {
			c.preferUndefined(before, m.undefined(packages))
		}
	}
	follows := func(p problem) bool { return refused[path.Dir(p.File)] }
	c.problems = append(c.problems[:before], slices.DeleteFunc(c.problems[before:], follows)...)
	c.reportGuards(m, tags)
}

// importable returns the import paths of the folders of a module, and of the schema.
func (m *module) importable(modulePath string) (paths []string) {
	for _, name := range m.files.sortedNames() {
		if folder := strings.TrimPrefix(strings.TrimPrefix(path.Dir(name), m.root), "/"); path.Ext(name) == ".cue" && modulePath != "" && !within("cue.mod", folder) {
			paths = append(paths, path.Join(modulePath, folder))
		}
	}
	return append(slices.Compact(paths), schema.Module)
}

// packagesOf returns a package and all packages that it imports, directly or indirectly. It skips the packages in seen.
func packagesOf(instance *build.Instance, seen map[string]bool) []*build.Instance {
	packages := []*build.Instance{instance}
	for _, imported := range instance.Imports {
		if !seen[imported.ID()] {
			seen[imported.ID()] = true
			packages = append(packages, packagesOf(imported, seen)...)
		}
	}
	return packages
}

// preferUndefined replaces the problems of a package, which begin at an index, with the given diagnostics about undefined
// fields, if there are any. In a definition, CUE evaluates a reference to an undefined field to an incomplete value, and
// reports only the consequences.
func (c *compilation) preferUndefined(from int, undefined []v1alpha1.Diagnostic) {
	if len(undefined) == 0 {
		return
	}
	c.problems = c.problems[:from]
	for _, d := range undefined {
		c.report(d)
	}
}

// undefined finds references in the files of a module to fields that an imported package does not have. It omits references
// that CUE may not evaluate.
func (m *module) undefined(packages []*build.Instance) (found []v1alpha1.Diagnostic) {
	members := map[string][]string{}
	for _, p := range packages {
		importPath := withoutVersion(p.ImportPath)
		members[importPath] = append(members[importPath], topLabels(p.Files)...)
	}
	for _, file := range userFiles(packages) {
		if within(path.Join(m.root, "cue.mod"), file.Filename) {
			continue
		}
		skipped := map[ast.Node]bool{}
		ast.Walk(file, func(node ast.Node) bool {
			for _, part := range conditional(node) {
				skipped[part] = true
			}
			if selector, ok := node.(*ast.SelectorExpr); ok && !skipped[node] {
				found = append(found, undefinedMember(selector, members)...)
			}
			return !skipped[node]
		}, nil)
	}
	return found
}

// conditional returns the parts of a node that CUE may not evaluate, or whose errors it may ignore.
func conditional(node ast.Node) (parts []ast.Node) {
	switch n := node.(type) {
	case *ast.Comprehension:
		for _, clause := range n.Clauses {
			if _, loops := clause.(*ast.ForClause); !loops || len(parts) > 0 {
				parts = append(parts, clause)
			}
		}
		if len(parts) > 0 {
			parts = append(parts[1:], n.Value) // the first condition is always evaluated
		}
	case *ast.BinaryExpr:
		if n.Op == token.OR || comparedWithBottom(n) != nil {
			parts = append(parts, n.X, n.Y)
		}
	}
	return parts
}

// undefinedMember returns a diagnostic for a reference to a field that an imported package does not have.
func undefinedMember(selector *ast.SelectorExpr, members map[string][]string) []v1alpha1.Diagnostic {
	name, _ := selector.X.(*ast.Ident)
	if name == nil {
		return nil
	}
	spec, isImport := name.Node.(*ast.ImportSpec)
	if !isImport {
		return nil
	}
	given, names := label(selector.Sel), members[withoutVersion(strings.Trim(spec.Path.Value, `"`))]
	if len(names) == 0 || slices.Contains(names, given) || slices.Contains(names, anyLabel) {
		return nil
	}
	at := selector.Sel.Pos().Position()
	return []v1alpha1.Diagnostic{{File: at.Filename, Line: v1alpha1.LineNumber(at.Line), Column: v1alpha1.LineNumber(at.Column),
		Message: fmt.Sprintf("undefined field: %s%s", given, didYouMeanMember(given, names))}}
}

// withoutVersion returns an import path without its major version and package name.
func withoutVersion(importPath string) string {
	return importPath[:len(importPath)-len(strings.TrimLeftFunc(importPath, func(r rune) bool { return r != '@' && r != ':' }))]
}

func (c *compilation) compilePackage(instance *build.Instance, packages []*build.Instance, definitions cue.Value) {
	if len(instance.Files) == 0 {
		return // a folder without CUE files
	}
	if c.begin != nil {
		c.begin(placeOf(instance))
	}
	p := &pkg{
		value:       c.cue.BuildInstance(instance),
		fields:      indexFields(instance.Files),
		written:     sync.OnceValue(func() *written { return indexWritten(userFiles(packages)) }),
		definitions: definitions,
		importPath:  instance.ID(),
		importable:  c.importable,
		own:         map[string]bool{},
	}
	for _, file := range instance.Files {
		p.own[file.Filename] = true
	}
	findings, _ := findingsOf(p.value.Validate(cue.Concrete(true), cue.Final()), nil, nil)
	p.faulty = faultyPaths(findings)
	c.collect(p, p.value)
	c.keep(p)
	before := len(c.problems)
	c.reportFindings(p, findings)
	if len(findings) > 0 && len(c.problems) == before { // a package with an error must have a problem
		c.reportFinding(p, findings[0])
	}
}

// userFiles returns the files of packages, without the schema.
func userFiles(packages []*build.Instance) (files []*ast.File) {
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, schema.ImportPath) {
			files = append(files, p.Files...)
		}
	}
	return files
}

// faultyPaths returns the paths of findings and of all values around them.
func faultyPaths(findings []finding) map[string]bool {
	faulty := map[string]bool{}
	for _, f := range findings {
		for i := range f.path {
			faulty[strings.Join(f.path[:i+1], "\x00")] = true
		}
	}
	return faulty
}

// placeOf returns the package's file, or the folder of its last file if there are several: the loader puts the files of
// parent folders first.
func placeOf(instance *build.Instance) string {
	files := instance.Files
	switch len(files) {
	case 0:
		return ""
	case 1:
		return files[0].Filename
	}
	return path.Dir(files[len(files)-1].Filename) + "/"
}

// load finds and parses the packages at and below m.path with their imports.
func (m *module) load(tags map[string]string) ([]*build.Instance, error) {
	folders := m.packageFolders()
	if len(folders) == 0 {
		return nil, nil
	}
	files, reg, err := m.loadable()
	if err != nil {
		return nil, err
	}
	return load.Instances(folders, &load.Config{
		FS:         files,
		FromFSPath: m.shownName,
		Dir:        path.Join("/", m.root),
		ModuleRoot: path.Join("/", m.root),
		Package:    "*",
		Registry:   reg,
		Env:        []string{},
		Tags:       m.usedTags(tags),
	}), nil
}

// packageFolders returns the folders at and below m.path with CUE files, as arguments for the loader.
func (m *module) packageFolders() []string {
	seen := map[string]bool{}
	for name := range m.files {
		if m.compiles(name) {
			argument := "./" + strings.TrimPrefix(strings.TrimPrefix(path.Dir(name), m.root), "/")
			if argument != "./" {
				argument += ":*" // otherwise the loader takes a folder with a dot in its name for a file
			}
			seen[argument] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// compiles reports whether name is a CUE file of a package at or below m.path.
func (m *module) compiles(name string) bool {
	return path.Ext(name) == ".cue" && within(m.path, name) && !within(path.Join(m.root, "cue.mod"), name)
}

// shownName maps a name from the loader to the name for diagnostics: relative to the tree, or marked as part of the
// schema.
func (m *module) shownName(name string) string {
	name = path.Clean(strings.TrimPrefix(name, "/"))
	if rest, ok := strings.CutPrefix(name, schemaMount+"/"); ok {
		return schemaName + rest
	}
	if rest, ok := strings.CutPrefix(name, vendorMount+"/"); ok {
		for _, folder := range vendorFolders {
			if shown := path.Join(m.root, folder, rest); m.files[shown] != nil {
				return shown
			}
		}
	}
	return name
}

// checkPackageClauses reports files that CUE would ignore because they have no package clause, and folders with several
// packages. A file with another package than the pools usually has a misspelt clause, and its pools would be missing without
// an error. It also reports unresolved merge conflicts, because CUE accepts some of them as definitions. It returns the
// folders with such errors; further errors in these folders are only consequences.
func (c *compilation) checkPackageClauses(m *module) (refused map[string]bool) {
	first := map[string]*ast.File{} // by folder
	var unpackaged []string         // files without a package clause
	refused = map[string]bool{}
	refuse := func(name string, line int, message string) {
		refused[path.Dir(name)] = true
		c.report(v1alpha1.Diagnostic{File: name, Line: v1alpha1.LineNumber(line), Column: 1, Message: message})
	}
	for _, name := range m.files.sortedNames() {
		if !m.compiles(name) {
			continue
		}
		if line := mergeMarker(m.files[name]); line > 0 {
			refuse(name, line, "a merge that is not resolved: take one of the two sides, and remove the markers")
			continue
		}
		file, err := parser.ParseFile(name, m.files[name], parser.PackageClauseOnly)
		if err != nil || isIgnored(file) {
			continue
		}
		if file.PackageName() == "" {
			unpackaged = append(unpackaged, name)
			continue
		}
		folder := path.Dir(name)
		if first[folder] == nil {
			first[folder] = file
		}
		if other := first[folder]; other.PackageName() != file.PackageName() {
			refuse(name, 1, fmt.Sprintf(
				"the file is of package %s, and %s of package %s: name one package in all files of a folder, or move one of them to a folder of its own",
				file.PackageName(), path.Base(other.Filename), other.PackageName()))
		}
	}
	for _, name := range unpackaged {
		clause := "package pools"
		if other := first[path.Dir(name)]; other != nil {
			clause = "package " + other.PackageName()
		}
		refuse(name, 1, m.withoutPackage(name, clause))
	}
	return refused
}

// withoutPackage returns the message about a file without a package clause, which proposes the given clause.
func (m *module) withoutPackage(name, clause string) string {
	switch {
	case bytes.HasPrefix(m.files[name], []byte("---")):
		return noSeparators
	case len(bytes.TrimSpace(m.files[name])) == 0:
		return fmt.Sprintf("the file is empty: remove it, or begin it with `%s`", clause)
	}
	return fmt.Sprintf("the file is in no package, so it would be passed over: begin it with `%s`", clause)
}

// isIgnored reports whether a file has the attribute @ignore().
func isIgnored(file *ast.File) bool {
	return slices.ContainsFunc(file.Decls, func(decl ast.Decl) bool {
		attribute, ok := decl.(*ast.Attribute)
		return ok && strings.HasPrefix(attribute.Text, "@ignore(")
	})
}

// tagUse is the first position of a tag in the files, and how it is used: as the value of a field, @tag(NAME), or in
// the condition of a file, @if(NAME).
type tagUse struct {
	place            v1alpha1.Diagnostic
	value, condition bool
}

var (
	// tagAttribute matches the name in an attribute @tag(NAME) or @tag(NAME,…), and the expression in @if(EXPRESSION).
	tagAttribute = regexp.MustCompile(`@tag\(([^,)\s]+)|(?m)^@if\((.*)\)`)
	// conditionName matches the names in the expression of an @if.
	conditionName = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
)

// tags returns the tags in the files of m, with their uses.
func (m *module) tags() map[string]tagUse {
	uses := map[string]tagUse{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if path.Ext(name) != ".cue" {
			continue
		}
		for _, found := range tagAttribute.FindAllSubmatchIndex(m.files[name], -1) {
			before := m.files[name][:found[0]]
			place := v1alpha1.Diagnostic{
				File: name, Line: v1alpha1.LineNumber(bytes.Count(before, []byte("\n")) + 1), Column: v1alpha1.LineNumber(len(before) - bytes.LastIndexByte(before, '\n')),
			}
			isValue, names := found[2] >= 0, []string{}
			if isValue {
				names = append(names, string(m.files[name][found[2]:found[3]]))
			} else {
				names = conditionName.FindAllString(string(m.files[name][found[4]:found[5]]), -1)
			}
			for _, tag := range names {
				use, known := uses[tag]
				if !known {
					use.place = place
				}
				use.value, use.condition = use.value || isValue, use.condition || !isValue
				uses[tag] = use
			}
		}
	}
	return uses
}

// usedTags returns the tags that a file of m uses, in the loader's format.
func (m *module) usedTags(tags map[string]string) []string {
	var used []string
	mentioned := m.tags()
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if mentioned[name].value {
			used = append(used, name+"="+tags[name])
		}
		if mentioned[name].condition && tags[name] == "true" {
			used = append(used, name)
		}
	}
	return used
}

// checkTags reports tags that no file uses, because they are probably misspelt. The diagnostic has the position of the
// tag that was probably meant.
func (c *compilation) checkTags(t *tree, tags map[string]string) {
	mentioned := map[string]tagUse{}
	for _, m := range t.modules {
		for tag, use := range m.tags() {
			if before, known := mentioned[tag]; known {
				use = tagUse{place: before.place, value: before.value || use.value, condition: before.condition || use.condition}
			}
			mentioned[tag] = use
		}
	}
	known := slices.Sorted(maps.Keys(mentioned))
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		use, ok := mentioned[tag]
		switch {
		case !ok:
			d := mentioned[closest(tag, known)].place
			d.Message = fmt.Sprintf("tag %q is set, but no field is marked @tag(%s)%s", tag, tag, wording.Suggestion(tag, known))
			c.report(d)
		case use.condition && !use.value && tags[tag] != "true" && tags[tag] != "false":
			use.place.Message = fmt.Sprintf("tag %q is the condition of a file, so its value must be true or false, not %q", tag, tags[tag])
			c.report(use.place)
		}
	}
}

// loadSchema returns the schema package that the instances import, or a new one if none does.
func (c *compilation) loadSchema(instances []*build.Instance) (cue.Value, error) {
	for _, instance := range instances {
		for _, imported := range instance.Imports {
			if before, _, _ := strings.Cut(imported.ImportPath, "@"); before == schema.ImportPath && imported.Err == nil {
				return c.buildSchema(imported)
			}
		}
	}
	own := load.Instances([]string{"."}, &load.Config{
		FS:         schema.FS,
		FromFSPath: func(name string) string { return schemaName + strings.TrimPrefix(name, "/") },
		Dir:        "/",
		ModuleRoot: "/",
		Registry:   registry{},
		Env:        []string{},
	})
	if own[0].Err != nil {
		return cue.Value{}, own[0].Err
	}
	return c.buildSchema(own[0])
}

func (c *compilation) buildSchema(instance *build.Instance) (cue.Value, error) {
	value := c.cue.BuildInstance(instance)
	return value, value.Err()
}
