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

// object names an object.
type object struct{ kind, namespace, name string }

func (o object) String() string {
	if o.namespace == "" {
		return o.kind + "/" + o.name
	}
	return o.kind + "/" + o.namespace + "/" + o.name
}

// kinds in the order in which objects are named: those that are a cause come first.
var kinds = []string{leaseKind, connectionKind, sourceKind, clusterPolicyKind, policyKind, quotaKind, poolKind, scaleSetKind, runnerKind}

func (o object) compare(other object) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, o.kind), slices.Index(kinds, other.kind)), strings.Compare(o.String(), other.String()))
}

func (o object) key() string { return o.namespace + "/" + o.name }

func ofPool(p *v1alpha1.RunnerPool) object { return object{poolKind, p.Namespace, p.Name} }

// symptom is what is wrong with one object. Those with the same key have one cause.
type symptom struct {
	key     string
	of      object
	reason  string
	cause   v1alpha1.Cause // of a condition the first
	rank    rank
	message string
	do      string
	since   time.Time
	by      time.Time // when what lies ahead comes about
	next    time.Time // when it is tried again
	// failed is the pool's last failed runner, if that is what is wrong.
	failed *v1alpha1.RunnerFailure
	// pools that suffer, as NAMESPACE/NAME. No job waits for it if they goOn.
	pools []string
	goOn  bool
}

// symptoms are what a check finds.
type symptoms []symptom

// at leaves out what is nothing wrong. What passes by itself, and came about lately, is but a note.
func (all symptoms) at(now time.Time) symptoms {
	var found symptoms
	for _, s := range all {
		if s.rank.severity == "" {
			continue
		}
		if s.rank.grace > 0 && now.Sub(s.since).Abs() < s.rank.grace { // a controller whose clock is fast hides nothing
			s.rank.severity, s.rank.what = Note, cmp.Or(s.rank.lately, s.rank.what)
			s.key += "|lately"
		}
		found = append(found, s)
	}
	return found
}

// keepsJobs reports whether jobs of a pool wait for it: not while what was decided last holds, or the former template is in force.
func (s *symptom) keepsJobs() bool {
	return !s.goOn && s.reason != v1alpha1.PolicyFailedReason && s.reason != v1alpha1.RolledBackReason
}

// causes are the keys by which objects have their first symptom now, other than that nobody looked at them, and those with which a pool or a connection
// goes on.
func (all symptoms) causes() map[object]string {
	keys := map[object]string{}
	for _, s := range all {
		if _, ok := keys[s.of]; !ok && (s.of.kind != poolKind || !s.goOn) && s.reason != catalog.NotLookedAt.Code && s.reason != catalog.EventsRefused.Code && s.rank.severity != Ahead {
			keys[s.of] = s.key
		}
	}
	return keys
}

// saying is an object with a reason.
type saying struct {
	of     object
	reason string
}

// byReason are the keys of symptoms by object and reason.
func (all symptoms) byReason() map[saying]string {
	keys := map[saying]string{}
	for _, s := range all {
		keys[saying{s.of, s.reason}] = s.key
	}
	return keys
}

// hurt are the pools, as NAMESPACE/NAME, that do not go on for a symptom of theirs, or for another's.
func (all symptoms) hurt() map[string]bool {
	hurt := map[string]bool{}
	for _, s := range all {
		if s.of.kind == poolKind {
			hurt[s.of.key()] = hurt[s.of.key()] || !s.goOn
		}
		for _, p := range s.pools {
			hurt[p] = hurt[p] || !s.goOn
		}
	}
	return hurt
}

// found is a symptom that no condition reports.
func found(of object, c catalog.Cause) symptom {
	row := catalog.Of(c.Code)
	r := rankOf(cmp.Or(row.Reason, row.Code))
	r.severity = cmp.Or(row.Severity, r.severity)
	r.what, r.lately = catalog.Title(&c.Cause)
	return symptom{
		key: row.Reason, of: of, reason: row.Reason, cause: c.Cause, rank: r, message: c.String(), do: cmp.Or(catalog.Remedy(&c.Cause), catalog.RemedyOf(of.kind, row.Reason)),
	}
}

// conditionOf is a symptom by a condition of an object.
func conditionOf(of object, c *Condition) symptom {
	r, cause := rankOf(c.Reason), v1alpha1.Cause{Code: c.Reason, Detail: c.Message}
	if len(c.Causes) > 0 {
		cause = c.Causes[0]
	}
	r.what = cmp.Or(c.Row().Title, r.what)
	return symptom{
		key: c.Reason + "|" + r.what + "|" + c.likeness(), of: of, reason: c.Reason, cause: cause, rank: r, message: c.Problem(),
		do: RemedyFor(of.kind, c), since: c.Since.Time, next: timeOf(c.Next()),
	}
}

// ofQuota makes a symptom that a namespace's quota is used up one of all that lack the same: pods, or claims of caches.
func (s symptom) ofQuota(namespace string) symptom {
	s.key = s.reason + "|" + namespace
	if s.cause.Code == catalog.ClaimQuota.Code {
		s.key += "|claims"
	}
	return s
}

// during makes a symptom that GitHub can't be used one of all that have the same outage.
func (s symptom) during(o *v1alpha1.GitHubOutage) symptom {
	if s.reason != v1alpha1.GitHubUnavailableReason {
		return s
	}
	if s.do = OutageRemedy(o); o != nil {
		s.rank.what = o.String()
	}
	s.key = s.reason + "|" + s.rank.what
	if o != nil && o.NextAttempt != nil {
		s.next = o.NextAttempt.Time
	}
	return s
}

// partOf makes a symptom a part of what the first of other objects has that has something.
func (s symptom) partOf(causes map[object]string, others ...object) symptom {
	for _, o := range others {
		if key, ok := causes[o]; ok {
			s.key = key
			break
		}
	}
	return s
}
