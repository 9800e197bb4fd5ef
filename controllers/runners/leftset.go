// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
)

// Sessions holds the message sessions of pools.
type Sessions interface {
	Sets
	Snapshot(pool types.NamespacedName) (scaleset.Snapshot, bool)
}

// leftSet is a scale set for which GitHub counts more registrations than its pool has Runners.
type leftSet struct {
	id        int64
	namespace string
	stem      string // prefix of the names of its pool's runners
}

// leftSet returns a pool's scale set if it may have leaked registrations. The scale-set service cannot list registrations,
// so the collector reads GitHub's REST list, and only while the counts differ.
func (c *RunnerCollector) leftSet(ctx context.Context, p *v1alpha1.RunnerPool, have int) (leftSet, bool) {
	key, set := client.ObjectKeyFromObject(p), &v1alpha1.RunnerScaleSet{}
	seen, _ := c.Sessions.Snapshot(key)
	if seen.Statistics.RegisteredRunners <= have || c.Client.Get(ctx, key, set) != nil {
		return leftSet{}, false
	}
	isHeld := c.Sessions.Holds(key, p.Spec.ConnectionRef.From(p.Namespace), p.UID, set.Status.ID)
	return leftSet{set.Status.ID, p.Namespace, podspec.NameStem(p.Name, p.UID)}, isHeld
}

// ownerOf returns the namespace of the pool for which a registration was created, and the ID of the pool's scale set, or 0
// if the registration has the owner label of a pool without one. It finds the pool by the label or the name of the
// registration. The namespace is empty if the registration does not belong to a pool of this cluster.
func (v *visit) ownerOf(known rest.Runner) (namespace string, set int64) {
	for _, l := range known.Labels {
		if m, ok := v.marks[l]; ok {
			return m.namespace, 0
		}
	}
	for _, s := range v.sets {
		if podspec.NumberOf(s.stem, known.Name) > 0 {
			return s.namespace, s.id
		}
	}
	return "", 0
}

// errForeign means that a registration has the name of a pool's runner but is not in the pool's scale set.
var errForeign = errors.New("it is not in the pool's scale set")

// removeFrom removes a registration if it belongs to the given scale set. GitHub refuses to remove a runner that has a job.
func (v *visit) removeFrom(ctx context.Context, set int64, known rest.Runner) error {
	gh, ok := v.Clients.Get(connections.Key(v.key))
	if !ok {
		return errForeign
	}
	found, err := gh.Runner(ctx, known.ID)
	if err != nil {
		return err
	}
	if found == nil || found.SetID != set || found.Name != known.Name {
		return errForeign
	}
	return gh.RemoveRunner(ctx, known.ID)
}
