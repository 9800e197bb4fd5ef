// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyLibrary enables families of rules of the built-in library by setting their
// parameters. Rules read the parameters as data.library.
type PolicyLibrary struct {
	// preset enables several families. Tenant is for pools of teams that share a cluster:
	// podSecurity at the level restricted, resources (requests for cpu and memory, limits for memory), serviceAccounts,
	// secrets, scheduling, volumes, extendedResources, metadata, fields and persistent, each without exceptions. A
	// family that is also set here uses its own parameters instead.
	// +optional
	Preset LibraryPreset `json:"preset,omitempty"`

	// images that runners' pods may use.
	// +optional
	Images *ImageRules `json:"images,omitempty"`

	// podSecurity is the Pod Security level that pods must satisfy, and the host access that they may have.
	// +optional
	PodSecurity *PodSecurityRules `json:"podSecurity,omitempty"`

	// resources that containers must request, and the most that a pod may take.
	// +optional
	Resources *ResourceRules `json:"resources,omitempty"`

	// serviceAccounts that pods may use, and the tokens and certificates that pods may have.
	// +optional
	ServiceAccounts *ServiceAccountRules `json:"serviceAccounts,omitempty"`

	// secrets that pods may read, through any field, in addition to the Secret of their own registration.
	// +optional
	Secrets *SecretRules `json:"secrets,omitempty"`

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

	// fields of pods and containers that are rarely needed: host aliases, DNS, shared processes, lifecycle hooks, and
	// fields that a newer Kubernetes adds. It does not check fields that another family checks.
	// +optional
	Fields *FieldRules `json:"fields,omitempty"`

	// persistent lists the pools that may have runners for several jobs.
	// +optional
	Persistent *PersistentRules `json:"persistent,omitempty"`

	// hours limit pools by the time of the week, and freeze their updates.
	// +optional
	Hours *HourRules `json:"hours,omitempty"`

	// ceilings are shared by groups of pools. The RunnerPolicies of a namespace may have at most 64 ceilings together.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Ceilings []Ceiling `json:"ceilings,omitempty"`

	// pause stops the selected pools at once, until it is removed. In a ClusterRunnerPolicy without selectors, it stops all pools.
	// +optional
	Pause *Pause `json:"pause,omitempty"`
}

// LibraryPreset is a set of families that are enabled together.
// +kubebuilder:validation:Enum=Tenant
type LibraryPreset string

// PresetTenant contains the families that protect a cluster that several teams share.
const PresetTenant LibraryPreset = "Tenant"

// AllowedNames are names in which * matches any characters. An entry with a key and a value is written as
// the key alone, or as KEY=VALUE.
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
	// audiences for which the token of any account may be mounted, for example a cloud provider's: sts.amazonaws.com.
	// +optional
	Audiences AllowedNames `json:"audiences,omitempty"`
	// signers whose certificates pods may have: acme.example/ci.
	// +optional
	Signers AllowedNames `json:"signers,omitempty"`
}

// SecretRules list the Secrets that pods may read.
type SecretRules struct {
	// allowed Secrets by name, for example npm-*.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
}

// FieldRules list the rarely needed fields that pods and containers may set.
type FieldRules struct {
	// allowed fields by the last part of their path: hostAliases, dnsPolicy=None, exec.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
}

// PersistentRules list the pools that may have the lifetime Persistent.
type PersistentRules struct {
	// allowed pools as NAMESPACE/NAME: release/*.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
}

// SchedulingRules limit where pods may run. No pod may name its node, wait at a gate, join a group, or
// select pods of other namespaces.
type SchedulingRules struct {
	// nodeLabels that node selectors and node affinity may use. An entry KEY=VALUE, such as workload=ci, allows this value,
	// and in node affinity only the operator In. An entry KEY allows all values and operators. Always allowed:
	// kubernetes.io/arch, kubernetes.io/os, topology.kubernetes.io/*.
	// +optional
	NodeLabels AllowedNames `json:"nodeLabels,omitempty"`
	// tolerations by the taint that they tolerate. An entry KEY=VALUE, such as ci=true, allows this value with the operator
	// Equal. An entry KEY allows all values and operators.
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
	// kinds of volumes, sources of projected volumes, and fields of the claims of ephemeral volumes that are allowed in
	// addition to the default ones: for example nfs, or volumeMode=Block with volumeDevices. The default allows the kinds
	// configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, projected and secret, all projected
	// sources, and claims for new, empty file systems. If podSecurity is set, it decides about hostPath.
	// +optional
	Kinds AllowedNames `json:"kinds,omitempty"`
	// claims (PersistentVolumeClaims) that may be mounted.
	// +optional
	Claims AllowedNames `json:"claims,omitempty"`
	// drivers of CSI and FlexVolume volumes that pods may use.
	// +optional
	Drivers AllowedNames `json:"drivers,omitempty"`
	// storageClasses lists the storage classes that ephemeral volumes and caches may use, and the volume attributes classes
	// that ephemeral volumes may use. The cluster's default storage class is always allowed.
	// +optional
	StorageClasses AllowedNames `json:"storageClasses,omitempty"`
	// caches that pools may declare. Default: any number and size.
	// +optional
	Caches *CacheRules `json:"caches,omitempty"`
}

// CacheRules limit the caches of pools.
// +kubebuilder:validation:MinProperties=1
type CacheRules struct {
	// maxClaims is the largest number of claims that a pool may have; 0 allows no cache.
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
	// allowed resources: nvidia.com/gpu, nvidia.com/mig-*; or nvidia.com/gpu=1 to allow this many per container.
	// +optional
	Allowed AllowedNames `json:"allowed,omitempty"`
	// claims: the ResourceClaims and ResourceClaimTemplates that may be used.
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
	// allowed lists the images that pods may use. An entry is a registry (ghcr.io/), a path in a registry (ghcr.io/acme/),
	// an image with any tag (ghcr.io/acme/runner), or an image with one tag (ghcr.io/acme/runner:v2). A registry or path
	// includes everything below it. An entry without a host belongs to docker.io: library/alpine. In a host, * matches any
	// characters except /. In a path, it matches any characters: ghcr.io/acme-*/runner. The entry * allows any image.
	// Default: any image.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, p == '*' || p.matches('^[A-Za-z0-9._:*-]+/[A-Za-z0-9._:/@*-]*$'))",message="an allowed image must be * or contain a slash, such as ghcr.io/, ghcr.io/acme/ or library/alpine"
	// +listType=set
	Allowed []string `json:"allowed,omitempty"`

	// requireDigest refuses images without a digest: name@sha256:…
	// +optional
	RequireDigest bool `json:"requireDigest,omitempty"`
}

// PodSecurityLevel is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

// PodSecurityRules set the level of the Kubernetes Pod Security Standards.
type PodSecurityRules struct {
	// level of pools whose trust is not listed in byTrust.
	// +required
	Level PodSecurityLevel `json:"level"`

	// byTrust is the level by the pool's spec.trust.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 63)",message="a trust must have at most 63 characters"
	ByTrust map[string]PodSecurityLevel `json:"byTrust,omitempty"`

	// hostPaths that pods may mount, with everything below them, even if the pod's level forbids hostPath volumes:
	// /var/cache/ci. Anyone who can write there can create links to other places of the node.
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
	// requireRequests lists resources that every container, including init containers, must request: cpu, memory. A limit
	// also counts, because Kubernetes uses it as the request. A request or limit of the pod itself (spec.resources) counts
	// for every container.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name must have at most 317 characters"
	RequireRequests []corev1.ResourceName `json:"requireRequests,omitempty"`

	// requireLimits lists resources for which every container, including init containers, must have a limit.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name must have at most 317 characters"
	RequireLimits []corev1.ResourceName `json:"requireLimits,omitempty"`

	// maxPerPod is the maximum for the sum of a pod's requests, and for the sum of its limits, computed as Kubernetes
	// does: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 1}. A container without a limit adds nothing to the sum, so
	// set requireLimits as well.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name must have at most 317 characters"
	MaxPerPod map[corev1.ResourceName]Quantity `json:"maxPerPod,omitempty"`
}

// HourRules limit pools by the time of the week.
//
// Times are local times in timeZone. When clocks go back, the repeated hour counts only once: no window
// opens or closes twice. When clocks go forward, a window that would begin or end in the skipped hour
// does so at that moment.
// +kubebuilder:validation:XValidation:rule="!has(self.closed) || has(self.open)",message="closed requires open: closed applies outside of the open windows"
type HourRules struct {
	// timeZone is the name of a zone in the IANA database: Europe/Berlin. Default: UTC.
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

	// freezes hold updates for a period, and can also limit pools in it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Freezes []Freeze `json:"freezes,omitempty"`
}

// WeeklyWindow is a time of the week. If to is not later than from, the window continues past
// midnight, to the next day.
type WeeklyWindow struct {
	// days on which the window begins. Default: every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// from is the time at which the window begins, HH:MM.
	// +required
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`

	// to is the time at which the window ends, HH:MM; 24:00 is midnight.
	// +required
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	To string `json:"to"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// HourLimits are upper limits for max, min and idle of a pool.
// +kubebuilder:validation:XValidation:rule="has(self.max) || has(self.min) || has(self.idle)",message="at least one of max, min and idle must be set"
// +kubebuilder:validation:XValidation:rule="self.assignedJobs == 'Serve' || has(self.max)",message="assignedJobs: Wait needs max"
type HourLimits struct {
	// max limits max.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
	// min limits min.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`
	// idle limits idle.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Idle *int32 `json:"idle,omitempty"`
	// assignedJobs sets what happens to jobs above max that GitHub has already assigned. Serve (default): they run. Wait: they wait.
	// +optional
	// +kubebuilder:default=Serve
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
}

// Freeze is a period in which pools are not updated.
// +kubebuilder:validation:XValidation:rule="self.from < self.to",message="from must be before to"
type Freeze struct {
	// name of the freeze.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// from is the beginning of the freeze: 2026-12-20T00:00:00Z, or with an offset such as +01:00.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	From metav1.Time `json:"from"`
	// to is the end of the freeze.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	To metav1.Time `json:"to"`
	// limits that apply during the freeze. Default: none.
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

// CeilingGroup determines which pools share a ceiling.
// +kubebuilder:validation:Enum=All;Namespace;Connection;Label
type CeilingGroup string

const (
	// CeilingAll is one ceiling for all pools.
	CeilingAll CeilingGroup = "All"
	// CeilingNamespace is a ceiling for each namespace.
	CeilingNamespace CeilingGroup = "Namespace"
	// CeilingConnection is a ceiling for each GitHubConnection.
	CeilingConnection CeilingGroup = "Connection"
	// CeilingLabel is a ceiling for each value of a label.
	CeilingLabel CeilingGroup = "Label"
)

// CeilingShare is how pools share a ceiling.
// +kubebuilder:validation:Enum=FirstCome;Fair
type CeilingShare string

const (
	// ShareFair reserves an equal part for each pool that needs runners. Pools may borrow the unused parts of others.
	ShareFair CeilingShare = "Fair"
	// ShareFirstCome gives runners to pools in the order of their requests.
	ShareFirstCome CeilingShare = "FirstCome"
)

// Ceiling is the maximum number of runners that a group of pools has together. A pool counts with its
// grant, which is the larger of its existing and its desired number of runners.
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || self.by != 'All'",message="overrides require that by is Namespace, Connection or Label"
// +kubebuilder:validation:XValidation:rule="(self.by == 'Label') == has(self.labelKey)",message="labelKey must be set when by is Label, and only then"
type Ceiling struct {
	// name of the ceiling.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// by determines the groups: the pools of a group have the same Namespace, Connection or Label. All is one group with all pools.
	// +required
	By CeilingGroup `json:"by"`

	// labelKey is the key of the label whose value determines the group. The ceiling does not limit pools without this label.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	LabelKey string `json:"labelKey,omitempty"`

	// max is the maximum number of runners of each group.
	// +required
	// +kubebuilder:validation:Minimum=0
	Max int32 `json:"max"`

	// overrides replace max for single groups, given by the name of their namespace or connection, or the value
	// of their label.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="a name must have at most 317 characters"
	Overrides map[string]CeilingMax `json:"overrides,omitempty"`

	// share is Fair (default): each pool that needs runners may have an equal part, and borrow
	// the unused parts of others. FirstCome: pools get runners in the order of their requests.
	// +optional
	Share CeilingShare `json:"share,omitempty"`

	// assignedJobs sets what happens to jobs above max that GitHub has already assigned. Wait (default): they wait. Serve: they run.
	// +optional
	// +kubebuilder:default=Wait
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
}

// CeilingMax is the maximum number of runners of one group.
// +kubebuilder:validation:Minimum=0
type CeilingMax int32

// Pause stops pools: they accept no jobs, and Corral removes their idle runners. Jobs that GitHub has already
// assigned still run, and updates are held.
type Pause struct {
	// reason for the pause, shown to users.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`

	// until is the end of the pause. Default: when the field pause is removed.
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
