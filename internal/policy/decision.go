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

// ErrLate is of a policy that did not answer in time.
var ErrLate = errors.New("there was no answer in time")

// Failure is why a policy could not be asked, or gave an answer that is none. A decision
// with a failure of an enforced policy is void: the decision before stays in force.
type Failure struct {
	// Policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// Kind of the failure.
	Kind FailureKind `json:"kind"`
	// Message has file and line where there is one, and says what to do.
	Message string `json:"message"`
	// IsLate is true if it was not asked to the end because that took too long: the next time it may be TimedOut.
	IsLate bool `json:"-"`
}

// String says which policy failed, how, and what to do.
func (f Failure) String() string { return fmt.Sprintf("%s (%s): %s", f.Policy, f.Kind, f.Message) }

// FailureKind says what went wrong with a policy.
type FailureKind string

const (
	// NotLoaded is when a policy that binds the pool has no usable modules.
	NotLoaded FailureKind = "NotLoaded"
	// EvaluationError is when a rule ended with an error.
	EvaluationError FailureKind = "EvaluationError"
	// TimedOut is when it took more time or memory than it may.
	TimedOut FailureKind = "TimedOut"
	// Quarantined is when it took too much three times in a row for pools of a namespace: it is asked for those only from time to time.
	Quarantined FailureKind = "Quarantined"
	// InvalidAnswer is when an answer is not of the form that the decision documents.
	InvalidAnswer FailureKind = "InvalidAnswer"
)

// Scaling is the answer of corral.scaling: the limits that hold. Equal inputs give equal values.
type Scaling struct {
	// ID identifies the decision: a hash of its input and Digest.
	ID string
	// Digest of the policies that were asked; empty if none is bound.
	Digest string
	// Scale after composition: 0 ≤ Min ≤ Max, 0 ≤ Idle ≤ Max. With Failures it is what the policies
	// say that did answer: no decision, but what is held must not be above it.
	Scale Scale
	// AssignedJobs is Wait if jobs accepted beyond Max wait, and otherwise empty.
	AssignedJobs v1alpha1.AssignedJobs
	// Until is when it should be decided again; the zero time for never.
	Until time.Time
	// Bounds are the rules that made a number another than the declared, sorted.
	Bounds []v1alpha1.LimitBound
	// Conflicts tell of rules that lost against others, or have no say, sorted.
	Conflicts []string
	// Failures of enforced policies, sorted.
	Failures []Failure
	// Audit tells what audited policies would change, or how they failed, sorted.
	Audit []Audit
	// CountsJobs is true when a rule with assignedJobs: Wait makes the number of jobs matter, whether rules read it or not.
	CountsJobs bool
}

// Template is the answer of corral.template. It is allowed when there are neither denials
// nor failures.
type Template struct {
	ID       string
	Digest   string
	Denials  []v1alpha1.PolicyFinding
	Warnings []v1alpha1.PolicyFinding
	Failures []Failure
	Audit    []Audit
}

// Update is the answer of corral.update: the bounds of an update. The most careful of all
// answers and of what the pool declares.
type Update struct {
	ID     string
	Digest string
	// Hold is true when the update may not go on.
	Hold bool
	// Bounds as declared or more careful. Policies don't see the pause of a canary.
	rollout.Bounds
	// Until is when it should be decided again; the zero time for never.
	Until time.Time
	// Reasons of the rules that bound it, sorted.
	Reasons  []UpdateReason
	Failures []Failure
	Audit    []Audit
}

// UpdateReason is what a rule says of an update.
type UpdateReason struct {
	Message string
	Rule    v1alpha1.RuleReference
}

// Audit is what an audited policy would change.
type Audit struct {
	// Policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string `json:"policy"`
	// Message says what would change, and by which rule.
	Message string `json:"message"`
}

// String says what an audited policy would change.
func (a Audit) String() string { return a.Policy + ": " + a.Message }
