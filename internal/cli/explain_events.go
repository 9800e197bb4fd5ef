// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
)

// jobsKey is the key of a pool's jobs in the ConfigMap named by jobs.ConfigMapName.
const jobsKey = "jobs"

// competitor is a pool that counts jobs from GitHub's webhook events.
type competitor struct {
	pool  *v1alpha1.RunnerPool
	match jobmatch.Pool
}

func (r *competitor) name() string { return r.pool.Namespace + "/" + r.pool.Name }

// events returns how the pools that count webhook events treat a job, by NAMESPACE/NAME. Pools compete for a job if they are
// in the same namespace, their connections are in one namespace and have the same GitHub host, and either all or none of the
// pools only observe.
func (e *explainer) events(ctx context.Context, at explain.JobURL, labels []string, s *explain.Snapshot) map[string]*explain.JobEvents {
	known := map[client.ObjectKey]*v1alpha1.GitHubConnection{}
	for i := range s.Connections {
		known[client.ObjectKeyFromObject(&s.Connections[i])] = &s.Connections[i]
	}
	groups, webhooks := map[string][]competitor{}, map[string][]string{}
	for i := range s.Pools {
		p := &s.Pools[i]
		c := known[p.Spec.ConnectionRef.From(p.Namespace)]
		if c == nil || !c.Allows(p.Namespace) || p.Spec.Demand.Webhook == nil {
			continue
		}
		if scope, ok := jobmatch.ScopeOf(c.Spec.URL); ok && scope.Host == at.Host {
			key := fmt.Sprint(p.Namespace, "/", c.Namespace, "/", p.Spec.GetMode() == v1alpha1.Observe)
			groups[key] = append(groups[key], competitor{p, jobmatch.Of(p, scope)})
			webhooks[key] = namesOfAll(webhooksOf(c.Namespace, at.Host, s.Connections))
		}
	}
	all := map[string]*explain.JobEvents{}
	job := jobmatch.Job{Host: at.Host, Repository: at.Repository(), Labels: labels}
	for _, key := range slices.Sorted(maps.Keys(groups)) { // so that the command reports unreadable objects in a stable order
		for i := range groups[key] {
			all[groups[key][i].name()] = new(e.eventsOf(ctx, at.JobID, job, groups[key], i, webhooks[key]))
		}
	}
	return all
}

// eventsOf returns how one of several competing pools treats a job.
func (e *explainer) eventsOf(ctx context.Context, id int64, job jobmatch.Job, competing []competitor, self int, webhooks []string) explain.JobEvents {
	r := &competing[self]
	w := r.pool.Spec.Demand.Webhook
	known := explain.JobEvents{
		Webhooks: webhooks, Excluded: !jobmatch.CompileRepositories(w.Repositories).AnyRepository(job.Repository), HoldFor: metav1.Duration{Duration: w.GetHoldFor()},
	}
	winner := winnerOf(job, competing, -1)
	if winner >= 0 {
		known.Winner = competing[winner].name()
		next := winnerOf(job, competing, self)
		switch {
		case winner == self && next >= 0:
			known.Over, known.Why = competing[next].name(), precedence(r, &competing[next])
		case winner != self && winnerOf(job, competing[self:self+1], -1) >= 0:
			known.Why = precedence(&competing[winner], r)
		}
	}
	if id != 0 && r.covers(job) {
		known.State, known.Until = e.account(ctx, r.pool, id)
	}
	return known
}

// covers reports whether the pool is for a job's repository. It assumes that the repository belongs to the pool's enterprise,
// because the job's enterprise is not known.
func (r *competitor) covers(job jobmatch.Job) bool {
	if r.match.Scope.Kind == jobmatch.Enterprise {
		job.Enterprise = r.match.Scope.Path
	}
	return r.match.Covers(job)
}

// winnerOf returns the index of the pool that gets a job, or -1 if no pool gets it. It ignores the pool with the index
// excluded.
func winnerOf(job jobmatch.Job, competing []competitor, excluded int) int {
	best := -1
	for i := range competing {
		r := &competing[i]
		if i != excluded && r.match.Bears(job.Labels) && r.covers(job) && (best < 0 || jobmatch.Compare(&r.match, &competing[best].match) < 0) {
			best = i
		}
	}
	return best
}

// precedence explains why a pool has precedence over another matching pool. It returns the first criterion in which the two
// differ.
func precedence(winner, loser *competitor) string {
	w, l := &winner.match, &loser.match
	kinds := [...]string{jobmatch.Repository: "a repository", jobmatch.Organization: "an organization", jobmatch.Enterprise: "an enterprise"}
	isDefault := func(group string) bool { return strings.EqualFold(group, jobmatch.DefaultGroup) }
	for _, criterion := range []struct {
		differs bool
		why     string
	}{
		{w.Resting != l.Resting, loser.name() + " is suspended"},
		{w.Scope.Kind != l.Scope.Kind, fmt.Sprintf("%s is for %s, %s for %s", winner.name(), kinds[w.Scope.Kind], loser.name(), kinds[l.Scope.Kind])},
		{isDefault(w.Group) != isDefault(l.Group), fmt.Sprintf("%s has its own runner group, %s, and %s has the default group", winner.name(), w.Group, loser.name())},
		{w.Size() != l.Size(), fmt.Sprintf("%s has fewer labels beyond those asked for: %d in all, %s has %d", winner.name(), w.Size(), loser.name(), l.Size())},
		{!w.Created.Equal(l.Created), winner.name() + " is older, and the pools do not differ otherwise"},
	} {
		if criterion.differs {
			return criterion.why
		}
	}
	return winner.name() + " comes first by its name, and the pools do not differ otherwise"
}

// webhooksOf returns the connections of a namespace that receive webhook events of the given GitHub host.
func webhooksOf(namespace, host string, connections []v1alpha1.GitHubConnection) []v1alpha1.GitHubConnection {
	return slices.DeleteFunc(slices.Clone(connections), func(c v1alpha1.GitHubConnection) bool {
		scope, ok := jobmatch.ScopeOf(c.Spec.URL)
		return !ok || c.Namespace != namespace || scope.Host != host || c.Spec.Webhook == nil
	})
}

func namesOfAll(connections []v1alpha1.GitHubConnection) []string {
	names := converted(connections, func(c v1alpha1.GitHubConnection) string { return c.Namespace + "/" + c.Name })
	return slices.Sorted(slices.Values(names))
}

// webhooks returns the connections that receive webhook events for a pool, and the reasons why all of them refuse events.
// names is nil if the pool does not use events, or if the connections cannot be read. refused is "" if at least one
// connection accepts events.
func (e *explainer) webhooks(ctx context.Context, pool *v1alpha1.RunnerPool) (names *[]string, refused string) {
	if pool.Spec.Demand.Webhook == nil && len(pool.Spec.Demand.Boosts) == 0 {
		return nil, ""
	}
	list, conn := &v1alpha1.GitHubConnectionList{}, pool.Spec.ConnectionRef.From(pool.Namespace)
	err := e.client.List(ctx, list, client.InNamespace(conn.Namespace))
	i := slices.IndexFunc(list.Items, func(c v1alpha1.GitHubConnection) bool { return c.Name == conn.Name })
	if err == nil && i < 0 {
		err = fmt.Errorf("there is no GitHubConnection %s", conn.Name)
	}
	if err != nil {
		e.recordUnseen("which GitHubConnections receive events", err)
		return nil, ""
	}
	scope, _ := jobmatch.ScopeOf(list.Items[i].Spec.URL)
	webhooks := webhooksOf(conn.Namespace, scope.Host, list.Items)
	return ptr.To(namesOfAll(webhooks)), refusedBy(webhooks)
}

// refusedBy returns why all of the connections refuse events, or "" if at least one accepts them.
func refusedBy(connections []v1alpha1.GitHubConnection) string {
	why := converted(connections, func(c v1alpha1.GitHubConnection) string { return c.EventsRefused() })
	slices.Sort(why)
	if slices.Contains(why, "") {
		return ""
	}
	return strings.Join(slices.Compact(why), "; ")
}

// account looks up a job in the controller's record of a pool's jobs. It returns the state of the job and, for a queued job,
// until when the pool counts it.
func (e *explainer) account(ctx context.Context, pool *v1alpha1.RunnerPool, id int64) (explain.JobState, *metav1.Time) {
	config, err := e.ownConfig(ctx, pool, jobs.ConfigMapName(pool.Name))
	ledger := reservation.New(e.now)
	data := config.BinaryData[jobsKey]
	if err == nil && len(data) > 0 {
		ledger, err = reservation.Decode(data, e.now)
	}
	if err != nil {
		e.recordUnseen("whether RunnerPool "+pool.Namespace+"/"+pool.Name+" knows of the job", err)
		return "", nil
	}
	state, written := ledger.Has(id), writtenAt(config)
	if state != reservation.Queued || written.IsZero() {
		return jobStates[state], nil
	}
	hold := pool.Spec.Demand.Webhook.GetHoldFor()
	return jobStates[state], &metav1.Time{Time: written.Add(hold - min(hold, ledger.Quiet(id)))}
}

// jobStates maps the states of a ledger to the states of an answer. State 0 means that the ledger does not contain the job.
var jobStates = [...]explain.JobState{
	0: explain.JobUnknown, reservation.Waiting: explain.JobWaiting, reservation.Queued: explain.JobQueued,
	reservation.Elsewhere: explain.JobElsewhere, reservation.Running: explain.JobRunning, reservation.Done: explain.JobDone,
}

// writtenAt returns when the controller last changed an object, or the zero time if the object does not record it.
func writtenAt(obj metav1.Object) time.Time {
	var at time.Time
	for _, f := range obj.GetManagedFields() {
		if f.Manager == string(kube.FieldOwner) && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
