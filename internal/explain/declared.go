// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
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
			one := found(s.of, catalog.EventsRefused.With().Detailed(refused))
			one.key += "|" + s.of.String()
			all = append(all, one)
		}
		if end := c.TokenEnds(v.Now); end != nil {
			one := found(s.of, catalog.TokenExpiring.With())
			one.key += "|" + s.of.String()
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
	s.key = s.reason + "|" + s.of.String() // each connection has credentials of its own
	if s.reason == v1alpha1.WebhookSecretMissingReason || s.rank.severity == Note {
		s.pools = nil // its pools go on
	}
	if c.Status.FormerCredentials {
		s.do += " Until then don't restart the controller."
	}
	return s
}

// checkPolicies finds policies that can't be asked.
func checkPolicies(v view) symptoms {
	var all symptoms
	check := func(s seen) {
		all = append(all, checkLook(v, s)...)
		if ready := s.ready(); isAmiss(ready) {
			one := s.amiss(ready)
			one.key = one.reason + "|" + s.of.String()
			all = append(all, one)
		}
	}
	for i := range v.Policies {
		p := &v.Policies[i]
		check(seen{object{policyKind, p.Namespace, p.Name}, p, p.Status.ObservedGeneration, p.Status.LastHandledReconcileAt})
	}
	for i := range v.ClusterPolicies {
		p := &v.ClusterPolicies[i]
		check(seen{object{clusterPolicyKind, "", p.Name}, p, p.Status.ObservedGeneration, p.Status.LastHandledReconcileAt})
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
		if one.pools, one.goOn = pools[s.of.key()], true; one.rank.severity == Note { // else its trouble says it
			one.key, one.pools = one.key+"|"+sourceKind, nil
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
	one := found(of, catalog.CommitStatusFailed.With().Detailed(failure.Message))
	one.key += "|" + of.namespace + "/" + asked.ConnectionRef.Name
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
	key = fmt.Sprintf("%s|%s://%s", v1alpha1.ArtifactFailedReason, server.Scheme, server.Host)
	if c.Code == catalog.ServerUnanswered.Code || c.Code == catalog.FetchLate.Code {
		return key
	}
	return key + "|" + alike(c.Detail)
}

// checkRead finds out whether a source wasn't read for an hour, or three of its intervals if that is longer: what was merged since isn't
// known.
func checkRead(v view, of object, src *v1alpha1.PoolSource, ready *Condition) symptoms {
	if v.Now.Sub(ready.Since.Time) < max(time.Hour, 3*src.Spec.Interval.Duration) {
		return nil
	}
	one := found(of, catalog.SourceUnread.With(ready.Reason).Detailed(ready.Message))
	one.key += "|" + ready.Reason
	one.since, one.do = ready.Since.Time, RemedyFor(sourceKind, ready)
	return symptoms{one}
}
