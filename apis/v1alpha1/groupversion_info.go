// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds Corral's resources: what users declare (PoolSource,
// GitHubConnection, RunnerPool, RunnerPolicy, ClusterRunnerPolicy) and what controllers record (Runner, RunnerScaleSet).
//
// It imports apimachinery and Flux's condition vocabulary only, so that the
// command line, tests and other projects can use the types without a client.
//
// +kubebuilder:object:generate=true
// +groupName=corral.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "corral.dev", Version: "v1alpha1"}

// SchemeBuilder collects the functions that add this package's kinds to a scheme.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme adds this package's kinds to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&PoolSource{}, &PoolSourceList{},
		&GitHubConnection{}, &GitHubConnectionList{},
		&RunnerPool{}, &RunnerPoolList{},
		&RunnerPolicy{}, &RunnerPolicyList{},
		&ClusterRunnerPolicy{}, &ClusterRunnerPolicyList{},
		&Runner{}, &RunnerList{},
		&RunnerScaleSet{}, &RunnerScaleSetList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
