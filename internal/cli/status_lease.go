// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/controllers"
	"github.com/corral-dev/corral/internal/explain"
)

const (
	// leaseFresh is the largest age of the last renewal for which a lease is not read again. A leader renews its lease every 2
	// s, and another replica takes over 15 s after the last renewal.
	leaseFresh = 10 * time.Second
	// leaseLook is the time after which a lease is read again.
	leaseLook = 5 * time.Second
)

// leases returns the leases of controllers: the lease in the namespace of --lease-namespace and, with -A, leases in other namespaces.
func (g *statusReader) leases(ctx context.Context) []explain.Lease {
	key := controllers.ManagerOptions{LeaderElectionNamespace: g.lease}.Lease()
	found := make([]coordinationv1.Lease, 1)
	err := g.client.Get(ctx, key, &found[0])
	if err != nil {
		found = nil
	}
	if g.namespace == "" {
		var all []coordinationv1.Lease
		_ = listPages(ctx, g.client, &coordinationv1.LeaseList{}, &all, client.MatchingFields{"metadata.name": key.Name}) // without permission to list leases, status checks only the lease of --lease-namespace
		found = append(found, slices.DeleteFunc(all, func(l coordinationv1.Lease) bool { return l.Namespace == g.lease })...)
	}
	switch {
	case apierrors.IsNotFound(err) && len(found) > 0:
	case apierrors.IsNotFound(err):
		g.recordUnseen("whether a controller works", fmt.Errorf("there is no Lease %s: set --lease-namespace to the controller's namespace; a controller with --leader-elect=false has no lease", key))
	case apierrors.IsForbidden(err):
		g.recordUnseen("whether a controller works", fmt.Errorf("you have no permission to read Lease %s", key))
	default:
		g.recordUnseen("whether a controller works", err)
	}
	return g.judge(ctx, found)
}

// judge determines which leases are lost because no controller renews them. The renew time comes from the holder's clock,
// which may be wrong. If the time is old or in the future, judge therefore reads the lease again after leaseLook. The lease
// is lost if it has not been renewed in the meantime.
func (g *statusReader) judge(ctx context.Context, found []coordinationv1.Lease) []explain.Lease {
	isStale := func(l explain.Lease) bool { return l.Holder == "" || g.now().Sub(l.Renewed.Time).Abs() > leaseFresh }
	leases := converted(found, leaseOf)
	if !slices.ContainsFunc(leases, isStale) {
		return leases
	}
	if err := g.wait(ctx, leaseLook); err != nil {
		g.recordUnseen("whether a controller works", err)
		return leases
	}
	for i, before := range leases {
		if !isStale(before) {
			continue
		}
		now := coordinationv1.Lease{}
		err := g.get(ctx, "whether a controller renews Lease "+before.Name, client.ObjectKeyFromObject(&found[i]), &now)
		if err == nil {
			leases[i] = leaseOf(now)
		}
		leases[i].Lost = apierrors.IsNotFound(err) || err == nil && (leases[i].Holder == "" || leases[i].Renewed.Equal(&before.Renewed))
	}
	return leases
}

func leaseOf(l coordinationv1.Lease) explain.Lease {
	one := explain.Lease{Name: l.Namespace + "/" + l.Name, Holder: ptr.Deref(l.Spec.HolderIdentity, ""), Version: l.Annotations[controllers.VersionAnnotation]}
	if l.Spec.RenewTime != nil {
		one.Renewed = metav1.Time{Time: l.Spec.RenewTime.UTC()}
	}
	return one
}

// wait waits for d, or until ctx ends. In the second case, it returns an error.
func wait(ctx context.Context, d time.Duration) error {
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-over.Done()
	return ctx.Err()
}
