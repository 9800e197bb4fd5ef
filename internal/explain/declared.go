// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/url"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// checkConnections finds connections that aren't ready, or soon won't be, and the pools that use them.
func checkConnections(v view) symptoms {
	var all symptoms
	users := v.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Spec.ConnectionRef.From(p.Namespace).String() })
	for i := range v.Connections {
		c := &v.Connections[i]
		s := seen{object{connectionKind, c.Namespace, c.Name}, c, c.Status.ObservedGeneration, c.Status.LastHandledReconcileAt}
		all = append(all, checkLook(v, s)...)
		if ready := s.ready(); isAmiss(ready) {
			all = append(all, connectionAmiss(c, s.amiss(ready), users[s.of.key()]))
		}
		if refused := c.EventsRefused(); refused != "" {
			all = append(all, found(s.of, catalog.EventsRefused.With().Detailed(refused), s.of.key()))
		}
		if end := c.TokenEnds(v.Now); end != nil {
			one := found(s.of, catalog.TokenExpiring.With(), s.of.key())
			one.by, one.pools = end.Time, users[s.of.key()]
			all = append(all, one)
		}
	}
	return all
}

// connectionAmiss is a connection that isn't ready.
func connectionAmiss(c *v1alpha1.GitHubConnection, s symptom, users []string) symptom {
	s.pools, s.goOn = users, c.Status.FormerCredentials
	if s.reason == v1alpha1.GitHubUnavailableReason {
		return s.during(c.Status.Outage)
	}
	s.key = keyOf(s.reason, s.of.String()) // each connection has credentials of its own
	if s.reason == v1alpha1.WebhookSecretMissingReason || s.severity == Note {
		s.pools = nil // its pools go on
	}
	if c.Status.FormerCredentials {
		s.do += " Until then, do not restart the controller."
	}
	return s
}

// checkPolicies finds policies that can't be asked.
func checkPolicies(v view) symptoms {
	var all symptoms
	for _, p := range v.policyObjects() {
		s := seen{ofPolicy(p), p, p.GetPolicyStatus().ObservedGeneration, p.GetPolicyStatus().LastHandledReconcileAt}
		all = append(all, checkLook(v, s)...)
		if ready := s.ready(); isAmiss(ready) {
			one := s.amiss(ready)
			one.key = keyOf(one.reason, s.of.String())
			all = append(all, one)
		}
	}
	return all
}

// checkSources finds sources whose last revision isn't in force, and those that weren't read for long.
func checkSources(v view) symptoms {
	var all symptoms
	pools := v.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace + "/" + p.Labels[v1alpha1.SourceLabel] })
	for i := range v.Sources {
		src := &v.Sources[i]
		s := seen{object{sourceKind, src.Namespace, src.Name}, src, src.Status.ObservedGeneration, src.Status.LastHandledReconcileAt}
		all = append(all, checkLook(v, s)...)
		all = append(all, checkCommitStatus(src, s.of)...)
		ready := s.ready()
		if !isAmiss(ready) {
			continue
		}
		one := s.amiss(ready)
		if ready.Reason == v1alpha1.ArtifactFailedReason && len(ready.Causes) > 0 && !slices.Contains(ofRepository, ready.Causes[0].Code) {
			one.key = keyOfServer(one.key, &ready.Causes[0])
		}
		if src.Status.LastAppliedRevision == "" {
			one.do = firstRemedy(ready)
			if src.Unreadable() != nil {
				one.do = catalog.FieldUnreadable.Remedy
			}
		}
		one.pools, one.goOn = pools[s.of.key()], true
		if one.severity == Note { // else its trouble says it
			one.key, one.pools = keyOf(one.key, sourceKind), nil
			all = append(all, checkRead(v, s.of, src, ready)...)
		}
		all = append(all, one)
	}
	return all
}

// checkCommitStatus finds out whether GitHub isn't told what becomes of a source's revisions.
func checkCommitStatus(src *v1alpha1.PoolSource, of object) symptoms {
	asked, failure := src.Spec.CommitStatus, src.Status.CommitStatus
	if asked == nil || failure == nil || src.Spec.Suspend {
		return nil
	}
	one := found(of, catalog.CommitStatusFailed.With().Detailed(failure.Message), of.namespace, asked.ConnectionRef.Name)
	one.since = failure.Since.Time
	return symptoms{one}
}

// ofRepository are causes of a repository, and not of its server.
var ofRepository = []string{catalog.RepositoryUnavailable.Code, catalog.RepositoryRefused.Code}

// keyOfServer is the key of a server that serves none of its repositories; that of the symptom otherwise.
func keyOfServer(key string, c *v1alpha1.Cause) string {
	server, err := url.Parse(c.Parameter("location"))
	if err != nil || server.Host == "" {
		return key
	}
	key = keyOf(v1alpha1.ArtifactFailedReason, server.Scheme, server.Host)
	if c.Code == catalog.ServerUnanswered.Code || c.Code == catalog.FetchLate.Code {
		return key
	}
	return keyOf(key, alike(c.Detail))
}

// checkRead finds out whether a source wasn't read for an hour, or three of its intervals if that is longer: what was merged since isn't
// known.
func checkRead(v view, of object, src *v1alpha1.PoolSource, ready *Condition) symptoms {
	if v.Now.Sub(ready.Since.Time) < max(time.Hour, 3*src.Spec.Interval.Duration) {
		return nil
	}
	one := found(of, catalog.SourceUnread.With(ready.Reason).Detailed(ready.Message), ready.Reason)
	one.since, one.do = ready.Since.Time, RemedyFor(sourceKind, ready)
	return symptoms{one}
}
