// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
)

const (
	testSuffix  = "_test.rego"
	maxFolders  = 10_000
	atMostFiles = "the limit: name a smaller folder"
)

// declaredPolicy is a policy and its origin.
type declaredPolicy struct {
	// source contains the modules of the policy, including tests.
	source policy.Source
	// loaded is the compiled policy; nil until load is called.
	loaded *policy.Policy
	// origin is where the policy is declared.
	origin report.Place
	// folder is the folder to which the names of modules are relative; empty if the modules are not files.
	folder string
	// lines contains the number of lines before each module that is part of the file of origin.
	lines map[string]int
	// isFromFlag is true for policies of --policy, and for the additional policies of a scenario.
	isFromFlag bool
	// testsOnly is true if the modules contain only tests.
	testsOnly bool
	// recorder records the evaluations of rules that users wrote, and the output of print. It is used only if
	// policyOptions.record is true.
	recorder recorder
}

// recorder is an Asker that records the questions that it passes on, and the output of print in the answers.
type recorder struct {
	policy.Asker
	questions []policy.Question
	output    string
}

// Ask implements policy.Asker.
func (r *recorder) Ask(ctx context.Context, p *policy.Policy, q policy.Question) ([]byte, error) {
	r.questions = append(r.questions, q)
	answer, err := r.Asker.Ask(ctx, p, q)
	var printed struct{ Output string }
	if err == nil && json.Unmarshal(answer, &printed) == nil {
		r.output += printed.Output
	}
	return answer, err
}

// takeOutput returns the text that rules printed since the last call.
func takeOutput(policies []*declaredPolicy) (output string) {
	for _, p := range policies {
		output += p.recorder.output
		p.recorder.output = ""
	}
	return output
}

// place returns the position of a line of a module, in the module's file or in the manifest that contains the module. If
// that position is not known, it returns the position of the policy's declaration, and exact is false. A module that does
// not belong to the policy, such as one of the built-in library, has no position.
func (p *declaredPolicy) place(module string, line int) (at report.Place, exact bool) {
	before, inline := p.lines[module]
	_, isOwn := p.source.Modules[module]
	switch {
	case !isOwn:
		return report.Place{}, false
	case p.folder != "":
		return report.Place{File: displayPath(p.folder, module), Line: line}, true
	case inline:
		return report.Place{File: p.origin.File, Line: before + line}, true
	}
	return p.origin, false
}

// locate is like place, but does not return exact.
func (p *declaredPolicy) locate(module string, line int) report.Place {
	at, _ := p.place(module, line)
	return at
}

// diagnostic replaces the position in a module by the position in a file. If that is not known, the diagnostic is at the
// policy's declaration, and its message contains the position in the module.
func (p *declaredPolicy) diagnostic(d v1alpha1.Diagnostic) v1alpha1.Diagnostic {
	at, exact := p.place(d.File, int(d.Line))
	if !exact {
		return diagnosticAt(p.origin, compile.Format(d))
	}
	d.File, d.Line = at.File, v1alpha1.LineNumber(at.Line)
	return d
}

// diagnosticAt returns a diagnostic at a place.
func diagnosticAt(at report.Place, message string) v1alpha1.Diagnostic {
	return v1alpha1.Diagnostic{File: at.File, Line: v1alpha1.LineNumber(at.Line), Column: v1alpha1.LineNumber(at.Column), Message: message}
}

// load compiles the policy. A child process compiles rules that users wrote.
func (p *declaredPolicy) load(ctx context.Context, o policyOptions) ([]v1alpha1.Diagnostic, error) {
	var diagnostics []v1alpha1.Diagnostic
	if p.source.IsLibrary() {
		p.loaded, diagnostics = policy.Load(p.source)
		return p.translate(diagnostics), nil
	}
	rules := o.rules(ctx)
	p.source.Prints = o.record
	facts, diagnostics, err := rules.Load(ctx, p.source, nil)
	var excess *policy.Excess
	if errors.As(err, &excess) {
		diagnostics, err = excess.Diagnostics(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", p.source.Ref(), err)
	}
	p.loaded = policy.Elsewhere(p.source, facts, rules)
	if o.record {
		p.recorder.Asker = rules
		p.loaded = policy.Elsewhere(p.source, facts, &p.recorder)
	}
	if len(diagnostics) > 0 {
		p.loaded = policy.Broken(p.source, diagnostics)
	}
	return p.translate(diagnostics), nil
}

func (p *declaredPolicy) translate(diagnostics []v1alpha1.Diagnostic) []v1alpha1.Diagnostic {
	return converted(diagnostics, p.diagnostic)
}

// isFromFiles reports whether the policy's modules are files.
func (p *declaredPolicy) isFromFiles() bool { return p.folder != "" }

// policiesAmong returns the RunnerPolicies among compiled objects.
func policiesAmong(objects []compile.Object, root, namespace string) (policies []*declaredPolicy, _ error) {
	for _, o := range objects {
		if o.Manifest.GetKind() != policy.KindRunnerPolicy {
			continue
		}
		p, configMaps, err := policyOf(o, namespace)
		if err != nil {
			return nil, err
		}
		if o.Path == "" {
			p.folder = root // the compiler created it from Rego files
		}
		p.source.Partial = len(configMaps) > 0
		policies = append(policies, p)
	}
	return policies, nil
}

// policyOf returns the policy that an object declares, and the names of the ConfigMaps that contain more of its rules. It
// returns nil for objects of other kinds.
func policyOf(o compile.Object, namespace string) (*declaredPolicy, []types.NamespacedName, error) {
	object := map[string]policy.Object{
		policy.KindRunnerPolicy: &v1alpha1.RunnerPolicy{}, policy.KindClusterRunnerPolicy: &v1alpha1.ClusterRunnerPolicy{},
	}[o.Manifest.GetKind()]
	if object == nil {
		return nil, nil, nil
	}
	err := v1alpha1.FromUnstructured(o.Manifest.Object, object)
	object.SetNamespace(cmp.Or(object.GetNamespace(), namespace))
	source, sourceErr := policy.SourceOf(object)
	p := &declaredPolicy{source: source, origin: report.Place{File: o.File, Line: o.Line, Column: o.Column}}
	return p, object.ConfigMaps(), wrap("reading "+o.Path, cmp.Or(err, sourceErr))
}

// testsAmong returns the Rego tests among files.
func testsAmong(files compile.Files) map[string]string {
	tests := map[string]string{}
	for name, data := range files {
		if strings.HasSuffix(name, testSuffix) {
			tests[name] = string(data)
		}
	}
	return tests
}

// withTests adds tests to the policy that was created from the Rego files in the folder. If there is no
// such policy, it adds a policy that has only tests.
func withTests(policies []*declaredPolicy, tests map[string]string, folder, namespace string) []*declaredPolicy {
	if len(tests) == 0 {
		return policies
	}
	i := slices.IndexFunc(policies, func(p *declaredPolicy) bool { return p.folder == folder })
	if i < 0 {
		return append(policies, &declaredPolicy{
			source: policy.Source{Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: compile.DefaultPolicyName, Modules: tests},
			folder: folder, testsOnly: true, origin: report.Place{File: displayPath(folder, slices.Min(slices.Collect(maps.Keys(tests)))), Line: 1},
		})
	}
	maps.Copy(policies[i].source.Modules, tests)
	return policies
}

// policiesIn returns the policies in a file or folder: the policies in manifests, and a ClusterRunnerPolicy that is created
// from the Rego files. Invalid policies are reported as diagnostics.
func (w *workspace) policiesIn(ctx context.Context, given string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	absolute, err := filepath.Abs(given)
	info, statErr := os.Stat(given)
	if err = cmp.Or(err, statErr); err != nil {
		return nil, nil, fmt.Errorf("finding policies: %w", err)
	}
	folder, name := absolute, filepath.Base(absolute)
	var files compile.Files
	if info.IsDir() {
		files, err = readFolder(folder, isPolicyPart)
	} else {
		folder = filepath.Dir(absolute)
		files, err = readPolicyFile(folder, name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading policies of %s: %w", given, err)
	}
	policies, diagnostics := manifests(folder, w.options.namespace, files)
	if len(diagnostics) == 0 {
		var created []*declaredPolicy
		created, diagnostics, err = clusterPolicyOf(ctx, folder, strings.TrimSuffix(name, ".rego"), files)
		policies = append(policies, created...)
	}
	if err == nil && len(policies)+len(diagnostics) == 0 {
		diagnostics = []v1alpha1.Diagnostic{{File: displayPath(absolute, ""), Message: "found no policy: neither *.rego files nor manifests of RunnerPolicies or ClusterRunnerPolicies"}}
	}
	return policies, diagnostics, err
}

// clusterPolicyOf creates a ClusterRunnerPolicy from Rego files, in the same way as a PoolSource creates a RunnerPolicy.
func clusterPolicyOf(ctx context.Context, folder, name string, files compile.Files) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	rego := maps.Clone(files)
	maps.DeleteFunc(rego, func(name string, _ []byte) bool { return path.Ext(name) == ".cue" }) // --policy reads no definitions
	created, diagnostics, err := compileRego(ctx, rego, folder, "", name)
	created = withTests(created, testsAmong(files), folder, "")
	for _, p := range created {
		p.source.Kind, p.source.Name = policy.KindClusterRunnerPolicy, name
	}
	return created, diagnostics, err
}

// compileRego returns the policy that is created from Rego files, which are named relative to root.
func compileRego(ctx context.Context, files compile.Files, root, namespace, name string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	result, err := compileTree(ctx, tree{files, root, "."}, compile.Options{AllowEmpty: true, PolicyName: name})
	if err != nil || len(result.Diagnostics) > 0 {
		return nil, result.Diagnostics, err
	}
	policies, err := policiesAmong(result.Objects, root, namespace)
	return policies, nil, err
}

// readFolder reads the files at and below a folder for which wanted returns true. It skips files and folders whose names
// begin with . or _.
func readFolder(folder string, wanted func(name string) bool) (compile.Files, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	r := &policyFiles{fsys: root.FS(), files: compile.Files{}, wanted: wanted}
	return r.files, fs.WalkDir(r.fsys, ".", r.visit)
}

// readPolicyFile reads a file. For a Rego file, it also reads the data files in the same folder, and the tests of the file.
func readPolicyFile(folder, name string) (compile.Files, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	r := &policyFiles{fsys: root.FS(), files: compile.Files{}}
	err = r.read(name)
	if stem, isRego := strings.CutSuffix(name, ".rego"); isRego {
		for _, sibling := range []string{"data.json", "data.yaml", "data.yml", stem + testSuffix} {
			_, statErr := fs.Stat(r.fsys, sibling)
			if statErr == nil && err == nil {
				err = r.read(sibling)
			}
		}
	}
	return r.files, err
}

func isPolicyPart(name string) bool {
	return slices.Contains([]string{".rego", ".yaml", ".yml", ".json"}, path.Ext(name)) && !isScenario(name)
}

// policyFiles reads files, and enforces the same limits as for definitions.
type policyFiles struct {
	fsys           fs.FS
	wanted         func(name string) bool
	files          compile.Files
	entries, total int
}

func (r *policyFiles) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	r.entries++
	if r.entries > maxFolders {
		return fmt.Errorf("more than %d files and folders, %s", maxFolders, atMostFiles)
	}
	base := path.Base(name)
	if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if entry.Type()&fs.ModeSymlink != 0 {
		if info, err := fs.Stat(r.fsys, name); err != nil || info.IsDir() {
			return fmt.Errorf("%s is a link to a folder, or a broken link: replace it by the files, or pass the target folder", name)
		}
	}
	if entry.IsDir() || !r.wanted(name) {
		return nil
	}
	return r.read(name)
}

func (r *policyFiles) read(name string) error {
	info, err := fs.Stat(r.fsys, name)
	if err != nil {
		return err
	}
	r.total += int(info.Size())
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	case info.Size() > compile.MaxFileBytes:
		return fmt.Errorf("%s is larger than %d bytes, the limit", name, compile.MaxFileBytes)
	case r.total > compile.MaxTotalBytes:
		return fmt.Errorf("more than %d bytes in total, %s", compile.MaxTotalBytes, atMostFiles)
	case len(r.files) >= compile.MaxFiles:
		return fmt.Errorf("more than %d files, %s", compile.MaxFiles, atMostFiles)
	}
	data, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return err
	}
	r.files[name] = data
	return nil
}
