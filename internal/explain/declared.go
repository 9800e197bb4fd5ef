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

// checkConnections finds connections that are not ready or will soon not be, and the pools that use them.
func (l *search) checkConnections() {
	users := l.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Spec.ConnectionRef.From(p.Namespace).String() })
	for c := range pointers(l.Connections) {
		s := seen{object{connectionKind, c.Namespace, c.Name}, c, c.Status.ObservedGeneration, c.Status.LastHandledReconcileAt}
		l.checkReconciled(s)
		l.add(connectionSymptom(c, s.unready(), users[s.of.key()]))
		if refused := c.EventsRefused(); refused != "" {
			l.add(found(s.of, catalog.EventsRefused.With().Detailed(refused), s.of.key()))
		}
		if end := c.TokenEnds(l.Now); end != nil {
			one := found(s.of, catalog.TokenExpiring.With(), s.of.key())
			one.by, one.pools = end.Time, users[s.of.key()]
			l.add(one)
		}
	}
}

// connectionSymptom completes the symptom of a connection that is not ready.
func connectionSymptom(c *v1alpha1.GitHubConnection, s symptom, users []string) symptom {
	s.pools, s.keepsWorking = users, c.Status.FormerCredentials
	if s.reason == v1alpha1.GitHubUnavailableReason {
		return s.during(c.Status.Outage)
	}
	s.key = keyOf(s.reason, s.of.String()) // each connection has its own credentials
	if s.reason == v1alpha1.WebhookSecretMissingReason || s.severity == Note {
		s.pools = nil // its pools continue
	}
	if c.Status.FormerCredentials {
		s.do += " Until then, do not restart the controller."
	}
	return s
}

// ofRepository lists the causes that concern a repository rather than its server.
var ofRepository = []string{catalog.RepositoryUnavailable.Code, catalog.RepositoryRefused.Code}

// checkPolicies finds policies that are not ready.
func (l *search) checkPolicies() {
	for _, p := range l.policyObjects() {
		s := seen{ofPolicy(p), p, p.GetPolicyStatus().ObservedGeneration, p.GetPolicyStatus().LastHandledReconcileAt}
		l.checkReconciled(s)
		one := s.unready()
		one.key = keyOf(one.reason, s.of.String())
		l.add(one)
	}
}

// checkSources finds sources whose last revision is not in force, and sources that have not been read for a long time.
func (l *search) checkSources() {
	pools := l.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace + "/" + p.Labels[v1alpha1.SourceLabel] })
	for src := range pointers(l.Sources) {
		s := seen{object{sourceKind, src.Namespace, src.Name}, src, src.Status.ObservedGeneration, src.Status.LastHandledReconcileAt}
		l.checkReconciled(s)
		l.checkCommitStatus(src, s.of)
		ready := s.ready()
		if !isNotTrue(ready) {
			continue
		}
		one := s.symptomOf(ready)
		if ready.Reason == v1alpha1.ArtifactFailedReason && len(ready.Causes) > 0 && !slices.Contains(ofRepository, ready.Causes[0].Code) {
			one.key = keyOfServer(one.key, &ready.Causes[0])
		}
		if src.Status.LastAppliedRevision == "" {
			one.do = firstRemedy(src, ready)
		}
		one.pools, one.keepsWorking = pools[s.of.key()], true
		if one.severity == Note { // a more severe symptom already reports that the source is not read
			one.key, one.pools = keyOf(one.key, sourceKind), nil
			l.checkRead(s.of, src, ready)
		}
		l.add(one)
	}
}

// checkCommitStatus finds sources whose commit status cannot be reported to GitHub.
func (l *search) checkCommitStatus(src *v1alpha1.PoolSource, of object) {
	asked, failure := src.Spec.CommitStatus, src.Status.CommitStatus
	if asked != nil && failure != nil && !src.Spec.Suspend {
		l.add(found(of, catalog.CommitStatusFailed.With().Detailed(failure.Message), of.namespace, asked.ConnectionRef.Name).from(failure.Since.Time))
	}
}

// keyOfServer returns a key that the sources of one server share, so that a problem of the server is one finding. If the
// server answered, sources share the key only if the details of their causes are alike. If the cause names no server,
// keyOfServer returns the key of the symptom.
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

// checkRead finds sources that have not been read for an hour, or for three of their intervals if that is longer. Corral
// does not know their later commits.
func (l *search) checkRead(of object, src *v1alpha1.PoolSource, ready *Condition) {
	if l.Now.Sub(ready.Since.Time) < max(time.Hour, 3*src.Spec.Interval.Duration) {
		return
	}
	one := found(of, catalog.SourceUnread.With(ready.text()), ready.Reason).from(ready.Since.Time)
	one.do = RemedyFor(sourceKind, src, ready)
	l.add(one)
}
