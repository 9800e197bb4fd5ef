// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// listing contains the policies that may bind pools of a namespace. The API server listed them after these pools had
// been created.
type listing struct {
	covers   map[types.UID]bool // new pools that have not used the listing yet
	policies []policy.Source    // without rules and selectors
}

// KnowsNew does the same as Knows for a new pool. The cache may not contain policies yet that are older than the pool,
// so KnowsNew lists the policies with the API server. One list serves all new pools of the namespace that the cache
// then contains, and it reads only metadata. Otherwise Corral would read all policies of a tenant again for each new
// pool.
func (e *Engine) KnowsNew(ctx context.Context, c, live client.Reader, facts policy.Pool, uid types.UID) (bool, error) {
	listed, err := e.listed(ctx, c, live, facts.Namespace, uid)
	if err != nil {
		return false, err
	}
	shown, err := sources(ctx, c, facts.Namespace)
	if err != nil {
		return false, err
	}
	refs := sets.New[string]()
	for _, s := range shown {
		refs.Insert(s.Ref())
	}
	areHidden := func() bool {
		return slices.ContainsFunc(e.unknown(listed), func(s policy.Source) bool { return !refs.Has(s.Ref()) })
	}
	if e.awaits(facts, areHidden) {
		return false, nil
	}
	return e.Knows(ctx, c, facts)
}

// listed returns the policies that existed when a pool was created. It does not hold the lock while it reads from the
// API server.
func (e *Engine) listed(ctx context.Context, c, live client.Reader, namespace string, uid types.UID) ([]policy.Source, error) {
	if l := e.take(namespace, uid); l != nil {
		return l.policies, nil
	}
	pools := &v1alpha1.RunnerPoolList{}
	if err := c.List(ctx, pools, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing new pools: %w", err)
	}
	l := &listing{covers: map[types.UID]bool{}}
	for i := range pools.Items {
		if p := &pools.Items[i]; p.Status.Decision == nil {
			l.covers[p.UID] = true
		}
	}
	for kind, in := range map[string]string{policy.KindClusterRunnerPolicy: "", policy.KindRunnerPolicy: namespace} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := live.List(ctx, list, client.InNamespace(in)); err != nil {
			return nil, fmt.Errorf("listing policies: %w", err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp.IsZero() {
				l.policies = append(l.policies, policy.Source{Kind: kind, Namespace: p.Namespace, Name: p.Name})
			}
		}
	}
	e.mu.Lock()
	e.listings[namespace] = l
	e.mu.Unlock()
	e.take(namespace, uid)
	return l.policies, nil
}

// take returns the listing that covers a pool, and marks it as used by that pool. It returns nil if there is none, or
// if the pool has already used it.
func (e *Engine) take(namespace string, uid types.UID) *listing {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.listings[namespace]
	if l == nil || !l.covers[uid] {
		return nil
	}
	if delete(l.covers, uid); len(l.covers) == 0 {
		delete(e.listings, namespace)
	}
	return l
}
