// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// sight records the pods and runners that this process sees through its own watches, at the moment when it receives
// them.
type sight struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	err     error // of a watch that failed
	cuts    int   // number of watches that the API server ended
	pods    map[types.UID]bool
	runners map[types.UID]bool
	created map[string][]time.Time // creation times of pods, by pool
}

// look begins to watch the pools' namespace, which has no pods and runners yet.
func look(ctx context.Context, c client.WithWatch) (*sight, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sight{cancel: cancel, pods: map[types.UID]bool{}, runners: map[types.UID]bool{}, created: map[string][]time.Time{}}
	for _, f := range []*follower{
		{kind: "Pods", newList: func() client.ObjectList { return &corev1.PodList{} }, note: s.notePod},
		{kind: "Runners", newList: func() client.ObjectList { return &v1alpha1.RunnerList{} }, note: s.noteRunner},
	} {
		f.client, f.cut = c, s.noteCut
		events, err := f.begin(ctx)
		if err != nil {
			s.stop()
			return nil, err
		}
		s.running.Go(func() {
			if err := f.follow(ctx, events); err != nil && ctx.Err() == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.err = errors.Join(s.err, err)
			}
		})
	}
	return s, nil
}

func (s *sight) stop() {
	s.cancel()
	s.running.Wait()
}

// follower reads the events of a kind. If the API server ends the watch because it falls behind, which happens on a
// busy machine, the follower resumes at the last seen version.
type follower struct {
	client  client.WithWatch
	kind    string
	newList func() client.ObjectList
	note    func(watch.EventType, client.Object)
	cut     func() // called when the API server has ended the watch
	all     bool   // in all namespaces, whatever the labels
	version string // of the last object seen
}

func (f *follower) begin(ctx context.Context) (watch.Interface, error) {
	list := f.newList()
	if err := f.client.List(ctx, list, f.options()...); err != nil {
		return nil, fmt.Errorf("listing %s: %w", f.kind, err)
	}
	if n := meta.LenList(list); n > 0 {
		return nil, fmt.Errorf("there are %d %s already", n, f.kind)
	}
	f.version = list.GetResourceVersion()
	return f.watch(ctx)
}

func (f *follower) options() []client.ListOption {
	if f.all {
		return nil
	}
	return []client.ListOption{client.InNamespace(namespace), client.HasLabels{v1alpha1.PoolLabel}}
}

func (f *follower) watch(ctx context.Context) (watch.Interface, error) {
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.version}}
	events, err := f.client.Watch(ctx, f.newList(), append([]client.ListOption{from}, f.options()...)...)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", f.kind, err)
	}
	return events, nil
}

// follow passes on events until ctx ends.
func (f *follower) follow(ctx context.Context, events watch.Interface) (err error) {
	for {
		if err := f.read(events); err != nil || ctx.Err() != nil {
			return err
		}
		f.cut()
		if events, err = f.watch(ctx); err != nil {
			return err
		}
	}
}

// read passes on the events of one watch.
func (f *follower) read(events watch.Interface) error {
	defer events.Stop()
	for e := range events.ResultChan() {
		object, ok := e.Object.(client.Object)
		if e.Type == watch.Error || !ok {
			return fmt.Errorf("watching %s: %w", f.kind, apierrors.FromObject(e.Object))
		}
		f.version = object.GetResourceVersion()
		f.note(e.Type, object)
	}
	return nil
}

func (s *sight) notePod(what watch.EventType, pod client.Object) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch what {
	case watch.Added:
		s.pods[pod.GetUID()] = true
		pool := pod.GetLabels()[v1alpha1.PoolLabel]
		s.created[pool] = append(s.created[pool], now)
	case watch.Deleted:
		delete(s.pods, pod.GetUID())
	}
}

func (s *sight) noteRunner(what watch.EventType, runner client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch what {
	case watch.Added:
		s.runners[runner.GetUID()] = true
	case watch.Deleted:
		delete(s.runners, runner.GetUID())
	}
}

func (s *sight) noteCut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
}

// timesCut returns how many times the API server has ended one of the watches.
func (s *sight) timesCut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cuts
}

// there returns the current number of pods and runners, and how many pods were created in total.
func (s *sight) there() (pods, runners, created int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.created {
		created += len(all)
	}
	return len(s.pods), len(s.runners), created, s.err
}

// sightings returns the times when pods were first seen, by pool.
func (s *sight) sightings() map[string][]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := maps.Clone(s.created)
	for pool := range out {
		out[pool] = slices.Clone(out[pool])
	}
	return out
}
