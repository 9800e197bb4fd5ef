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

// ConnectionKind is the kind of a connection.
// +kubebuilder:validation:Enum=GitHubConnection
type ConnectionKind string

// KindGitHubConnection is the only kind of connection so far.
const KindGitHubConnection ConnectionKind = "GitHubConnection"

// ConnectionReference names a GitHubConnection.
type ConnectionReference struct {
	// kind of the connection. Default: GitHubConnection, the only one.
	// +optional
	// +kubebuilder:default=GitHubConnection
	Kind ConnectionKind `json:"kind,omitempty"`

	// name of the connection.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the connection. Default: the namespace of the object. A connection in another namespace must list the
	// object's namespace in spec.allowedNamespaces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// From returns the connection that an object of a namespace refers to.
func (r ConnectionReference) From(namespace string) types.NamespacedName {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return types.NamespacedName{Namespace: namespace, Name: r.Name}
}
