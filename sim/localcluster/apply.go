// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the field manager of Apply.
const fieldOwner = "localcluster"

// Apply applies the objects of YAML manifests by server-side apply as the administrator. A manifest can have several
// documents. CustomResourceDefinitions and Namespaces are applied first and waited for; the other objects keep their
// order. Existing objects are updated; nothing is ever deleted.
func (c *Cluster) Apply(ctx context.Context, manifests ...[]byte) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	applied := 0
	for ; applied < len(objects) && rank(objects[applied]) < rankRest; applied++ {
		if err := c.applyOne(ctx, objects[applied]); err != nil {
			return err
		}
	}
	for _, object := range objects[:applied] {
		if err := c.waitUntilUsable(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range objects[applied:] {
		if err := c.applyOne(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

const (
	rankDefinition = iota
	rankNamespace
	rankRest
)

func rank(object *unstructured.Unstructured) int {
	switch object.GetKind() {
	case "CustomResourceDefinition":
		return rankDefinition
	case "Namespace":
		return rankNamespace
	}
	return rankRest
}

func decode(manifests [][]byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading a manifest: %w", err)
			}
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &object.Object); err != nil {
				return nil, fmt.Errorf("decoding a manifest: %w", err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

func (c *Cluster) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	configuration := client.ApplyConfigurationFromUnstructured(object)
	if err := c.client.Apply(ctx, configuration, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// waitUntilUsable waits until the kind of a definition is served, or until pods can be created in a namespace.
func (c *Cluster) waitUntilUsable(ctx context.Context, object *unstructured.Unstructured) error {
	if rank(object) == rankNamespace {
		if c.manager == nil {
			return nil
		}
		return c.waitForServiceAccount(ctx, object.GetName())
	}
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition); err != nil {
			return false, err
		}
		return isEstablished(definition) && c.isDiscovered(definition), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is served: %w", object.GetName(), err)
	}
	return nil
}

// isDiscovered reports whether clients find the kind. A busy API server lists it only some time after the definition is
// established.
func (c *Cluster) isDiscovered(definition *apiextensionsv1.CustomResourceDefinition) bool {
	kind := schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		if _, err := c.client.RESTMapper().RESTMapping(kind, version.Name); err != nil {
			return false
		}
	}
	return true
}

func isEstablished(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}
