// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// workLimit bounds the time from the arrival of the last job to its end, cleanLimit the time until nothing is left,
	// and secretLimit the time until the garbage collector has deleted the Secrets.
	workLimit   = 5 * time.Minute
	cleanLimit  = 5 * time.Minute
	secretLimit = time.Minute
	// auditDelay is how long the API server may take to write its audit log.
	auditDelay = time.Second
)

// arrival is a job that arrives for a pool, some time after the first one.
type arrival struct {
	after time.Duration
	pool  string
}

// burst returns jobs that all arrive at once, for each pool in turn.
func burst(pools []string, each int) []arrival {
	var all []arrival
	for range each {
		for _, pool := range pools {
			all = append(all, arrival{pool: pool})
		}
	}
	return all
}

// jobsPerSecond is the mean rate of a stream, over all its pools.
const jobsPerSecond = 3

// stream returns jobs that arrive independently of each other: a Poisson process, so the times between them are
// exponentially distributed.
func stream(pools []string, seed uint64, duration time.Duration, perSecond float64) []arrival {
	random := rand.New(rand.NewPCG(seed, 0))
	var all []arrival
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / perSecond * float64(time.Second))
		if at >= duration && len(all) > 0 {
			return all
		}
		all = append(all, arrival{after: at, pool: pools[random.IntN(len(pools))]})
	}
}

// steady returns jobs that arrive at even intervals, so that none waits for another: the duration of a job shows only
// the effect of other load.
func steady(pools []string, seed uint64, duration time.Duration, perSecond float64) (all []arrival) {
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range int(duration.Seconds() * perSecond) {
		all = append(all, arrival{after: time.Duration(float64(i) / perSecond * float64(time.Second)), pool: pools[random.IntN(len(pools))]})
	}
	return all
}

// runStream returns a scenario with a stream of jobs over the given number of pools.
func runStream(pools int) func(context.Context, *options, time.Duration) (figures, error) {
	return func(ctx context.Context, o *options, latency time.Duration) (figures, error) {
		return runTraffic(ctx, o, latency, pools, func(names []string) []arrival { return stream(names, o.seed, o.duration, jobsPerSecond) })
	}
}

// runBurst returns a scenario with a burst of jobs for each of the given number of pools.
func runBurst(pools, each int) func(context.Context, *options, time.Duration) (figures, error) {
	return func(ctx context.Context, o *options, latency time.Duration) (figures, error) {
		return runTraffic(ctx, o, latency, pools, func(names []string) []arrival { return burst(names, each) })
	}
}

// runTraffic creates a world with pools, adds jobs, and measures until nothing is left. Then it measures the floor in
// the same world, without the controller.
func runTraffic(ctx context.Context, o *options, latency time.Duration, pools int, plan func(pools []string) []arrival) (f figures, err error) {
	b, err := makeBed(ctx, o, latency, pools)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.failed = err != nil
		err = errors.Join(err, b.remove())
	}()
	arrivals := plan(b.pools)
	if f, err = b.measure(ctx, o, arrivals); err != nil || o.noFloor {
		return f, err
	}
	return f, b.compare(ctx, f, arrivals)
}

// use is the total resource use up to one moment.
type use struct {
	at     time.Time
	cpu    time.Duration
	server map[string]int // the API server's counters
	github githubsim.Report
}

func (b *bed) use(ctx context.Context) (u use, err error) {
	if u.server, err = serverCounts(ctx, b.Cluster.Config); err != nil {
		return use{}, err
	}
	u.github = b.GitHub.Report()
	if u.cpu, err = b.controller.CPUTime(); err != nil {
		return use{}, err
	}
	u.at = time.Now()
	return u, nil
}

// measure adds the jobs and measures all figures except the floor.
func (b *bed) measure(ctx context.Context, o *options, arrivals []arrival) (figures, error) {
	s, err := look(ctx, b.eyes)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	before, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.arrive(ctx, arrivals); err != nil {
		return nil, err
	}
	if err := b.finish(ctx); err != nil {
		return nil, err
	}
	cleaned, err := b.clean(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	after, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	f := figures{"jobs": float64(len(arrivals))}
	if err := b.costs(ctx, f, before, after); err != nil {
		return nil, err
	}
	return f, b.times(o, f, s, before.at, cleaned)
}

// arrive adds each job at its time.
func (b *bed) arrive(ctx context.Context, arrivals []arrival) error {
	began := time.Now()
	for _, a := range arrivals {
		if err := pause(ctx, a.after-time.Since(began)); err != nil {
			return err
		}
		if err := b.addJob(a.pool); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) addJob(pool string) error {
	job := githubsim.Job{Repository: organization + "/app", Labels: []string{pool}, Duration: jobDuration}
	if _, err := b.GitHub.AddJob(job); err != nil {
		return fmt.Errorf("adding a job: %w", err)
	}
	return nil
}

// finish waits until all jobs are done, and fails unless each ran once and succeeded.
func (b *bed) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, workLimit, fmt.Errorf("not all jobs are done within %s", workLimit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case <-b.controller.Ended():
			fail(errors.New("the controller ended"))
		case <-ctx.Done():
		}
	}()
	if err := b.GitHub.WaitIdle(ctx); err != nil {
		return fmt.Errorf("%w: %v", context.Cause(ctx), b.GitHub.Report().Jobs)
	}
	return b.verify()
}

// verify fails unless each job ran once and succeeded, and GitHub saw no violation.
func (b *bed) verify() error {
	for _, j := range b.GitHub.Jobs() {
		if j.State != githubsim.JobCompleted || j.Result != githubsim.ResultSucceeded || j.Starts != 1 {
			return fmt.Errorf("job %s is %s %s after %d starts", j.ID, j.State, j.Result, j.Starts)
		}
	}
	if broken := b.GitHub.Invariants(); len(broken) > 0 {
		return fmt.Errorf("%d promises were broken, the first is: %s", len(broken), broken[0])
	}
	return nil
}

// clean waits until no Runner, Pod or registration is left, and returns that time. The Secrets are garbage-collected
// later, which does not count as Corral's time.
func (b *bed) clean(ctx context.Context, s *sight) (time.Time, error) {
	err := world.Until(ctx, cleanLimit, func(context.Context) error {
		pods, runners, _, err := s.there()
		registered := len(b.GitHub.Report().Runners)
		if err == nil && pods+runners+registered > 0 {
			return fmt.Errorf("%d pods, %d Runners and %d registrations are left", pods, runners, registered)
		}
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	cleaned := time.Now()
	return cleaned, world.Until(ctx, secretLimit, func(context.Context) error {
		secrets := &corev1.SecretList{}
		if err := b.client.List(ctx, secrets, client.InNamespace(namespace), client.HasLabels{v1alpha1.RunnerLabel}); err != nil {
			return fmt.Errorf("looking for Secrets: %w", err)
		}
		if len(secrets.Items) > 0 {
			return fmt.Errorf("%d Secrets are left", len(secrets.Items))
		}
		return nil
	})
}

// costs adds the requests and resources per job.
func (b *bed) costs(ctx context.Context, f figures, before, after use) error {
	jobs := f["jobs"]
	if err := pause(ctx, auditDelay); err != nil {
		return err
	}
	audit, err := readAudit(b.Cluster.AuditLog(), before.at, after.at)
	if err != nil {
		return err
	}
	if wrong := disagreements(audit, before.server, after.server); len(wrong) > 0 {
		return fmt.Errorf("the counts of requests are not to be trusted: %v", wrong)
	}
	f.counts("kube_per_job", kubePrefix, audit, jobs)
	f.counts("github_per_job", githubPrefix, githubRequests(before.github.Requests, after.github.Requests), jobs)
	f["runners_per_job"] = float64(after.github.RunnersMade-before.github.RunnersMade) / jobs
	f["idle_s_per_job"] = (after.github.IdleTime - before.github.IdleTime).Seconds() / jobs
	f["cpu_ms_per_job"] = float64((after.cpu - before.cpu).Microseconds()) / 1000 / jobs
	memory, err := b.controller.Memory()
	f["peak_mib"] = memory.Peak
	return err
}

// runnerEndpoints are called by the runners themselves, so Corral does not determine how often.
var runnerEndpoints = map[githubsim.Endpoint]bool{
	githubsim.EndpointRunnerSession: true, githubsim.EndpointRunnerLeave: true, githubsim.EndpointRunnerMessage: true,
	githubsim.EndpointRunnerAcknowledge: true, githubsim.EndpointRunnerRenew: true, githubsim.EndpointRunnerComplete: true,
}

// githubRequests returns the requests of a period, without those that runners make.
func githubRequests(before, after map[githubsim.Endpoint]int) map[string]int {
	counts := map[string]int{}
	for endpoint, n := range after {
		if !runnerEndpoints[endpoint] {
			counts[string(endpoint)] = n - before[endpoint]
		}
	}
	return counts
}

// times adds the measured durations.
func (b *bed) times(o *options, f figures, s *sight, began, cleaned time.Time) error {
	demands, last := map[string][]time.Time{}, began
	for _, j := range b.GitHub.Jobs() {
		demands[j.Labels[0]] = append(demands[j.Labels[0]], j.Queued)
		if j.Finished.After(last) {
			last = j.Finished
		}
	}
	pods := s.sightings()
	f.latencies("pod", matchFIFO(demands, pods))
	f["cuts"] = float64(s.timesCut())
	f["done_s"] = last.Sub(began).Seconds()
	f["cleanup_s"] = cleaned.Sub(last).Seconds()
	if o.timeline == "" {
		return nil
	}
	return writeTimeline(o.timeline, began, demands, pods)
}
