// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// specimenSuffix ends the name of the runner that a specimen is of.
	specimenSuffix = "-specimen"
	specimenUID    = "00000000-0000-0000-0000-000000000000"
)

// Specimen builds the pod that runners of the pool get, for who judges it: with a
// placeholder for what differs between runners, the names of the runner, its Secret and its claim.
// Pools of one namespace, name and template have equal specimens. An error names the field of the template. It has nothing
// of the connection's network.
func Specimen(pool *v1alpha1.RunnerPool) (*corev1.Pod, error) {
	return SpecimenOver(pool, Network{})
}

// SpecimenOver is Specimen with what the pod gets of its connection's network.
func SpecimenOver(pool *v1alpha1.RunnerPool, n Network) (*corev1.Pod, error) {
	revision, template, err := RevisionOf(pool)
	if err != nil {
		return nil, err
	}
	return SpecimenOf(pool, revision, template, n)
}

// RevisionOf returns the first of the names that the revision of a pool's template may have, and the template.
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

// SpecimenOf is Specimen for a revision of a pool's template.
func SpecimenOf(pool *v1alpha1.RunnerPool, revision string, template []byte, n Network) (*corev1.Pod, error) {
	return Build(Runner{
		Namespace: pool.Namespace, Name: pool.Name + specimenSuffix, Pool: pool.Name, Revision: revision, UID: specimenUID,
		Network: n, Self: RegistrationOfSpecimen(pool), Claim: SpecimenClaim,
	}, template)
}
