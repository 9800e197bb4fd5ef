// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/podspec"
)

// pods returns the pod of each pool's runners, with placeholders for values that differ between runners.
func (w *workspace) pods() (pods []compile.Object, _ error) {
	for _, p := range w.pools {
		pod, err := podspec.SpecimenOver(p.RunnerPool, w.network(p.RunnerPool))
		if err != nil {
			return nil, fmt.Errorf("building the pod of %s: %w", p.object.Path, err)
		}
		content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(pod) // all pods can be converted
		delete(content, "status")
		pods = append(pods, compile.Object{Manifest: unstructured.Unstructured{Object: content}, Path: p.object.Path})
	}
	return pods, nil
}
