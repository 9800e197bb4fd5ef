// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/rollout"
)

// ErrLate is the error for a policy that did not answer within the wall time. The machine may be busy, so the policy is
// not to blame.
var ErrLate = errors.New("there was no answer")

// Failure is the reason why a policy could not be evaluated, or why its answer is invalid. A failure of an enforced
// policy makes the decision void: the previous decision stays in force.
type Failure struct {
	// Policy is KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// Kind classifies the failure.
	Kind FailureKind `json:"kind"`
	// Message contains the file and line, if known, and what to do.
	Message string `json:"message"`
	// IsLate is true if the evaluation was abandoned because it took too long. The next attempt may end with the kind
	// TimedOut.
	IsLate bool `json:"-"`
}

// String returns the policy, the kind of the failure, and the message.
func (f Failure) String() string { return fmt.Sprintf("%s (%s): %s", f.Policy, f.Kind, f.Message) }

// FailureKind classifies a failure of a policy.
type FailureKind string

const (
	// NotLoaded means that a policy that binds the pool is not loaded, for example because its modules contain errors.
	NotLoaded FailureKind = "NotLoaded"
	// EvaluationError means that a rule ended with an error.
	EvaluationError FailureKind = "EvaluationError"
	// TimedOut means that the evaluation exceeded its limit on time or memory.
	TimedOut FailureKind = "TimedOut"
	// Quarantined means that the policy exceeded its limits three times in a row for pools of a namespace. Corral
	// evaluates it for these pools only periodically.
	Quarantined FailureKind = "Quarantined"
	// InvalidAnswer means that an answer does not have the documented form.
	InvalidAnswer FailureKind = "InvalidAnswer"
)

// Scaling is the answer of corral.scaling: the effective limits. Equal inputs give equal values.
type Scaling struct {
	// ID identifies the decision: a hash of its input and Digest.
	ID string
	// Digest identifies the evaluated policies; empty if there are none.
	Digest string
	// Scale is the result after composition: 0 ≤ Min ≤ Max, 0 ≤ Idle ≤ Max. If there are Failures, it contains only the
	// limits of the policies that answered. It is then not a decision, but the numbers that stay in force must not exceed
	// it.
	Scale Scale
	// AssignedJobs is Wait if accepted jobs beyond Max must wait, and otherwise empty.
	AssignedJobs v1alpha1.AssignedJobs
	// Until is when the decision must be repeated; the zero time for never.
	Until time.Time
	// Bounds are the rules that changed a declared number, sorted.
	Bounds []v1alpha1.LimitBound
	// Conflicts describe limits that had no effect, for example because a limit of another policy takes precedence,
	// sorted.
	Conflicts []string
	// Failures of enforced policies, sorted.
	Failures []Failure
	// Audit describes what audited policies would change, or how they failed, sorted.
	Audit []Audit
	// CountsJobs is true if the answer depends on the number of jobs because a rule has assignedJobs: Wait, even if no
	// rule reads input.jobs.
	CountsJobs bool
}

// Held returns the limits in force while policies fail: the limits of the last decision, narrowed by the declared numbers
// and by the answers of the policies that could be evaluated.
func (s *Scaling) Held(last, declared Scale) Scale {
	most := min(last.Max, declared.Max, s.Scale.Max)
	return Scale{
		Max:  most,
		Min:  min(most, last.Min, declared.Min, s.Scale.Min),
		Idle: min(most, last.Idle, declared.Idle, s.Scale.Idle),
	}
}

// Template is the answer of corral.template. The template is allowed if there are neither denials nor failures.
type Template struct {
	ID       string
	Digest   string
	Denials  []v1alpha1.PolicyFinding
	Warnings []v1alpha1.PolicyFinding
	Failures []Failure
	Audit    []Audit
}

// Update is the answer of corral.update: the bounds of an update. It is the strictest combination of all answers and
// of the pool's own settings.
type Update struct {
	ID     string
	Digest string
	// Hold is true if the update must not continue.
	Hold bool
	// Bounds are the declared bounds or stricter ones, without the pause of a canary: policies do not decide on it.
	rollout.Bounds
	// Until is when the decision must be repeated; the zero time for never.
	Until time.Time
	// Reasons are the reasons of the rules that changed a bound, sorted.
	Reasons  []UpdateReason
	Failures []Failure
	Audit    []Audit
}

// UpdateReason is the reason that one rule gives for its bound or hold.
type UpdateReason struct {
	Message string
	Rule    v1alpha1.RuleReference
}

// Audit describes what an audited policy would change, or how it failed.
type Audit struct {
	// Policy is KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// Message describes the change and names the rule, or describes the failure.
	Message string `json:"message"`
}

// String returns the policy and the message.
func (a Audit) String() string { return a.Policy + ": " + a.Message }
