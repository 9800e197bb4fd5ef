// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// tenant is well-behaved: its jobs arrive while all tests of the package run on the same controller. None of them
// may be lost, and they may not wait much longer than before the first test.
type tenant struct {
	stop    context.CancelFunc
	stopped chan error
	before  []string // IDs of jobs before the tests; only if strict
	beside  []string // IDs of jobs during the tests
}

const (
	tenantName = "quiet-tenant"
	// strictJobs is the number of jobs before and after the tests, for the comparison of their p99 waiting times.
	strictJobs = 300
	// fewJobs is a number of jobs that is too small for a p99.
	fewJobs = 20
)

// strict compares the p99 of the tenant's waiting times before, during and after the tests. It requires an
// otherwise idle machine. Without it, a tenant fails only if it is blocked, because all tests together slow down a
// machine with two cores.
var strict = os.Getenv("CORRAL_ABUSE_STRICT") != ""

// jobEach returns the interval between jobs.
func jobEach() time.Duration {
	if strict {
		return time.Second
	}
	return 3 * time.Second
}

// newTenant creates the tenant and runs its first jobs.
func newTenant(ctx context.Context) (*tenant, error) {
	if err := w.Connect(ctx, tenantName, "acme", tenantName); err != nil {
		return nil, err
	}
	own := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenantName, Name: "own"}}
	own.Spec.Modules = map[string]string{"own.rego": limitModule(50, "input.jobs < 1000")} // evaluated for each change of the number of jobs
	if err := w.Client.Create(ctx, own); err != nil {
		return nil, fmt.Errorf("making the tenant's policy: %w", err)
	}
	pool := newPool(tenantName, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = new(int32(100)) })
	if err := w.Client.Create(ctx, pool); err != nil {
		return nil, fmt.Errorf("making the tenant's pool: %w", err)
	}
	t := &tenant{stopped: make(chan error, 1)}
	first, err := t.add(ctx, 1)
	if err == nil {
		err = t.wait(ctx, first)
	}
	if err == nil && strict {
		t.before, err = t.some(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the tenant before all tests: %w", err)
	}
	ctx, t.stop = context.WithCancel(ctx)
	go func() {
		var err error
		t.beside, err = t.add(ctx, math.MaxInt)
		t.stopped <- err
	}()
	return t, nil
}

// add adds jobs one by one, until n is reached or ctx ends.
func (*tenant) add(ctx context.Context, n int) (ids []string, err error) {
	tick := time.NewTicker(jobEach())
	defer tick.Stop()
	for range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ids, nil
		}
		id, err := w.GitHub.AddJob(githubsim.Job{Repository: tenantName + "/app", Labels: []string{"linux"}, Duration: 20 * time.Millisecond})
		if err != nil {
			return ids, fmt.Errorf("adding a job: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// some runs jobs while nothing else happens.
func (t *tenant) some(ctx context.Context) (ids []string, err error) {
	if ids, err = t.add(ctx, strictJobs); err != nil {
		return nil, err
	}
	return ids, t.wait(ctx, ids)
}

// wait waits until all jobs are done.
func (*tenant) wait(ctx context.Context, ids []string) error {
	return world.Until(ctx, harness.Patience, func(context.Context) error {
		waits, err := waits(ids)
		if err == nil && len(waits) < len(ids) {
			err = fmt.Errorf("%d of %d jobs are done", len(waits), len(ids))
		}
		return err
	})
}

// waits returns the sorted waiting times of the jobs that are done. It returns an error if a job failed or ran
// more than once.
func waits(ids []string) (all []time.Duration, err error) {
	mine := map[string]bool{}
	for _, id := range ids {
		mine[id] = true
	}
	for _, j := range w.GitHub.Jobs() {
		switch {
		case !mine[j.ID] || j.State != githubsim.JobCompleted:
		case j.Result != githubsim.ResultSucceeded || j.Starts != 1:
			err = errors.Join(err, fmt.Errorf("job %s of the tenant ended as %s after %d starts", j.ID, j.Result, j.Starts))
		default:
			all = append(all, j.Started.Sub(j.Queued))
		}
	}
	slices.Sort(all)
	return all, err
}

// end waits for the tenant's last jobs, and returns an error if the tenant was affected by the tests.
func (t *tenant) end() error {
	t.stop()
	if err := <-t.stopped; err != nil {
		return err
	}
	if err := t.wait(context.Background(), t.beside); err != nil {
		return fmt.Errorf("the tenant after all tests: %w", err)
	}
	beside, err := waits(t.beside)
	if err != nil || len(beside) < fewJobs {
		return err
	}
	tell := func(when string, all []time.Duration) {
		fmt.Fprintf(os.Stderr, "the tenant's jobs waited %s, p99 %s, %s (%d jobs)\n", at(all, 0.5), at(all, 0.99), when, len(all))
	}
	tell("beside the tests", beside)
	if !strict {
		if p99 := at(beside, 0.99); p99 > 5*time.Minute {
			return fmt.Errorf("the tenant's jobs waited %s at p99 beside the tests, more than five minutes", p99)
		}
		return t.isWell()
	}
	before, err := waits(t.before)
	if err != nil {
		return err
	}
	ids, err := t.some(context.Background())
	if err != nil {
		return err
	}
	after, err := waits(ids)
	if err != nil {
		return err
	}
	tell("before them", before)
	tell("after them", after)
	return errors.Join(compare(before, beside, after), t.isWell())
}

// compare returns an error if the tenant's jobs waited too long. After the tests, they may wait at most a fifth
// longer than before. During the tests, the tenant shares two cores with thousands of runners. Its jobs may wait
// for a core, but not for another tenant.
func compare(before, beside, after []time.Duration) error {
	mostBeside := 3 * at(before, 0.99)
	if p99 := at(beside, 0.99); p99 > mostBeside {
		return fmt.Errorf("the tenant's jobs waited %s at p99 beside the tests, more than %s", p99, mostBeside)
	}
	if p99, most := at(after, 0.99), at(before, 0.99)*12/10; p99 > most {
		return fmt.Errorf("the tenant's jobs waited %s at p99 after the tests, more than %s", p99, most)
	}
	return nil
}

// isWell returns an error unless the tenant's pool is ready.
func (*tenant) isWell() error {
	p := &v1alpha1.RunnerPool{}
	return world.Until(context.Background(), harness.Patience, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(tenantName, "linux"), p); err != nil {
			return err
		}
		if v, details := verdictOf(p); v.Ready != metav1.ConditionTrue {
			return fmt.Errorf("the tenant's pool reports %+v: %s", v, details)
		}
		return nil
	})
}

// at returns a quantile of sorted times, by the nearest rank.
func at(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)].Round(time.Millisecond)
}
