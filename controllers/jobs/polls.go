// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
)

const (
	// mostRepositories limits how many repositories a metric's patterns may match. Further repositories are not counted, and
	// the result is incomplete.
	mostRepositories = 500
	// repositoriesAtOnce is the maximum number of repositories that a poll queries concurrently.
	repositoriesAtOnce = 4
	// youngest is the minimum age at which a list is read again. Until then, pools share it.
	youngest = 15 * time.Second
)

// find polls the metric of a probe.
func (p *Poller) find(ctx context.Context, d look) (finding, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := p.Client.Get(ctx, d.target.key, pool); err != nil {
		return finding{}, fmt.Errorf("reading the pool: %w", err)
	}
	if d.probe.asksGitHub() {
		if err := mayUse(ctx, p.Access, connectionOf(pool), pool.Namespace); err != nil {
			return finding{}, &demand.NoSignal{Reason: err.Error()}
		}
	}
	ctx = github.InFlow(ctx, d.target.key.String())
	switch d.probe.of {
	case "observe":
		return p.findActual(ctx, pool)
	case "jobs":
		return p.findJobs(ctx, pool, d.probe)
	case "busy":
		return p.findBusy(ctx, pool, d.probe)
	case "prometheus":
		return p.findPrometheus(ctx, d.probe.metric.Prometheus)
	}
	return p.findExternal(ctx, pool, d.probe.metric.External)
}

// reasonOf describes briefly why there is no signal.
func reasonOf(err error) string {
	if silent := (*demand.NoSignal)(nil); errors.As(err, &silent) {
		return silent.Reason
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it took too long"
	}
	if apierrors.IsNotFound(err) {
		return "the pool does not exist"
	}
	if github.KindOf(err) != "" {
		return github.Summary(err)
	}
	return err.Error()
}

// retryOf returns the delay that GitHub asks for, at most an hour; 0 for none.
func retryOf(err error) time.Duration {
	after, _ := github.ComeBack(err)
	return min(max(0, after), longestInterval)
}

func (p *Poller) findPrometheus(ctx context.Context, m *v1alpha1.PrometheusMetric) (finding, error) {
	value, err := p.Prometheus.Query(ctx, m.Server, m.Query, m.GetMaxAge())
	if err != nil {
		return finding{}, err
	}
	return findingOf(value, m.AverageValue)
}

func (p *Poller) findExternal(ctx context.Context, pool *v1alpha1.RunnerPool, m *v1alpha1.ExternalMetric) (finding, error) {
	value, err := p.External.Value(ctx, pool.Namespace, m.MetricName, m.Selector, m.GetMaxAge())
	if err != nil {
		return finding{}, err
	}
	return findingOf(value, m.AverageValue)
}

// findingOf converts a metric's value to jobs.
func findingOf(value float64, average *v1alpha1.Quantity) (finding, error) {
	n, reason, err := demand.FromValue(value, average)
	if err != nil {
		return finding{}, err
	}
	return finding{signal: demand.Signal{Jobs: &n, Reason: reason}}, nil
}

// connectionOf returns the name of a pool's connection.
func connectionOf(pool *v1alpha1.RunnerPool) types.NamespacedName {
	return pool.Spec.ConnectionRef.From(pool.Namespace)
}

func notReady(pool *v1alpha1.RunnerPool) error {
	return &demand.NoSignal{Reason: fmt.Sprintf("the GitHubConnection %s isn't ready", pool.Spec.ConnectionRef.Name)}
}

func (p *Poller) github(pool *v1alpha1.RunnerPool) (JobLister, error) {
	if c, ok := p.GitHub(connectionOf(pool)); ok {
		return c, nil
	}
	return nil, notReady(pool)
}

// labelsOf returns the labels of a pool's runners on GitHub. Runners of a scale set have the labels of the scale set only.
func labelsOf(pool *v1alpha1.RunnerPool) []string {
	if pool.Spec.GetRegistration() == v1alpha1.RegisterREST {
		return pool.GetRegisteredLabels()
	}
	return pool.GetRunnerLabels()
}

// names returns the names of the pool's own runners.
func (p *Poller) names(ctx context.Context, pool *v1alpha1.RunnerPool) (map[string]bool, error) {
	list := &v1alpha1.RunnerList{}
	if err := p.Client.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing runners: %w", err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// findJobs counts the jobs of repositories that request the pool's labels: waiting jobs, and jobs that run on the pool's
// runners or, if it only observes, on any runner.
func (p *Poller) findJobs(ctx context.Context, pool *v1alpha1.RunnerPool, q *probe) (finding, error) {
	gh, err := p.github(pool)
	if err != nil {
		return finding{}, err
	}
	names, err := p.names(ctx, pool)
	if err != nil {
		return finding{}, err
	}
	repositories, err := gh.Repositories(ctx, q.metric.Jobs.Repositories)
	if err != nil {
		return finding{}, err
	}
	if len(repositories) == 0 {
		return finding{}, &demand.NoSignal{Reason: "no repository matches " + strings.Join(q.metric.Jobs.Repositories, ", ")}
	}
	var partial string
	if len(repositories) > mostRepositories {
		partial = fmt.Sprintf("of %d repositories, %d are looked at", len(repositories), mostRepositories)
		repositories = repositories[:mostRepositories]
	}
	counter := jobCounter{labels: jobmatch.NewPool(jobmatch.Pool{}, labelsOf(pool)), names: names, observes: pool.Spec.GetMode() == v1alpha1.Observe}
	counts := counter.countAll(ctx, gh, repositories, max(youngest, q.interval/2))
	if ctx.Err() != nil {
		counts = append(counts, repositoryCount{err: ctx.Err()})
	}
	return sum(counts, partial).finding(q.metric.Jobs)
}

// jobCounter counts the jobs for a pool.
type jobCounter struct {
	labels   jobmatch.Pool
	names    map[string]bool // of its runners
	observes bool
}

// repositoryCount is the number of a repository's jobs for the pool.
type repositoryCount struct {
	name            string
	queued, running int
	// partial is true if the repository has more workflow runs than are read.
	partial bool
	err     error
}

// countAll counts the jobs of repositories, a few concurrently. It skips the rest once GitHub asks to come back later or
// ctx ends.
func (c jobCounter) countAll(ctx context.Context, gh JobLister, repositories []string, maxAge time.Duration) []repositoryCount {
	counts := make([]*repositoryCount, len(repositories))
	var stop atomic.Bool
	var g errgroup.Group
	g.SetLimit(repositoriesAtOnce)
	for i, name := range repositories {
		if stop.Load() || ctx.Err() != nil {
			break // further requests would fail
		}
		g.Go(func() error {
			list, err := gh.Jobs(ctx, name, maxAge)
			if _, wait := github.ComeBack(err); wait {
				stop.Store(true)
			}
			count := c.count(name, list, err)
			counts[i] = &count
			return nil
		})
	}
	_ = g.Wait()
	var asked []repositoryCount
	for _, count := range counts {
		if count != nil {
			asked = append(asked, *count)
		}
	}
	return asked
}

func (c jobCounter) count(name string, list rest.JobList, err error) repositoryCount {
	n := repositoryCount{name: name, partial: !list.Complete, err: err}
	for i := range list.Jobs {
		switch j := &list.Jobs[i]; j.Status {
		case "queued":
			if c.labels.Bears(j.Labels) {
				n.queued++
			}
		case "in_progress":
			if c.names[j.RunnerName] || (c.observes || j.RunnerName == "") && c.labels.Bears(j.Labels) {
				n.running++
			}
		}
	}
	return n
}

// jobSum is the number of all repositories' jobs for the pool.
type jobSum struct {
	queued, running int
	// counted is the number of repositories for which GitHub answered.
	counted int
	// failed is why the result is incomplete now, and partial is why it would be incomplete after a retry, too; nil and
	// empty if it is complete.
	failed  error
	partial string
	// absent are the repositories that do not exist, or that the connection may not see. They count as having no jobs.
	// Otherwise they would keep the result incomplete forever.
	absent []string
}

// sum adds the counts of repositories.
func sum(counts []repositoryCount, partial string) jobSum {
	s := jobSum{partial: partial}
	note := func(why string) { s.partial = cmp.Or(s.partial, why) }
	for _, c := range counts {
		switch {
		case c.err == nil:
			s.counted++
			s.queued += c.queued
			s.running += c.running
			if c.partial {
				note(c.name + " has more workflow runs than Corral reads")
			}
		case github.IsNotFound(c.err):
			s.absent = append(s.absent, c.name)
		case github.IsForbidden(c.err):
			note(fmt.Sprintf("%s: %s", c.name, github.Summary(c.err)))
		default:
			if _, wait := github.ComeBack(c.err); wait || s.failed == nil {
				s.failed = c.err
			}
		}
	}
	return s
}

// finding converts the sum to a signal.
func (s jobSum) finding(m *v1alpha1.JobsMetric) (finding, error) {
	var missing string
	if len(s.absent) > 0 {
		missing = fmt.Sprintf("GitHub has no repository %s for this connection", slices.Min(s.absent))
	}
	if s.counted == 0 {
		return finding{}, cmp.Or(s.failed, error(&demand.NoSignal{Reason: cmp.Or(s.partial, missing)}))
	}
	n, reason, err := demand.FromJobs(s.queued, s.running, m.RunnersPerJob)
	if err != nil {
		return finding{}, err
	}
	if missing != "" {
		reason += "; " + missing
	}
	if len(s.absent) > 1 {
		reason += fmt.Sprintf(", nor %d others", len(s.absent)-1)
	}
	if s.partial != "" {
		reason += "; incomplete: " + s.partial
	}
	signal := demand.Signal{Jobs: &n, Reason: reason}
	if s.failed != nil { // demand.Combine uses the number in the pool's status if that is larger
		signal.Stale, signal.Reason = true, fmt.Sprintf("%s; temporarily incomplete: %s", reason, reasonOf(s.failed))
	}
	return finding{signal: signal}, nil
}

// findBusy proposes a total from the share of the pool's runners that are busy.
func (p *Poller) findBusy(ctx context.Context, pool *v1alpha1.RunnerPool, q *probe) (finding, error) {
	gh, err := p.github(pool)
	if err != nil {
		return finding{}, err
	}
	list, err := gh.Runners(ctx, max(youngest, q.interval/2))
	if err != nil {
		return finding{}, err
	}
	before := int32(0)
	if pool.Status.Decision != nil {
		before = pool.Status.Decision.Desired
	}
	var busy int32
	if pool.Spec.GetMode() == v1alpha1.Observe {
		a := actualOf(list, labelsOf(pool))
		before, busy = a.Runners, a.Busy
	} else if busy, err = p.busyOf(ctx, pool, list); err != nil {
		return finding{}, err
	}
	total, reason := demand.FromBusy(q.metric.Busy, busy, before)
	return finding{signal: demand.Signal{Total: &total, Reason: reason}}, nil
}

// busyOf counts the pool's own runners that have a job.
func (p *Poller) busyOf(ctx context.Context, pool *v1alpha1.RunnerPool, list rest.RunnerList) (int32, error) {
	names, err := p.names(ctx, pool)
	if err != nil {
		return 0, err
	}
	var busy int32
	for _, r := range list.Runners {
		if r.Busy && names[r.Name] {
			busy++
		}
	}
	return busy, nil
}

// actualOf counts the runners that have all labels, whichever system created them.
func actualOf(list rest.RunnerList, labels []string) demand.Actual {
	var a demand.Actual
	for _, r := range list.Runners {
		if has := jobmatch.NewPool(jobmatch.Pool{}, r.Labels); !has.Bears(labels) {
			continue
		}
		a.Runners++
		if r.Busy {
			a.Busy++
		}
	}
	return a
}

// findActual returns the number of runners on GitHub for a pool that observes and, for a scale set, the number of jobs.
func (p *Poller) findActual(ctx context.Context, pool *v1alpha1.RunnerPool) (finding, error) {
	if pool.Spec.GetRegistration() == v1alpha1.RegisterScaleSet {
		return p.findSet(ctx, pool)
	}
	gh, err := p.github(pool)
	if err != nil {
		return finding{}, err
	}
	list, err := gh.Runners(ctx, youngest)
	if err != nil {
		return finding{}, err
	}
	a := actualOf(list, labelsOf(pool))
	return finding{actual: &a}, nil
}

// findSet reads the counts of the scale set with the pool's name and group. It opens no session, because another controller
// may hold it.
func (p *Poller) findSet(ctx context.Context, pool *v1alpha1.RunnerPool) (finding, error) {
	c, ok := p.ScaleSets(connectionOf(pool))
	if !ok {
		return finding{}, notReady(pool)
	}
	group, err := c.RunnerGroupID(ctx, pool.Spec.GetRunnerGroup())
	if err != nil {
		return finding{}, err
	}
	set, err := c.Find(ctx, group, pool.GetScaleSetName())
	if err == nil && set != nil && set.Statistics == nil {
		set, err = c.Get(ctx, set.ID)
	}
	switch {
	case err != nil && !github.IsNotFound(err):
		return finding{}, err
	case err != nil || set == nil:
		return finding{}, &demand.NoSignal{Reason: fmt.Sprintf("runner group %q has no scale set %q", pool.Spec.GetRunnerGroup(), pool.GetScaleSetName())}
	case set.Statistics == nil:
		return finding{}, &demand.NoSignal{Reason: "GitHub sent no counts"}
	}
	s := set.Statistics
	jobs := natural(max(s.AssignedJobs, s.RunningJobs))
	return finding{
		signal: demand.Signal{Jobs: &jobs, Reason: fmt.Sprintf("GitHub counts %d jobs, %d running", jobs, s.RunningJobs)},
		actual: &demand.Actual{Runners: natural(s.RegisteredRunners), Busy: natural(s.BusyRunners)},
	}, nil
}

func natural(n int) int32 { return int32(min(max(n, 0), demand.MostJobs)) } //nolint:gosec // it is bounded
