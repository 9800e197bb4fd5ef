// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
)

// configMap is a ConfigMap among the files of policies: modulesFrom may name it.
type configMap struct {
	corev1.ConfigMap
	document document
}

// manifestReader reads policies from manifests.
type manifestReader struct {
	namespace   string
	configMaps  map[types.NamespacedName]configMap
	policies    []*declaredPolicy
	diagnostics []v1alpha1.Diagnostic
}

// manifests returns the policies that files declare as YAML or JSON. Objects of other kinds
// are passed over; so is data of Rego files.
func (l policyLoader) manifests(folder string, files compile.Files) ([]*declaredPolicy, []v1alpha1.Diagnostic) {
	r := &manifestReader{namespace: l.namespace, configMaps: map[types.NamespacedName]configMap{}}
	var documents []document
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".rego" || compile.IsPolicyData(name) {
			continue
		}
		found, diagnostics := parseDocuments(shown(folder, name), files[name], kubernetesYAML)
		r.diagnostics = append(r.diagnostics, diagnostics...)
		documents = append(documents, itemsOf(found)...)
	}
	for _, d := range documents {
		r.noteConfigMap(d)
	}
	for _, d := range documents {
		r.read(d)
	}
	return r.policies, r.diagnostics
}

// itemsOf takes lists of objects apart, as kubectl prints them.
func itemsOf(documents []document) []document {
	var all []document
	for _, d := range documents {
		var list struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		nodes := get(d.node, "items")
		if json.Unmarshal(d.json, &list) != nil || list.Kind != "List" || nodes == nil || len(nodes.Content) != len(list.Items) {
			all = append(all, d)
			continue
		}
		for i, item := range list.Items {
			all = append(all, d.child(nodes.Content[i], item))
		}
	}
	return all
}

// kindOf returns the kind of an object, if its API is the given one.
func kindOf(d document, apiVersion string) string {
	var object metav1.TypeMeta
	if json.Unmarshal(d.json, &object) != nil || object.APIVersion != apiVersion {
		return ""
	}
	return object.Kind
}

func (r *manifestReader) noteConfigMap(d document) {
	if kindOf(d, "v1") != "ConfigMap" {
		return
	}
	c := configMap{document: d}
	if diagnostics := d.decode(&c.ConfigMap); len(diagnostics) > 0 {
		r.diagnostics = append(r.diagnostics, diagnostics...)
		return
	}
	c.Namespace = cmp.Or(c.Namespace, r.namespace)
	r.configMaps[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
}

// read adds the policy that a document declares, if it does.
func (r *manifestReader) read(d document) {
	if !r.check(d) {
		return
	}
	object := policyIn(d)
	if object == nil {
		return
	}
	if diagnostics := d.decode(object); len(diagnostics) > 0 {
		r.diagnostics = append(r.diagnostics, diagnostics...)
		return
	}
	object.SetNamespace(cmp.Or(object.GetNamespace(), r.namespace))
	source, err := policy.SourceOf(object)
	if err != nil {
		r.refuse(d, "", "%v", err)
		return
	}
	if source.Name == "" {
		r.refuse(d, "metadata", "metadata.name is required")
		return
	}
	p := &declaredPolicy{source: source, origin: report.Place{File: d.file, Line: d.line(), Column: 1}, lines: map[string]int{}}
	p.noteLines(d, get(get(d.node, "spec"), "modules"), "")
	for i, name := range object.ConfigMaps() {
		r.merge(d, p, name, fmt.Sprintf("spec.modulesFrom[%d]", i))
	}
	r.policies = append(r.policies, p)
}

// check holds a document against the definition of its kind, and says whether there is nothing to tell. Of other groups nothing is known.
func (r *manifestReader) check(d document) bool {
	_, problems := d.ofCorral()
	r.diagnostics = append(r.diagnostics, problems...)
	return len(problems) == 0
}

// policyIn is an empty policy of the kind that a document declares; nil if it is none.
func policyIn(d document) policy.Object {
	switch kindOf(d, v1alpha1.GroupVersion.String()) {
	case policy.KindRunnerPolicy:
		return &v1alpha1.RunnerPolicy{}
	case policy.KindClusterRunnerPolicy:
		return &v1alpha1.ClusterRunnerPolicy{}
	}
	return nil
}

func (r *manifestReader) refuse(d document, field, format string, args ...any) {
	r.diagnostics = append(r.diagnostics, d.problem(field, format, args...))
}

// noteLines remembers where the modules of a mapping begin, those written as blocks.
func (p *declaredPolicy) noteLines(d document, modules *yamlv3.Node, prefix string) {
	if modules == nil || d.file != p.origin.File {
		return
	}
	for i := 0; i+1 < len(modules.Content); i += 2 {
		if text := modules.Content[i+1]; text.Style&yamlv3.LiteralStyle != 0 {
			p.lines[prefix+modules.Content[i].Value] = d.offset + text.Line
		}
	}
}

// merge adds the modules and the data of a ConfigMap, as the controller does.
func (r *manifestReader) merge(d document, p *declaredPolicy, from types.NamespacedName, field string) {
	config, ok := r.configMaps[from]
	if !ok {
		r.refuse(d, field, "ConfigMap %s is not among the files given", from)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(config.Data)) {
		if err := p.source.Merge(from.Name, key, config.Data[key]); err != nil {
			r.refuse(config.document, "data", "key %s %v", key, err)
		}
	}
	p.noteLines(config.document, get(config.document.node, "data"), from.Name+"/")
}
