// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestRegisteredLabels(t *testing.T) {
	for name, c := range map[string]struct {
		labels   []string
		template string
		want     []string
	}{
		"none declared":              {nil, `{}`, []string{"pool", "self-hosted", "linux", "x64"}},
		"some declared":              {[]string{"gpu", "Self-Hosted"}, `{}`, []string{"gpu", "Self-Hosted", "linux", "x64"}},
		"a declared architecture":    {[]string{"ARM64"}, `{}`, []string{"ARM64", "self-hosted", "linux"}},
		"a declared system":          {[]string{"windows"}, `{}`, []string{"windows", "self-hosted", "x64"}},
		"nodes of one architecture":  {[]string{"gpu"}, `{"spec":{"nodeSelector":{"kubernetes.io/arch":"arm64"}}}`, []string{"gpu", "self-hosted", "linux", "arm64"}},
		"twice, but for the case":    {[]string{"gpu", "GPU"}, `{}`, []string{"gpu", "self-hosted", "linux", "x64"}},
		"a template that is no JSON": {[]string{"gpu"}, `{`, []string{"gpu", "self-hosted", "linux", "x64"}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.RunnerPoolSpec{
				RunnerLabels: c.labels, Template: runtime.RawExtension{Raw: []byte(c.template)},
			}}
			if diff := cmp.Diff(c.want, pool.GetRegisteredLabels()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOwnerLabelsTellPoolsAndClustersApart(t *testing.T) {
	seen := map[string]bool{}
	for _, cluster := range []string{"a", "b"} {
		for _, uid := range []string{"1", "2"} {
			label := v1alpha1.OwnerLabel(cluster, uid)
			if seen[label] || !v1alpha1.IsOwnerLabel(label) || len(label) != len("corral-owner-")+8 {
				t.Errorf("label %q of %s/%s", label, cluster, uid)
			}
			seen[label] = true
		}
	}
}
