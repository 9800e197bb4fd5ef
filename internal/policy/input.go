// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Pool is a pool as declared: what every decision is about.
type Pool struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Connection names the GitHubConnection: NAME, or NAMESPACE/NAME if it is of another namespace.
	Connection string `json:"connection"`
	// ScaleSet is its name on GitHub.
	ScaleSet    string `json:"scaleSet"`
	RunnerGroup string `json:"runnerGroup"`
	// RunnerLabels are what jobs ask for with runs-on.
	RunnerLabels []string `json:"runnerLabels"`
	// Lifetime of its runners: Job, or Persistent for those that take job after job.
	Lifetime string `json:"lifetime"`
	// Trust says whose code the runners run; empty if not declared.
	Trust string `json:"trust"`
	// Scale has the numbers that the pool declares at the time: of its schedules, with warm capacity and boosts in idle. A max of
	// 2147483647 stands for none.
	Scale Scale `json:"scale"`
	// StopPolicy is None, Hold or Drain.
	StopPolicy string `json:"stopPolicy"`
	// Cache is what the pool declares of volumes that outlive runners; maxClaims is 0 for none.
	Cache Cache `json:"cache"`
}

// Cache is a pool's cache as declared.
type Cache struct {
	// StorageClassName is empty for the cluster's default.
	StorageClassName string `json:"storageClassName"`
	// SizeBytes of each claim.
	SizeBytes int64  `json:"sizeBytes"`
	MountPath string `json:"mountPath"`
	// MaxClaims is how many claims there may be.
	MaxClaims int32 `json:"maxClaims"`
	// TimeToLiveSeconds is how long a free claim is kept.
	TimeToLiveSeconds int64 `json:"timeToLiveSeconds"`
}

// Scale are the three numbers of a pool.
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

// ScalingInput is what the package corral.scaling is asked about: what limits hold now?
type ScalingInput struct {
	Pool Pool `json:"pool"`
	// Jobs assigned to the pool and not finished.
	Jobs    int32   `json:"jobs"`
	Runners Runners `json:"runners"`
	Usage   Usage   `json:"usage"`
	// Now in nanoseconds since 1970, as OPA's time functions take it.
	Now int64 `json:"now"`
	// Zone is the controller's time zone in the IANA database.
	Zone string `json:"zone"`
}

// Usage is what is granted across the fleet: of each pool the larger of the runners it has and
// those it was to have. The groups are those that the pool is in, without the pool itself.
type Usage struct {
	// Granted to the pool itself.
	Granted int32 `json:"granted"`
	// All other pools.
	All Group `json:"all"`
	// Namespace: the others of its namespace.
	Namespace Group `json:"namespace"`
	// Connection: the others of its GitHubConnection.
	Connection Group `json:"connection"`
	// Labels: by label of the pool, the others, of any namespace, that have it with the same value.
	Labels map[string]Group `json:"labels"`
}

// Group is what other pools use together.
type Group struct {
	// Granted to them in total.
	Granted int32 `json:"granted"`
	// Pools are how many they are.
	Pools int32 `json:"pools"`
	// Claimed is the sum of what each was granted or wants, whichever is more; Wanting how many
	// want any; Largest the most that one of them claims.
	Claimed int32 `json:"claimed"`
	Wanting int32 `json:"wanting"`
	Largest int32 `json:"largest"`
	// Members are they, sorted by namespace and name; rules that don't read them, nor what they claim, are told neither.
	Members []Member `json:"members"`
	// Parts are what they claim together, for each fair ceiling of the library that the pool shares with them.
	Parts []Part `json:"parts,omitempty"`
	// Version changes with the members, if rules read them.
	Version int64 `json:"-"`
}

// Part is what the pools of a group claim if each is kept at most a part of what it wants.
type Part struct {
	Part    int32 `json:"part"`
	Claimed int32 `json:"claimed"`
	// Below is how many of them have and want less than the part.
	Below int32 `json:"below"`
}

// Member is another pool of a group.
type Member struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Granted   int32  `json:"granted"`
	// Wanted is what it would have if no policy bound it.
	Wanted int32 `json:"wanted"`
}

// Equal compares with another pool.
func (p *Pool) Equal(o Pool) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && maps.Equal(p.Labels, o.Labels) &&
		maps.Equal(p.Annotations, o.Annotations) && p.Connection == o.Connection && p.ScaleSet == o.ScaleSet &&
		p.RunnerGroup == o.RunnerGroup && slices.Equal(p.RunnerLabels, o.RunnerLabels) &&
		p.Lifetime == o.Lifetime && p.Trust == o.Trust && p.Scale == o.Scale && p.StopPolicy == o.StopPolicy && p.Cache == o.Cache
}

// filled has empty maps and lists where there are none: rules read objects and arrays, and no null.
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

// TemplateInput is what the package corral.template is asked about: may this pod run? It has
// no clock and no counts: the same pod and policies give the same verdict.
type TemplateInput struct {
	Pool Pool `json:"pool"`
	// Pod is the core/v1 Pod as it would be created, with defaults, and a placeholder for its
	// runner's name and Secret.
	Pod json.RawMessage `json:"pod"`
	// Now is the time in nanoseconds since 1970, which rules don't see: for the policies' quarantine.
	Now int64 `json:"-"`
}

// UpdateInput is what the package corral.update is asked about: how may this change roll out?
type UpdateInput struct {
	Pool    Pool    `json:"pool"`
	Change  Change  `json:"change"`
	Jobs    int32   `json:"jobs"`
	Runners Runners `json:"runners"`
	Now     int64   `json:"now"`
	Zone    string  `json:"zone"`
}

// Change is an update under way.
type Change struct {
	// From and To are revisions.
	From string `json:"from"`
	To   string `json:"to"`
	// Phase is empty before the first step, then Canary, Rolling or Held; RolledBack while runners of both revisions fail.
	Phase string `json:"phase"`
	// Since is when the phase began, in nanoseconds since 1970; 0 before the first step.
	Since int64 `json:"since"`
	// Updated counts usable runners of the new revision.
	Updated int32 `json:"updated"`
	// Strategy, MaxSurge, MaxUnavailable and Canary are what the pool declares, as numbers of runners.
	Strategy       string `json:"strategy"`
	MaxSurge       int32  `json:"maxSurge"`
	MaxUnavailable int32  `json:"maxUnavailable"`
	Canary         int32  `json:"canary"`
}
