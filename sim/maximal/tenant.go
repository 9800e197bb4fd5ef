// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package maximal generates a tenant that is at every limit at once: from the schemas of the CustomResourceDefinitions,
// it generates a namespace in which each list is full, each text has its maximum length, and each policy its maximum
// size. Tests and the benchmark use it.
package maximal

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
)

const (
	// MostPools is the maximum number of pools in one commit.
	MostPools = compile.MaxObjects
	// Shared is a label of all pools of the tenant.
	Shared = "shared"
	// mostObject is slightly less than etcd's limit, in bytes of JSON.
	mostObject = 1_400_000
	// mostPolicies is how many policies of a namespace are loaded, and policyBytes the maximum total size of their
	// modules.
	mostPolicies, policyBytes = 32, 4 * v1alpha1.MaxPolicyBytes
	// Numbers of objects of kinds that have no limit per tenant.
	connections, sources = 8, 4
)

// Tenant is the maximal tenant in a namespace.
type Tenant struct {
	Namespace string
	// Connection is the connection of the pools. The caller creates it.
	Connection string
	// Pools is the number of pools that share the maximum size of one commit equally. Wide is the number of additional
	// pools, each as large as a pool can be.
	Pools, Wide int
	// URL is the server of the tenant's connections, and Secret contains their credentials.
	URL, Secret string
	// Source is the URL of a Git repository.
	Source string
	// Accepts checks each object in addition to the schema; it can be nil.
	Accepts Accepts
}

// Objects returns what the tenant creates itself, in this order. It commits its other pools: see PoolObjects.
func (t Tenant) Objects() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, part := range []func() ([]*unstructured.Unstructured, error){t.connections, t.policies, t.sources, t.wide} {
		objects, err := part()
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// PoolObjects returns the pools of one commit: by turns one with a scale set, and one whose events come by webhook, with other metrics each.
func (t Tenant) PoolObjects() ([]*unstructured.Unstructured, error) {
	return t.poolsLike("pool", t.Pools, compile.MaxOutputBytes/MostPools)
}

func (t Tenant) wide() ([]*unstructured.Unstructured, error) {
	return t.poolsLike("wide", t.Wide, mostObject)
}

// poolsLike returns pools of at most the given number of bytes each.
func (t Tenant) poolsLike(stem string, n, most int) (all []*unstructured.Unstructured, err error) {
	var models []map[string]any
	for kind := range poolKinds {
		if len(models) == n {
			break
		}
		spec := map[string]any{"connectionRef": map[string]any{"name": t.Connection}, "template": template(min(most/4, 80<<10))}
		maps.Copy(spec, poolKinds[kind])
		model, err := t.largest("RunnerPool", stem+"-0000", spec, poolPins(kind), most)
		if err != nil {
			return nil, err
		}
		models = append(models, model)
	}
	for i := range n {
		all = append(all, named(models[i%len(models)], fmt.Sprintf("%s-%04d", stem, i)))
	}
	return all, nil
}

func (t Tenant) connections() (all []*unstructured.Unstructured, err error) {
	if t.URL == "" {
		return nil, nil
	}
	model, err := t.largest("GitHubConnection", "connection-0", map[string]any{"url": t.URL, "secretRef": map[string]any{"name": t.Secret}}, connectionPins, mostObject)
	for i := range connections {
		all = append(all, named(model, fmt.Sprintf("connection-%d", i)))
	}
	return all, err
}

func (t Tenant) sources() (all []*unstructured.Unstructured, err error) {
	if t.Source == "" {
		return nil, nil
	}
	model, err := t.largest("PoolSource", "source-0", map[string]any{"interval": "1s", "git": map[string]any{"url": t.Source}}, sourcePins, mostObject)
	for i := range sources {
		all = append(all, named(model, fmt.Sprintf("source-%d", i)))
	}
	return all, err
}

func (t Tenant) policies() (all []*unstructured.Unstructured, err error) {
	for i := range mostPolicies {
		modules := rego(i, policyBytes/mostPolicies)
		model, err := t.largest("RunnerPolicy", fmt.Sprintf("policy-%02d", i), map[string]any{"modules": map[string]any{"limits.rego": modules}}, policyPins, mostObject/8)
		if err != nil {
			return nil, err
		}
		all = append(all, &unstructured.Unstructured{Object: model})
	}
	return all, nil
}

// largest returns the largest object of a kind with the given spec.
func (t Tenant) largest(kind, name string, spec map[string]any, pins map[string]Pin, most int) (map[string]any, error) {
	known, err := schemas()
	if err != nil {
		return nil, err
	}
	base := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"namespace": t.Namespace, "name": name}, "spec": spec,
	}
	if errs := admission.Check(base); len(errs) > 0 {
		return nil, fmt.Errorf("the least %s: %w", kind, errs.ToAggregate())
	}
	g := grower{kind: kind, schema: known[kind], pins: pins, accepts: func(object map[string]any) bool { return len(admission.Check(object)) == 0 }}
	for ; most > length(base); most = most * 3 / 4 {
		grown := g.fit(base, most)
		if grown == nil {
			break
		}
		if t.Accepts == nil || t.Accepts(grown) {
			return grown, nil
		}
	}
	return nil, errors.New("the API server takes no " + kind + " larger than the least")
}

// named copies an object with another name.
func named(model map[string]any, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: clone(model)}
	u.SetName(name)
	return u
}

// template returns a pod template of about the given number of bytes, with as many containers as allowed.
func template(most int) map[string]any {
	containers := []any{map[string]any{"name": "runner", "image": "ghcr.io/actions/actions-runner:latest"}}
	for i := 1; i < 64 && most > 4096; i++ {
		each := most / 64
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("c%d", i), "image": "ghcr.io/acme/sidecar:latest",
			"env": []any{map[string]any{"name": "A", "value": strings.Repeat("a", max(0, each-120))}},
		})
	}
	return map[string]any{"spec": map[string]any{"containers": containers}}
}

// rego returns a module of about the given number of bytes whose rules read data of the pool and of other pools.
func rego(n, most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package corral.scaling\n\n# %d\n", n)
	for i := 0; b.Len() < most-400; i++ {
		fmt.Fprintf(&b, "limit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"%s\"} if {\n\tsome key, _ in input.pool.labels\n\tcontains(key, \"%s%d\")\n\tinput.usage.namespace.granted > %d\n}\n\n",
			50_000+i, strings.Repeat("a", 60), strings.Repeat("a", 40), i, i)
	}
	return b.String()
}
