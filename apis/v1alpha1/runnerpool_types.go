// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Defaults of RunnerPoolSpec.
const (
	// DefaultRunnerGroup is the runner group that always exists on GitHub.
	DefaultRunnerGroup = "default"
	// DefaultStartupDeadline limits the time from the creation of a pod to a running container.
	DefaultStartupDeadline = 10 * time.Minute
	// DefaultConnectDeadline limits the time from a running container to its connection to GitHub.
	DefaultConnectDeadline = 2 * time.Minute
	// DefaultMaxSurge is how many runners a rolling update may create beyond the desired number.
	DefaultMaxSurge = "25%"
	// MaxPoolBytes is the maximum size of a RunnerPool's spec in JSON, including the template.
	MaxPoolBytes = 256 << 10
	// MaxPoolLabels is the maximum number of a RunnerPool's own labels. The API server limits only their size. Each label
	// adds work, because policies count the runners of all pools with the same label together (input.usage.labels).
	MaxPoolLabels = 64
	// MaxPoolAnnotations is the maximum number of a RunnerPool's own annotations.
	MaxPoolAnnotations = 256
	// MaxContainers is the maximum number of containers in a template, including init containers.
	MaxContainers = 64
	// MaxVolumes is the maximum number of volumes in a template.
	MaxVolumes = 128
	// MaxFailedPodTTL is the maximum time for which the pod of a failed runner is kept.
	MaxFailedPodTTL = 24 * time.Hour
	// DefaultCanaryPause is how long canaries must be healthy.
	DefaultCanaryPause = 5 * time.Minute
)

// RunnerPoolSpec declares one set of runners.
// +kubebuilder:validation:XValidation:rule="self.mode != 'Observe' || oldSelf.mode == 'Observe'",message="mode cannot change back to Observe: set stopPolicy, or create another pool"
// +kubebuilder:validation:XValidation:rule="self.registration != 'REST' || !has(self.scaleSetName)",message="scaleSetName may not be set with registration REST: such runners have no scale set"
// +kubebuilder:validation:XValidation:rule="self.lifetime != 'Persistent' || self.registration == 'REST'",message="lifetime Persistent needs registration REST: runners of a scale set take one job"
// +kubebuilder:validation:XValidation:rule="!has(self.persistent) || self.lifetime == 'Persistent'",message="persistent may only be set with lifetime Persistent"
// +kubebuilder:validation:XValidation:rule="!(self.lifetime == 'Persistent' && has(self.runnerLabels) && self.runnerLabels.exists(l, l.contains(',')))",message="runnerLabels of persistent runners must not contain commas: the runner program splits labels at commas"
// +kubebuilder:validation:XValidation:rule="has(self.template)",message="template must be set"
// +kubebuilder:validation:XValidation:rule="self.stopPolicy != 'Hold' || self.registration != 'REST'",message="stopPolicy Hold needs a scale set: GitHub gives jobs to every idle REST runner"
// +kubebuilder:validation:XValidation:rule="!has(self.rest) || self.registration == 'REST'",message="rest may only be set with registration REST"
type RunnerPoolSpec struct {
	// connectionRef names the GitHubConnection that registers the runners. A connection in another namespace must allow this
	// namespace (spec.allowedNamespaces).
	// +required
	ConnectionRef ConnectionReference `json:"connectionRef,omitzero"`

	// scaleSetName is the name on GitHub, unique in its runner group. Default: the pool's name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('corral-owner-')",message="scaleSetName must not begin with corral-owner-: this prefix is reserved in runner labels, and scaleSetName is the default of runnerLabels"
	ScaleSetName string `json:"scaleSetName,omitempty"`

	// runnerGroup is the name of the runner group on GitHub. Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:default=default
	RunnerGroup string `json:"runnerGroup,omitempty"`

	// runnerLabels are the labels that jobs request with runs-on. Default: the scale set's name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.all(l, l == l.trim())",message="runnerLabels must not begin or end with white space"
	// +kubebuilder:validation:XValidation:rule="self.all(l, self.exists_one(m, m.lowerAscii() == l.lowerAscii()))",message="runnerLabels must differ by more than case: GitHub ignores case"
	// +kubebuilder:validation:XValidation:rule="self.all(l, !l.lowerAscii().startsWith('corral-owner-'))",message="runnerLabels must not begin with corral-owner-: the controller identifies its own runners by this prefix"
	RunnerLabels []string `json:"runnerLabels,omitempty"`

	// registration is ScaleSet (default), or REST for runners without a scale set. With REST, only the sources in
	// spec.demand report jobs.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="registration is immutable: create another pool"
	// +kubebuilder:default=ScaleSet
	Registration Registration `json:"registration,omitempty"`

	// rest configures runners with registration REST.
	// +optional
	REST *RESTSpec `json:"rest,omitempty"`

	LifetimeSpec `json:",inline"`

	// mode is Active (default) or Observe. A pool with mode Observe makes and reports decisions, but does not act on them. An
	// active pool cannot change to Observe.
	// +optional
	// +kubebuilder:default=Active
	Mode PoolMode `json:"mode,omitempty"`

	// scale limits the number of runners, at all times or by schedule, and how fast the number changes.
	// +optional
	// +kubebuilder:default={}
	Scale ScaleSpec `json:"scale,omitzero"`

	// demand lists the sources that report jobs in addition to the scale set.
	// +optional
	Demand DemandSpec `json:"demand,omitzero"`

	// deadlines limit how long a runner may stay in a state.
	// +optional
	// +kubebuilder:default={}
	Deadlines DeadlinesSpec `json:"deadlines,omitzero"`

	// trust classifies the code that runs on the runners, for example as public, internal or release. Policies use it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Trust string `json:"trust,omitempty"`

	// update is how Corral replaces runners when the template changes.
	// +optional
	// +kubebuilder:default={}
	Update UpdateSpec `json:"update,omitzero"`

	// template of the runner's pod: a PodTemplateSpec with a container named runner. Every pool must set it. The API server
	// stores it unchanged. Corral refuses unknown fields when it builds the pod.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`

	TemplateAdditions `json:",inline"`

	// stopPolicy is None (default), Hold or Drain. With Hold or Drain, the pool accepts no new jobs, but serves the jobs that it has
	// accepted. Hold keeps min and idle runners ready, and needs a scale set. Drain keeps only the runners that accepted jobs need.
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`

	// failedPodTTL is how long Corral keeps the pod of the last failed runner for debugging. The pod does not count towards max. Corral does
	// not keep a pod that was not scheduled or that has a claim of the cache. Default: 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) <= duration('24h')`,message="must be a duration of at most 24h, such as 10m"
	// +kubebuilder:default="0s"
	FailedPodTTL *metav1.Duration `json:"failedPodTTL,omitempty"`
}

// StopPolicy determines whether a pool accepts new jobs and, if it does not, which runners it keeps.
// +kubebuilder:validation:Enum=None;Hold;Drain
type StopPolicy string

const (
	// StopNone accepts jobs.
	StopNone StopPolicy = "None"
	// StopHold accepts no new jobs and keeps min and idle runners ready.
	StopHold StopPolicy = "Hold"
	// StopDrain accepts no new jobs and removes the runners that no accepted job needs.
	StopDrain StopPolicy = "Drain"
)

// ScaleSpec limits the number of runners: 0 ≤ min ≤ max, 0 ≤ idle ≤ max.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.min <= self.max",message="min must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.idle <= self.max",message="idle must not be above max"
type ScaleSpec struct {
	// min is the minimum number of runners in total. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=0
	Min *int32 `json:"min,omitempty"`

	// max is the maximum number of runners in total. Default: the pool itself sets no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Max *int32 `json:"max,omitempty"`

	// idle is the number of runners to keep free in addition to runners with jobs (ARC's minRunners). Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=0
	Idle *int32 `json:"idle,omitempty"`

	// idlePercentOfBusy sets idle as a percentage of the runners with a job, rounded up, if the result is greater than idle.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	IdlePercentOfBusy *int32 `json:"idlePercentOfBusy,omitempty"`

	// idleTimeout is how long the pool may have no job before Corral removes its idle runners, down to min. With the next
	// job, the pool has idle runners again. Default: idle runners stay.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$')`,message="must be a duration such as 90s, 10m or 168h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// schedules set min, max and idle for certain times. If several are active, the first one in the list that sets a number
	// applies. The order matters, so the list is not merged: only one field manager can own it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(s, self.exists_one(t, t.name == s.name))",message="two schedules must not have the same name"
	// +kubebuilder:validation:MaxItems=32
	Schedules []Schedule `json:"schedules,omitempty"`

	// behavior limits how fast the number of runners changes, like the behavior of a HorizontalPodAutoscaler.
	// +optional
	Behavior *ScalingBehavior `json:"behavior,omitempty"`
}

// UnboundedMax stands for "no maximum", as in ARC.
const UnboundedMax = math.MaxInt32

// DeadlinesSpec limits how long a runner may stay in a state.
type DeadlinesSpec struct {
	// startup limits the time from the creation of a runner's pod to its running container. While the runner has no pod, the
	// time counts from the runner's creation, but not while the runner waits for a quota or a claim. A runner that takes
	// longer no longer counts, and Corral replaces it. Default: 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('5s')`,message="must be a duration of at least 5s, such as 10m or 168h"
	// +kubebuilder:default="10m"
	Startup *metav1.Duration `json:"startup,omitempty"`

	// connect limits the time from a running container until GitHub reports the runner as online. Corral replaces a runner
	// that takes longer. Default: 2m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('5s')`,message="must be a duration of at least 5s, such as 10m or 168h"
	// +kubebuilder:default="2m"
	Connect *metav1.Duration `json:"connect,omitempty"`
}

// UpdateStrategy determines which runners of the previous template Corral replaces, and when.
// +kubebuilder:validation:Enum=RollingUpdate;Recreate;OnIdle
type UpdateStrategy string

const (
	// RollingUpdate replaces idle runners in steps, and creates new runners first.
	RollingUpdate UpdateStrategy = "RollingUpdate"
	// Recreate removes all idle runners of the previous template at once.
	Recreate UpdateStrategy = "Recreate"
	// OnIdle removes no runner for the update. Runners of the previous template end after their job, or when they are not
	// needed.
	OnIdle UpdateStrategy = "OnIdle"
)

// UpdateSpec configures how a change of the template rolls out. A runner with a job always finishes it.
// +kubebuilder:validation:XValidation:rule="!(has(self.maxSurge) && has(self.maxUnavailable) && string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",message="maxSurge and maxUnavailable must not both be 0"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'RollingUpdate' || !(has(self.maxSurge) || has(self.maxUnavailable))",message="maxSurge and maxUnavailable may only be set with strategy RollingUpdate"
type UpdateSpec struct {
	// strategy is RollingUpdate (default), Recreate or OnIdle.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy UpdateStrategy `json:"strategy,omitempty"`

	// maxSurge is how many runners beyond the desired number may exist during the update, as a number or a percentage of the
	// desired number, rounded up. Default: 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many of the desired runners may be missing during the update, as a number or a percentage of the
	// desired number, rounded down. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// canary tries the new template with a few runners first.
	// +optional
	Canary *CanarySpec `json:"canary,omitempty"`

	// paused holds the update in its current state: new runners use the previous template.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// CanarySpec is the first step of an update.
// +kubebuilder:validation:XValidation:rule="!(string(self.runners) in ['0', '0%'])",message="runners must be at least 1: omit canary to update without canaries"
type CanarySpec struct {
	// runners of the new template, as a number or a percentage of the desired number, rounded up.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	Runners intstr.IntOrString `json:"runners"`

	// pause is how long the canaries must be healthy before the update proceeds. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$')`,message="must be a duration such as 90s, 10m or 168h"
	// +kubebuilder:default="5m"
	Pause *metav1.Duration `json:"pause,omitempty"`
}

// RunnerPoolStatus contains the last decisions and observations.
type RunnerPoolStatus struct {
	// observedGeneration is the last reconciled generation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, TemplateValid, PolicyAllowed, Healthy, Updated, RunnerVersionSupported, Saturated, Drainable, and
	// Reconciling or Stalled while they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions in machine-readable form, beginning with the causes of Ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`

	// revision is the name of the ControllerRevision from which new runners are created.
	// +optional
	Revision string `json:"revision,omitempty"`

	// update is the template change in progress, or the last change that was rolled back.
	// +optional
	Update *UpdateStatus `json:"update,omitempty"`

	// policy is the result of evaluating policies on the pod of spec.template.
	// +optional
	Policy *TemplateVerdict `json:"policy,omitempty"`

	// jobs is the number of unfinished jobs that are assigned to the pool. Absent until they are counted for the first time.
	// +optional
	Jobs *int32 `json:"jobs,omitempty"`

	// jobsWaiting is the number of jobs that wait because the pool currently accepts no more jobs, for example because it
	// has reached its max.
	// +optional
	JobsWaiting int32 `json:"jobsWaiting,omitempty"`

	// demand lists the result of each source of demand, if there are several sources.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	Demand []DemandStatus `json:"demand,omitempty"`

	// schedule contains the numbers of spec.scale after the active schedules are applied.
	// +optional
	Schedule *ScheduleStatus `json:"schedule,omitempty"`

	// observation is what a pool with mode Observe would do.
	// +optional
	Observation *Observation `json:"observation,omitempty"`

	// selector of the pool's pods, for the scale subresource. kubectl scale and autoscalers use this subresource to set
	// spec.scale.min.
	// +optional
	Selector string `json:"selector,omitempty"`

	// runners counts runners by state.
	// +optional
	Runners RunnerCounts `json:"runners"`

	// cache counts the claims of the pool's cache.
	// +optional
	Cache *CacheStatus `json:"cache,omitempty"`

	// runnerVersion is the version of the runner program in the pool's image, if GitHub reports it.
	// +optional
	RunnerVersion *RunnerVersionStatus `json:"runnerVersion,omitempty"`

	// decision is the last scaling decision that changed something.
	// +optional
	Decision *Decision `json:"decision,omitempty"`

	// failures lists the last failed runners, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Failures []RunnerFailure `json:"failures,omitempty"`

	// health records consecutive failures of runners. It is absent while runners do not fail.
	// +optional
	Health *HealthStatus `json:"health,omitempty"`

	// lastHandledRetryAt is the last value of the annotation corral.dev/retry that Corral has processed.
	// +optional
	LastHandledRetryAt string `json:"lastHandledRetryAt,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// HealthStatus records consecutive failures, so that the counts survive a restart of the controller.
type HealthStatus struct {
	// revision of the template that the runners were created from.
	Revision string `json:"revision"`
	// circuit counts runners that failed for a cause that may be permanent, such as an image that cannot be pulled.
	// +optional
	Circuit *FailureCount `json:"circuit,omitempty"`
	// rounds counts consecutive rounds in which no runner worked because of other causes, such as nodes that refuse pods. A
	// round consists of the runners that Corral created before it noticed the first failure of the round.
	// +optional
	Rounds *FailureCount `json:"rounds,omitempty"`
	// interruption reports that nodes, users or other controllers stop the pool's runners.
	// +optional
	Interruption *Interruption `json:"interruption,omitempty"`
}

// FailureCount counts consecutive failures.
type FailureCount struct {
	// count of consecutive failures.
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
	// cause of the last failure.
	Cause RunnerCause `json:"cause"`
	// message about the last failure, at most 300 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// last is the time of the last failure.
	Last metav1.Time `json:"last"`
	// nextAttempt is when the pool tries another runner.
	NextAttempt metav1.Time `json:"nextAttempt"`
}

// Interruption reports that nodes, users or other controllers stop a pool's runners.
type Interruption struct {
	// reason is NodesFailing or PodsDeleted.
	Reason string `json:"reason"`
	// nodes that refused or stopped runners, in alphabetical order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Nodes []string `json:"nodes,omitempty"`
	// message about the last such event, at most 300 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// last is the time of the last such event.
	Last metav1.Time `json:"last"`
}

// GetJobs returns the number of jobs; 0 until they are counted.
func (s *RunnerPoolStatus) GetJobs() int32 { return ptr.Deref(s.Jobs, 0) }

// InForce returns the revision of new runners that are not canaries. During an update, this is the previous revision,
// unless the phase is Rolling.
func (s *RunnerPoolStatus) InForce() string {
	if u := s.Update; u != nil && u.Phase != UpdateRolling {
		return u.From
	}
	return s.Revision
}

// RunnerVersionStatus is the version of the runner program and how long GitHub accepts it.
type RunnerVersionStatus struct {
	// version that a connected runner reported to GitHub.
	Version string `json:"version"`
	// revision of the template of that runner.
	Revision string `json:"revision"`
	// latest release. Absent if the connection cannot read the list of releases.
	// +optional
	Latest string `json:"latest,omitempty"`
	// updateBy is 30 days after the first newer release was published: GitHub may refuse the version from then on. Absent if
	// there is no newer release.
	// +optional
	UpdateBy *metav1.Time `json:"updateBy,omitempty"`
}

// RunnerCounts counts a pool's runners by state. A count that is zero may be absent.
type RunnerCounts struct {
	// total of all Runner objects.
	// +optional
	Total int32 `json:"total"`
	// pending: not registered or without a running container yet.
	// +optional
	Pending int32 `json:"pending"`
	// idle: running, without a job.
	// +optional
	Idle int32 `json:"idle"`
	// busy: running a job.
	// +optional
	Busy int32 `json:"busy"`
	// finished: completed their job, being cleaned up.
	// +optional
	Finished int32 `json:"finished"`
	// failed: ended without a job, or missed a deadline.
	// +optional
	Failed int32 `json:"failed"`
	// outdated: created from an older template revision. Each is also counted in its state.
	// +optional
	Outdated int32 `json:"outdated"`
}

// Decision is a scaling decision with its reason.
type Decision struct {
	// time at which these numbers were first decided.
	Time metav1.Time `json:"time"`
	// desired number of runners.
	Desired int32 `json:"desired"`
	// announced capacity: the maximum number of jobs that GitHub may assign to the pool in total.
	Announced int32 `json:"announced"`
	// reason in one sentence.
	Reason string `json:"reason"`
	// jobsUnknown is true if the number of jobs was unknown. In this case, Corral neither started nor removed runners.
	// +optional
	JobsUnknown bool `json:"jobsUnknown,omitempty"`

	// id of the policies' decision on the limits.
	// +optional
	ID string `json:"id,omitempty"`
	// policyDigest of the evaluated policies; empty if no policy applies.
	// +optional
	PolicyDigest string `json:"policyDigest,omitempty"`
	// limits in force. They stay in force while a policy fails.
	// +optional
	Limits *DecidedLimits `json:"limits,omitempty"`
	// jobsHeld is the number of accepted jobs that wait because of a policy with assignedJobs: Wait.
	// +optional
	JobsHeld int32 `json:"jobsHeld,omitempty"`
	// before contains the numbers of the previous decision.
	// +optional
	Before *DecidedNumbers `json:"before,omitempty"`
}

// DecidedNumbers are the numbers of a decision.
type DecidedNumbers struct {
	// desired number of runners.
	Desired int32 `json:"desired"`
	// announced capacity.
	Announced int32 `json:"announced"`
	// max that was decided.
	Max int32 `json:"max"`
}

// DecidedLimits are a pool's limits after policies are applied.
type DecidedLimits struct {
	// min runners.
	Min int32 `json:"min"`
	// max runners; absent if there is no limit.
	// +optional
	Max *int32 `json:"max,omitempty"`
	// idle runners.
	Idle int32 `json:"idle"`
	// assignedJobs is Wait if jobs that GitHub has assigned above max must wait; otherwise it is absent.
	// +optional
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
	// shared is true if rules read the grants of other pools. A grant is the number of runners that Corral reserves for a
	// pool.
	// +optional
	Shared bool `json:"shared,omitempty"`
	// until is when Corral makes the next decision at the latest.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// bounds lists the rules that changed a declared number.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Bounds []LimitBound `json:"bounds,omitempty"`
	// conflicts lists rules that other rules override, and rules without effect.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Conflicts []string `json:"conflicts,omitempty"`
}

// LimitBound is a rule that changed a number.
type LimitBound struct {
	// field is min, max or idle.
	Field string `json:"field"`
	// declared number.
	Declared int32 `json:"declared"`
	// value that the rule sets.
	Value int32 `json:"value"`
	// reason that the rule gives.
	// +optional
	Reason string `json:"reason,omitempty"`
	// rule that sets the value.
	Rule RuleReference `json:"rule"`
}

// RuleReference identifies a rule and its position in a file.
type RuleReference struct {
	// policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// name of the rule, for example corral.scaling.limit, with its code if it has one.
	Name string `json:"name"`
	// file that contains it.
	// +optional
	File string `json:"file,omitempty"`
	// line in the file.
	// +optional
	Line int32 `json:"line,omitempty"`
}

// String returns the rule and its position as "POLICY NAME (FILE:LINE)".
func (r RuleReference) String() string {
	if r.File == "" {
		return r.Policy + " " + r.Name
	}
	return fmt.Sprintf("%s %s (%s:%d)", r.Policy, r.Name, r.File, r.Line)
}

// WithReason returns the rule and its position, followed by a reason unless it is empty.
func (r RuleReference) WithReason(reason string) string {
	if reason == "" {
		return r.String()
	}
	return r.String() + ": " + reason
}

// PolicyFinding is a problem that a rule found in a pod.
type PolicyFinding struct {
	// message describes the problem.
	Message string `json:"message"`
	// path of the field in the pod, for example spec.containers[0].image.
	// +optional
	Path string `json:"path,omitempty"`
	// code of the finding, if the rule sets one.
	// +optional
	Code string `json:"code,omitempty"`
	// severity, if the rule sets one.
	// +optional
	Severity string `json:"severity,omitempty"`
	// remediation describes the fix.
	// +optional
	Remediation string `json:"remediation,omitempty"`
	// rule that found the problem.
	Rule RuleReference `json:"rule"`
}

// TemplateVerdict is the result of evaluating policies on the pod of a template.
type TemplateVerdict struct {
	// revision that was evaluated.
	Revision string `json:"revision"`
	// templateDigest is the SHA-256 of the evaluated template, because the revisions of different templates may have the same
	// name.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TemplateDigest string `json:"templateDigest,omitempty"`
	// policyDigest of the evaluated policies.
	// +optional
	PolicyDigest string `json:"policyDigest,omitempty"`
	// allowed is false if a policy denies the pod.
	Allowed bool `json:"allowed"`
	// denials, the first 16.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Denials []PolicyFinding `json:"denials,omitempty"`
	// warnings, the first 16.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Warnings []PolicyFinding `json:"warnings,omitempty"`
}

// Denies reports whether policies denied a template, identified by its revision's name or by its digest.
func (t *TemplateVerdict) Denies(revision, digest string) bool {
	return t != nil && !t.Allowed && (t.Revision == revision || t.TemplateDigest != "" && t.TemplateDigest == digest)
}

// UpdatePhase is the phase of an update.
// +kubebuilder:validation:Enum=Canary;Rolling;Held;RolledBack
type UpdatePhase string

const (
	// UpdateCanary runs canaries with the new template, and waits for their results.
	UpdateCanary UpdatePhase = "Canary"
	// UpdateRolling replaces the runners of the previous template.
	UpdateRolling UpdatePhase = "Rolling"
	// UpdateHeld means that the update is on hold, because a user paused it or a policy holds it.
	UpdateHeld UpdatePhase = "Held"
	// UpdateRolledBack means that runners of the new template failed, and the previous template is in force. The update
	// continues if runners of the previous template fail too.
	UpdateRolledBack UpdatePhase = "RolledBack"
)

// UpdateStatus describes a change of the template that is in progress or was rolled back.
type UpdateStatus struct {
	// from is the previous revision.
	From string `json:"from"`
	// to is the new revision.
	To string `json:"to"`
	// phase of the update.
	Phase UpdatePhase `json:"phase"`
	// since is when the phase began.
	Since metav1.Time `json:"since"`
	// reason in one sentence.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Way returns "from NOUN A to NOUN B", where A and B are the names of the two revisions. It returns "to NOUN B" if the
// previous template no longer exists.
func (u *UpdateStatus) Way(noun string) string {
	if u.From == "" {
		return "to " + noun + u.To
	}
	return "from " + noun + u.From + " to " + u.To
}

// RunnerPool is one set of runners. It may have at most 64 labels and 256 annotations.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rpool,categories=corral
// +kubebuilder:subresource:scale:specpath=.spec.scale.min,statuspath=.status.runners.total,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.connectionRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Jobs",type=integer,JSONPath=`.status.jobs`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.decision.desired`
// +kubebuilder:printcolumn:name="Runners",type=integer,JSONPath=`.status.runners.total`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.runners.idle`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.runners.busy`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.status.decision.limits.max`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.decision.reason`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || (size(self.metadata.name) <= 48 && !self.metadata.name.contains('.'))",optionalOldSelf=true,message="a pool's name must have at most 48 characters and no dots: the names of its objects derive from it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.startsWith('corral-owner-')",message="a pool's name must not begin with corral-owner-: this prefix is reserved in runner labels, and the name is the default of runnerLabels"
type RunnerPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerPoolSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RunnerPoolStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// GetConditions returns the status conditions.
func (p *RunnerPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// Causes returns the list of causes in the status.
func (p *RunnerPool) Causes() *[]Cause { return &p.Status.Causes }

// SetConditions replaces the status conditions.
func (p *RunnerPool) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// GetScaleSetName returns the name on GitHub.
func (p *RunnerPool) GetScaleSetName() string { return cmp.Or(p.Spec.ScaleSetName, p.Name) }

// GetRunnerLabels returns the labels that jobs request.
func (p *RunnerPool) GetRunnerLabels() []string {
	if len(p.Spec.RunnerLabels) == 0 {
		return []string{p.GetScaleSetName()}
	}
	return p.Spec.RunnerLabels
}

// GetRunnerGroup returns the runner group on GitHub.
func (s *RunnerPoolSpec) GetRunnerGroup() string { return cmp.Or(s.RunnerGroup, DefaultRunnerGroup) }

// GetStopPolicy returns the stop policy, which is StopNone by default.
func (s *RunnerPoolSpec) GetStopPolicy() StopPolicy { return cmp.Or(s.StopPolicy, StopNone) }

// Stops reports whether spec.stopPolicy keeps the pool from accepting new jobs.
func (s *RunnerPoolSpec) Stops() bool { return s.GetStopPolicy() != StopNone }

// GetMin returns the minimum number of runners in total.
func (s *ScaleSpec) GetMin() int32 { return ptr.Deref(s.Min, 0) }

// GetMax returns the maximum number of runners in total.
func (s *ScaleSpec) GetMax() int32 { return ptr.Deref(s.Max, UnboundedMax) }

// GetIdle returns the number of runners to keep free.
func (s *ScaleSpec) GetIdle() int32 { return ptr.Deref(s.Idle, 0) }

// GetFailedPodTTL returns how long the pod of the last failed runner is kept; 0 for not at all.
func (s *RunnerPoolSpec) GetFailedPodTTL() time.Duration { return durationOr(s.FailedPodTTL, 0) }

// GetConnect returns the time limit from a running container until GitHub reports the runner as online.
func (d *DeadlinesSpec) GetConnect() time.Duration {
	if d.Connect == nil {
		return DefaultConnectDeadline
	}
	return d.Connect.Duration
}

// GetStartup returns the time limit from the creation of a pod to a running container.
func (d *DeadlinesSpec) GetStartup() time.Duration {
	if d.Startup == nil {
		return DefaultStartupDeadline
	}
	return d.Startup.Duration
}

// GetStrategy returns the update strategy, which is RollingUpdate by default.
func (u *UpdateSpec) GetStrategy() UpdateStrategy { return cmp.Or(u.Strategy, RollingUpdate) }

// GetMaxSurge returns how many runners beyond the desired number may exist during an update.
func (u *UpdateSpec) GetMaxSurge() intstr.IntOrString {
	return ptr.Deref(u.MaxSurge, intstr.FromString(DefaultMaxSurge))
}

// GetMaxUnavailable returns how many of the desired runners may be missing during an update.
func (u *UpdateSpec) GetMaxUnavailable() intstr.IntOrString {
	return ptr.Deref(u.MaxUnavailable, intstr.FromInt32(0))
}

// GetPause returns how long canaries must be healthy.
func (c *CanarySpec) GetPause() time.Duration {
	if c.Pause == nil {
		return DefaultCanaryPause
	}
	return c.Pause.Duration
}

// SetObservedGeneration records the reconciled generation.
func (p *RunnerPool) SetObservedGeneration(generation int64) {
	p.Status.ObservedGeneration = generation
}

// RunnerPoolList is a list of RunnerPools.
// +kubebuilder:object:root=true
type RunnerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerPool `json:"items"`
}
