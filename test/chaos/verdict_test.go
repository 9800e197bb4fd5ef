// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// recovery is the deadline for each recovery after all faults have ended. Two waits are long. The circuit breaker
// of a pool with failures retries after up to 80 s. If GitHub never reported the end of a job, a hanging container
// is stopped ten minutes after GitHub forgot its runner.
const recovery = 15 * time.Minute

// judge checks the state after the storm.
func (s *storm) judge() {
	s.Helper()
	s.eachJob()
	s.stayed()
	s.attempted()
	s.blamed()
	s.updated()
	for _, p := range s.allPools() {
		if err := w.Client.Delete(s.Context(), p); err != nil {
			s.Error(err)
		}
	}
	if s.eventually(s.nothingLeft) {
		s.log.add("", "storm", "nothing is left")
	}
	for _, broken := range s.github.Invariants() {
		s.complain("broken: %s", broken)
	}
}

// recovers waits until all jobs are done and each pool has its wanted number of idle runners.
func (s *storm) recovers() {
	s.Helper()
	if s.eventually(func(context.Context) error { return s.jobsDone() }) {
		s.log.add("", "storm", "all jobs are done")
	}
	if s.eventually(func(context.Context) error { return s.capacity() }) {
		s.log.add("", "storm", "the capacity is back")
	}
}

// complain fails the storm.
func (s *storm) complain(format string, args ...any) {
	s.Helper()
	s.log.add("", "COMPLAINT", format, args...)
	s.Errorf(format, args...)
}

// eventually waits like harness.Eventually, but up to the recovery deadline. A timeout does not end the test, so
// that later checks still run.
func (s *storm) eventually(check func(ctx context.Context) error) (came bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), recovery)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for complaint := error(nil); ; {
		err := check(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil || complaint == nil {
			complaint = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.complain("after %s: %v\n%s", recovery, complaint, s.pulse.summary())
			return false
		}
	}
}

// listening returns an error that names a pool without a session.
func (s *storm) listening() error {
	open := map[string]bool{}
	for _, ss := range s.github.Report().ScaleSets {
		open[ss.Name] = ss.SessionOwner != ""
	}
	for i := range pools {
		if !open[poolName(i)] {
			return fmt.Errorf("%s has no session", poolName(i))
		}
	}
	return nil
}

// jobsDone returns an error that lists the unfinished jobs.
func (s *storm) jobsDone() error {
	var errs []error
	for _, j := range s.github.Jobs() {
		if j.State != githubsim.JobCompleted {
			errs = append(errs, fmt.Errorf("%s of %v is %s, runner %s", j.Name, j.Labels, j.State, j.Runner))
		}
	}
	return errors.Join(errs...)
}

// capacity returns an error that lists the pools with too few idle runners, according to GitHub.
func (s *storm) capacity() error {
	idle := map[string]githubsim.ScaleSetReport{}
	for _, ss := range s.github.Report().ScaleSets {
		idle[ss.Name] = ss
	}
	var errs []error
	for i := range pools {
		if ss := idle[poolName(i)]; ss.Statistics.Idle < wanted(i) || ss.SessionOwner == "" {
			errs = append(errs, fmt.Errorf("%s has %d idle runners and wants %d, session of %q, counts %+v", poolName(i), ss.Statistics.Idle, wanted(i), ss.SessionOwner, ss.Statistics))
		}
	}
	stay := 0
	for _, r := range s.github.Report().Runners {
		if strings.HasPrefix(r.Name, staying+"-") && r.Online {
			stay++
		}
	}
	if stay == 0 { // the other one may just be starting
		errs = append(errs, errors.New("no persistent runner is running"))
	}
	return errors.Join(errs...)
}

// eachJob checks how each job ended. Corral must never cause a job to run twice or to be lost.
func (s *storm) eachJob() {
	jobs := s.github.Jobs()
	if len(jobs) != len(s.schedule.arrivals) {
		s.complain("want %d jobs, got %d", len(s.schedule.arrivals), len(jobs))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := range jobs {
		switch {
		case j.Starts > 1:
			s.complain("%s of %v was run %d times", j.Name, j.Labels, j.Starts)
		case j.Result == githubsim.ResultCanceled && !s.canceled[j.ID]:
			s.complain("%s of %v was canceled by nobody", j.Name, j.Labels)
		case j.Result != githubsim.ResultCanceled && j.Starts == 0:
			s.complain("%s of %v ended as %s without being run", j.Name, j.Labels, j.Result)
		case j.Result == githubsim.ResultSucceeded && s.schedule.arrivals[i].job.Result != j.Result:
			s.complain("%s of %v succeeded, it was to fail", j.Name, j.Labels)
		}
	}
}

// stayed checks that persistent runners ran several jobs, and logs how many did.
func (s *storm) stayed() {
	jobs, most := map[string]int{}, 0
	for _, j := range s.github.Jobs() {
		if strings.HasPrefix(j.Runner, staying+"-") {
			jobs[j.Runner]++
			most = max(most, jobs[j.Runner])
		}
	}
	s.log.add("", "stayed", "%v", jobs)
	s.Logf("seed %d: %d runners that stay had jobs, one of them %d", s.seed, len(jobs), most)
	if len(jobs) == 0 {
		s.complain("no runner that stays had a job")
	}
}

// nothingLeft returns an error that lists the leftovers of deleted pools.
func (s *storm) nothingLeft(ctx context.Context) error {
	var errs []error
	for kind, list := range map[string]client.ObjectList{
		"Runner": &v1alpha1.RunnerList{}, "RunnerScaleSet": &v1alpha1.RunnerScaleSetList{}, "Pod": &corev1.PodList{}, "Secret": &corev1.SecretList{},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{}, "ControllerRevision": &appsv1.ControllerRevisionList{},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{},
	} {
		in := []client.ListOption{client.InNamespace(s.namespace)}
		if kind == "Secret" {
			in = append(in, client.HasLabels{v1alpha1.PoolLabel})
		}
		if err := w.Client.List(ctx, list, in...); err != nil {
			return err
		}
		if n := meta.LenList(list); n > 0 {
			errs = append(errs, fmt.Errorf("%d of kind %s are left: %s", n, kind, names(list)))
		}
	}
	for _, left := range s.github.Leftovers() {
		errs = append(errs, errors.New(left))
	}
	return errors.Join(errs...)
}

func names(list client.ObjectList) []string {
	items, err := meta.ExtractList(list)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, item := range items[:min(len(items), 10)] {
		if o, err := meta.Accessor(item); err == nil {
			all = append(all, o.GetName())
		}
	}
	slices.Sort(all)
	return all
}
