// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// callQuantity implements corral.quantity(quantity): a Kubernetes quantity (a string, or a number) in thousandths,
// rounded up to a whole number. "250m" is 250, "8Gi" is 8589934592000.
func callQuantity(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	amount, err := thousandths(operands[0].Value)
	if err != nil {
		return err
	}
	return give(ast.InternedTerm(int(amount)))
}

// callPodResources implements corral.pod_resources(spec): what a pod takes of each resource, by name, in thousandths. A
// container's limit counts, or its request if it has no limit. The sum is computed as Kubernetes does: the containers
// and sidecars (init containers whose restartPolicy is Always) or, if that is more, an init container with the sidecars
// before it. It is at least the request of the pod as a whole; a limit of the pod as a whole replaces it. The overhead
// is added.
func callPodResources(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	all, err := podResources(operands[0].Value)
	if err != nil {
		return err
	}
	return give(all.term(func(*need) bool { return true }))
}

// callExceeding implements corral.exceeding(spec, most): the part of corral.pod_resources that exceeds the quantities
// in most.
func callExceeding(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	all, err := podResources(operands[0].Value)
	if err != nil {
		return err
	}
	most, ok := operands[1].Value.(ast.Object)
	if !ok {
		return fmt.Errorf("what a pod may take is an object, not %s", ast.ValueName(operands[1].Value))
	}
	limits := map[*need]int64{}
	err = most.Iter(func(name, quantity *ast.Term) error {
		amount, err := thousandths(quantity.Value)
		limits[all.of(name)] = amount
		return err
	})
	if err != nil {
		return err
	}
	return give(all.term(func(n *need) bool {
		limit, limited := limits[n]
		return limited && n.total() > limit
	}))
}

// term returns the selected resources as an object.
func (all *needs) term(f func(*need) bool) *ast.Term {
	total := ast.NewObject()
	for _, each := range *all {
		if f(each) {
			total.Insert(each.name, ast.InternedTerm(int(each.total())))
		}
	}
	return ast.NewTerm(total)
}

// maxUnits is the largest quantity that can be counted in thousandths.
const maxUnits = math.MaxInt64 / 1000

// plus adds non-negative amounts and saturates at the maximum.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// thousandths reads a quantity. A quantity that is too large is an error.
func thousandths(v ast.Value) (int64, error) {
	var text string
	switch v := v.(type) {
	case ast.String:
		text = string(v)
	case ast.Number:
		text = string(v)
	default:
		return 0, fmt.Errorf("a quantity is a string or a number, not %s", ast.ValueName(v))
	}
	quantity, err := v1alpha1.Quantity(text).Parse()
	if err != nil {
		return 0, err
	}
	if quantity.CmpInt64(maxUnits) > 0 || quantity.CmpInt64(-maxUnits) < 0 {
		return 0, fmt.Errorf("%q is more than can be counted", clean(text))
	}
	return quantity.MilliValue(), nil
}

// need is what a pod needs of one resource, in thousandths.
type need struct {
	name *ast.Term
	// main is the sum of its containers, sidecars the sum of its restartable init containers. early is the maximum of
	// another init container plus the sidecars before it.
	main, sidecars, early int64
	// limit and request belong to the pod as a whole.
	limit, request int64
	hasLimit       bool
	overhead       int64
}

func (n *need) total() int64 {
	total := max(plus(n.main, n.sidecars), n.early, n.request)
	if n.hasLimit {
		total = n.limit
	}
	return plus(total, n.overhead)
}

// needs are the needs of a pod, in the order in which the resource names appear.
type needs []*need

func (all *needs) of(name *ast.Term) *need {
	for _, known := range *all {
		if known.name.Equal(name) {
			return known
		}
	}
	*all = append(*all, &need{name: name})
	return (*all)[len(*all)-1]
}

var (
	containersKey, initContainersKey, resourcesKey = ast.StringTerm("containers"), ast.StringTerm("initContainers"), ast.StringTerm("resources")
	limitsKey, requestsKey, overheadKey            = ast.StringTerm("limits"), ast.StringTerm("requests"), ast.StringTerm("overhead")
	restartPolicyKey, alwaysText                   = ast.StringTerm("restartPolicy"), ast.StringTerm("Always")
)

// podResources adds up the resources of a pod.
func podResources(of ast.Value) (*needs, error) {
	spec, ok := of.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("the spec of a pod is an object, not %s", ast.ValueName(of))
	}
	all := &needs{}
	err := all.each(spec, containersKey, func(_ ast.Object, n *need, amount int64) { n.main = plus(n.main, amount) })
	if err != nil {
		return nil, err
	}
	err = all.each(spec, initContainersKey, func(container ast.Object, n *need, amount int64) {
		if policy := container.Get(restartPolicyKey); policy != nil && policy.Equal(alwaysText) {
			n.sidecars = plus(n.sidecars, amount)
		} else {
			n.early = max(n.early, plus(n.sidecars, amount))
		}
	})
	if err != nil {
		return nil, err
	}
	whole := objectAt(spec, resourcesKey)
	for _, part := range []struct {
		amounts ast.Object
		set     func(*need, int64)
	}{
		{objectAt(whole, limitsKey), func(n *need, amount int64) { n.limit, n.hasLimit = amount, true }},
		{objectAt(whole, requestsKey), func(n *need, amount int64) { n.request = amount }},
		{objectAt(spec, overheadKey), func(n *need, amount int64) { n.overhead = amount }},
	} {
		if err := all.amounts(part.amounts, part.set); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// each calls add with the amount of each resource for each container of a field.
func (all *needs) each(spec ast.Object, field *ast.Term, add func(container ast.Object, n *need, amount int64)) error {
	list := spec.Get(field)
	if list == nil {
		return nil
	}
	containers, ok := list.Value.(*ast.Array)
	if !ok {
		return fmt.Errorf("%s are an array, not %s", field, ast.ValueName(list.Value))
	}
	for i := range containers.Len() {
		container, _ := containers.Elem(i).Value.(ast.Object)
		own := objectAt(container, resourcesKey)
		limits, requests := objectAt(own, limitsKey), objectAt(own, requestsKey)
		err := all.amounts(limits, func(n *need, amount int64) { add(container, n, amount) })
		if err != nil {
			return err
		}
		err = all.amounts(requests, func(n *need, amount int64) {
			if limits == nil || limits.Get(n.name) == nil {
				add(container, n, amount)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// amounts calls f with each amount of a list. A negative amount, which Kubernetes refuses, counts as 0.
func (all *needs) amounts(amounts ast.Object, f func(*need, int64)) error {
	if amounts == nil {
		return nil
	}
	return amounts.Iter(func(name, quantity *ast.Term) error {
		amount, err := thousandths(quantity.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f(all.of(name), max(0, amount))
		return nil
	})
}

// objectAt returns an object within another, or nil.
func objectAt(in ast.Object, name *ast.Term) ast.Object {
	if in == nil {
		return nil
	}
	term := in.Get(name)
	if term == nil {
		return nil
	}
	object, _ := term.Value.(ast.Object)
	return object
}
