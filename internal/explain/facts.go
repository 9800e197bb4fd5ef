// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// PoolFacts contains what is known about a pool.
type PoolFacts struct {
	Pool *v1alpha1.RunnerPool
	// ScaleSet is the pool's record of what exists on GitHub; nil if there is none, or it is unknown.
	ScaleSet *v1alpha1.RunnerScaleSet
	// Connection is the condition Ready of its GitHubConnection; nil if unknown.
	Connection *Condition
	// Source is the PoolSource that applies the pool, as NAMESPACE/NAME, and Applied its condition Ready; empty if there is
	// none, or it is unknown.
	Source  string
	Applied *Condition
	// Runners of the pool, sorted by name.
	Runners []Runner
	// Kept is the retained pod of a failed runner, as NAMESPACE/NAME; "" for none.
	Kept string
	// Policies that apply to the pool.
	Policies []Policy
	// History of the pool, the newest first.
	History []Entry
	// Webhooks lists the GitHubConnections that receive events for the pool, as NAMESPACE/NAME: the ones in its namespace
	// with spec.webhook and the same GitHub server; nil if unknown.
	Webhooks *[]string
	// EventsRefused is why all of these connections refuse events; "" if at least one accepts them.
	EventsRefused string
	// Unknown lists what could not be read, and why.
	Unknown []string
	Now     time.Time
	// At is the requested time; zero for now.
	At time.Time
}

// Runner is a runner with its current state.
type Runner struct {
	Object *v1alpha1.Runner
	Judgement
	// HasPod reports whether its pod exists. Node is where the pod runs; empty if it is not scheduled.
	HasPod bool
	Node   string
}

// Judgement is the state of a runner, with its reason and its beginning. Until is when the state changes without any event;
// zero for never.
type Judgement struct {
	State        v1alpha1.RunnerState
	Reason       string
	Cause        v1alpha1.RunnerCause
	Since, Until time.Time
}

// isStuck reports whether the runner has not started, or has failed.
func (j *Judgement) isStuck() bool {
	return j.State == v1alpha1.RunnerPending || j.State == v1alpha1.RunnerFailed
}

// Policy is a policy that applies to a pool.
type Policy struct {
	// Policy as KIND/NAME or KIND/NAMESPACE/NAME.
	Policy string              `json:"policy"`
	Mode   v1alpha1.PolicyMode `json:"mode"`
	Digest string              `json:"digest,omitempty"`
	// Decisions for which it has rules: scaling, template, update.
	Decisions []string `json:"decisions,omitempty"`
	// Ready is nil until the controller has reconciled it.
	Ready *Condition `json:"ready,omitempty"`
	// Source is the PoolSource that applies it, as NAMESPACE/NAME, if one does.
	Source string `json:"source,omitempty"`
	// WouldChange lists what enforcing an audited policy would change.
	WouldChange []string `json:"wouldChange,omitempty"`
}

// Condition is a condition of an object.
type Condition struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	Since   metav1.Time            `json:"since"`
	// Causes of the condition, the most important first; empty if an older release wrote the condition.
	Causes []v1alpha1.Cause `json:"causes,omitempty"`
}

// Conditioned is an object with conditions and their causes.
type Conditioned interface {
	GetConditions() []metav1.Condition
	Causes() *[]v1alpha1.Cause
}

// ConditionOf returns a condition of an object by its type; nil if there is none.
func ConditionOf(o Conditioned, name string) *Condition {
	for _, c := range o.GetConditions() {
		if c.Type == name {
			return &Condition{Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime, Causes: v1alpha1.CausesOf(*o.Causes(), name)}
		}
	}
	return nil
}

// cause returns the first cause of the condition or, without causes, its reason and message as a cause.
func (c *Condition) cause() v1alpha1.Cause {
	if len(c.Causes) > 0 {
		return c.Causes[0]
	}
	return v1alpha1.Cause{Code: c.Reason, Detail: c.Message}
}

// Row returns the catalog's row for the first cause of the condition or, without causes, for its reason.
func (c *Condition) Row() *catalog.Row { return catalog.Of(c.cause().Code) }

// Problem returns the message without the causes that describe what stays in force. If a previous revision stays in force,
// the message says so without the name of the revision, because each pool has its own.
func (c *Condition) Problem() string {
	if len(c.Causes) == 0 {
		return c.Message
	}
	shared := slices.DeleteFunc(slices.Clone(c.Causes), func(cause v1alpha1.Cause) bool { return cause.Code == catalog.PreviousRevision.Code })
	if len(shared) < len(c.Causes) { // each pool has its own previous revision
		return "the previous revision stays in force: " + catalog.Problem(shared)
	}
	return catalog.Problem(shared)
}

// Next returns the time of the next attempt; nil if unknown.
func (c *Condition) Next() *metav1.Time {
	for cause := range pointers(c.Causes) {
		if cause.NextAttempt != nil {
			return cause.NextAttempt
		}
	}
	return nil
}

// has reports whether one of the condition's causes has the row's code.
func (c *Condition) has(row *catalog.Row) bool {
	return c != nil && slices.ContainsFunc(c.Causes, func(cause v1alpha1.Cause) bool { return cause.Code == row.Code })
}

// start returns when a condition got its status; nil if there is no condition.
func (c *Condition) start() *metav1.Time {
	if c == nil {
		return nil
	}
	return &c.Since
}

// isFalse reports whether a condition exists and is False.
func (c *Condition) isFalse() bool { return c != nil && c.Status == metav1.ConditionFalse }

// Connection is the scope of a GitHubConnection.
type Connection struct {
	Namespace, Name string
	// Host of GitHub, with the port if it has one.
	Host string
	// Scope is organization, repository or enterprise.
	Scope string
	// Owner is the organization or the repository's owner; Path the repository's or the
	// enterprise's name.
	Owner, Path string
}

// JobPod is a pod whose runner has or had a job.
type JobPod struct {
	Namespace, Runner, Pool string
	Job                     v1alpha1.JobReference
}

// JobFacts contains what is known about a job and the pools that may serve it.
type JobFacts struct {
	URL JobURL
	// RunsOn lists the labels that the job requests; empty if unknown.
	RunsOn []string
	// Pods of the job's workflow run. Unseen is true if not all runners of the cluster were read.
	Pods   []JobPod
	Unseen bool
	// Pools of the cluster, or of the namespaces that can be read, sorted.
	Pools []PoolFacts
	// Events by NAMESPACE/NAME of the pools that count GitHub's events.
	Events map[string]*JobEvents
	// Connections by NAMESPACE/NAME.
	Connections map[string]Connection
	// Unknown lists what could not be read, and why.
	Unknown []string
	Now     time.Time
}
