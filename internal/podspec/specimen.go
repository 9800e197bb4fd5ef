// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// specimenSuffix is the suffix of the name of a specimen's runner.
	specimenSuffix = "-specimen"
	specimenUID    = "00000000-0000-0000-0000-000000000000"
)

// Specimen builds a representative pod of the pool for checks and policies. It has placeholders where runners differ: the
// names of the runner, its Secret and its claim. It depends only on the pool's namespace, name and template and, for
// persistent runners, on the runner group and the labels. It has no network settings of the connection. An error names the
// field of the template.
func Specimen(pool *v1alpha1.RunnerPool) (*corev1.Pod, error) {
	return SpecimenOver(pool, Network{})
}

// SpecimenOver is Specimen with the connection's network settings.
func SpecimenOver(pool *v1alpha1.RunnerPool, n Network) (*corev1.Pod, error) {
	revision, template, err := RevisionOf(pool)
	if err != nil {
		return nil, err
	}
	return SpecimenOf(pool, revision, template, n)
}

// RevisionOf returns the first possible name for the revision of a pool's template, and the template.
func RevisionOf(pool *v1alpha1.RunnerPool) (name string, template []byte, err error) {
	if template, err = Template(pool); err != nil {
		return "", nil, err
	}
	digest, err := Digest(template)
	if err != nil {
		return "", nil, err
	}
	return RevisionNames(pool.Name, digest)[0], template, nil
}

// SpecimenOf is SpecimenOver for a revision of a pool's template.
func SpecimenOf(pool *v1alpha1.RunnerPool, revision string, template []byte, n Network) (*corev1.Pod, error) {
	return Build(Runner{
		Namespace: pool.Namespace, Name: pool.Name + specimenSuffix, Pool: pool.Name, Revision: revision, UID: specimenUID,
		Network: n, Self: RegistrationOfSpecimen(pool), Claim: SpecimenClaim,
	}, template)
}

// Sketch returns the pod of an invalid template, so that its other mistakes can be reported. It returns nil if the template
// cannot be decoded, or if the pool has spec.containerMode: the template may refer to containers and volumes that
// spec.containerMode would add.
func Sketch(pool *v1alpha1.RunnerPool) *corev1.Pod {
	t, err := decode(pool.Spec.Template.Raw)
	if err != nil || pool.Spec.ContainerMode != nil {
		return nil
	}
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	of := metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name + specimenSuffix, Labels: t.Labels, Annotations: t.Annotations}
	return &corev1.Pod{ObjectMeta: of, Spec: t.Spec}
}

// runnerImage is GitHub's image of the runner, which has no entrypoint.
const runnerImage = "ghcr.io/actions/actions-runner"

// CommandMissing returns the path of the runner's container if the container runs GitHub's image without a command; empty
// otherwise.
func CommandMissing(template []byte) string {
	t, err := decode(template)
	if err != nil {
		return ""
	}
	i, err := runnerIndex(&t.Spec)
	if err != nil {
		return ""
	}
	c := t.Spec.Containers[i]
	image := strings.FieldsFunc(c.Image+":", func(r rune) bool { return r == ':' || r == '@' })
	if len(image) == 0 || image[0] != runnerImage || len(c.Command)+len(c.Args) > 0 {
		return ""
	}
	return fmt.Sprintf("spec.template.spec.containers[%d]", i)
}
