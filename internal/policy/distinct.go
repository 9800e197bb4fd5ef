// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"

	"github.com/distribution/reference"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// callDistinct implements corral.distinct(spec, field, otherwise): the set of different values of a field in the
// containers and init containers of a pod. otherwise is the value for containers that do not set the field. Most
// containers of a pod have the same value, so checking each distinct value is cheaper than checking each container.
func callDistinct(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	found := ast.NewSet()
	err := eachContainer(operands[0], func(_, container *ast.Term) {
		value := within(container, operands[1])
		if value == nil {
			value = operands[2]
		}
		found.Add(value)
	})
	if err != nil {
		return err
	}
	return give(ast.NewTerm(found))
}

// callImages implements corral.images(spec): the set of the images of a pod, from its containers, init containers and
// volumes.
func callImages(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	found := ast.NewSet()
	note := func(image *ast.Term) {
		if image != nil && ast.ValueName(image.Value) == "string" {
			found.Add(image)
		}
	}
	err := eachContainer(operands[0], func(_, container *ast.Term) { note(within(container, imageKey)) })
	if err != nil {
		return err
	}
	if volumes := within(operands[0], volumesKey); volumes != nil {
		each(volumes, func(volume *ast.Term) { note(within(within(volume, imageKey), referenceKey)) })
	}
	return give(ast.NewTerm(found))
}

// callImageName implements corral.image_name(name): the full name of an image, with the registry and the path that
// container runtimes add to a short name.
func callImageName(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	named, err := reference.ParseNormalizedNamed(string(operands[0].Value.(ast.String)))
	if err != nil {
		return give(operands[0]) //nolint:nilerr // no container runtime can pull it
	}
	return give(ast.StringTerm(named.String()))
}

var imageKey, volumesKey, referenceKey = ast.StringTerm("image"), ast.StringTerm("volumes"), ast.StringTerm("reference")

// callMissing implements corral.missing(spec, names, kinds): the subset of names for which at least one container or
// init container has no value in any of the kinds (requests or limits), unless the pod as a whole has one.
func callMissing(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	names, okNames := operands[1].Value.(*ast.Array)
	kinds, okKinds := operands[2].Value.(*ast.Array)
	if !okNames || !okKinds {
		return errors.New("names and kinds of resources are arrays")
	}
	has := func(of, name *ast.Term) bool {
		resources := within(of, resourcesKey)
		return kinds.Until(func(kind *ast.Term) bool { return within(within(resources, kind), name) != nil })
	}
	found := ast.NewSet()
	err := eachContainer(operands[0], func(_, container *ast.Term) {
		names.Foreach(func(name *ast.Term) {
			if !has(container, name) && !has(operands[0], name) {
				found.Add(name)
			}
		})
	})
	if err != nil {
		return err
	}
	return give(ast.NewTerm(found))
}

// eachContainer calls f for each container and init container of a pod, with the key of the list that it is in.
func eachContainer(of *ast.Term, f func(kind, container *ast.Term)) error {
	spec, ok := of.Value.(ast.Object)
	if !ok {
		return fmt.Errorf("the spec of a pod is an object, not %s", ast.ValueName(of.Value))
	}
	for _, kind := range []*ast.Term{containersKey, initContainersKey} {
		list := spec.Get(kind)
		if list == nil {
			continue
		}
		array, ok := list.Value.(*ast.Array)
		if !ok {
			return fmt.Errorf("the %s of a pod are an array, not %s", kind.Value, ast.ValueName(list.Value))
		}
		array.Foreach(func(container *ast.Term) { f(kind, container) })
	}
	return nil
}
