// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// callQuantity implements corral.quantity(quantity), which converts a Kubernetes quantity (a string or a number) to
// thousandths, rounded up to a whole number. "250m" is 250, "8Gi" is 8589934592000.
func callQuantity(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	quantity, err := quantityOf(operands[0].Value)
	if err != nil {
		return err
	}
	return give(thousandths(quantity))
}

// callPodResources implements corral.pod_resources(spec): the amount of each resource that a pod takes, by name, in
// thousandths. Each container counts with its limit, or with its request if it has no limit. Kubernetes' own function
// computes the total: the sum of the containers and sidecars (init containers whose restartPolicy is Always) or, if
// that is more, the sum of an init container and the sidecars before it. A larger request of the pod as a whole
// replaces the total, and a limit of the pod as a whole always does. The overhead is added.
func callPodResources(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	total, err := podResources(operands[0])
	if err != nil {
		return err
	}
	return give(amountsTerm(total))
}

// callExceeding implements corral.exceeding(spec, most): the amounts of corral.pod_resources that are larger than the
// quantities of the same names in most.
func callExceeding(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	total, err := podResources(operands[0])
	if err != nil {
		return err
	}
	if _, ok := operands[1].Value.(ast.Object); !ok {
		return fmt.Errorf("what a pod may take is an object, not %s", ast.ValueName(operands[1].Value))
	}
	most, err := amountsOf(operands[1])
	if err != nil {
		return err
	}
	maps.DeleteFunc(total, func(name corev1.ResourceName, amount resource.Quantity) bool {
		limit, limited := most[name]
		return !limited || amount.Cmp(limit) <= 0
	})
	return give(amountsTerm(total))
}

// podResources returns the total that callPodResources describes.
func podResources(spec *ast.Term) (corev1.ResourceList, error) {
	pod := &corev1.Pod{}
	var malformed error
	err := eachContainer(spec, func(kind, container *ast.Term) {
		c, err := resourcesOf(container)
		malformed = errors.Join(malformed, err)
		if kind == initContainersKey {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	})
	whole := within(spec, resourcesKey)
	limits, errLimits := amountsOf(within(whole, limitsKey))
	requests, errRequests := amountsOf(within(whole, requestsKey))
	overhead, errOverhead := amountsOf(within(spec, overheadKey))
	if err := errors.Join(err, malformed, errLimits, errRequests, errOverhead); err != nil {
		return nil, err
	}
	total := helpers.AggregateContainerRequests(pod, helpers.PodResourcesOptions{})
	for name, request := range requests {
		if request.Cmp(total[name]) > 0 {
			total[name] = request
		}
	}
	maps.Copy(total, limits)
	for name, amount := range overhead {
		amount.Add(total[name])
		total[name] = amount
	}
	return total, nil
}

// resourcesOf returns a container whose requests are the amounts that count: its limits, and its requests of resources
// without a limit.
func resourcesOf(container *ast.Term) (c corev1.Container, err error) {
	own := within(container, resourcesKey)
	limits, errLimits := amountsOf(within(own, limitsKey))
	requests, errRequests := amountsOf(within(own, requestsKey))
	maps.Copy(requests, limits)
	c.Resources.Requests = requests
	if policy := within(container, restartPolicyKey); policy != nil && policy.Equal(alwaysText) {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	return c, errors.Join(errLimits, errRequests)
}

var (
	containersKey, initContainersKey, resourcesKey = ast.StringTerm("containers"), ast.StringTerm("initContainers"), ast.StringTerm("resources")
	limitsKey, requestsKey, overheadKey            = ast.StringTerm("limits"), ast.StringTerm("requests"), ast.StringTerm("overhead")
	restartPolicyKey, alwaysText                   = ast.StringTerm("restartPolicy"), ast.StringTerm("Always")
)

// amountsOf reads an object of quantities. It returns an empty list if the term is not an object. A negative amount,
// which Kubernetes refuses, counts as 0.
func amountsOf(t *ast.Term) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	if t == nil {
		return list, nil
	}
	object, ok := t.Value.(ast.Object)
	if !ok {
		return list, nil
	}
	return list, object.Iter(func(name, value *ast.Term) error {
		amount, err := quantityOf(value.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if amount.Sign() < 0 {
			amount = resource.Quantity{}
		}
		list[corev1.ResourceName(textOf(name))] = amount
		return nil
	})
}

// amountsTerm returns amounts as an object of thousandths.
func amountsTerm(list corev1.ResourceList) *ast.Term {
	object := ast.NewObject()
	for name, amount := range list {
		object.Insert(ast.StringTerm(string(name)), thousandths(amount))
	}
	return ast.NewTerm(object)
}

// maxUnits is the largest quantity that can be counted in thousandths.
const maxUnits = math.MaxInt64 / 1000

// quantityOf reads a quantity. A quantity that is too large is an error.
func quantityOf(v ast.Value) (quantity resource.Quantity, err error) {
	switch v := v.(type) {
	case ast.String:
		quantity, err = v1alpha1.Quantity(v).Parse()
	case ast.Number:
		quantity, err = v1alpha1.Quantity(v).Parse()
	default:
		err = fmt.Errorf("a quantity is a string or a number, not %s", ast.ValueName(v))
	}
	if err == nil && (quantity.CmpInt64(maxUnits) > 0 || quantity.CmpInt64(-maxUnits) < 0) {
		err = fmt.Errorf("%s is more than can be counted", clean(v.String()))
	}
	return quantity, err
}

// thousandths converts a quantity to thousandths. A sum that is too large becomes the largest integer.
func thousandths(quantity resource.Quantity) *ast.Term {
	if quantity.CmpInt64(maxUnits) > 0 {
		return ast.InternedTerm(math.MaxInt64)
	}
	return ast.InternedTerm(int(quantity.MilliValue()))
}
