// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// APIVersion and Kind of a Page in JSON. New fields may be added within a version, but no field changes its meaning.
const (
	APIVersion = "status.corral.dev/v1alpha1"
	Kind       = "Status"
)

// Snapshot contains what was read from a cluster at a time.
type Snapshot struct {
	Now time.Time
	// Namespace that was read; "" for all.
	Namespace string

	Sources         []v1alpha1.PoolSource
	Connections     []v1alpha1.GitHubConnection
	Pools           []v1alpha1.RunnerPool
	ScaleSets       []v1alpha1.RunnerScaleSet
	Runners         []v1alpha1.Runner
	Policies        []v1alpha1.RunnerPolicy
	ClusterPolicies []v1alpha1.ClusterRunnerPolicy
	Quotas          []corev1.ResourceQuota
	// Version of the command, to compare it with the versions of controllers; empty to omit the comparison.
	Version string
	// Leases with which controllers elect a leader; empty if there are none.
	Leases []Lease
	// Unseen lists what could not be read completely.
	Unseen []Unseen
}

// Lease is used by the replicas of a controller to elect a leader.
type Lease struct {
	// Name as NAMESPACE/NAME.
	Name string `json:"name"`
	// Holder is the leader; "" if there is none.
	Holder string `json:"holder,omitempty"`
	// Renewed is when the holder last renewed it, according to its own clock.
	Renewed metav1.Time `json:"renewed"`
	// Version of the holder; empty if it did not write it.
	Version string `json:"version,omitempty"`
	// Lost is true if no replica renews it.
	Lost bool `json:"-"`
}

// Unseen is something that could not be read.
type Unseen struct {
	// What could not be read, for example "ResourceQuotas".
	What string `json:"what"`
	// Why it could not be read.
	Why string `json:"why"`
}

// Verdict summarizes the state of an installation.
type Verdict string

// Verdicts.
const (
	// Well means that everything was checked and nothing is wrong.
	Well Verdict = "Well"
	// Trouble means that something is wrong.
	Trouble Verdict = "Trouble"
	// Unknown means that no problem is known, but something could not be checked.
	Unknown Verdict = "Unknown"
)

// Severity of a finding.
type Severity = catalog.Severity

// Severities, the most severe first.
const (
	Critical = catalog.Critical
	Error    = catalog.Error
	Warning  = catalog.Warning
	Ahead    = catalog.Ahead
	Note     = catalog.Note
)

// severities, the most severe first.
var severities = []Severity{Critical, Error, Warning, Ahead, Note}

// Page is the answer of corral status.
type Page struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time of the answer.
	Time metav1.Time `json:"time"`
	// Namespace that was checked; "" for all.
	Namespace string  `json:"namespace,omitempty"`
	Verdict   Verdict `json:"verdict"`
	// Findings, the most severe first.
	Findings []Finding `json:"findings,omitempty"`
	// NotLookedAt lists what could not be read, so nothing is known about it.
	NotLookedAt []Unseen `json:"notLookedAt,omitempty"`
	Totals      Totals   `json:"totals"`
}

// Finding is one cause, which affects one or more objects.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is the reason of a condition, or a similar identifier.
	Reason string `json:"reason"`
	// Code of the cause in the catalog, and its parameters. Detail is the text of another program.
	Code       string                    `json:"code"`
	Parameters []v1alpha1.CauseParameter `json:"parameters,omitempty"`
	Detail     string                    `json:"detail,omitempty"`
	// Subject is the object at fault, if the cause names another one.
	Subject *v1alpha1.CauseSubject `json:"subject,omitempty"`
	// What describes the problem in a few words.
	What string `json:"what"`
	// Since is when the problem began.
	Since *metav1.Time `json:"since,omitempty"`
	// By is the time of an upcoming problem.
	By *metav1.Time `json:"by,omitempty"`
	// Next attempt, if known.
	Next *metav1.Time `json:"next,omitempty"`
	// Hurts counts the affected objects.
	Hurts Hurts `json:"hurts"`
	// Objects that are affected, as KIND/NAMESPACE/NAME: the first 20. More is the number of others.
	Objects []string `json:"objects,omitempty"`
	More    int      `json:"more,omitempty"`
	// Message of the most severe symptom.
	Message string `json:"message,omitempty"`
	// LastFailure is the runner that failed last, for pools whose runners fail.
	LastFailure *v1alpha1.RunnerFailure `json:"lastFailure,omitempty"`
	// Do is the remedy.
	Do string `json:"do,omitempty"`

	key string
	// unseen is what could not be read when the problem was found.
	unseen string
}

// Hurts counts what a cause affects.
type Hurts struct {
	Pools int `json:"pools,omitempty"`
	// Jobs that wait in these pools.
	Jobs int32 `json:"jobs,omitempty"`
	// Runners that do not start, or that failed.
	Runners     int `json:"runners,omitempty"`
	Sources     int `json:"sources,omitempty"`
	Connections int `json:"connections,omitempty"`
	Policies    int `json:"policies,omitempty"`
}

// Totals counts what was read.
type Totals struct {
	Sources     int `json:"sources"`
	Connections int `json:"connections"`
	Policies    int `json:"policies"`
	Pools       int `json:"pools"`
	// Runners by state, and Jobs, as in the status of pools. Both include the remaining runners of deleted pools. Jobs
	// also include jobs that wait on GitHub for a full pool; for a pool whose number of jobs is unknown, the busy
	// runners count.
	Runners v1alpha1.RunnerCounts `json:"runners"`
	Jobs    int32                 `json:"jobs"`
	// JobsUnknown is the number of pools whose number of jobs is unknown.
	JobsUnknown int `json:"jobsUnknown,omitempty"`
	// Waiting is the number of jobs without a runner.
	Waiting int32 `json:"waiting"`
	// Leaders are the controllers that hold a lease.
	Leaders []Lease `json:"leaders,omitempty"`
}

// Look summarizes the state of an installation. Each check adds problems that the previous checks did not report.
func Look(s *Snapshot) Page {
	l := &search{view: viewOf(s)}
	for _, check := range []func(){
		l.checkControllers, l.checkConnections, l.checkPolicies, l.checkSources, l.checkPools, l.checkLeaving, l.checkScaleSets,
		l.checkRunners, l.checkQuotas, l.checkJobs, l.checkHolds,
	} {
		check()
	}
	p := Page{
		APIVersion: APIVersion, Kind: Kind, Time: metav1.Time{Time: s.Now.UTC()}, Namespace: s.Namespace,
		Verdict: Well, Findings: group(l.view, l.found), NotLookedAt: s.Unseen, Totals: l.totals(),
	}
	if len(p.NotLookedAt) > 0 {
		p.Verdict = Unknown
	}
	if len(p.Troubles()) > 0 {
		p.Verdict = Trouble
	}
	return p
}

// Troubles returns the findings about current problems.
func (p *Page) Troubles() []Finding {
	return slices.DeleteFunc(slices.Clone(p.Findings), func(f Finding) bool { return !f.isTrouble() })
}

func (f *Finding) isTrouble() bool { return f.Severity != Ahead && f.Severity != Note }
