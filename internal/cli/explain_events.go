// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
)

// jobsKey is where the jobs of a pool are, in the ConfigMap of jobs.ConfigMapName.
const jobsKey = "jobs"

// competitor is a pool that counts the jobs of GitHub's events.
type competitor struct {
	pool   *v1alpha1.RunnerPool
	match  jobmatch.Pool
	labels int // how many its runners bear
}

func (r *competitor) name() string { return r.pool.Namespace + "/" + r.pool.Name }

// competition is the key of the pools of which one gets a job: they share their namespace, their connections'
// namespace, the GitHub, and whether they only observe.
type competition struct {
	namespace, connections, host string
	observes                     bool
}

// compare orders competitions, so that output is stable.
func (l competition) compare(other competition) int {
	return cmp.Or(cmp.Compare(l.namespace, other.namespace), cmp.Compare(l.connections, other.connections), cmp.Compare(l.host, other.host), cmp.Compare(fmt.Sprint(l.observes), fmt.Sprint(other.observes)))
}

// events says what pools make of a job by GitHub's events, of those that count them, by NAMESPACE/NAME.
func (e *explainer) events(ctx context.Context, at explain.JobURL, labels []string, pools []v1alpha1.RunnerPool, connections []v1alpha1.GitHubConnection) map[string]explain.JobEvents {
	all := map[string]explain.JobEvents{}
	job := jobmatch.Job{Host: at.Host, Repository: at.Repository(), Labels: labels}
	byCompetition := competitions(pools, connections)
	for _, l := range slices.SortedFunc(maps.Keys(byCompetition), competition.compare) {
		competing := byCompetition[l]
		if l.host != at.Host {
			continue
		}
		webhooks := webhooksOf(l.connections, l.host, connections)
		for i := range competing {
			all[competing[i].name()] = e.eventsOf(ctx, at.JobID, job, competing, i, webhooks)
		}
	}
	return all
}

// eventsOf says what one of several pools makes of a job.
func (e *explainer) eventsOf(ctx context.Context, id int64, job jobmatch.Job, competing []competitor, self int, webhooks []string) explain.JobEvents {
	r := &competing[self]
	w := r.pool.Spec.Demand.Webhook
	known := explain.JobEvents{
		Webhooks: webhooks, Excluded: !jobmatch.CompileRepositories(w.Repositories).AnyRepository(job.Repository), HoldFor: metav1.Duration{Duration: w.GetHoldFor()},
	}
	if winner := winnerOf(job, competing, -1); winner >= 0 {
		known.Winner = competing[winner].name()
		switch next := winnerOf(job, competing, self); {
		case winner == self && next >= 0:
			known.Over, known.Why = competing[next].name(), precedence(r, &competing[next])
		case winner != self && winnerOf(job, competing[self:self+1], -1) >= 0:
			known.Why = precedence(&competing[winner], r)
		}
	}
	own := job
	if r.match.Scope.Kind == jobmatch.Enterprise {
		own.Enterprise = r.match.Scope.Path
	}
	if id != 0 && r.match.Covers(own) {
		known.State, known.Until = e.account(ctx, r.pool, id)
	}
	return known
}

// competitions groups the pools that count the jobs of events.
func competitions(pools []v1alpha1.RunnerPool, connections []v1alpha1.GitHubConnection) map[competition][]competitor {
	known := map[client.ObjectKey]*v1alpha1.GitHubConnection{}
	for i := range connections {
		known[client.ObjectKeyFromObject(&connections[i])] = &connections[i]
	}
	all := map[competition][]competitor{}
	for i := range pools {
		p := &pools[i]
		c := known[p.Spec.ConnectionRef.From(p.Namespace)]
		if c == nil || !c.Allows(p.Namespace) || p.Spec.Demand.Webhook == nil {
			continue
		}
		scope, ok := jobmatch.ScopeOf(c.Spec.URL)
		if !ok {
			continue
		}
		l := competition{namespace: p.Namespace, connections: c.Namespace, host: scope.Host, observes: p.Spec.GetMode() == v1alpha1.Observe}
		all[l] = append(all[l], competitor{pool: p, match: jobmatch.Of(p, scope), labels: labelsOf(p)})
	}
	return all
}

// labelsOf counts the labels that runners of a pool bear, as jobmatch does.
func labelsOf(p *v1alpha1.RunnerPool) int {
	labels := p.GetRunnerLabels()
	if p.Spec.GetRegistration() == v1alpha1.RegisterREST || p.Spec.GetMode() == v1alpha1.Observe {
		labels = p.GetRegisteredLabels()
	}
	seen := map[string]bool{}
	for _, l := range labels {
		seen[strings.ToLower(strings.TrimSpace(l))] = true
	}
	return len(seen)
}

// winnerOf is the pool that a job is for, but for one; -1 if it is for none. As it isn't known which enterprise the
// repository belongs to, it may belong to each.
func winnerOf(job jobmatch.Job, competing []competitor, but int) int {
	matches := make([]jobmatch.Pool, len(competing))
	enterprises := []string{""}
	for i := range competing {
		matches[i] = competing[i].match
		if scope := matches[i].Scope; scope.Kind == jobmatch.Enterprise && !slices.Contains(enterprises, scope.Path) {
			enterprises = append(enterprises, scope.Path)
		}
	}
	best := -1
	for _, job.Enterprise = range enterprises {
		i := jobmatch.Winner(job, matches, func(i int) jobmatch.Visibility {
			if i == but {
				return jobmatch.Hidden
			}
			return jobmatch.Unknown
		})
		if i >= 0 && (best < 0 || matches[best].Resting && !matches[i].Resting) {
			best = i
		}
	}
	return best
}

// precedence says why a pool comes before another that would do, by the first that tells them apart.
func precedence(winner, loser *competitor) string {
	w, l := &winner.match, &loser.match
	kinds := [...]string{jobmatch.Repository: "a repository", jobmatch.Organization: "an organization", jobmatch.Enterprise: "an enterprise"}
	isDefault := func(group string) bool { return strings.EqualFold(group, jobmatch.DefaultGroup) }
	switch {
	case w.Resting != l.Resting:
		return loser.name() + " is suspended"
	case w.Scope.Kind != l.Scope.Kind:
		return fmt.Sprintf("%s is for %s, %s for %s", winner.name(), kinds[w.Scope.Kind], loser.name(), kinds[l.Scope.Kind])
	case isDefault(w.Group) != isDefault(l.Group):
		return fmt.Sprintf("%s has a runner group of its own, %s, and %s the default one", winner.name(), w.Group, loser.name())
	case winner.labels != loser.labels:
		return fmt.Sprintf("%s has fewer labels beyond those asked for: %d in all, %s has %d", winner.name(), winner.labels, loser.name(), loser.labels)
	case !w.Created.Equal(l.Created):
		return winner.name() + " is older, and nothing else tells them apart"
	}
	return winner.name() + " comes first by its name, and nothing else tells them apart"
}

// webhooksOf names the connections of a namespace that take events of a GitHub in.
func webhooksOf(namespace, host string, connections []v1alpha1.GitHubConnection) []string {
	var all []string
	for i := range connections {
		c := &connections[i]
		if scope, ok := jobmatch.ScopeOf(c.Spec.URL); ok && c.Namespace == namespace && scope.Host == host && c.Spec.Webhook != nil {
			all = append(all, c.Namespace+"/"+c.Name)
		}
	}
	slices.Sort(all)
	return all
}

// webhooks names the connections that take events in for a pool that goes by them, nil if they aren't known; and says why all of them refuse
// the events that come, "" if one doesn't.
func (e *explainer) webhooks(ctx context.Context, pool *v1alpha1.RunnerPool) (names *[]string, refused string) {
	if d := &pool.Spec.Demand; d.Webhook == nil && len(d.Boosts) == 0 {
		return nil, ""
	}
	list, conn := &v1alpha1.GitHubConnectionList{}, pool.Spec.ConnectionRef.From(pool.Namespace)
	if err := e.client.List(ctx, list, client.InNamespace(conn.Namespace)); err != nil {
		e.cannot("which GitHubConnections take events in", err)
		return nil, ""
	}
	for i := range list.Items {
		if scope, ok := jobmatch.ScopeOf(list.Items[i].Spec.URL); ok && list.Items[i].Name == conn.Name {
			all := webhooksOf(conn.Namespace, scope.Host, list.Items)
			return &all, refusedBy(all, list.Items)
		}
	}
	e.cannot("which GitHubConnections take events in", fmt.Errorf("there is no GitHubConnection %s", pool.Spec.ConnectionRef.Name))
	return nil, ""
}

// refusedBy says why all of some connections refuse the events that come; "" if one doesn't.
func refusedBy(names []string, connections []v1alpha1.GitHubConnection) string {
	var why []string
	for i := range connections {
		c := &connections[i]
		refused := c.EventsRefused()
		switch {
		case !slices.Contains(names, c.Namespace+"/"+c.Name):
		case refused == "":
			return ""
		case !slices.Contains(why, refused):
			why = append(why, refused)
		}
	}
	return strings.Join(why, "; ")
}

// account looks a job up in what is written down of a pool's jobs.
func (e *explainer) account(ctx context.Context, pool *v1alpha1.RunnerPool, id int64) (explain.JobState, *metav1.Time) {
	config := &corev1.ConfigMap{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: jobs.ConfigMapName(pool.Name)}, config)
	if apierrors.IsNotFound(err) {
		return explain.JobUnknown, nil
	}
	var state reservation.State
	data := config.BinaryData[jobsKey]
	switch {
	case err == nil && !metav1.IsControlledBy(config, pool):
		err = fmt.Errorf("the ConfigMap %s is not the pool's", jobs.ConfigMapName(pool.Name))
	case err == nil && len(data) > 0:
		var ledger *reservation.Ledger
		if ledger, err = reservation.Decode(data, e.now); err == nil {
			state = ledger.Has(id)
		}
	}
	if err != nil {
		e.cannot("whether RunnerPool "+pool.Namespace+"/"+pool.Name+" knows of the job", err)
		return "", nil
	}
	var until *metav1.Time
	if written := writtenAt(config); state == reservation.Queued && !written.IsZero() {
		hold := pool.Spec.Demand.Webhook.GetHoldFor()
		until = &metav1.Time{Time: written.Add(hold - quiet(data, id, hold, e.now))}
	}
	return jobStates[state], until
}

// jobStates are those of a ledger, in words; 0 is a job that isn't in it.
var jobStates = [...]explain.JobState{
	0: explain.JobUnknown, reservation.Waiting: explain.JobWaiting, reservation.Queued: explain.JobQueued,
	reservation.Elsewhere: explain.JobElsewhere, reservation.Running: explain.JobRunning, reservation.Done: explain.JobDone,
}

// quiet is how long nothing was heard of a job that waits, up to hold, as it was written down. A ledger only tells
// whether a job expires, so it is asked for which time it would.
func quiet(data []byte, id int64, hold time.Duration, now time.Time) time.Duration {
	seconds := sort.Search(int(hold/time.Second), func(s int) bool {
		l, err := reservation.Decode(data, now)
		if err != nil {
			return true
		}
		l.Expire(time.Duration(s+1)*time.Second, now)
		return l.Has(id) != 0
	})
	return time.Duration(seconds) * time.Second
}

// writtenAt is when the controller last changed an object; zero if that isn't known.
func writtenAt(obj metav1.Object) time.Time {
	var at time.Time
	for _, f := range obj.GetManagedFields() {
		if f.Manager == string(kube.FieldOwner) && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
