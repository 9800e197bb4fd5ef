// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package helmchart renders the chart as Helm does. Only generators and tests use it.
package helmchart

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Release and Namespace are the names in the documented `helm install` command.
const (
	Release   = "corral"
	Namespace = "corral-system"
)

// Load reads a chart whose Chart.yaml is at the root of a file system.
func Load(root fs.FS) (*chartv2.Chart, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		files = append(files, &archive.BufferedFile{Name: name, Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	return c, nil
}

// Files are the rendered templates of a chart, by the template's file name.
type Files map[string]string

// Render does what `helm template` does for a first installation, and drops templates without output.
func Render(ctx context.Context, c *chartv2.Chart, release, namespace string, values map[string]any) (Files, error) {
	merged, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, fmt.Errorf("merging the chart's values: %w", err)
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(ctx, c, merged)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	out := Files{}
	for name, text := range rendered {
		if strings.TrimSpace(text) != "" {
			out[path.Base(name)] = text
		}
	}
	return out, nil
}

// Manifest returns all files except the notes as one text, sorted by file name.
func (f Files) Manifest() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if path.Ext(name) == ".yaml" {
			out.WriteString("---\n# Source: corral/templates/" + name + "\n" + strings.TrimSpace(f[name]) + "\n")
		}
	}
	return out.String()
}

// Objects decodes the manifest, in its order.
func (f Files) Objects() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+f.Manifest(), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("decoding what the chart makes: %w in:\n%s", err, document)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
	return all, nil
}
