// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerSpec identifies what a runner belongs to. It is immutable.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Runner's spec is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.scaleSetID) != has(self.rest)",message="exactly one of scaleSetID and rest must be set"
type RunnerSpec struct {
	// poolRef names the RunnerPool.
	// +required
	PoolRef LocalObjectReference `json:"poolRef"`

	// connectionRef names the GitHubConnection, so that the runner can be deregistered without its pool.
	// +required
	ConnectionRef ConnectionReference `json:"connectionRef"`

	// scaleSetID is the id of the scale set on GitHub with which the runner registers.
	// +optional
	ScaleSetID int64 `json:"scaleSetID,omitempty"`

	// rest configures how the runner registers without a scale set.
	// +optional
	REST *RESTRegistration `json:"rest,omitempty"`

	// revision names the ControllerRevision whose pod template is used.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// templateDigest is the SHA-256 of the revision's template when Corral created the runner. Corral creates the runner's
	// pod only from a template with this digest.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TemplateDigest string `json:"templateDigest,omitempty"`

	// hooksAccount is the ServiceAccount that the runner's container hooks use to create pods. Corral uses the same account
	// to delete objects that the hooks leave behind. Absent if the template has no hooks.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HooksAccount string `json:"hooksAccount,omitempty"`

	// workFolder is the folder in which jobs work, if it is not _work.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	WorkFolder string `json:"workFolder,omitempty"`

	// startupDeadline is how long the runner may take to start. It is set if earlier runners did not start within the deadline that the pool declares.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$')`,message="must be a duration such as 90s, 10m or 168h"
	StartupDeadline *metav1.Duration `json:"startupDeadline,omitempty"`
}

// StartsWithin returns how long the runner may take to start. declared is its pool's deadline.
func (s *RunnerSpec) StartsWithin(declared time.Duration) time.Duration {
	if s.StartupDeadline == nil {
		return declared
	}
	return max(declared, s.StartupDeadline.Duration)
}

// RESTRegistration configures how a runner registers with GitHub's REST API.
type RESTRegistration struct {
	// url of the connection when the runner was created. If the connection is deleted and created again, its URL may differ.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url,omitempty"`
	// runnerGroup on GitHub.
	// +required
	// +kubebuilder:validation:MaxLength=128
	RunnerGroup string `json:"runnerGroup"`
	// labels on GitHub: the labels that jobs request, and the owner label.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=60
	// +kubebuilder:validation:items:MaxLength=255
	Labels []string `json:"labels"`
	// persistent is true for a runner that takes one job after another. It registers itself with a token.
	// +optional
	Persistent bool `json:"persistent,omitempty"`
}

// RunnerState is the phase of a runner's life.
// +kubebuilder:validation:Enum=Pending;Idle;Busy;Finished;Failed
type RunnerState string

const (
	// RunnerPending means that the runner's container has not started yet. The runner may not be registered yet.
	RunnerPending RunnerState = "Pending"
	// RunnerIdle means that the runner is running and has no job.
	RunnerIdle RunnerState = "Idle"
	// RunnerBusy means that the runner has a job.
	RunnerBusy RunnerState = "Busy"
	// RunnerFinished means that the runner has completed its job. It no longer counts as supply.
	RunnerFinished RunnerState = "Finished"
	// RunnerFailed means that the runner ended without a job or missed a deadline. It does not count as supply.
	RunnerFailed RunnerState = "Failed"
)

// RunnerCause is the reason why a runner does not start, or ended without a job.
// +kubebuilder:validation:Enum=Unschedulable;Quota;Refused;ImagePull;Config;Crash;Outdated;NeverConnected;Removed;GitHub;Cache;Slow;Node;Deadline
type RunnerCause string

const (
	// CauseUnschedulable means that no node accepts the pod.
	CauseUnschedulable RunnerCause = "Unschedulable"
	// CauseQuota means that a ResourceQuota of the namespace admits no more pods.
	CauseQuota RunnerCause = "Quota"
	// CauseRefused means that the API server refuses the pod, or the Secret of the registration.
	CauseRefused RunnerCause = "Refused"
	// CauseImagePull means that the image cannot be pulled.
	CauseImagePull RunnerCause = "ImagePull"
	// CauseConfig means that the container cannot be created or started, for example because its ConfigMap is missing.
	CauseConfig RunnerCause = "Config"
	// CauseCrash means that the container ended before it had a job.
	CauseCrash RunnerCause = "Crash"
	// CauseOutdated means that GitHub refuses the version of the runner in the image.
	CauseOutdated RunnerCause = "Outdated"
	// CauseNeverConnected means that the container runs, but the runner does not connect to GitHub.
	CauseNeverConnected RunnerCause = "NeverConnected"
	// CauseRemoved means that a user, the scheduler or another controller deletes or evicts the pod, or that the actor is
	// unknown.
	CauseRemoved RunnerCause = "Removed"
	// CauseGitHub means that GitHub does not register the runner.
	CauseGitHub RunnerCause = "GitHub"
	// CauseCache means that the pool's cache has no claim for the runner, or that its claim prevents its pod from running on
	// a node.
	CauseCache RunnerCause = "Cache"
	// CauseSlow means that the start takes too long for an unknown reason.
	CauseSlow RunnerCause = "Slow"
	// CauseNode means that the node refuses or stops the pod because of the node's own state, or is lost.
	CauseNode RunnerCause = "Node"
	// CauseDeadline means that the pod's activeDeadlineSeconds expired while the runner had no job. If the container ran for
	// less than a minute, the cause is Config instead.
	CauseDeadline RunnerCause = "Deadline"
)

// IsExternal reports whether the node or another actor ended the runner, so that neither the runner nor its template is at
// fault.
func (c RunnerCause) IsExternal() bool { return c == CauseNode || c == CauseRemoved }

// Permanent reports whether another attempt is likely to fail in the same way, because of the template, the image, the credentials or other
// configuration.
func (c RunnerCause) Permanent() bool {
	switch c {
	case CauseRefused, CauseImagePull, CauseConfig, CauseCrash, CauseOutdated, CauseNeverConnected:
		return true
	}
	return false
}

// JobReference identifies a job and its result.
type JobReference struct {
	// id of the job (a GUID on github.com).
	// +required
	ID string `json:"id"`
	// repository as OWNER/NAME.
	// +optional
	Repository string `json:"repository,omitempty"`
	// workflow is the workflow's ref, as OWNER/NAME/.github/workflows/ci.yml@refs/heads/main.
	// +optional
	Workflow string `json:"workflow,omitempty"`
	// runID of the workflow run.
	// +optional
	RunID int64 `json:"runID,omitempty"`
	// name of the job as shown on GitHub.
	// +optional
	Name string `json:"name,omitempty"`
	// startedAt is when the runner took the job.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// completedAt is when the job ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// result is succeeded, failed, canceled or another result that GitHub reports.
	// +optional
	Result string `json:"result,omitempty"`
}

// RunnerStatus describes the runner as last observed.
type RunnerStatus struct {
	// observedGeneration is the last reconciled generation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions in machine-readable form, beginning with the causes of Ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`

	// state of the runner.
	// +optional
	State RunnerState `json:"state,omitempty"`

	// reason for the state, in one sentence.
	// +optional
	Reason string `json:"reason,omitempty"`

	// cause that prevents the runner from starting, or that ended it without a job.
	// +optional
	Cause RunnerCause `json:"cause,omitempty"`

	// outage of GitHub that prevents Corral from registering the runner.
	// +optional
	Outage *GitHubOutage `json:"outage,omitempty"`

	// runnerID of the registration on GitHub.
	// +optional
	RunnerID int64 `json:"runnerID,omitempty"`

	// deregisteredAt is when GitHub confirmed that the registration is gone.
	// +optional
	DeregisteredAt *metav1.Time `json:"deregisteredAt,omitempty"`

	// startedAt is when the runner's container started.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// endedAt is when the runner's container ended.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// endedClean is true if the container ended with exit code 0. This does not indicate the result of the job.
	// +optional
	EndedClean bool `json:"endedClean,omitempty"`

	// exit describes how the runner's container ended. It is absent for exit code 0 without a problem.
	// +optional
	Exit *RunnerExit `json:"exit,omitempty"`

	// job that the runner has or had; for a persistent runner, the last one.
	// +optional
	Job *JobReference `json:"job,omitempty"`

	// jobsDone is the number of jobs that a persistent runner is known to have completed.
	// +optional
	JobsDone int32 `json:"jobsDone,omitempty"`
}

// RunnerActor is what ended a runner.
// +kubebuilder:validation:Enum=Runner;Container;InitContainer;Sidecar;Node;Scheduler;Outsider;Corral;Unknown
type RunnerActor string

const (
	// ActorRunner is the runner's program, which exited.
	ActorRunner RunnerActor = "Runner"
	// ActorContainer is the runner's container, which cannot be started, or exceeded its own limit of memory or storage.
	ActorContainer RunnerActor = "Container"
	// ActorInitContainer is a container that runs before the runner's.
	ActorInitContainer RunnerActor = "InitContainer"
	// ActorSidecar is a sidecar that repeatedly ends before the runner's container starts.
	ActorSidecar RunnerActor = "Sidecar"
	// ActorNode is the node, or a controller that acts because of the node's state.
	ActorNode RunnerActor = "Node"
	// ActorScheduler is the scheduler, which makes room for a pod of higher priority.
	ActorScheduler RunnerActor = "Scheduler"
	// ActorOutsider is a user or another controller. Kubernetes does not record which.
	ActorOutsider RunnerActor = "Outsider"
	// ActorCorral is Corral.
	ActorCorral RunnerActor = "Corral"
	// ActorUnknown is used if there is no evidence.
	ActorUnknown RunnerActor = "Unknown"
)

// RunnerExit describes how a runner's pod and container ended, with the end of the container's log.
type RunnerExit struct {
	// actor is what ended the runner.
	// +optional
	Actor RunnerActor `json:"actor,omitempty"`

	// code is the container's exit code. It is also 0 if the container never started, or still runs while its pod is being removed.
	Code int32 `json:"code"`

	// reason that Kubernetes reports for the end of the pod, such as Evicted. If it reports none, this is the reason for the
	// end of the container, such as OOMKilled.
	// +optional
	Reason string `json:"reason,omitempty"`

	// signal that ended it, if the node reports one.
	// +optional
	Signal int32 `json:"signal,omitempty"`

	// node on which it ran.
	// +optional
	Node string `json:"node,omitempty"`

	// taints of the node at that time, as KEY=VALUE:EFFECT, at most 10. A node that is being reclaimed or drained, or that
	// is lost, has at least one.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Taints []string `json:"taints,omitempty"`

	// message is the end of its log, at most 1000 bytes, or the contents of its terminationMessagePath.
	// +optional
	Message string `json:"message,omitempty"`
}

// String returns a description in one line.
func (e *RunnerExit) String() string {
	says := e.Reason != "" && e.Reason != "Error" // Error adds no information
	text := "ended"
	switch {
	case says && e.Code != 0:
		text = e.Reason + ", " + e.code()
	case says:
		text = e.Reason
	case e.Code != 0:
		text = e.code()
	}
	return text + e.rest()
}

func (e *RunnerExit) code() string { return fmt.Sprintf("exit code %d", e.Code) }

// rest is the part after the code.
func (e *RunnerExit) rest() string {
	text, taints := "", strings.Join(e.Taints, ", ")
	if e.Signal != 0 {
		text += fmt.Sprintf(", signal %d", e.Signal)
	}
	switch {
	case e.Node == "" && taints != "":
		text += " on a node tainted " + taints
	case taints != "":
		text += " on node " + e.Node + ", tainted " + taints
	case e.Node != "":
		text += " on node " + e.Node
	}
	if e.Message != "" {
		text += "; last output: " + e.Message
	}
	return text
}

// After returns the text to append to a runner's reason: the facts about the exit that the reason does not contain yet.
// It returns "" if there are none.
func (e *RunnerExit) After(reason string) string {
	if e == nil {
		return ""
	}
	rest := e.rest()
	switch {
	case e.Reason != "" && e.Code == 0 && strings.Contains(reason, e.Reason) && rest != "":
		return ";" + rest // its container may still run
	case !strings.Contains(reason, e.code()) && strings.Contains(reason, e.Reason):
		return "; " + (&RunnerExit{Code: e.Code}).String() + rest
	case !strings.Contains(reason, e.code()):
		return "; " + e.String()
	case rest == "", strings.HasPrefix(rest, ";"), strings.HasSuffix(reason, e.code()+")"):
		return rest
	}
	return "; it ended" + rest // the reason may end with something other than the code
}

// Trouble returns why the runner's registration or pod could not be created, and the
// cause; "" without a problem.
func (s *RunnerStatus) Trouble() (reason string, cause RunnerCause) {
	switch s.Cause {
	case CauseGitHub, CauseQuota, CauseRefused, CauseCache:
		return s.Reason, s.Cause
	}
	return "", ""
}

// Runner is one runner: a registration on GitHub, a JIT Secret and a Pod.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=crunner,categories=corral
// +kubebuilder:selectablefield:JSONPath=`.spec.poolRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Repository",type=string,JSONPath=`.status.job.repository`
// +kubebuilder:printcolumn:name="Job",type=string,JSONPath=`.status.job.name`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Runner struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RunnerStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// IsReleased reports whether Corral has finished the clean-up of the runner, and only finalizers of other controllers keep
// the object. Such a Runner does not count, but its name is taken.
func (r *Runner) IsReleased() bool {
	return !r.DeletionTimestamp.IsZero() && !slices.Contains(r.Finalizers, RunnerFinalizer)
}

// GetConditions returns the status conditions.
func (r *Runner) GetConditions() []metav1.Condition { return r.Status.Conditions }

// Causes returns the list of causes in its status.
func (r *Runner) Causes() *[]Cause { return &r.Status.Causes }

// SetConditions replaces the status conditions.
func (r *Runner) SetConditions(conditions []metav1.Condition) { r.Status.Conditions = conditions }

// SetObservedGeneration records the reconciled generation.
func (r *Runner) SetObservedGeneration(generation int64) { r.Status.ObservedGeneration = generation }

// RunnerList is a list of Runners.
// +kubebuilder:object:root=true
type RunnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Runner `json:"items"`
}
