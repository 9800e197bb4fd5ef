// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

// declaredKinds are the kinds that users declare in CUE, so that a source applies them. Users apply manifests of Corral's
// other kinds, such as PoolSources, with other tools.
var declaredKinds = []string{"GitHubConnection", policy.KindRunnerPolicy, "RunnerPool"}

// manifestDocument is a YAML or JSON document with an object of Corral or a ServiceAccount.
type manifestDocument struct {
	document
	metav1.TypeMeta `json:",inline"`
	// name is the name of the document's file in the tree.
	name     string
	Metadata struct{ Name, Namespace string }
}

// strays collects objects of Corral in files that the compiler does not read, and diagnostics about such files.
type strays struct {
	tree
	entries     int
	manifests   []manifestDocument
	diagnostics []v1alpha1.Diagnostic
	// unreadable contains the syntax errors of files with objects of Corral.
	unreadable []v1alpha1.Diagnostic
	// accounts contains the ServiceAccounts that are in files with objects of Corral.
	accounts []manifestDocument
	// hidesSource is true if an object that could not be read may be a PoolSource.
	hidesSource bool
}

// findStrays walks the tree. It skips hidden files and folders, cue.mod, and folders named testdata, because their files are
// not meant to be applied.
func (t tree) findStrays() *strays {
	s := &strays{tree: t}
	_ = fs.WalkDir(t.fsys, t.path, s.visit) // the compiler reports files and folders that cannot be read
	return s
}

func (s *strays) visit(name string, entry fs.DirEntry, err error) error {
	s.entries++
	base := path.Base(name)
	isHidden, ext := name != s.path && strings.HasPrefix(base, "."), strings.ToLower(path.Ext(name))
	switch {
	case err != nil, s.entries > maxFolders:
		return fs.SkipAll
	case entry.IsDir() && (isHidden || base == "testdata" || base == "cue.mod"):
		return fs.SkipDir
	case !entry.Type().IsRegular() || isHidden:
	case ext == ".cue":
		s.noteCUE(name)
	case slices.Contains([]string{".yaml", ".yml", ".json"}, ext):
		s.noteManifests(name)
	case ext == ".rego", ext == ".txt":
		s.noteRego(name)
	}
	return nil
}

// read returns the content of a file, or nil if the file cannot be read or is too large to be compiled.
func (s *strays) read(name string) []byte {
	info, err := fs.Stat(s.fsys, name)
	if err != nil || info.Size() > compile.MaxFileBytes {
		return nil
	}
	text, _ := fs.ReadFile(s.fsys, name) // the compiler reports errors
	return text
}

var (
	// ofCorral matches manifests that mention Corral's API group or one of its kinds.
	ofCorral = regexp.MustCompile(`corral\.dev/|kind: *"?(GitHubConnection|PoolSource|RunnerPool|(Cluster)?RunnerPolicy)\b`)
	// definesPools matches CUE files that use Corral's schema, or that declare a field such as pools at the top level.
	definesPools = regexp.MustCompile(`(?m)corral\.dev/|^(pools|connections|policies):`)
	// ofTemplate matches an action in a Helm or Jinja template. It does not match braces without an action, which may be a
	// mistake in YAML.
	ofTemplate = regexp.MustCompile(`\{\{-?[ \t]*[^{}\s]|\{%`)
)

// noteCUE reports a file with definitions that CUE ignores because of the name of the file or of a folder.
func (s *strays) noteCUE(name string) {
	isPassedOver := path.Ext(name) != ".cue" || strings.HasSuffix(name, "_test.cue") || slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, "_") })
	text := s.read(name)
	if isPassedOver && definesPools.Match(text) && !bytes.Contains(text, []byte("@ignore()")) {
		s.diagnostics = append(s.diagnostics, v1alpha1.Diagnostic{File: displayPath(s.root, name), Line: 1, Column: 1,
			Message: "CUE ignores files with this name, so its definitions have no effect: rename it, or begin it with @ignore()"})
	}
}

var (
	nameOfRego = regexp.MustCompile(`(?i)\.rego(\.txt)?$`)
	ofDecision = regexp.MustCompile(`(?m)^package corral\.`)
)

// noteRego reports a file with a policy that a source does not read because of the file's name.
func (s *strays) noteRego(name string) {
	if path.Ext(name) != ".rego" && nameOfRego.MatchString(name) && ofDecision.Match(s.read(name)) {
		s.diagnostics = append(s.diagnostics, v1alpha1.Diagnostic{File: displayPath(s.root, name), Line: 1, Column: 1,
			Message: "a policy is only read from a file whose name ends in .rego, so this one has no effect: rename it"})
	}
}

// noteManifests collects the objects of Corral in a YAML or JSON file.
func (s *strays) noteManifests(name string) {
	text := s.read(name)
	if !ofCorral.Match(text) || ofTemplate.Match(text) {
		return
	}
	documents, diagnostics := parseDocuments(displayPath(s.root, name), text, kubernetesYAML)
	s.unreadable = append(s.unreadable, diagnostics...)
	s.hidesSource = s.hidesSource || len(diagnostics) > 0
	for _, d := range itemsOf(documents) {
		m := manifestDocument{document: d, name: name}
		isOwn := json.Unmarshal(d.json, &m) == nil && strings.HasPrefix(m.APIVersion, v1alpha1.GroupVersion.Group+"/")
		switch {
		case isOwn:
			s.manifests = append(s.manifests, m)
		case slices.Contains(admission.Kinds(), m.Kind):
			s.diagnostics = append(s.diagnostics, d.problem("apiVersion", "%s is a kind of %s, not of %s", m.Kind, v1alpha1.GroupVersion, m.APIVersion))
			s.hidesSource = true
		case m.Kind == "ServiceAccount":
			s.accounts = append(s.accounts, m)
		}
		if isOwn && !slices.Contains(declaredKinds, m.Kind) {
			_, problems := d.ofCorral()
			s.diagnostics = append(s.diagnostics, problems...)
			s.hidesSource = s.hidesSource || len(problems) > 0 && m.Kind != "PoolSource"
		}
	}
}

// unread reports files that a source does not read. It does not report manifests of objects that the definitions declare as
// well.
func (s *strays) unread(objects []compile.Object) []v1alpha1.Diagnostic {
	found := s.diagnostics
	for _, m := range s.manifests {
		isDeclared := slices.ContainsFunc(objects, func(o compile.Object) bool {
			return o.Manifest.GetKind() == m.Kind && o.Manifest.GetName() == m.Metadata.Name
		})
		if slices.Contains(declaredKinds, m.Kind) && !isDeclared {
			found = append(found, m.problem("", "%s %s is not read: a source reads definitions in CUE; declare it there, or check it with corral vet -f %s and apply it with another tool", m.Kind, m.Metadata.Name, m.file))
		}
	}
	return found
}

// hasPolicies reports whether any manifest is a policy.
func (s *strays) hasPolicies() bool {
	return slices.ContainsFunc(s.manifests, func(m manifestDocument) bool { return strings.HasSuffix(m.Kind, policy.KindRunnerPolicy) })
}
