// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// The pool's objects have the metadata that it declares for them, and none of its own metadata, which would make Argo CD
// adopt them.
func TestObjectsOfAPoolHaveItsMetadata(t *testing.T) {
	b := newBench(t)
	const argo, owner = "app.kubernetes.io/instance", "example.com/owner"
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Labels, p.Annotations = map[string]string{argo: "fleet"}, map[string]string{"argocd.argoproj.io/tracking-id": "fleet"}
		p.Spec.Scale.Idle = new(int32(1))
		p.Spec.ObjectMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]v1alpha1.LabelValue{"team": "a"}, Annotations: map[string]v1alpha1.AnnotationValue{owner: "us"}}
	})
	b.start()
	b.reconcile()
	set := func() *v1alpha1.RunnerScaleSet {
		s := &v1alpha1.RunnerScaleSet{}
		must(t, b.Client.Get(t.Context(), client.ObjectKeyFromObject(b.pool()), s))
		return s
	}
	revision, runner := b.revisionOf(b.pool().Status.Revision), b.runners()[0]
	for name, o := range map[string]client.Object{"scale set": set(), "revision": revision, "runner": &runner} {
		labels, annotations := o.GetLabels(), o.GetAnnotations()
		if labels["team"] != "a" || annotations[owner] != "us" || labels[v1alpha1.PoolLabel] != "linux" || labels[argo] != "" || annotations["argocd.argoproj.io/tracking-id"] != "" {
			t.Errorf("%s: labels %v, annotations %v", name, labels, annotations)
		}
	}
	for _, change := range []func(m *v1alpha1.ObjectMetadata){
		func(m *v1alpha1.ObjectMetadata) { m.Labels["team"] = "b" },
		func(m *v1alpha1.ObjectMetadata) { delete(m.Annotations, owner) },
	} {
		p := b.pool()
		change(p.Spec.ObjectMetadata)
		if hasMetadata(set(), p) {
			t.Errorf("%+v: the scale set counts as up to date", p.Spec.ObjectMetadata)
		}
		must(t, b.Client.Update(t.Context(), p))
		b.reconcile()
		if s := set(); !hasMetadata(s, b.pool()) {
			t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
		}
	}
}
