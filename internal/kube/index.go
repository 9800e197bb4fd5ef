// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Index is a field that the cache indexes over all namespaces, so that a reconciliation reads only the objects that
// it needs.
type Index struct {
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// Fields of Indexes.
const (
	// ConnectionField is the NAMESPACE/NAME of the GitHubConnection of a RunnerPool, RunnerScaleSet or Runner.
	ConnectionField = "spec.connectionRef"
	// UIDField is the UID of a RunnerPool.
	UIDField = "metadata.uid"
	// OwnerField is the label on GitHub of the runners that a RunnerPool registers through the REST API.
	OwnerField = "ownerLabel"
)

// Indexes returns the indexes that several controllers use. cluster identifies this cluster in labels on GitHub.
func Indexes(cluster string) []Index {
	return []Index{
		{&v1alpha1.RunnerPool{}, ConnectionField, onConnection},
		{&v1alpha1.RunnerScaleSet{}, ConnectionField, onConnection},
		{&v1alpha1.Runner{}, ConnectionField, onConnection},
		{&v1alpha1.RunnerPool{}, UIDField, func(o client.Object) []string { return []string{string(o.GetUID())} }},
		{&v1alpha1.RunnerPool{}, OwnerField, func(o client.Object) []string { return []string{v1alpha1.OwnerLabel(cluster, string(o.GetUID()))} }},
	}
}

func onConnection(o client.Object) []string {
	var ref v1alpha1.ConnectionReference
	switch o := o.(type) {
	case *v1alpha1.RunnerPool:
		ref = o.Spec.ConnectionRef
	case *v1alpha1.RunnerScaleSet:
		ref = o.Spec.ConnectionRef
	case *v1alpha1.Runner:
		ref = o.Spec.ConnectionRef
	}
	return []string{ref.From(o.GetNamespace()).String()}
}

// OnConnection selects the objects that refer to a GitHubConnection.
func OnConnection(key types.NamespacedName) client.MatchingFields {
	return client.MatchingFields{ConnectionField: key.String()}
}

// AddIndexes adds indexes to a cache.
func AddIndexes(to client.FieldIndexer, indexes []Index) error {
	for _, i := range indexes {
		if err := to.IndexField(context.Background(), i.Object, i.Field, i.Values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}
