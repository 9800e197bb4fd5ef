// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

// checkPolicies loads every declared policy and returns the diagnostics.
func checkPolicies(objects []compile.Object, begin func(place string)) []v1alpha1.Diagnostic {
	var diagnostics []v1alpha1.Diagnostic
	for _, o := range objects {
		if o.Manifest.GetKind() == policy.KindRunnerPolicy {
			begin(o.File)
			diagnostics = append(diagnostics, checkPolicy(o)...)
		}
	}
	return diagnostics
}

func checkPolicy(o compile.Object) []v1alpha1.Diagnostic {
	object := &v1alpha1.RunnerPolicy{}
	err := v1alpha1.FromUnstructured(o.Manifest.Object, object)
	var source policy.Source
	if err == nil {
		source, err = policy.SourceOf(object)
	}
	if err != nil {
		return []v1alpha1.Diagnostic{o.Diagnostic("", err.Error())}
	}
	source.Partial = len(object.Spec.ModulesFrom) > 0
	_, diagnostics := policy.Load(source)
	if o.Path == "" {
		return diagnostics // the modules are files of the tree, and the diagnostics name these files
	}
	for i, d := range diagnostics {
		diagnostics[i] = o.Diagnostic(".spec.modules", compile.Format(d))
	}
	return diagnostics
}
