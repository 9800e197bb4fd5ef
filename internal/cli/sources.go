// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

// declaredSource is a PoolSource that a tree declares in YAML or JSON, and that applies a folder of the same tree.
type declaredSource struct {
	v1alpha1.PoolSource
	// folder is the folder of the tree that the source applies.
	folder string
	// manifest is the document that declares the source.
	manifest document
	// file is the name of the manifest's file in the tree.
	file string
}

// revision identifies the branch, tag or commit of a repository that a source follows.
type revision struct {
	url string
	ref v1alpha1.GitReference
}

// follows returns the revision that a source of a Git repository follows.
func (s *declaredSource) follows() revision { return revision{s.Spec.Git.URL, s.Spec.Git.GetRef()} }

func (s *declaredSource) name() string { return "PoolSource " + wording.Qualified(s.Namespace, s.Name) }

// isLike reports whether two sources apply the same folder into the same namespace with the same tags, for example one from
// Git and one from an OCI registry.
func (s *declaredSource) isLike(o *declaredSource) bool {
	return s.folder == o.folder && s.Namespace == o.Namespace && maps.Equal(s.Spec.Tags, o.Spec.Tags)
}

// appliesToo reports whether two sources apply the same definitions into different namespaces. It returns false if either
// source has tags, because their definitions may differ.
func (s *declaredSource) appliesToo(o *declaredSource) bool {
	return (isWithin(s.folder, o.folder) || isWithin(o.folder, s.folder)) && s.Namespace != o.Namespace && len(s.Spec.Tags)+len(o.Spec.Tags) == 0
}

// isForItsFolder reports whether the namespace of a source ends with the name of its folder, such as ci-web for teams/web.
func (s *declaredSource) isForItsFolder() bool {
	return strings.HasSuffix(s.Namespace, path.Base(s.folder))
}

// overlap returns a diagnostic about two sources that apply the same definitions into different namespaces. Its position is
// the source whose namespace does not match its folder if only one does not match.
func overlap(s, other *declaredSource) v1alpha1.Diagnostic {
	if s.isForItsFolder() && !other.isForItsFolder() {
		s, other = other, s
	}
	return s.manifest.problem("spec.path", "%s applies %s, and so does %s in %s: give each source a folder of its own", s.name(), s.folder, other.name(), other.manifest.file)
}

// accountProblem reports a source that is probably in the wrong namespace: its manifest's file declares its ServiceAccount
// only in another namespace, and no source is in that namespace.
func (s *declaredSource) accountProblem(accounts []manifestDocument, sources []*declaredSource) []v1alpha1.Diagnostic {
	var there []string // the namespaces in which the source's file declares the account
	isThere := false
	for _, a := range accounts {
		isThere = isThere || a.Metadata.Name == s.Spec.ServiceAccountName && a.Metadata.Namespace == s.Namespace && s.Namespace != ""
		if a.name == s.file && a.Metadata.Name == s.Spec.ServiceAccountName {
			there = append(there, a.Metadata.Namespace)
		}
	}
	isUsed := slices.ContainsFunc(sources, func(o *declaredSource) bool { return slices.Contains(there, o.Namespace) })
	switch {
	case len(there) == 0 || isUsed || isThere || slices.Contains(there, ""):
		return nil
	case s.Namespace == "":
		return []v1alpha1.Diagnostic{s.manifest.problem("metadata.namespace", "must be set, as %s, where ServiceAccount %s is", there[0], s.Spec.ServiceAccountName)}
	}
	return []v1alpha1.Diagnostic{s.manifest.problem("metadata.namespace", "there is no ServiceAccount %s in %s; this file has it in %s", s.Spec.ServiceAccountName, s.Namespace, there[0])}
}

// pathProblem reports a source without a path if other sources of the same Git revision have paths, because the source would
// apply their folders as well.
func (t tree) pathProblem(s *declaredSource, sources []*declaredSource) []v1alpha1.Diagnostic {
	others := slices.ContainsFunc(sources, func(o *declaredSource) bool {
		return o.Spec.Git != nil && s.Spec.Git != nil && o.follows() == s.follows() && o.Spec.Path != "" && s.appliesToo(o)
	})
	if !others || s.Spec.Path != "" {
		return nil
	}
	message := "must be set: without it the source applies the whole repository"
	for _, folder := range t.unclaimed(sources) {
		if strings.HasSuffix(s.Namespace, path.Base(folder)) {
			message += "; write " + folder
		}
	}
	return []v1alpha1.Diagnostic{s.manifest.problem("spec.path", "%s", message)}
}

// unclaimed returns the folders with CUE files that are next to the folders of sources and that no source applies.
func (t tree) unclaimed(sources []*declaredSource) (folders []string) {
	parents := map[string]bool{}
	for _, s := range sources {
		parents[path.Dir(s.folder)] = true
	}
	for parent := range parents {
		found, _ := fs.Glob(t.fsys, path.Join(parent, "*/*.cue")) // only an unusual folder name makes the pattern invalid
		for _, name := range found {
			folders = append(folders, path.Dir(name))
		}
	}
	slices.Sort(folders)
	return slices.DeleteFunc(slices.Compact(folders), func(folder string) bool {
		return slices.ContainsFunc(sources, func(s *declaredSource) bool { return s.folder == folder })
	})
}

// sources returns the PoolSources in a tree that apply a folder of the tree, except sources with a wrong namespace or path.
// spec.path is relative to the top of the repository, which is not known: sources assumes that the top is the folder of the
// module, or the parent of the folder with the manifest. wrong reports sources whose folder does not exist, if another
// source follows the same revision, and sources that apply a folder into a namespace that is probably not intended.
func (t tree) sources() (sources []*declaredSource, wrong []v1alpha1.Diagnostic) {
	misses := map[revision][]*declaredSource{}
	strays := (tree{t.fsys, t.root, "."}).findStrays()
	for _, m := range strays.manifests {
		s := &declaredSource{manifest: m.document, file: m.name}
		if m.Kind != "PoolSource" || json.Unmarshal(m.json, &s.PoolSource) != nil {
			continue
		}
		s.folder = t.appliedFolder(m.name, s.Spec.Path)
		switch {
		case s.folder != "" && !slices.ContainsFunc(sources, s.isLike):
			sources = append(sources, s)
		case s.folder == "" && s.Spec.Git != nil:
			misses[s.follows()] = append(misses[s.follows()], s)
		}
	}
	kept := slices.Clone(sources)
	for _, s := range sources {
		if s.Spec.Git != nil {
			for _, miss := range misses[s.follows()] {
				wrong = append(wrong, miss.manifest.problem("spec.path", "%s applies the folder %s, which does not exist%s", miss.name(), miss.Spec.Path, wording.DidYouMean(wording.Closest(miss.Spec.Path, t.unclaimed(sources), 2))))
			}
			delete(misses, s.follows())
		}
		problems := slices.Concat(s.accountProblem(strays.accounts, sources), t.pathProblem(s, sources))
		if len(problems) > 0 {
			kept = slices.DeleteFunc(kept, func(o *declaredSource) bool { return o == s })
		}
		wrong = append(wrong, problems...)
	}
	return kept, wrong
}

// appliedFolder returns the folder of the tree that a source applies; "" if the folder does not exist. file is the name of
// the file that declares the source.
func (t tree) appliedFolder(file, specPath string) string {
	around := path.Dir(path.Dir(file))
	for _, top := range []string{".", around} {
		folder := path.Join(top, specPath)
		if info, err := fs.Stat(t.fsys, folder); err == nil && info.IsDir() && (folder != "." || around == ".") {
			return folder
		}
	}
	return ""
}

// isWithin reports whether name is the folder, or a file or folder below it.
func isWithin(folder, name string) bool {
	return folder == "." || name == folder || strings.HasPrefix(name, folder+"/")
}

// coveringSource returns the source that applies a folder or the closest folder above it. It returns nil if there is no such
// source, or if several apply the same folder.
func coveringSource(sources []*declaredSource, folder string) (found *declaredSource) {
	for _, s := range sources {
		switch {
		case !isWithin(s.folder, folder):
		case found == nil || len(s.folder) > len(found.folder):
			found = s
		case s.folder == found.folder:
			return nil
		}
	}
	return found
}

// asSources makes the command compile definitions as the PoolSources of their tree do: with the namespaces and the tags of
// the sources.
func (d *definitions) asSources(o *policyOptions, args []string) error {
	t, err := openTree(folderOf(args))
	if err != nil {
		return err
	}
	sources, wrong := t.sources()
	d.source = coveringSource(sources, t.path)
	if d.source == nil {
		d.wrongSources = wrong
		d.sources = slices.DeleteFunc(sources, func(s *declaredSource) bool { return !isWithin(t.path, s.folder) })
		return nil
	}
	o.namespace = cmp.Or(o.namespace, d.source.Namespace)
	d.tags = d.tagsOver(d.source)
	return nil
}

// assign sets the namespace of each object to the namespace of the source that applies it, and reports objects that the
// source would refuse.
func (d *definitions) assign(ctx context.Context, c *compiled) error {
	sources := d.sources
	if d.source != nil {
		sources = []*declaredSource{d.source}
	}
	c.Diagnostics = append(c.Diagnostics, d.wrongSources...)
	// Sources without tags come first, so that without knows the objects that they apply.
	sources = slices.Clone(sources)
	slices.SortStableFunc(sources, func(a, b *declaredSource) int { return len(a.Spec.Tags) - len(b.Spec.Tags) })
	declared, applied, tagged := slices.Clone(c.Objects), map[place]bool{}, []compile.Object(nil)
	for i, s := range sources {
		if j := slices.IndexFunc(sources[:i], s.appliesToo); j >= 0 {
			c.Diagnostics = append(c.Diagnostics, overlap(s, sources[j]))
			continue
		}
		objects, err := d.appliedBy(ctx, s, c)
		if err != nil {
			return err
		}
		if len(objects) == 0 && isWithin(c.path, s.folder) {
			nothing := s.manifest.problem("spec.path", "%s applies %s, which declares nothing: remove the source, or declare pools in pools: of that folder", s.name(), s.folder)
			c.Diagnostics = append(c.Diagnostics, c.hiddenIn(s.folder, nothing))
		}
		c.Diagnostics = append(c.Diagnostics, s.refusals(objects)...)
		fillNamespace(objects, s.Namespace)
		switch {
		case !s.isTagged() || s == d.source:
			for i := range objects {
				applied[placeOf(&objects[i])] = true
			}
		case len(objects) > 0:
			untagged, err := d.declaredBy(ctx, s, c)
			if err != nil {
				return err
			}
			declared = without(declared, untagged, applied)
			tagged = append(tagged, objects...)
		}
	}
	c.Objects = merge(declared, tagged)
	return nil
}

// isTagged reports whether a source sets tags, with which its folder must be compiled.
func (s *declaredSource) isTagged() bool { return len(s.Spec.Tags) > 0 }

// refusals reports the objects that a source would refuse.
func (s *declaredSource) refusals(objects []compile.Object) (refused []v1alpha1.Diagnostic) {
	own := compile.IntoNamespace(s.Namespace)
	for i := range objects {
		o := &objects[i]
		why := own.Refusal(o)
		if o.Manifest.GroupVersionKind().Group == rbacv1.GroupName && s.Spec.ServiceAccountName == "" {
			why = "it gives permissions, so spec.serviceAccountName of the source must be set"
		}
		if why != "" {
			refused = append(refused, o.Diagnostic("", s.name()+" refuses it: "+why))
		}
	}
	return refused
}

// place is the place of the definition that declares an object, which is the same with all tags.
type place struct{ kind, name, file, path string }

func placeOf(o *compile.Object) place {
	return place{o.Manifest.GetKind(), o.Manifest.GetName(), o.File, o.Path}
}

// without returns the declared objects, except those that only sources with tags apply: the objects that the folder of such
// a source declares without the tags. applied contains the objects that sources without tags apply.
func without(declared, untagged []compile.Object, applied map[place]bool) []compile.Object {
	gone := map[place]bool{}
	for i := range untagged {
		gone[placeOf(&untagged[i])] = true
	}
	return slices.DeleteFunc(declared, func(o compile.Object) bool { return gone[placeOf(&o)] && !applied[placeOf(&o)] })
}

// merge adds objects to others. An added object replaces one of the same kind, namespace and name.
func merge(objects, added []compile.Object) []compile.Object {
	type key struct{ kind, namespace, name string }
	keyOf := func(o *compile.Object) key {
		return key{o.Manifest.GetKind(), o.Manifest.GetNamespace(), o.Manifest.GetName()}
	}
	last := map[key]int{}
	for i := range added {
		last[keyOf(&added[i])] = i
	}
	merged := slices.DeleteFunc(objects, func(o compile.Object) bool { _, isAdded := last[keyOf(&o)]; return isAdded })
	for i := range added {
		if last[keyOf(&added[i])] == i {
			merged = append(merged, added[i])
		}
	}
	return merged
}

// tagsOver returns the tags of a source. Tags of the flags override them.
func (d *definitions) tagsOver(s *declaredSource) tags {
	all := tags{}
	maps.Copy(all, s.Spec.Tags)
	maps.Copy(all, d.tags)
	return all
}

// hiddenTop matches a hidden field such as _pools at the top level of a file.
var hiddenTop = regexp.MustCompile(`(?m)^_(pools|connections|policies)\s*:`)

// hiddenIn returns a diagnostic about a folder that declares nothing. If a file of the folder has a hidden field such as
// _pools, the diagnostic is about this field. Otherwise it is the given one.
func (t tree) hiddenIn(folder string, nothing v1alpha1.Diagnostic) v1alpha1.Diagnostic {
	files, _ := fs.Glob(t.fsys, path.Join(folder, "*.cue")) // an invalid pattern only matches nothing
	for _, name := range files {
		text, err := fs.ReadFile(t.fsys, name)
		if found := hiddenTop.FindSubmatchIndex(text); err == nil && found != nil {
			nothing.File, nothing.Path = displayPath(t.root, name), ""
			nothing.Line, nothing.Column = v1alpha1.LineNumber(1+bytes.Count(text[:found[0]], []byte("\n"))), 1
			nothing.Message = fmt.Sprintf("_%[1]s declares nothing, because names with _ are hidden: write %[1]s", text[found[2]:found[3]])
			break
		}
	}
	return nothing
}

// appliedBy returns the objects that a source applies. If the source sets tags, appliedBy compiles its folder again with these tags.
func (d *definitions) appliedBy(ctx context.Context, s *declaredSource, c *compiled) ([]compile.Object, error) {
	if s == d.source {
		return c.Objects, nil // the command compiles only objects that the source applies
	}
	if s.isTagged() {
		result, err := compileTree(ctx, tree{c.fsys, c.root, s.folder}, compile.Options{Tags: d.tagsOver(s), AllowEmpty: true, Positions: true})
		for _, diagnostic := range result.Diagnostics {
			if diagnostic.File == "" {
				at := s.manifest.problem("spec.tags", "")
				at.Message = diagnostic.Message
				diagnostic = at
			}
			diagnostic.Message += ", with the tags of " + s.name()
			d.badTags = append(d.badTags, diagnostic)
			c.Diagnostics = append(c.Diagnostics, diagnostic)
		}
		// Policies of Rego files have no path. They are read separately, as for a source without tags.
		return slices.DeleteFunc(result.Objects, func(o compile.Object) bool { return o.Path == "" }), err
	}
	return d.declaredBy(ctx, s, c)
}

// declaredBy returns the objects that the folder of a source declares without the tags of the source.
func (d *definitions) declaredBy(ctx context.Context, s *declaredSource, c *compiled) ([]compile.Object, error) {
	folder := path.Join(filepath.ToSlash(c.root), s.folder)
	applied := map[string]bool{} // cached by file, because one file can declare thousands of pools
	own := slices.DeleteFunc(slices.Clone(c.Objects), func(o compile.Object) bool {
		if _, known := applied[o.File]; !known {
			file, err := filepath.Abs(o.File)
			applied[o.File] = err == nil && isWithin(folder, filepath.ToSlash(file))
		}
		return !applied[o.File] || o.Path == ""
	})
	if len(own) > 0 {
		return own, nil
	}
	return d.declaredElsewhere(ctx, s, c)
}

// declaredElsewhere returns the objects that a source applies although no file in its folder declares them, because the
// folder embeds a definition or contains only data for a package in a folder above.
func (d *definitions) declaredElsewhere(ctx context.Context, s *declaredSource, c *compiled) ([]compile.Object, error) {
	result, err := compileTree(ctx, tree{c.fsys, c.root, s.folder}, compile.Options{Tags: d.tags, AllowEmpty: true})
	applied := map[string]bool{}
	for _, o := range result.Objects {
		applied[o.Manifest.GetKind()+"/"+o.Manifest.GetName()] = o.Path != ""
	}
	return slices.DeleteFunc(slices.Clone(c.Objects), func(o compile.Object) bool { return !applied[o.Manifest.GetKind()+"/"+o.Manifest.GetName()] }), err
}

// ofSources moves Rego files in the folders of sources from the policy of the tree to a policy of each source, in the
// source's namespace.
func (d *definitions) ofSources(ctx context.Context, c compiled, policies []*declaredPolicy) (_ []*declaredPolicy, all []v1alpha1.Diagnostic, _ error) {
	for _, s := range d.sources {
		created, diagnostics, err := policiesOfFolder(ctx, c.tree, s.folder, s.Namespace)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range policies {
			maps.DeleteFunc(p.source.Modules, func(name, _ string) bool { return p.isFromFiles() && isWithin(s.folder, name) })
		}
		policies, all = append(policies, created...), append(all, diagnostics...)
	}
	return slices.DeleteFunc(policies, func(p *declaredPolicy) bool { return p.isFromFiles() && len(p.source.Modules) == 0 }), all, nil
}

// policiesOf returns the policies that the sources of the folder apply. Without a source, it returns the policies in the
// folder or, if there are none, the policies in the closest folder named policies above it.
func (d *definitions) policiesOf(ctx context.Context, c compiled, namespace string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	policies, err := policiesAmong(c.Objects, c.root, namespace)
	if err != nil || c.fsys == nil { // the objects come from manifests of another program
		return policies, nil, err
	}
	files, _ := compile.Gather(c.fsys, c.path) // the compiler has already reported the diagnostics
	policies = withTests(policies, testsAmong(files), c.root, namespace)
	switch {
	case d.source != nil && d.source.folder != c.path:
		created, diagnostics, err := policiesOfFolder(ctx, c.tree, d.source.folder, namespace)
		return append(slices.DeleteFunc(policies, (*declaredPolicy).isFromFiles), created...), diagnostics, err
	case d.source == nil && len(d.sources) == 0 && len(policies) == 0:
		return policiesAbove(ctx, c.tree, namespace)
	}
	return d.ofSources(ctx, c, policies)
}

// foreignObjects reports objects that a PoolSource would refuse, for example because they are in a second namespace. Other
// tools may apply such objects. The result is one diagnostic about the first object, with the number of the others.
func (w *workspace) foreignObjects() (refused []v1alpha1.Diagnostic) {
	named := ""
	for _, o := range w.Objects {
		named = cmp.Or(named, o.Manifest.GetNamespace())
	}
	own := compile.IntoNamespace(cmp.Or(w.options.namespace, named))
	for i := range w.Objects {
		why := own.Refusal(&w.Objects[i])
		if why != "" {
			refused = append(refused, w.Objects[i].Diagnostic("", "a PoolSource would refuse it: "+why))
		}
	}
	return firstOf(refused)
}

// notCovered reports objects that no PoolSource of the tree applies, with one diagnostic as from foreignObjects. It reports
// none if a file that cannot be read may contain such a PoolSource.
func (w *workspace) notCovered() (found []v1alpha1.Diagnostic) {
	for i := range w.Objects {
		o := &w.Objects[i]
		if o.Manifest.GetNamespace() != "" || w.hidesSource {
			continue
		}
		message := "no PoolSource of this tree applies this folder, so nothing in it takes effect"
		absolute, err := filepath.Abs(filepath.Dir(o.File))
		folder, relErr := filepath.Rel(w.root, absolute)
		if err == nil && relErr == nil {
			message += fmt.Sprintf(": add one with spec.path: %s, or move the definitions to a folder that has one", filepath.ToSlash(folder))
		}
		found = append(found, o.Diagnostic("", message))
	}
	return firstOf(found)
}

// firstOf returns the first of several similar diagnostics, with the number of the others in its message.
func firstOf(alike []v1alpha1.Diagnostic) []v1alpha1.Diagnostic {
	if len(alike) > 1 {
		alike[0].Message += fmt.Sprintf(" (and %s)", wording.Count(len(alike)-1, "more object"))
	}
	return alike[:min(len(alike), 1)]
}

// consentProblems reports connections that are declared here and do not allow the namespaces of the pools that use them. A
// review does not use it, because it compares the allowed namespaces of both sides.
func (w *workspace) consentProblems() (found []v1alpha1.Diagnostic) {
	refused := map[string][]string{} // namespaces of pools, by connection
	for _, p := range w.pools {
		name, c := connectionOf(p.RunnerPool), w.connection(p.RunnerPool)
		if c.Namespace != "" && p.Namespace != "" && !c.Allows(p.Namespace) {
			refused[name] = append(refused[name], p.Namespace)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		pools, namespaces := wording.Count(len(refused[name]), "pool"), slices.Compact(slices.Sorted(slices.Values(refused[name])))
		c := w.connections[name]
		found = append(found, c.object.Diagnostic(".spec.allowedNamespaces", fmt.Sprintf(
			"does not allow %s, so %s there cannot use the connection: add the namespaces, or a pattern for them", wording.List(namespaces, maxNamespaces), pools)))
	}
	return found
}

// maxNamespaces is the maximum number of namespaces in a diagnostic of consentProblems.
const maxNamespaces = 3
