// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// Kinds of objects.
const (
	leaseKind         = "Lease"
	poolKind          = "RunnerPool"
	sourceKind        = "PoolSource"
	connectionKind    = "GitHubConnection"
	scaleSetKind      = "RunnerScaleSet"
	runnerKind        = "Runner"
	policyKind        = "RunnerPolicy"
	clusterPolicyKind = "ClusterRunnerPolicy"
	quotaKind         = "ResourceQuota"
)

// object identifies an object.
type object struct{ kind, namespace, name string }

func (o object) String() string {
	return o.kind + "/" + wording.Qualified(o.namespace, o.name)
}

// kinds lists the order in which objects are named. Kinds that cause problems of others come first.
var kinds = []string{leaseKind, connectionKind, sourceKind, clusterPolicyKind, policyKind, quotaKind, poolKind, scaleSetKind, runnerKind}

func (o object) compare(other object) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, o.kind), slices.Index(kinds, other.kind)), strings.Compare(o.String(), other.String()))
}

func (o object) key() string { return o.namespace + "/" + o.name }

func ofPool(p *v1alpha1.RunnerPool) object { return object{poolKind, p.Namespace, p.Name} }

func ofPolicy(p policy.Object) object {
	if p.GetNamespace() == "" {
		return object{kind: clusterPolicyKind, name: p.GetName()}
	}
	return object{policyKind, p.GetNamespace(), p.GetName()}
}

// symptom is a problem of one object. Symptoms with the same key have the same cause.
type symptom struct {
	key    string
	of     object
	reason string
	cause  v1alpha1.Cause // the first cause of a condition
	// severity of the symptom, and its short title, what. During the grace period, it is only a note with the title lately,
	// because the problem may pass by itself.
	severity     Severity
	what, lately string
	grace        time.Duration

	message string
	do      string
	since   time.Time
	by      time.Time // time of an upcoming problem
	next    time.Time // time of the next attempt
	// failed is the pool's last failed runner, if the problem is about failed runners.
	failed *v1alpha1.RunnerFailure
	// pools that are affected, as NAMESPACE/NAME. If keepsWorking is true, no job waits because of the symptom.
	pools        []string
	keepsWorking bool
}

// symptoms are the results of the checks.
type symptoms []symptom

// keepsJobs reports whether jobs of a pool wait because of the symptom. They do not wait if the last decision or the
// previous template stays in force.
func (s *symptom) keepsJobs() bool {
	return !s.keepsWorking && s.reason != v1alpha1.PolicyFailedReason && s.reason != v1alpha1.RolledBackReason
}

// causes returns the key of the first symptom of each object. It ignores symptoms that cannot be the cause of other
// problems: objects that were not reconciled, refused events, upcoming problems, and problems with which pools keep
// working.
func (all symptoms) causes() map[object]string {
	keys := map[object]string{}
	for _, s := range all {
		if _, ok := keys[s.of]; !ok && (s.of.kind != poolKind || !s.keepsWorking) && s.reason != catalog.NotLookedAt.Code && s.reason != catalog.EventsRefused.Code && s.severity != Ahead {
			keys[s.of] = s.key
		}
	}
	return keys
}

// saying identifies a reason of an object.
type saying struct {
	of     object
	reason string
}

// byReason returns the keys of symptoms by object and reason.
func (all symptoms) byReason() map[saying]string {
	keys := map[saying]string{}
	for _, s := range all {
		keys[saying{s.of, s.reason}] = s.key
	}
	return keys
}

// pools returns the affected pools as NAMESPACE/NAME, and whether keeps is true of any symptom that affects them.
func (all symptoms) pools(keeps func(*symptom) bool) map[string]bool {
	pools := map[string]bool{}
	for s := range pointers(all) {
		suffer := s.pools
		if s.of.kind == poolKind {
			suffer = append(slices.Clip(suffer), s.of.key())
		}
		for _, p := range suffer {
			pools[p] = pools[p] || keeps(s)
		}
	}
	return pools
}

// keyOf returns the key of symptoms that have these parts in common.
func keyOf(parts ...string) string { return strings.Join(parts, "|") }

// found returns a symptom that no condition reports. Symptoms have the same key, and count as one problem, if their reasons
// and all values of more are the same.
func found(of object, c catalog.Cause, more ...string) symptom {
	row := catalog.Of(c.Code)
	reason := catalog.Of(row.Reason)
	s := symptom{
		key: keyOf(append([]string{row.Reason}, more...)...), of: of, reason: row.Reason, cause: c.Cause, message: c.String(),
		severity: cmp.Or(row.Severity, reason.Severity), grace: reason.Grace, do: cmp.Or(catalog.Remedy(&c.Cause), catalog.RemedyOf(of.kind, row.Reason)),
	}
	s.what, s.lately = catalog.Title(&c.Cause)
	return s
}

// symptomOf returns the symptom that a condition of the object reports.
func (s seen) symptomOf(c *Condition) symptom {
	row := catalog.Of(c.Reason)
	what := cmp.Or(c.Row().Title, row.Title)
	return symptom{
		key: keyOf(c.Reason, what, c.likeness()), of: s.of, reason: c.Reason, cause: c.cause(), severity: row.Severity, grace: row.Grace, what: what, lately: row.Early,
		message: c.Problem(), do: RemedyFor(s.of.kind, s.object, c), since: c.Since.Time, next: timeOf(c.Next()),
	}
}

// during gives all symptoms of the same GitHub outage the same key.
func (s symptom) during(o *v1alpha1.GitHubOutage) symptom {
	if s.reason != v1alpha1.GitHubUnavailableReason {
		return s
	}
	s.do = OutageRemedy(o)
	if o != nil {
		s.what, s.next = o.String(), cmp.Or(timeOf(o.NextAttempt), s.next)
	}
	s.key = keyOf(s.reason, s.what)
	return s
}

// search collects the symptoms in a snapshot. Each check adds those that earlier checks did not report.
type search struct {
	view
	found symptoms
}

// add records a symptom that has a severity. During its grace period, it records the symptom as a note.
func (l *search) add(s symptom) {
	if s.severity == "" {
		return
	}
	if s.grace > 0 && l.Now.Sub(s.since).Abs() < s.grace { // even if the controller's clock is fast
		s.severity, s.what = Note, cmp.Or(s.lately, s.what)
		s.key += "|lately"
	}
	l.found = append(l.found, s)
}

// from sets when the symptom began.
func (s symptom) from(since time.Time) symptom {
	s.since = since
	return s
}

// unready returns the symptom that the object's condition Ready reports; the zero symptom if Ready is True or missing.
func (s seen) unready() symptom {
	if ready := s.ready(); isNotTrue(ready) {
		return s.symptomOf(ready)
	}
	return symptom{}
}
