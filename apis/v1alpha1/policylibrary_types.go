// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyLibrary switches on families of rules of the built-in library, by their
// parameters. Rules read them below data.library.
type PolicyLibrary struct {
	// preset switches on families together. Tenant is for pools of people who share a cluster with others:
	// podSecurity at the level restricted, resources (requests for cpu and memory, limits for memory), serviceAccounts,
	// secrets, scheduling, volumes, extendedResources, metadata, fields and persistent, each with no exceptions. A
	// family that is also set uses its own parameters instead.
	// +optional
	Preset LibraryPreset `json:"preset,omitempty"`

	// images that runners' pods may use.
	// +optional
	Images *ImageRules `json:"images,omitempty"`

	// podSecurity is the Pod Security level that pods must keep, and the host access they may have.
	// +optional
	PodSecurity *PodSecurityRules `json:"podSecurity,omitempty"`

	// resources that containers must request, and the most that a pod may take.
	// +optional
	Resources *ResourceRules `json:"resources,omitempty"`

	// serviceAccounts that pods may have, and the tokens and certificates that prove it.
	// +optional
	ServiceAccounts *ServiceAccountRules `json:"serviceAccounts,omitempty"`

	// secrets that pods may read, through any field, in addition to the Secret of their own registration.
	// +optional
	Secrets *NameRules `json:"secrets,omitempty"`

	// scheduling lists the nodes, classes and schedulers that pods may choose.
	// +optional
	Scheduling *SchedulingRules `json:"scheduling,omitempty"`

	// volumes that pods may have.
	// +optional
	Volumes *VolumeRules `json:"volumes,omitempty"`

	// extendedResources that pods may ask for: GPUs, huge pages and other devices.
	// +optional
	ExtendedResources *ExtendedResourceRules `json:"extendedResources,omitempty"`

	// metadata lists the labels and annotations that pods may have.
	// +optional
	Metadata *MetadataRules `json:"metadata,omitempty"`

	// fields of pods and containers that few need: host aliases, DNS, shared processes, lifecycle hooks and
	// whatever a newer Kubernetes adds. Those that another family judges are left to it.
	// +optional
	Fields *NameRules `json:"fields,omitempty"`

	// persistent lists the pools that may have runners for several jobs.
	// +optional
	Persistent *PersistentRules `json:"persistent,omitempty"`

	// hours bound pools by the time of the week, and freeze them.
	// +optional
	Hours *HourRules `json:"hours,omitempty"`

	// ceilings are shared by groups of pools.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Ceilings []Ceiling `json:"ceilings,omitempty"`

	// pause stops pools at once, until it is taken away: in a ClusterRunnerPolicy, everything.
	// +optional
	Pause *Pause `json:"pause,omitempty"`
}

// LibraryPreset names families that are switched on together.
// +kubebuilder:validation:Enum=Tenant
type LibraryPreset string

// PresetTenant has the families that pools need in a cluster shared with others.
const PresetTenant LibraryPreset = "Tenant"

// AllowedNames are names in which * stands for any characters. What has a key and a value is named by its
// key, or as KEY=VALUE.
// +listType=set
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MaxLength=512
// +kubebuilder:validation:items:Pattern=`^[!-~]+$`
type AllowedNames []string

// ServiceAccountRules list the allowed service accounts. The account default is allowed without its token.
type ServiceAccountRules struct {
	// allowed service accounts, with their tokens for the API server.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
	// audiences for which any account's token may be mounted, as for a cloud: sts.amazonaws.com.
	// +optional
	Audiences AllowedNames `json:"audiences,omitempty"`
	// signers of certificates that pods may have: acme.example/ci.
	// +optional
	Signers AllowedNames `json:"signers,omitempty"`
}

// NameRules list allowed names.
type NameRules struct {
	// allowed Secrets: npm-*; or fields by their last name: hostAliases, dnsPolicy=None, exec.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
}

// PersistentRules list the pools that may have the lifetime Persistent.
type PersistentRules struct {
	// allowed pools as NAMESPACE/NAME: release/*.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
}

// SchedulingRules say where pods may run. No pod may name its node, wait at a gate, join a group, or
// select pods of other namespaces.
type SchedulingRules struct {
	// nodeLabels that selectors and node affinity may ask for: workload=ci. By the key alone, any value, and
	// operators but In too. Always: kubernetes.io/arch, kubernetes.io/os, topology.kubernetes.io/*.
	// +optional
	NodeLabels AllowedNames `json:"nodeLabels,omitempty"`
	// tolerations by the taint: ci=true. By the key alone, any value, and operators but Equal too.
	// +optional
	Tolerations AllowedNames `json:"tolerations,omitempty"`
	// priorityClasses that are allowed.
	// +optional
	PriorityClasses AllowedNames `json:"priorityClasses,omitempty"`
	// runtimeClasses that are allowed.
	// +optional
	RuntimeClasses AllowedNames `json:"runtimeClasses,omitempty"`
	// schedulers in addition to default-scheduler.
	// +optional
	Schedulers AllowedNames `json:"schedulers,omitempty"`
}

// VolumeRules list the allowed volumes. Volumes in memory must have a size, and raw devices must be listed as kinds.
type VolumeRules struct {
	// kinds of volumes, sources of projected volumes and fields of claims that are allowed in addition to the harmless ones, such as nfs, or
	// volumeMode=Block with volumeDevices. If podSecurity is on, it decides hostPath.
	// +optional
	Kinds AllowedNames `json:"kinds,omitempty"`
	// claims (PersistentVolumeClaims) that may be mounted.
	// +optional
	Claims AllowedNames `json:"claims,omitempty"`
	// drivers of CSI and FlexVolume that pods may name.
	// +optional
	Drivers AllowedNames `json:"drivers,omitempty"`
	// storageClasses of ephemeral volumes and caches, and their volume attributes classes. The cluster's default is allowed.
	// +optional
	StorageClasses AllowedNames `json:"storageClasses,omitempty"`
	// caches that pools may declare. Default: of any size and number.
	// +optional
	Caches *CacheRules `json:"caches,omitempty"`
}

// CacheRules bound the caches of pools.
// +kubebuilder:validation:MinProperties=1
type CacheRules struct {
	// maxClaims that a pool may have; 0 for no cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxClaims *int32 `json:"maxClaims,omitempty"`
	// maxSize of a claim, such as 100Gi.
	// +optional
	MaxSize *Quantity `json:"maxSize,omitempty"`
}

// ExtendedResourceRules list the resources that are allowed in addition to cpu, memory and ephemeral-storage.
type ExtendedResourceRules struct {
	// allowed resources: nvidia.com/gpu, nvidia.com/mig-*; nvidia.com/gpu=1 for this many a container.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
	// claims and templates of claims (ResourceClaims) that may be used.
	// +optional
	Claims AllowedNames `json:"claims,omitempty"`
}

// MetadataRules list the labels and annotations that are allowed on pods and on claims created for them. Corral's
// own keys and the labels app.kubernetes.io/* are always allowed.
type MetadataRules struct {
	// labels by their key or as KEY=VALUE: team, cost-center=cc-*.
	// +optional
	Labels AllowedNames `json:"labels,omitempty"`
	// annotations by their key or as KEY=VALUE: prometheus.io/*.
	// +optional
	Annotations AllowedNames `json:"annotations,omitempty"`
}

// ImageRules list the images that containers, init containers and volumes may use.
// +kubebuilder:validation:MinProperties=1
type ImageRules struct {
	// allowed lists the images that pods may use: a registry (ghcr.io/), a path in it (ghcr.io/acme/, and all
	// below), or one image (ghcr.io/acme/runner, with any tag; ghcr.io/acme/runner:v2, this tag only). In
	// the host, * stands for any characters except /; in the path, for any characters: ghcr.io/acme-*/runner. As in
	// images, an entry without a host belongs to docker.io: library/alpine. * alone is any image. Default: any.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, p == '*' || p.matches('^[A-Za-z0-9._:*-]+/[A-Za-z0-9._:/@*-]*$'))",message="an allowed image has a slash, as ghcr.io/, ghcr.io/acme/ and library/alpine have, or is *"
	// +listType=set
	Allowed []string `json:"allowed,omitempty"`

	// requireDigest refuses images that aren't named by their digest: name@sha256:…
	// +optional
	RequireDigest bool `json:"requireDigest,omitempty"`
}

// PodSecurityLevel is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

// PodSecurityRules set the level of the Kubernetes Pod Security Standards.
type PodSecurityRules struct {
	// level of pools whose trust isn't named below.
	// +required
	Level PodSecurityLevel `json:"level"`

	// byTrust is the level by the pool's spec.trust.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 63)",message="a trust has at most 63 characters"
	ByTrust map[string]PodSecurityLevel `json:"byTrust,omitempty"`

	// hostPaths that pods may mount, with everything below them, although their level forbids it: /var/cache/ci.
	// Anyone who can write there can create links to other places of the node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^/`
	// +kubebuilder:validation:XValidation:rule="self.all(p, !('..' in p.split('/')))",message="a host path must not have .. in it"
	HostPaths []string `json:"hostPaths,omitempty"`
}

// ResourceRules set the resources that containers must request and may have.
// +kubebuilder:validation:MinProperties=1
type ResourceRules struct {
	// requireRequests of every container, init containers too, for these resources: cpu, memory. A limit
	// counts as the request that Kubernetes makes of it, resources of the whole pod for each container.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name has at most 317 characters"
	RequireRequests []corev1.ResourceName `json:"requireRequests,omitempty"`

	// requireLimits of every container, init containers too, for these resources.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name has at most 317 characters"
	RequireLimits []corev1.ResourceName `json:"requireLimits,omitempty"`

	// maxPerPod is the most that a pod may request, and have as limits, in total, counted as Kubernetes
	// does: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 1}. A container without a limit has nothing to count:
	// use requireLimits with it.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name has at most 317 characters"
	MaxPerPod map[corev1.ResourceName]Quantity `json:"maxPerPod,omitempty"`
}

// HourRules bound pools by the time.
//
// Times are local times in timeZone. When clocks go back, the repeated hour counts only once: no window
// opens or closes twice. When clocks go forward, a window that would begin or end in the skipped hour
// does so at that moment.
// +kubebuilder:validation:XValidation:rule="!has(self.closed) || has(self.open)",message="closed needs open: it applies outside of these windows"
type HourRules struct {
	// timeZone of the times, as in the IANA database: Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="timeZone must be a name of the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// open are the windows of the week. Outside of them, closed applies. Default: always open.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Open []WeeklyWindow `json:"open,omitempty"`

	// closed are the limits that hold outside of the open windows. Default: max 0.
	// +optional
	Closed *HourLimits `json:"closed,omitempty"`

	// updates are the windows of the week in which updates proceed. Outside of them, Corral holds updates. Default: any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Updates []WeeklyWindow `json:"updates,omitempty"`

	// freezes hold updates for a time, and may limit pools meanwhile.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Freezes []Freeze `json:"freezes,omitempty"`
}

// WeeklyWindow is a time of the week. If to is not later than from, the window continues past
// midnight, to the next day.
type WeeklyWindow struct {
	// days on which it begins. Default: every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// from is when it begins, HH:MM.
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`

	// to is when it ends, HH:MM; 24:00 is midnight.
	// +required
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	To string `json:"to"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// HourLimits are upper bounds of a pool's numbers.
// +kubebuilder:validation:XValidation:rule="has(self.max) || has(self.min) || has(self.idle)",message="at least one of max, min and idle must be set"
// +kubebuilder:validation:XValidation:rule="self.assignedJobs == 'Serve' || has(self.max)",message="assignedJobs: Wait needs max"
type HourLimits struct {
	// max runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
	// min runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`
	// idle runners.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Idle *int32 `json:"idle,omitempty"`
	// assignedJobs is Serve (default): jobs that GitHub assigned before still run, above max; or Wait: they wait too.
	// +optional
	// +kubebuilder:default=Serve
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
}

// Freeze is a time in which pools aren't updated.
// +kubebuilder:validation:XValidation:rule="self.from < self.to",message="from must be before to"
type Freeze struct {
	// name to call it by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// from is when it begins: 2026-12-20T00:00:00Z, or with an offset such as +01:00.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	From metav1.Time `json:"from"`
	// to is when it ends.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	To metav1.Time `json:"to"`
	// limits that hold meanwhile. Default: none.
	// +optional
	Limits *HourLimits `json:"limits,omitempty"`
}

// AssignedJobs is what happens to jobs that GitHub assigned to a pool before its max fell below their number.
// +kubebuilder:validation:Enum=Serve;Wait
type AssignedJobs string

const (
	// AssignedJobsServe runs them, above the max.
	AssignedJobsServe AssignedJobs = "Serve"
	// AssignedJobsWait lets them wait until the max admits them.
	AssignedJobsWait AssignedJobs = "Wait"
)

// CeilingGroup is which pools share a ceiling.
// +kubebuilder:validation:Enum=All;Namespace;Connection;Label
type CeilingGroup string

const (
	// CeilingAll has all pools share a ceiling.
	CeilingAll CeilingGroup = "All"
	// CeilingNamespace has a ceiling for each namespace.
	CeilingNamespace CeilingGroup = "Namespace"
	// CeilingConnection has a ceiling for each GitHubConnection.
	CeilingConnection CeilingGroup = "Connection"
	// CeilingLabel has a ceiling for each value of a label.
	CeilingLabel CeilingGroup = "Label"
)

// CeilingShare is how pools share a ceiling.
// +kubebuilder:validation:Enum=FirstCome;Fair
type CeilingShare string

const (
	// ShareFair reserves an equal part for each pool that needs runners. Pools may borrow the unused parts of others.
	ShareFair CeilingShare = "Fair"
	// ShareFirstCome reserves nothing.
	ShareFirstCome CeilingShare = "FirstCome"
)

// Ceiling is the most runners that a group of pools has together. A pool counts with its
// grant: its existing or its desired number of runners, whichever is larger.
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || self.by != 'All'",message="overrides need by: Namespace, Connection or Label"
// +kubebuilder:validation:XValidation:rule="(self.by == 'Label') == has(self.labelKey)",message="labelKey must be set when by is Label, and only then"
type Ceiling struct {
	// name to call it by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// by is what the pools of a group have in common: their Namespace, Connection or Label; All is one group.
	// +required
	By CeilingGroup `json:"by"`

	// labelKey is the key of the label whose value the pools of a group have in common. Pools without it are not bound.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	LabelKey string `json:"labelKey,omitempty"`

	// max runners of each group together.
	// +required
	// +kubebuilder:validation:Minimum=0
	Max int32 `json:"max"`

	// overrides are the max of single groups, by the name of their namespace or connection, or the value
	// of their label.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name has at most 317 characters"
	Overrides map[string]CeilingMax `json:"overrides,omitempty"`

	// share is Fair (default): each pool that needs runners may have an equal part, and borrow
	// the unused parts of others. FirstCome: pools get runners in the order of their requests.
	// +optional
	Share CeilingShare `json:"share,omitempty"`

	// assignedJobs is Wait (default): jobs that GitHub assigned before wait while the group is above max; or Serve: they still run.
	// +optional
	// +kubebuilder:default=Wait
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
}

// CeilingMax is the most runners of one group.
// +kubebuilder:validation:Minimum=0
type CeilingMax int32

// Pause stops pools: they take in no jobs and keep no runners without one. Jobs that GitHub had
// assigned before are still served, and updates are held.
type Pause struct {
	// reason for it, as people will read it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`

	// until is when it ends. Default: when it is taken away.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +kubebuilder:validation:XValidation:rule="self > timestamp('0001-01-01T00:00:00Z')",message="until must be a time"
	Until *metav1.Time `json:"until,omitempty"`

	// scope is Everything (default), or Updates to hold updates and stop nothing else.
	// +optional
	// +kubebuilder:default=Everything
	Scope PauseScope `json:"scope,omitempty"`
}

// PauseScope is what a pause stops.
// +kubebuilder:validation:Enum=Everything;Updates
type PauseScope string

const (
	// PauseEverything accepts no new jobs, keeps no runners without one, and holds updates.
	PauseEverything PauseScope = "Everything"
	// PauseUpdates holds updates.
	PauseUpdates PauseScope = "Updates"
)
