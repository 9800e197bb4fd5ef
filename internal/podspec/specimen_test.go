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
