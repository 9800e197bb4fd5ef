// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/worker"
)

// readManifests reads YAML or JSON from another program, such as helm template. It checks objects of Corral's kinds in the
// same way as compiled definitions, and ignores objects of other groups. It reads standard input if the name is -.
func readManifests(c *cobra.Command, name string) (compiled, error) {
	data, err := readInput(c.InOrStdin(), name, compile.MaxTotalBytes)
	if err != nil {
		return compiled{}, fmt.Errorf("reading the manifests: %w", err)
	}
	documents, diagnostics := parseDocuments(name, data, kubernetesYAML)
	result := compiled{Result: compile.Result{Diagnostics: diagnostics}, tree: tree{root: "."}}
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

// ofCorral returns the object in a document if it is a valid object of one of Corral's kinds. It returns nil without
// diagnostics for objects of other groups.
func (d document) ofCorral() (*compile.Object, []v1alpha1.Diagnostic) {
	content := map[string]any{}
	err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &content)
	o, kinds := unstructured.Unstructured{Object: content}, admission.Kinds()
	switch {
	case err != nil || o.GetAPIVersion() == "" || o.GetKind() == "":
		return nil, []v1alpha1.Diagnostic{d.problem("", "must be an object with apiVersion and kind")}
	case !strings.HasPrefix(o.GetAPIVersion(), v1alpha1.GroupVersion.Group+"/"):
		return nil, nil
	case !slices.Contains(kinds, o.GetKind()):
		return nil, []v1alpha1.Diagnostic{d.problem("kind", "there is no kind %s in %s%s", o.GetKind(), v1alpha1.GroupVersion.Group, wording.Suggestion(o.GetKind(), kinds))}
	}
	problems := converted(worker.Check(content), func(refusal *apifield.Error) v1alpha1.Diagnostic {
		return d.problem(refusal.Field, "%s", wording.Refusal(refusal))
	})
	if len(problems) > 0 {
		return nil, problems
	}
	return &compile.Object{Manifest: o, File: d.file, Line: d.line(), Column: 1, Path: o.GetKind() + "/" + o.GetName()}, nil
}
