// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

func TestSpecimenDependsOnNothingButThePoolAndItsTemplate(t *testing.T) {
	pool := func(uid, template string) *v1alpha1.RunnerPool {
		return &v1alpha1.RunnerPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: types.UID(uid)},
			Spec:       v1alpha1.RunnerPoolSpec{Template: runtime.RawExtension{Raw: []byte(template)}},
		}
	}
	one, err := podspec.Specimen(pool("a", `{"spec": {"containers": [{"name": "runner", "image": "i"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	other, err := podspec.Specimen(pool("b", `{"spec": {"containers": [{"image": "i", "name": "runner"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, other); diff != "" {
		t.Error(diff)
	}
	if one.Namespace != "ci" || one.Labels["corral.dev/pool"] != "linux" || !strings.HasPrefix(one.Labels["corral.dev/revision"], "linux-") {
		t.Errorf("got %v", one.ObjectMeta)
	}
	if err := podspec.CheckSecrets(one, nil); err != nil {
		t.Error(err)
	}
	if _, err := podspec.Specimen(pool("a", `{`)); err == nil {
		t.Error("a template that is no JSON was accepted")
	}
}

func TestGitHubsImageNeedsACommand(t *testing.T) {
	for container, want := range map[string]string{
		`"image":"ghcr.io/actions/actions-runner"`:                                           "spec.template.spec.containers[0]",
		`"image":"ghcr.io/actions/actions-runner:2.330.0"`:                                   "spec.template.spec.containers[0]",
		`"image":"ghcr.io/actions/actions-runner@sha256:0"`:                                  "spec.template.spec.containers[0]",
		`"image":"ghcr.io/actions/actions-runner:2.330.0","command":["/home/runner/run.sh"]`: "",
		`"image":"ghcr.io/actions/actions-runner:2.330.0","args":["/home/runner/run.sh"]`:    "",
		`"image":"ghcr.io/actions/actions-runner-dind:1"`:                                    "",
		`"image":"ghcr.io/acme/actions-runner:1"`:                                            "",
	} {
		if got := podspec.CommandMissing([]byte(`{"spec":{"containers":[{"name":"runner",` + container + `}]}}`)); got != want {
			t.Errorf("%s: %q, want %q", container, got, want)
		}
	}
}

// A label or an annotation is named where the pool declares it.
func TestMetadataIsNamedWhereItIsDeclared(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Spec.Template.Raw = []byte(`{"metadata":{"labels":{"own":"a"}},"spec":{"containers":[{"name":"runner","image":"a"}]}}`)
	pool.Spec.ObjectMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]v1alpha1.LabelValue{"all": "a"}, Annotations: map[string]v1alpha1.AnnotationValue{"a.b/c": "d"}}
	for path, want := range map[string]string{
		"spec.template.metadata.labels.own":           "spec.template.metadata.labels.own",
		"spec.template.metadata.labels.all":           "spec.objectMetadata.labels.all",
		"spec.template.metadata.labels":               "spec.template.metadata.labels",
		"spec.template.metadata.annotations[a.b/c]":   "spec.objectMetadata.annotations[a.b/c]",
		"spec.template.metadata.annotations":          "spec.objectMetadata.annotations",
		"spec.template.spec.containers[0].image":      "spec.template.spec.containers[0].image",
		"spec.template.metadata.labels[corral.dev/x]": "spec.template.metadata.labels[corral.dev/x]",
	} {
		if got := podspec.DeclaredPath(pool, path); got != want {
			t.Errorf("%s is declared at %s, want %s", path, got, want)
		}
	}
}
