// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/types"

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// name of the referent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ConnectionReference names a GitHubConnection.
type ConnectionReference struct {
	// name of the connection.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the connection. Default: that of the object. Another one must allow it, by spec.allowedNamespaces of the connection.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// From returns what is named by an object of a namespace.
func (r ConnectionReference) From(namespace string) types.NamespacedName {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return types.NamespacedName{Namespace: namespace, Name: r.Name}
}
