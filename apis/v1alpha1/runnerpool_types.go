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
	// DefaultRunnerGroup is the group every GitHub scope has.
	DefaultRunnerGroup = "default"
	// DefaultStartupDeadline is how long a pod may take from its creation to a running container.
	DefaultStartupDeadline = 10 * time.Minute
	// DefaultConnectDeadline is how long a runner may take from a running container to GitHub.
	DefaultConnectDeadline = 2 * time.Minute
	// DefaultMaxSurge is what a rolling update may take beyond the desired number.
	DefaultMaxSurge = "25%"
	// MaxPoolBytes is the most that a RunnerPool's spec takes as JSON, its template included.
	MaxPoolBytes = 256 << 10
	// MaxContainers is the most containers of a template, init containers included.
	MaxContainers = 64
	// MaxVolumes is the most volumes of a template.
	MaxVolumes = 128
	// MaxFailedPodTTL is the longest time that the pod of a failed runner is kept.
	MaxFailedPodTTL = 24 * time.Hour
	// DefaultCanaryPause is how long canaries have to do well.
	DefaultCanaryPause = 5 * time.Minute
)

// RunnerPoolSpec declares one set of runners.
// +kubebuilder:validation:XValidation:rule="self.mode != 'Observe' || oldSelf.mode == 'Observe'",message="mode never goes back to Observe: set stopPolicy, or make another pool"
// +kubebuilder:validation:XValidation:rule="self.registration != 'REST' || !has(self.scaleSetName)",message="scaleSetName may not be set with registration REST: such runners have no scale set"
// +kubebuilder:validation:XValidation:rule="self.lifetime != 'Persistent' || self.registration == 'REST'",message="lifetime Persistent needs registration REST: runners of a scale set take one job"
// +kubebuilder:validation:XValidation:rule="!has(self.persistent) || self.lifetime == 'Persistent'",message="persistent may only be set with lifetime Persistent"
// +kubebuilder:validation:XValidation:rule="!(self.lifetime == 'Persistent' && has(self.runnerLabels) && self.runnerLabels.exists(l, l.contains(',')))",message="runnerLabels of persistent runners must not have a comma: the runner program splits labels there"
// +kubebuilder:validation:XValidation:rule="has(self.template)",message="template must be set"
// +kubebuilder:validation:XValidation:rule="self.stopPolicy != 'Hold' || self.registration != 'REST'",message="stopPolicy Hold needs a scale set: GitHub gives jobs to every idle REST runner"
// +kubebuilder:validation:XValidation:rule="!has(self.rest) || self.registration == 'REST'",message="rest may only be set with registration REST"
type RunnerPoolSpec struct {
	// connectionRef names the GitHubConnection that the runners belong to; one of another namespace must allow this one
	// (spec.allowedNamespaces).
	// +required
	ConnectionRef ConnectionReference `json:"connectionRef,omitzero"`

	// scaleSetName is the name on GitHub, unique in its runner group. Default: the pool's name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().startsWith('corral-owner-')",message="scaleSetName must not begin with corral-owner-: without labels it is the runners' label"
	ScaleSetName string `json:"scaleSetName,omitempty"`

	// runnerGroup on GitHub. Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:default=default
	RunnerGroup string `json:"runnerGroup,omitempty"`

	// runnerLabels are the labels that jobs ask for with runs-on. Default: the scale set's name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.all(l, l == l.trim())",message="runnerLabels must not begin or end with white space"
	// +kubebuilder:validation:XValidation:rule="self.all(l, self.exists_one(m, m.lowerAscii() == l.lowerAscii()))",message="runnerLabels must differ by more than case: GitHub compares them without it"
	// +kubebuilder:validation:XValidation:rule="self.all(l, !l.lowerAscii().startsWith('corral-owner-'))",message="runnerLabels must not begin with corral-owner-: the controller knows its own runners by them"
	RunnerLabels []string `json:"runnerLabels,omitempty"`

	// registration is ScaleSet (default), or REST for runners without a scale set. The sources in demand report their jobs.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="registration never changes: make another pool"
	// +kubebuilder:default=ScaleSet
	Registration Registration `json:"registration,omitempty"`

	// rest configures runners with registration REST.
	// +optional
	REST *RESTSpec `json:"rest,omitempty"`

	LifetimeSpec `json:",inline"`

	// mode is Active (default), or Observe for a pool that decides and reports what it would do, and acts on nothing. An
	// active pool never goes back to Observe.
	// +optional
	// +kubebuilder:default=Active
	Mode PoolMode `json:"mode,omitempty"`

	// scale is how many runners there are, at which times, and how fast the number changes.
	// +optional
	// +kubebuilder:default={}
	Scale ScaleSpec `json:"scale,omitzero"`

	// demand lists the sources that report jobs in addition to the scale set.
	// +optional
	Demand DemandSpec `json:"demand,omitzero"`

	// deadlines bound how long a runner may stay in a state.
	// +optional
	// +kubebuilder:default={}
	Deadlines DeadlinesSpec `json:"deadlines,omitzero"`

	// trust says whose code the runners run, in a word that policies know, such as public, internal or release.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Trust string `json:"trust,omitempty"`

	// update is how Corral replaces runners when the template changes.
	// +optional
	// +kubebuilder:default={}
	Update UpdateSpec `json:"update,omitzero"`

	// template of the runner's pod: a PodTemplateSpec with a container named runner. Every pool must set it.
	// It is kept as written; unknown fields are refused when the pod is built.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`

	TemplateAdditions `json:",inline"`

	// stopPolicy is None (default), Hold or Drain. Hold accepts no new jobs, serves accepted ones, and keeps min and idle runners ready;
	// it needs a scale set. Drain accepts no new jobs and keeps only the runners that accepted jobs need: idle runners end, busy ones finish.
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`

	// failedPodTTL keeps the ended pod of the last failed runner for debugging. It does not count towards max. Pods without a node or with a
	// claim of the cache are not kept. Default: 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) <= duration('24h')`,message="must be a duration of at most 24h, such as 10m"
	// +kubebuilder:default="0s"
	FailedPodTTL *metav1.Duration `json:"failedPodTTL,omitempty"`
}

// StopPolicy determines whether a pool accepts jobs, and which runners it keeps if not.
// +kubebuilder:validation:Enum=None;Hold;Drain
type StopPolicy string

const (
	// StopNone accepts jobs.
	StopNone StopPolicy = "None"
	// StopHold accepts no new jobs and keeps min and idle runners ready.
	StopHold StopPolicy = "Hold"
	// StopDrain accepts no new jobs and ends the runners that no accepted job needs.
	StopDrain StopPolicy = "Drain"
)

// ScaleSpec bounds the number of runners: 0 ≤ min ≤ max, 0 ≤ idle ≤ max.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.min <= self.max",message="min must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.idle <= self.max",message="idle must not be above max"
type ScaleSpec struct {
	// min is the fewest runners in total. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=0
	Min *int32 `json:"min,omitempty"`

	// max is the most runners in total. Default: no bound of the pool's own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Max *int32 `json:"max,omitempty"`

	// idle is how many runners are kept free beyond those with jobs (ARC's minRunners). Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=0
	Idle *int32 `json:"idle,omitempty"`

	// idlePercentOfBusy keeps idle runners as a percentage of those with a job, rounded up, where that is more than idle.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	IdlePercentOfBusy *int32 `json:"idlePercentOfBusy,omitempty"`

	// idleTimeout ends idle runners after so long without a job; the next job brings them back. min stays.
	// Default: they stay.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$')`,message="must be a duration such as 90s, 10m or 168h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// schedules set min, max and idle for times. Of several that hold at a time, the first in the list that sets a number decides, so the list
	// has one owner: it isn't merged.
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

// DeadlinesSpec bounds how long a runner may stay in a state.
type DeadlinesSpec struct {
	// startup is the longest time from the creation of a runner's pod to its running container. While it has no pod, the time counts
	// from the runner's creation, but not while a quota or a missing claim keeps it waiting. A runner that takes longer counts
	// for nothing and is replaced. Default: 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('5s')`,message="must be a duration of at least 5s, such as 10m or 168h"
	// +kubebuilder:default="10m"
	Startup *metav1.Duration `json:"startup,omitempty"`

	// connect is the longest time from a running container to a runner that GitHub counts
	// as online; past it the runner is replaced. Default: 2m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('5s')`,message="must be a duration of at least 5s, such as 10m or 168h"
	// +kubebuilder:default="2m"
	Connect *metav1.Duration `json:"connect,omitempty"`
}

// UpdateStrategy is which runners of the previous template Corral replaces, and when.
// +kubebuilder:validation:Enum=RollingUpdate;Recreate;OnIdle
type UpdateStrategy string

const (
	// RollingUpdate replaces idle runners in steps, new ones first.
	RollingUpdate UpdateStrategy = "RollingUpdate"
	// Recreate ends all idle runners of the previous template at once.
	Recreate UpdateStrategy = "Recreate"
	// OnIdle ends none for the update: runners leave with their job, or as surplus.
	OnIdle UpdateStrategy = "OnIdle"
)

// UpdateSpec is how a change of the template rolls out. A runner with a job always finishes it.
// +kubebuilder:validation:XValidation:rule="!(has(self.maxSurge) && has(self.maxUnavailable) && string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",message="maxSurge and maxUnavailable must not both be 0"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'RollingUpdate' || !(has(self.maxSurge) || has(self.maxUnavailable))",message="maxSurge and maxUnavailable may only be set with strategy RollingUpdate"
type UpdateSpec struct {
	// strategy is RollingUpdate (default), Recreate or OnIdle.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy UpdateStrategy `json:"strategy,omitempty"`

	// maxSurge is how many runners beyond the desired number there may be meanwhile, as a number or
	// a percentage of it, rounded up. Default: 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string || (self >= 0 && self <= 999999)",message="must be 0 to 999999, or a percentage"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}%?$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many runners below the desired number there may be meanwhile, as a number
	// or a percentage of it, rounded down. Default: 0.
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
// +kubebuilder:validation:XValidation:rule="!(string(self.runners) in ['0', '0%'])",message="runners must be at least 1: leave out canary to try the new template with none"
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

// RunnerPoolStatus is the pool as last decided and observed.
type RunnerPoolStatus struct {
	// observedGeneration is the last generation acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, TemplateValid, PolicyAllowed, Healthy, Updated, RunnerVersionSupported, Saturated, Drainable, and Reconciling or Stalled while they hold.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions, for programs. Those of Ready are the first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`

	// revision is the name of the ControllerRevision new runners are made from.
	// +optional
	Revision string `json:"revision,omitempty"`

	// update is the change of the template under way, or the last that was rolled back.
	// +optional
	Update *UpdateStatus `json:"update,omitempty"`

	// policy is the verdict of policies on the pod of spec.template.
	// +optional
	Policy *TemplateVerdict `json:"policy,omitempty"`

	// jobs assigned to the pool and not finished. Absent until they were counted for the first time.
	// +optional
	Jobs *int32 `json:"jobs,omitempty"`

	// jobsWaiting is how many more jobs wait because the pool accepts no more.
	// +optional
	JobsWaiting int32 `json:"jobsWaiting,omitempty"`

	// demand is what each of several sources says.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	Demand []DemandStatus `json:"demand,omitempty"`

	// schedule has the numbers of spec.scale with the schedules that are in force.
	// +optional
	Schedule *ScheduleStatus `json:"schedule,omitempty"`

	// observation is what a pool in the mode Observe would do.
	// +optional
	Observation *Observation `json:"observation,omitempty"`

	// selector of the pool's pods, for the subresource scale: kubectl scale and autoscalers set spec.scale.min by it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// runners counts runners by state.
	// +optional
	Runners RunnerCounts `json:"runners"`

	// cache counts the claims of the pool's cache.
	// +optional
	Cache *CacheStatus `json:"cache,omitempty"`

	// runnerVersion is the version of the runner program in the pool's image, if GitHub tells it.
	// +optional
	RunnerVersion *RunnerVersionStatus `json:"runnerVersion,omitempty"`

	// decision is the last scaling decision that changed something.
	// +optional
	Decision *Decision `json:"decision,omitempty"`

	// failures are the last runners that failed, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Failures []RunnerFailure `json:"failures,omitempty"`

	// health records the runners that failed one after the other. It is absent while runners work.
	// +optional
	Health *HealthStatus `json:"health,omitempty"`

	// lastHandledRetryAt is the last value of the annotation corral.dev/retry that was acted on.
	// +optional
	LastHandledRetryAt string `json:"lastHandledRetryAt,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// HealthStatus records failures in a row, so that another controller process continues with them.
type HealthStatus struct {
	// revision of the template that the runners were created from.
	Revision string `json:"revision"`
	// circuit counts runners that failed for causes that may last, such as an image that cannot be pulled.
	// +optional
	Circuit *FailureCount `json:"circuit,omitempty"`
	// rounds counts attempts that produced no working runner for other causes, such as nodes that refuse pods.
	// +optional
	Rounds *FailureCount `json:"rounds,omitempty"`
	// interruption reports that nodes or others end the pool's runners.
	// +optional
	Interruption *Interruption `json:"interruption,omitempty"`
}

// FailureCount counts failures in a row.
type FailureCount struct {
	// count of failures in a row.
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

// Interruption reports that nodes or others end a pool's runners.
type Interruption struct {
	// reason is NodesFailing or PodsDeleted.
	Reason string `json:"reason"`
	// nodes that refused or ended runners, in alphabetical order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Nodes []string `json:"nodes,omitempty"`
	// message about the last such end, at most 300 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// last is the time of the last such end.
	Last metav1.Time `json:"last"`
}

// GetJobs returns how many jobs are known of; 0 until they were counted.
func (s *RunnerPoolStatus) GetJobs() int32 { return ptr.Deref(s.Jobs, 0) }

// InForce returns the revision of new runners, except for canaries: the previous revision until the update proceeds.
func (s *RunnerPoolStatus) InForce() string {
	if u := s.Update; u != nil && u.Phase != UpdateRolling {
		return u.From
	}
	return s.Revision
}

// RunnerVersionStatus is the version of the runner program, and how long it is good.
type RunnerVersionStatus struct {
	// version that a connected runner reported to GitHub.
	Version string `json:"version"`
	// revision of the template that the runner was of.
	Revision string `json:"revision"`
	// latest release. Absent where the connection doesn't reach the list of releases.
	// +optional
	Latest string `json:"latest,omitempty"`
	// updateBy is 30 days after the first newer release was published: GitHub may refuse the version from then on. Absent while there is none.
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
	// finished: done with its job, being cleaned up.
	// +optional
	Finished int32 `json:"finished"`
	// failed: ended without a job, or past a deadline.
	// +optional
	Failed int32 `json:"failed"`
	// outdated: of an older template revision (also counted in its state).
	// +optional
	Outdated int32 `json:"outdated"`
}

// Decision is a scaling decision and why it was taken.
type Decision struct {
	// time at which these numbers were first decided.
	Time metav1.Time `json:"time"`
	// desired number of runners.
	Desired int32 `json:"desired"`
	// announced capacity: the most jobs GitHub may have assigned to the pool in total.
	Announced int32 `json:"announced"`
	// reason in one sentence.
	Reason string `json:"reason"`
	// jobsUnknown is true if the number of jobs was not known: runners were neither started nor ended.
	// +optional
	JobsUnknown bool `json:"jobsUnknown,omitempty"`

	// id of the policies' decision on the limits.
	// +optional
	ID string `json:"id,omitempty"`
	// policyDigest of the policies that were asked; empty if none is bound.
	// +optional
	PolicyDigest string `json:"policyDigest,omitempty"`
	// limits in force. They stay in force while a policy fails.
	// +optional
	Limits *DecidedLimits `json:"limits,omitempty"`
	// jobsHeld is how many accepted jobs wait because of a policy with assignedJobs: Wait.
	// +optional
	JobsHeld int32 `json:"jobsHeld,omitempty"`
	// before are the numbers of the decision before.
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

// DecidedLimits are a pool's numbers after policies were asked.
type DecidedLimits struct {
	// min runners.
	Min int32 `json:"min"`
	// max runners; absent if nothing bounds them.
	// +optional
	Max *int32 `json:"max,omitempty"`
	// idle runners.
	Idle int32 `json:"idle"`
	// assignedJobs is Wait if assigned jobs above max wait; otherwise absent.
	// +optional
	AssignedJobs AssignedJobs `json:"assignedJobs,omitempty"`
	// shared is true when rules read what other pools were granted.
	// +optional
	Shared bool `json:"shared,omitempty"`
	// until is when they are decided again at the latest.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// bounds are the rules that made a number another than the declared one.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Bounds []LimitBound `json:"bounds,omitempty"`
	// conflicts are rules that lost against others, and rules that have no say.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Conflicts []string `json:"conflicts,omitempty"`
}

// LimitBound is a rule that bounds a number.
type LimitBound struct {
	// field is min, max or idle.
	Field string `json:"field"`
	// declared number.
	Declared int32 `json:"declared"`
	// value that the rule makes of it.
	Value int32 `json:"value"`
	// reason that the rule gives.
	// +optional
	Reason string `json:"reason,omitempty"`
	// rule that says so.
	Rule RuleReference `json:"rule"`
}

// RuleReference says where a rule stands.
type RuleReference struct {
	// policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// name of the rule, as corral.scaling.limit, with its code if it has one.
	Name string `json:"name"`
	// file that holds it.
	// +optional
	File string `json:"file,omitempty"`
	// line in the file.
	// +optional
	Line int32 `json:"line,omitempty"`
}

// String names the rule and where it stands, as "POLICY NAME (FILE:LINE)".
func (r RuleReference) String() string {
	if r.File == "" {
		return r.Policy + " " + r.Name
	}
	return fmt.Sprintf("%s %s (%s:%d)", r.Policy, r.Name, r.File, r.Line)
}

// Says names the rule and gives its reason, if it has one.
func (r RuleReference) Says(reason string) string {
	if reason == "" {
		return r.String()
	}
	return r.String() + ": " + reason
}

// PolicyFinding is what a rule says of a pod.
type PolicyFinding struct {
	// message describes the problem.
	Message string `json:"message"`
	// path of the field in the pod, as spec.containers[0].image.
	// +optional
	Path string `json:"path,omitempty"`
	// code of the finding, if the rule gives one.
	// +optional
	Code string `json:"code,omitempty"`
	// severity, if the rule gives one.
	// +optional
	Severity string `json:"severity,omitempty"`
	// remediation describes the fix.
	// +optional
	Remediation string `json:"remediation,omitempty"`
	// rule that says so.
	Rule RuleReference `json:"rule"`
}

// TemplateVerdict is what policies say of the pod of a template.
type TemplateVerdict struct {
	// revision that was judged.
	Revision string `json:"revision"`
	// templateDigest is the SHA-256 of the template that was judged: revisions of other templates may come to the same name.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TemplateDigest string `json:"templateDigest,omitempty"`
	// policyDigest of the policies that judged it.
	// +optional
	PolicyDigest string `json:"policyDigest,omitempty"`
	// allowed is false when a policy denies it.
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

// UpdatePhase is where an update is.
// +kubebuilder:validation:Enum=Canary;Rolling;Held;RolledBack
type UpdatePhase string

const (
	// UpdateCanary has the canaries of the new template, and waits how they do.
	UpdateCanary UpdatePhase = "Canary"
	// UpdateRolling replaces the runners of the previous template.
	UpdateRolling UpdatePhase = "Rolling"
	// UpdateHeld goes no further: paused, or held by a policy.
	UpdateHeld UpdatePhase = "Held"
	// UpdateRolledBack is over: runners of the new template failed, the previous one is in force. It continues if runners of that fail, too.
	UpdateRolledBack UpdatePhase = "RolledBack"
)

// UpdateStatus is a change of the template under way.
type UpdateStatus struct {
	// from is the revision that is replaced.
	From string `json:"from"`
	// to is the revision that replaces it.
	To string `json:"to"`
	// phase of the update.
	Phase UpdatePhase `json:"phase"`
	// since is when the phase began.
	Since metav1.Time `json:"since"`
	// reason in one sentence.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Way returns "from NOUN1 to NOUN2" with the names of the two revisions. The first is left out if its template is gone.
func (u *UpdateStatus) Way(noun string) string {
	if u.From == "" {
		return "to " + noun + u.To
	}
	return "from " + noun + u.From + " to " + u.To
}

// RunnerPool is one set of runners.
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
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.startsWith('corral-owner-')",message="a pool's name must not begin with corral-owner-: without labels it is the runners' label"
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

// Causes returns the list of causes in its status.
func (p *RunnerPool) Causes() *[]Cause { return &p.Status.Causes }

// SetConditions replaces the status conditions.
func (p *RunnerPool) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// GetScaleSetName returns the name on GitHub.
func (p *RunnerPool) GetScaleSetName() string { return cmp.Or(p.Spec.ScaleSetName, p.Name) }

// GetRunnerLabels returns the labels that jobs ask for.
func (p *RunnerPool) GetRunnerLabels() []string {
	if len(p.Spec.RunnerLabels) == 0 {
		return []string{p.GetScaleSetName()}
	}
	return p.Spec.RunnerLabels
}

// GetRunnerGroup returns the runner group on GitHub.
func (s *RunnerPoolSpec) GetRunnerGroup() string { return cmp.Or(s.RunnerGroup, DefaultRunnerGroup) }

// GetStopPolicy returns whether the pool accepts jobs, and which runners it keeps if not.
func (s *RunnerPoolSpec) GetStopPolicy() StopPolicy { return cmp.Or(s.StopPolicy, StopNone) }

// Stops reports whether spec.stopPolicy keeps the pool from accepting new jobs.
func (s *RunnerPoolSpec) Stops() bool { return s.GetStopPolicy() != StopNone }

// GetMin returns the fewest runners in total.
func (s *ScaleSpec) GetMin() int32 { return ptr.Deref(s.Min, 0) }

// GetMax returns the most runners in total.
func (s *ScaleSpec) GetMax() int32 { return ptr.Deref(s.Max, UnboundedMax) }

// GetIdle returns how many runners are kept free.
func (s *ScaleSpec) GetIdle() int32 { return ptr.Deref(s.Idle, 0) }

// GetFailedPodTTL returns how long the pod of the last failed runner is kept; 0 for not at all.
func (s *RunnerPoolSpec) GetFailedPodTTL() time.Duration { return durationOr(s.FailedPodTTL, 0) }

// GetConnect returns the longest time from a running container to a runner that GitHub sees.
func (d *DeadlinesSpec) GetConnect() time.Duration {
	if d.Connect == nil {
		return DefaultConnectDeadline
	}
	return d.Connect.Duration
}

// GetStartup returns the longest time from the creation of a pod to a running container.
func (d *DeadlinesSpec) GetStartup() time.Duration {
	if d.Startup == nil {
		return DefaultStartupDeadline
	}
	return d.Startup.Duration
}

// GetStrategy returns which runners are replaced, and when.
func (u *UpdateSpec) GetStrategy() UpdateStrategy { return cmp.Or(u.Strategy, RollingUpdate) }

// GetMaxSurge returns how many runners beyond the desired number there may be.
func (u *UpdateSpec) GetMaxSurge() intstr.IntOrString {
	return ptr.Deref(u.MaxSurge, intstr.FromString(DefaultMaxSurge))
}

// GetMaxUnavailable returns how many runners below the desired number there may be.
func (u *UpdateSpec) GetMaxUnavailable() intstr.IntOrString {
	return ptr.Deref(u.MaxUnavailable, intstr.FromInt32(0))
}

// GetPause returns how long canaries have to do well.
func (c *CanarySpec) GetPause() time.Duration {
	if c.Pause == nil {
		return DefaultCanaryPause
	}
	return c.Pause.Duration
}

// SetObservedGeneration records the generation that was acted on.
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
