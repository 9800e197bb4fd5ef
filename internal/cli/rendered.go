// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/worker"
)

// rendered reads YAML or JSON that another program wrote, such as helm template. It checks objects of Corral's kinds in the same way as compiled
// definitions, and ignores objects of other groups. The name - stands for standard input.
func rendered(c *cobra.Command, name string) (compiled, error) {
	in := c.InOrStdin()
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the user's own
		if err != nil {
			return compiled{}, fmt.Errorf("opening the manifests: %w", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, compile.MaxTotalBytes+1))
	switch {
	case err != nil:
		return compiled{}, fmt.Errorf("reading the manifests: %w", err)
	case len(data) > compile.MaxTotalBytes:
		return compiled{}, fmt.Errorf("the manifests have more than %d bytes", compile.MaxTotalBytes)
	}
	documents, diagnostics := parseDocuments(name, data, kubernetesYAML)
	result := compiled{root: "."}
	result.Diagnostics = diagnostics
	for _, d := range itemsOf(documents) {
		object, problems := d.ofCorral()
		result.Diagnostics = append(result.Diagnostics, problems...)
		if object != nil {
			result.Objects = append(result.Objects, *object)
		}
	}
	if len(result.Objects) > compile.MaxObjects {
		return compiled{}, fmt.Errorf("there are more than %d objects of %s", compile.MaxObjects, v1alpha1.GroupVersion.Group)
	}
	if len(result.Objects)+len(result.Diagnostics) == 0 {
		return compiled{}, fmt.Errorf("%s has no object of %s", name, v1alpha1.GroupVersion.Group)
	}
	return result, nil
}

// ofCorral returns what a document declares, if it is of a kind of Corral's and nothing is wrong with it.
func (d document) ofCorral() (*compile.Object, []v1alpha1.Diagnostic) {
	content := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &content); err != nil {
		return nil, []v1alpha1.Diagnostic{d.problem("", "must be an object: %v", err)}
	}
	o := unstructured.Unstructured{Object: content}
	if o.GetAPIVersion() == "" || o.GetKind() == "" {
		return nil, []v1alpha1.Diagnostic{d.problem("", "must be an object with apiVersion and kind")}
	}
	if !strings.HasPrefix(o.GetAPIVersion(), v1alpha1.GroupVersion.Group+"/") {
		return nil, nil
	}
	if kinds := admission.Kinds(); !slices.Contains(kinds, o.GetKind()) {
		return nil, []v1alpha1.Diagnostic{d.problem("kind", "there is no kind %s in %s; there are %s", o.GetKind(), v1alpha1.GroupVersion.Group, strings.Join(kinds, ", "))}
	}
	var problems []v1alpha1.Diagnostic
	for _, refusal := range worker.Check(content) {
		problems = append(problems, d.problem(refusal.Field, "%s", wording.Refusal(refusal)))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return &compile.Object{Manifest: o, File: d.file, Line: d.line(), Column: 1, Path: o.GetKind() + "/" + o.GetName()}, nil
}
