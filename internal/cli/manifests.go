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
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// configMap is a ConfigMap among the policy files. The field modulesFrom of a policy can refer
// to it.
type configMap struct {
	corev1.ConfigMap
	document document
}

// manifestReader collects the policies that manifests declare.
type manifestReader struct {
	namespace   string
	configMaps  map[types.NamespacedName]configMap
	policies    []*declaredPolicy
	diagnostics []v1alpha1.Diagnostic
}

// manifests returns the policies that files declare in YAML or JSON. It skips Rego modules and
// their data files, and ignores objects of other kinds.
func manifests(folder, namespace string, files compile.Files) ([]*declaredPolicy, []v1alpha1.Diagnostic) {
	r := &manifestReader{namespace: namespace, configMaps: map[types.NamespacedName]configMap{}}
	var documents []document
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".rego" || compile.IsPolicyData(name) {
			continue
		}
		found, diagnostics := parseDocuments(displayPath(folder, name), files[name], kubernetesYAML)
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

// itemsOf replaces each List by its items. kubectl get prints several objects as a List.
func itemsOf(documents []document) (all []document) {
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

func (r *manifestReader) noteConfigMap(d document) {
	c := configMap{document: d}
	if json.Unmarshal(d.json, &c.TypeMeta) != nil || c.APIVersion != "v1" || c.Kind != "ConfigMap" {
		return
	}
	r.diagnostics = append(r.diagnostics, d.decode(&c.ConfigMap)...)
	c.Namespace = cmp.Or(c.Namespace, r.namespace)
	r.configMaps[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
}

// read adds the policy of a document, if the document declares one.
func (r *manifestReader) read(d document) {
	declared, problems := d.ofCorral()
	r.diagnostics = append(r.diagnostics, problems...)
	if declared == nil {
		return
	}
	p, configMaps, err := policyOf(*declared, r.namespace)
	switch {
	case err != nil:
		r.refuse(d, "", "%v", err)
	case p == nil:
	case p.source.Name == "":
		r.refuse(d, "metadata", "metadata.name is required")
	default:
		p.lines = map[string]int{}
		p.noteLines(d, get(get(d.node, "spec"), "modules"), "")
		for i, name := range configMaps {
			r.merge(d, p, name, fmt.Sprintf("spec.modulesFrom[%d]", i))
		}
		r.policies = append(r.policies, p)
	}
}

func (r *manifestReader) refuse(d document, field, format string, args ...any) {
	r.diagnostics = append(r.diagnostics, d.problem(field, format, args...))
}

// noteLines records where the modules in a mapping begin. This is known only for literal block
// scalars (|) in the file of the policy.
func (p *declaredPolicy) noteLines(d document, modules *yamlv3.Node, prefix string) {
	if modules == nil || modules.Kind != yamlv3.MappingNode || d.file != p.origin.File {
		return
	}
	for module := range slices.Chunk(modules.Content, 2) {
		if module[1].Style&yamlv3.LiteralStyle != 0 {
			p.lines[prefix+module[0].Value] = d.offset + module[1].Line
		}
	}
}

// merge adds the modules and the data in a ConfigMap to a policy, as the controller does.
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
