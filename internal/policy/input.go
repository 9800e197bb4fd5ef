// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Pool is a pool as declared. It is part of the input of every decision.
type Pool struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Connection is the name of the GitHubConnection: NAME, or NAMESPACE/NAME if it is in another namespace.
	Connection string `json:"connection"`
	// ScaleSet is the name of the scale set on GitHub.
	ScaleSet    string `json:"scaleSet"`
	RunnerGroup string `json:"runnerGroup"`
	// RunnerLabels are the labels that jobs request with runs-on.
	RunnerLabels []string `json:"runnerLabels"`
	// Lifetime is Job for runners that run one job, or Persistent for runners that run many.
	Lifetime string `json:"lifetime"`
	// Trust declares whose code the runners run; empty if not declared.
	Trust string `json:"trust"`
	// Scale holds the numbers that the pool currently declares, with its schedules applied. Warm capacity and boosts are
	// included in idle. A max of 2147483647 means no maximum.
	Scale Scale `json:"scale"`
	// StopPolicy is None, Hold or Drain.
	StopPolicy string `json:"stopPolicy"`
	// Cache declares volumes that outlive runners; its maxClaims is 0 if the pool has no cache.
	Cache Cache `json:"cache"`
}

// Cache is a pool's cache as declared.
type Cache struct {
	// StorageClassName is empty for the cluster's default.
	StorageClassName string `json:"storageClassName"`
	// SizeBytes is the size of each claim.
	SizeBytes int64  `json:"sizeBytes"`
	MountPath string `json:"mountPath"`
	// MaxClaims is the maximum number of claims.
	MaxClaims int32 `json:"maxClaims"`
	// TimeToLiveSeconds is how long an unused claim is kept.
	TimeToLiveSeconds int64 `json:"timeToLiveSeconds"`
}

// Scale holds the three numbers of a pool.
type Scale = v1alpha1.Scale

// Runners counts a pool's runners by state.
type Runners struct {
	Total    int32 `json:"total"`
	Pending  int32 `json:"pending"`
	Idle     int32 `json:"idle"`
	Busy     int32 `json:"busy"`
	Finished int32 `json:"finished"`
	Failed   int32 `json:"failed"`
	Outdated int32 `json:"outdated"`
}

// ScalingInput is the input of the package corral.scaling, which decides the current limits of a pool.
type ScalingInput struct {
	Pool Pool `json:"pool"`
	// Jobs is the number of jobs that are assigned to the pool and not finished.
	Jobs    int32   `json:"jobs"`
	Runners Runners `json:"runners"`
	Usage   Usage   `json:"usage"`
	// Now is in nanoseconds since 1970, as OPA's time functions expect it.
	Now int64 `json:"now"`
	// Zone is the IANA name of the controller's time zone.
	Zone string `json:"zone"`
}

// Usage contains the grants of the pool and of other pools. A pool's grant is the larger of its existing and its
// desired number of runners. Each group consists of the other pools that share a property with this pool.
type Usage struct {
	// Granted is the grant of the pool itself.
	Granted int32 `json:"granted"`
	// All is the group of all other pools.
	All Group `json:"all"`
	// Namespace is the group of the other pools in its namespace.
	Namespace Group `json:"namespace"`
	// Connection is the group of the other pools on its GitHubConnection.
	Connection Group `json:"connection"`
	// Labels holds, for each label of the pool, the group of the other pools with the same value in any namespace.
	Labels map[string]Group `json:"labels"`
}

// Group is the combined usage of other pools.
type Group struct {
	// Granted is the sum of their grants.
	Granted int32 `json:"granted"`
	// Pools is the number of pools.
	Pools int32 `json:"pools"`
	// Claimed is the sum of the pools' claims; a claim is the larger of granted and wanted. Wanting is the number of pools
	// whose wanted is more than 0. Largest is the largest claim.
	Claimed int32 `json:"claimed"`
	Wanting int32 `json:"wanting"`
	Largest int32 `json:"largest"`
	// Members are the pools, sorted by namespace and name. Corral sets members, claimed, wanting and largest only if a
	// rule reads one of them.
	Members []Member `json:"members"`
	// Parts contains the sum of their claims for each fair ceiling in spec.library that the pool shares with them. Corral
	// then also sets wanting.
	Parts []Part `json:"parts,omitempty"`
	// Version changes with each change of a member; it is 0 unless rules read the members.
	Version int64 `json:"-"`
}

// Part describes the claims of a group's pools if each pool claims at most Part runners, or its grant if that is
// larger.
type Part struct {
	Part    int32 `json:"part"`
	Claimed int32 `json:"claimed"`
	// Below is the number of pools whose grant and demand are below the part.
	Below int32 `json:"below"`
}

// Member is another pool of a group.
type Member struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Granted   int32  `json:"granted"`
	// Wanted is the number of runners that the pool would have if no policy limited it.
	Wanted int32 `json:"wanted"`
}

// Equal compares the pool with another.
func (p *Pool) Equal(o Pool) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && maps.Equal(p.Labels, o.Labels) &&
		maps.Equal(p.Annotations, o.Annotations) && p.Connection == o.Connection && p.ScaleSet == o.ScaleSet &&
		p.RunnerGroup == o.RunnerGroup && slices.Equal(p.RunnerLabels, o.RunnerLabels) &&
		p.Lifetime == o.Lifetime && p.Trust == o.Trust && p.Scale == o.Scale && p.StopPolicy == o.StopPolicy && p.Cache == o.Cache
}

// filled replaces nil maps and lists by empty ones, because rules expect objects and arrays, not null.
func (p Pool) filled() Pool {
	p.Labels, p.Annotations = notNil(p.Labels), notNil(p.Annotations)
	if p.RunnerLabels == nil {
		p.RunnerLabels = []string{}
	}
	return p
}

func notNil[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// TemplateInput is the input of the package corral.template, which decides whether a pod may run. It has no clock and
// no counts: the same pod and policies give the same verdict.
type TemplateInput struct {
	Pool Pool `json:"pool"`
	// Pod is the core/v1 Pod as it would be created, with defaults, and with placeholders for the names of its runner
	// and Secret.
	Pod json.RawMessage `json:"pod"`
	// Now is the time in nanoseconds since 1970. Rules do not see it; the policies' quarantine uses it.
	Now int64 `json:"-"`
}

// UpdateInput is the input of the package corral.update, which decides how a change may roll out.
type UpdateInput struct {
	Pool    Pool    `json:"pool"`
	Change  Change  `json:"change"`
	Jobs    int32   `json:"jobs"`
	Runners Runners `json:"runners"`
	Now     int64   `json:"now"`
	Zone    string  `json:"zone"`
}

// Change is an update in progress.
type Change struct {
	// From and To are revisions.
	From string `json:"from"`
	To   string `json:"to"`
	// Phase is empty before the first step, then Canary, Rolling or Held; RolledBack while runners of both revisions
	// fail.
	Phase string `json:"phase"`
	// Since is when the phase began, in nanoseconds since 1970; 0 before the first step.
	Since int64 `json:"since"`
	// Updated is the number of usable runners of the new revision.
	Updated int32 `json:"updated"`
	// Strategy, MaxSurge, MaxUnavailable and Canary are the pool's settings. Percentages are converted to numbers of
	// runners.
	Strategy       string `json:"strategy"`
	MaxSurge       int32  `json:"maxSurge"`
	MaxUnavailable int32  `json:"maxUnavailable"`
	Canary         int32  `json:"canary"`
}
