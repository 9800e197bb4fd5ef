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

// APIVersion and Kind of a Page as JSON. Fields may be added within a version; none changes its meaning.
const (
	APIVersion = "status.corral.dev/v1alpha1"
	Kind       = "Status"
)

// Snapshot is what was read of a cluster at a time.
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
	// Version of the command that reads; "" if it doesn't matter.
	Version string
	// Leases by which controllers agree on a leader; none if there are none.
	Leases []Lease
	// Unseen is what could not be read, or not in full.
	Unseen []Unseen
}

// Lease is that by which the replicas of a controller agree on a leader.
type Lease struct {
	// Name as NAMESPACE/NAME.
	Name string `json:"name"`
	// Holder is who leads; "" if nobody does.
	Holder string `json:"holder,omitempty"`
	// Renewed is when the holder renewed it last, by its own clock.
	Renewed metav1.Time `json:"renewed"`
	// Version of the holder; "" if it did not write it.
	Version string `json:"version,omitempty"`
	// Lost is true if nobody renews it.
	Lost bool `json:"-"`
}

// Unseen is something that could not be looked at.
type Unseen struct {
	// What it is, as "ResourceQuotas".
	What string `json:"what"`
	// Why it could not be looked at.
	Why string `json:"why"`
}

// Verdict says in a word how all is.
type Verdict string

// Verdicts.
const (
	// Well is said if all was looked at and nothing is wrong.
	Well Verdict = "Well"
	// Trouble is said if something is wrong.
	Trouble Verdict = "Trouble"
	// Unknown is said if nothing is known to be wrong, and something was not looked at.
	Unknown Verdict = "Unknown"
)

// Severity says how bad a finding is.
type Severity = catalog.Severity

// Severities, the worst first.
const (
	Critical = catalog.Critical
	Error    = catalog.Error
	Warning  = catalog.Warning
	Ahead    = catalog.Ahead
	Note     = catalog.Note
)

// severities, the worst first.
var severities = []Severity{Critical, Error, Warning, Ahead, Note}

// Page is the answer.
type Page struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time of the answer.
	Time metav1.Time `json:"time"`
	// Namespace that was looked at; "" for all.
	Namespace string  `json:"namespace,omitempty"`
	Verdict   Verdict `json:"verdict"`
	// Findings, the worst first.
	Findings []Finding `json:"findings,omitempty"`
	// NotLookedAt is what could not be read: nothing is said about it.
	NotLookedAt []Unseen `json:"notLookedAt,omitempty"`
	Totals      Totals   `json:"totals"`
}

// Finding is one cause, of one object or of many.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is that of a condition, or another word of its kind.
	Reason string `json:"reason"`
	// Code of the cause in the catalog, and its parameters. Detail is the text of another program.
	Code       string                    `json:"code"`
	Parameters []v1alpha1.CauseParameter `json:"parameters,omitempty"`
	Detail     string                    `json:"detail,omitempty"`
	// Subject is the object at fault, if the cause names another one.
	Subject *v1alpha1.CauseSubject `json:"subject,omitempty"`
	// What is wrong, in a few words.
	What string `json:"what"`
	// Since when.
	Since *metav1.Time `json:"since,omitempty"`
	// By is when what lies ahead comes about.
	By *metav1.Time `json:"by,omitempty"`
	// Next attempt, where it is known.
	Next *metav1.Time `json:"next,omitempty"`
	// Hurts counts who suffers.
	Hurts Hurts `json:"hurts"`
	// Objects that it shows in, as KIND/NAMESPACE/NAME; the first 20. More are left out.
	Objects []string `json:"objects,omitempty"`
	More    int      `json:"more,omitempty"`
	// Message of the first object.
	Message string `json:"message,omitempty"`
	// LastFailure is the runner that failed last, of pools whose runners fail.
	LastFailure *v1alpha1.RunnerFailure `json:"lastFailure,omitempty"`
	// Do says what to do.
	Do string `json:"do,omitempty"`

	key string
	// unseen is what could not be looked at when it was found.
	unseen string
}

// Hurts counts who suffers from a cause.
type Hurts struct {
	Pools int `json:"pools,omitempty"`
	// Jobs that wait in these pools.
	Jobs int32 `json:"jobs,omitempty"`
	// Runners that don't start, or failed.
	Runners     int `json:"runners,omitempty"`
	Sources     int `json:"sources,omitempty"`
	Connections int `json:"connections,omitempty"`
	Policies    int `json:"policies,omitempty"`
}

// Totals count what was looked at.
type Totals struct {
	Sources     int `json:"sources"`
	Connections int `json:"connections"`
	Policies    int `json:"policies"`
	Pools       int `json:"pools"`
	// Runners by state, and Jobs, as the pools have them: those that wait on GitHub for a full pool too.
	Runners v1alpha1.RunnerCounts `json:"runners"`
	Jobs    int32                 `json:"jobs"`
	// JobsUnknown counts the pools whose jobs were never counted.
	JobsUnknown int `json:"jobsUnknown,omitempty"`
	// Waiting are jobs without a runner.
	Waiting int32 `json:"waiting"`
	// Leaders are the controllers that work.
	Leaders []Lease `json:"leaders,omitempty"`
}

// Look says how all is. Each check adds what those before it don't say already.
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
	for f := range pointers(p.Findings) {
		f.unseen = p.unseen()
	}
	if len(p.Troubles()) > 0 {
		p.Verdict = Trouble
	}
	return p
}

// Troubles are the findings that are wrong now.
func (p *Page) Troubles() []Finding {
	return slices.DeleteFunc(slices.Clone(p.Findings), func(f Finding) bool { return !f.isTrouble() })
}

func (f *Finding) isTrouble() bool { return f.Severity != Ahead && f.Severity != Note }
