// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Defaults of RunnerPoolSpec.
const (
	// DefaultRunnerGroup is the group every GitHub scope has.
	DefaultRunnerGroup = "default"
	// DefaultStartupDeadline is how long a runner may take from creation to a running container.
	DefaultStartupDeadline = 10 * time.Minute
	// DefaultConnectDeadline is how long a runner may take from a running container to GitHub.
	DefaultConnectDeadline = 2 * time.Minute
)

// RunnerPoolSpec declares one set of runners.
type RunnerPoolSpec struct {
	// connectionRef names the GitHubConnection, in the same namespace, that the runners belong to.
	// +required
	ConnectionRef LocalObjectReference `json:"connectionRef"`

	// scaleSetName is the name on GitHub, unique in its runner group. Default: the pool's name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	ScaleSetName string `json:"scaleSetName,omitempty"`

	// runnerGroup on GitHub. Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	RunnerGroup string `json:"runnerGroup,omitempty"`

	// labels that jobs ask for with runs-on. Default: the scale set's name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	Labels []string `json:"labels,omitempty"`

	// scale bounds how many runners there are.
	// +optional
	Scale ScaleSpec `json:"scale,omitempty"`

	// deadlines bound how long a runner may stay in a state.
	// +optional
	Deadlines DeadlinesSpec `json:"deadlines,omitempty"`

	// template of the runner's pod: a PodTemplateSpec with a container named runner.
	// It is kept as written; unknown fields are refused when the pod is built.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template"`

	// suspend takes in no new jobs and starts no runners beyond those that accepted
	// jobs need; idle runners end, busy ones finish.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ScaleSpec bounds the number of runners: 0 ≤ min ≤ max, 0 ≤ idle ≤ max.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.min) || self.min <= self.max",message="min must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.idle) || self.idle <= self.max",message="idle must not be above max"
type ScaleSpec struct {
	// min is the fewest runners in total. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
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
	Idle *int32 `json:"idle,omitempty"`
}

// UnboundedMax stands for "no maximum", as in ARC.
const UnboundedMax = math.MaxInt32

// DeadlinesSpec bounds how long a runner may stay in a state.
type DeadlinesSpec struct {
	// startup is the longest time from a runner's creation to its running container;
	// past it the runner counts for nothing and is replaced. Default: 10m.
	// +optional
	Startup *metav1.Duration `json:"startup,omitempty"`

	// connect is the longest time from a running container to a runner that GitHub counts
	// as online; past it the runner is replaced. Default: 2m.
	// +optional
	Connect *metav1.Duration `json:"connect,omitempty"`
}

// RunnerPoolStatus is the pool as last decided and observed.
type RunnerPoolStatus struct {
	// observedGeneration is the last generation acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, TemplateValid, Healthy, and Reconciling or Stalled while they hold.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// revision is the name of the ControllerRevision new runners are made from.
	// +optional
	Revision string `json:"revision,omitempty"`

	// jobs assigned to the pool and not finished.
	// +optional
	Jobs int32 `json:"jobs"`

	// runners counts runners by state.
	// +optional
	Runners RunnerCounts `json:"runners"`

	// decision is the last scaling decision that changed something.
	// +optional
	Decision *Decision `json:"decision,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
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
}

// RunnerPool is one set of runners.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rpool,categories=corral
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Jobs",type=integer,JSONPath=`.status.jobs`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.decision.desired`
// +kubebuilder:printcolumn:name="Runners",type=integer,JSONPath=`.status.runners.total`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.runners.idle`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.runners.busy`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.scale.max`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.decision.reason`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RunnerPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerPoolSpec `json:"spec"`
	// +optional
	Status RunnerPoolStatus `json:"status,omitempty"`
}

// GetConditions returns the status conditions.
func (p *RunnerPool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the status conditions.
func (p *RunnerPool) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// GetScaleSetName returns the name on GitHub.
func (p *RunnerPool) GetScaleSetName() string {
	if p.Spec.ScaleSetName == "" {
		return p.Name
	}
	return p.Spec.ScaleSetName
}

// GetRunnerLabels returns the labels that jobs ask for.
func (p *RunnerPool) GetRunnerLabels() []string {
	if len(p.Spec.Labels) == 0 {
		return []string{p.GetScaleSetName()}
	}
	return p.Spec.Labels
}

// GetRunnerGroup returns the runner group on GitHub.
func (s *RunnerPoolSpec) GetRunnerGroup() string {
	if s.RunnerGroup == "" {
		return DefaultRunnerGroup
	}
	return s.RunnerGroup
}

// GetMin returns the fewest runners in total.
func (s *ScaleSpec) GetMin() int32 { return valueOr(s.Min, 0) }

// GetMax returns the most runners in total.
func (s *ScaleSpec) GetMax() int32 { return valueOr(s.Max, UnboundedMax) }

// GetIdle returns how many runners are kept free.
func (s *ScaleSpec) GetIdle() int32 { return valueOr(s.Idle, 0) }

// GetConnect returns the longest time from a running container to a runner that GitHub sees.
func (d *DeadlinesSpec) GetConnect() time.Duration {
	if d.Connect == nil {
		return DefaultConnectDeadline
	}
	return d.Connect.Duration
}

// GetStartup returns the longest time from creation to a running container.
func (d *DeadlinesSpec) GetStartup() time.Duration {
	if d.Startup == nil {
		return DefaultStartupDeadline
	}
	return d.Startup.Duration
}

func valueOr(v *int32, fallback int32) int32 {
	if v == nil {
		return fallback
	}
	return *v
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
