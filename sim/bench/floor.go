// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// workers is the number of runners that the bare client creates concurrently.
	workers = 64
	// floorLimit bounds measuring the floor, in addition to the time over which jobs arrive.
	floorLimit = 2 * time.Minute
)

// spare is a runner that is registered with GitHub but not created in the cluster yet. It is created some time after
// the first one.
type spare struct {
	after    time.Duration
	answered time.Time // when the API server confirmed its Pod
	pool     *v1alpha1.RunnerPool
	template []byte
	setID    int64
	name     string
	jit      github.JIT
}

// compare measures the floor: how soon the same pods are seen if a bare client creates them and nothing has to be
// decided. The controller is stopped before; the node, the simulated GitHub and the jobs behave as they did with it.
func (b *bed) compare(ctx context.Context, f figures, arrivals []arrival) error {
	if err := b.controller.Stop(); err != nil {
		return err
	}
	b.controller = nil
	limit := floorLimit + arrivals[len(arrivals)-1].after
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("measuring the floor takes longer than %s", limit))
	defer cancel()
	listening, stop := context.WithCancel(ctx)
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer stop()
	spares, err := b.prepare(listening, &listeners, arrivals)
	if err != nil {
		return fmt.Errorf("preparing the floor: %w", err)
	}
	seen, answered, err := b.floor(ctx, spares)
	if err != nil {
		return fmt.Errorf("measuring the floor: %w", err)
	}
	f.latencies("floor", seen)
	f.latencies("floor_answered", answered)
	f["p99_to_floor"] = f["pod_p99_ms"] / f["floor_p99_ms"]
	return nil
}

// prepare registers the runners and adds a job for each.
func (b *bed) prepare(ctx context.Context, listeners *sync.WaitGroup, arrivals []arrival) ([]*spare, error) {
	gh, err := scaleset.NewClient(github.Credentials{ConfigURL: b.GitHub.ConfigURL(organization), Token: world.Token}, github.Options{Parallel: workers})
	if err != nil {
		return nil, err
	}
	each := map[string]int{}
	for _, a := range arrivals {
		each[a.pool]++
	}
	sets := map[string]int64{}
	for _, s := range b.GitHub.Report().ScaleSets {
		sets[s.Name] = int64(s.ID)
	}
	for pool, n := range each {
		l := scaleset.NewListener(scaleset.Config{Client: gh, SetID: sets[pool], Owner: "bench/" + pool, Recorder: forgetful{}})
		l.Announce(n)
		listeners.Go(func() { l.Run(ctx) })
	}
	for _, a := range arrivals {
		if err := b.addJob(a.pool); err != nil {
			return nil, err
		}
	}
	spares, err := b.spares(ctx, gh, sets, arrivals)
	if err != nil {
		return nil, err
	}
	assigned := func() bool { return b.GitHub.Report().Jobs[githubsim.JobAssigned] == len(arrivals) }
	if err := b.GitHub.WaitUntil(ctx, assigned); err != nil {
		return nil, fmt.Errorf("waiting for the jobs to be assigned: %w", err)
	}
	return spares, pause(ctx, settle)
}

// forgetful is a recorder that records nothing.
type forgetful struct{}

func (forgetful) RecordJobs(context.Context, []scaleset.JobEvent) error { return nil }

// spares registers a runner for each arrival.
func (b *bed) spares(ctx context.Context, gh *scaleset.Client, sets map[string]int64, arrivals []arrival) ([]*spare, error) {
	first := map[string]*spare{}
	for _, name := range b.pools {
		pool, revision := &v1alpha1.RunnerPool{}, &appsv1.ControllerRevision{}
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pool); err != nil {
			return nil, fmt.Errorf("getting pool %s: %w", name, err)
		}
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool.Status.Revision}, revision); err != nil {
			return nil, fmt.Errorf("getting the template of pool %s: %w", name, err)
		}
		first[name] = &spare{pool: pool, template: revision.Data.Raw, setID: sets[name]}
	}
	spares := make([]*spare, len(arrivals))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i, a := range arrivals {
		s := *first[a.pool]
		s.after, s.name = a.after, fmt.Sprintf("%s-floor-%05d", a.pool, i)
		spares[i] = &s
		g.Go(func() (err error) {
			s.jit, err = gh.GenerateJIT(ctx, s.setID, s.name)
			return err
		})
	}
	return spares, g.Wait()
}

// floor creates each runner when its job arrives, as fast as the API server serves a bare client. It returns the times
// from then until the pod was seen, and until the API server confirmed it.
func (b *bed) floor(ctx context.Context, spares []*spare) (seen, answered []time.Duration, err error) {
	s, err := look(ctx, b.eyes)
	if err != nil {
		return nil, nil, err
	}
	defer s.stop()
	demands, began := map[string][]time.Time{}, time.Now()
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, spare := range spares {
		if err := pause(ctx, spare.after-time.Since(began)); err != nil {
			return nil, nil, err
		}
		demands[spare.pool.Name] = append(demands[spare.pool.Name], began.Add(spare.after))
		g.Go(func() error { return b.create(making, spare) })
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	err = world.Until(ctx, floorLimit, func(context.Context) error {
		_, _, created, err := s.there()
		if err == nil && created != len(spares) {
			return fmt.Errorf("%d of %d pods are seen", created, len(spares))
		}
		return err
	})
	for _, spare := range spares {
		answered = append(answered, spare.answered.Sub(began.Add(spare.after)))
	}
	return matchFIFO(demands, s.sightings()), answered, err
}

// create creates the objects that the controller creates for a runner: a Runner, its Secret and its Pod.
func (b *bed) create(ctx context.Context, s *spare) error {
	identity := podspec.Runner{Namespace: namespace, Name: s.name, Pool: s.pool.Name, Revision: s.pool.Status.Revision}
	runner := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: s.name, Finalizers: []string{v1alpha1.RunnerFinalizer}, Labels: podspec.Labels(identity, nil),
		},
		Spec: v1alpha1.RunnerSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: s.pool.Name}, ConnectionRef: s.pool.Spec.ConnectionRef,
			ScaleSetID: s.setID, Revision: s.pool.Status.Revision,
		},
	}
	if err := controllerutil.SetControllerReference(s.pool, runner, b.client.Scheme()); err != nil {
		return fmt.Errorf("owning a Runner: %w", err)
	}
	if err := b.client.Create(ctx, runner); err != nil {
		return fmt.Errorf("creating a Runner: %w", err)
	}
	identity.UID = runner.UID
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podspec.SecretName(s.name), Labels: podspec.Labels(identity, nil)},
		Data: map[string][]byte{
			podspec.JITKey: []byte(s.jit.Encoded), podspec.RunnerIDKey: []byte(strconv.FormatInt(s.jit.RunnerID, 10)),
		},
	}
	if err := controllerutil.SetControllerReference(runner, secret, b.client.Scheme()); err != nil {
		return fmt.Errorf("owning a Secret: %w", err)
	}
	if err := b.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating a Secret: %w", err)
	}
	pod, err := podspec.Build(identity, s.template)
	if err != nil {
		return fmt.Errorf("building a Pod: %w", err)
	}
	if err := b.client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating a Pod: %w", err)
	}
	s.answered = time.Now()
	return nil
}
