// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart as Helm renders it, and on a real API server.
package chart

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
)

// release and namespace are those of the documented `helm install`.
const (
	release   = "corral"
	namespace = "corral-system"
)

func load(t *testing.T) *chartv2.Chart {
	t.Helper()
	root, err := fs.Sub(charts.Corral, "corral")
	if err != nil {
		t.Fatal(err)
	}
	var files []*archive.BufferedFile
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		files = append(files, &archive.BufferedFile{Name: name, Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tryRender is `helm template`: what each template makes, by its file's name, without
// the templates that make nothing.
func tryRender(t *testing.T, release, namespace string, values map[string]any) (map[string]string, error) {
	t.Helper()
	c := load(t)
	merged, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, merged)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, text := range rendered {
		if strings.TrimSpace(text) != "" {
			out[path.Base(name)] = text
		}
	}
	return out, nil
}

func render(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	rendered, err := tryRender(t, release, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// joined is all of a rendered chart but its notes, in one text.
func joined(rendered map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(name) == ".yaml" {
			out.WriteString("---\n# Source: corral/templates/" + name + "\n" + strings.TrimSpace(rendered[name]) + "\n")
		}
	}
	return out.String()
}

// objects returns what was rendered by kind and name, "Role team-a/corral" or "ClusterRole /corral".
func objects(t *testing.T, rendered map[string]string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq("\n"+joined(rendered), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if all[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		all[key] = object
	}
	return all
}
