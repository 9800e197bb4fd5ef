// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerLifetime determines how long a runner lives.
// +kubebuilder:validation:Enum=Job;Persistent
type RunnerLifetime string

const (
	// LifetimeJob removes a runner after its job.
	LifetimeJob RunnerLifetime = "Job"
	// LifetimePersistent lets a runner take one job after another until it is replaced.
	LifetimePersistent RunnerLifetime = "Persistent"
)

// LifetimeSpec configures how long runners live.
type LifetimeSpec struct {
	// lifetime is Job (default), or Persistent for runners that take one job after another until they are replaced.
	// Persistent requires registration REST. The pods get a token that can register any runner of the connection, and jobs find
	// the files that previous jobs left, so do not use it for untrusted code.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lifetime is immutable: create another pool"
	// +kubebuilder:default=Job
	Lifetime RunnerLifetime `json:"lifetime,omitempty"`

	// persistent limits how long a persistent runner is used.
	// +optional
	Persistent *PersistentSpec `json:"persistent,omitempty"`
}

// PersistentSpec limits how long a persistent runner is used. Corral replaces it between two jobs, never during one.
// +kubebuilder:validation:MinProperties=1
type PersistentSpec struct {
	// maxJobs replaces a runner after this number of jobs. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxJobs *int32 `json:"maxJobs,omitempty"`

	// maxAge replaces a runner at this age. Default: no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('10s')`,message="must be a duration of at least 10s, such as 10m or 168h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// GetLifetime returns the declared lifetime or the default.
func (s *LifetimeSpec) GetLifetime() RunnerLifetime { return cmp.Or(s.Lifetime, LifetimeJob) }

// Persists reports whether runners of the pool take one job after another.
func (s *LifetimeSpec) Persists() bool { return s.GetLifetime() == LifetimePersistent }

// Persists reports whether the runner takes one job after another.
func (r *Runner) Persists() bool { return r.Spec.REST != nil && r.Spec.REST.Persistent }

// CurrentJob returns the job that the runner is running. For a runner that takes only one job, it also returns the job
// after its end. It returns nil if there is none.
func (r *Runner) CurrentJob() *JobReference {
	if r.Persists() && r.Status.Job.IsOver() {
		return nil
	}
	return r.Status.Job
}

// IsOver reports whether the job has ended. It returns false if j is nil.
func (j *JobReference) IsOver() bool { return j != nil && j.CompletedAt != nil }
