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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// sight is what this process sees of pods and runners through watches of its own, at the
// moment at which it receives it.
type sight struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	err     error // a watch ended on its own
	pods    map[types.UID]bool
	runners map[types.UID]bool
	created map[string][]time.Time // pods, by pool
}

// look begins to watch a namespace in which there is no pod and no runner yet.
func look(ctx context.Context, c client.WithWatch, namespace string) (*sight, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sight{cancel: cancel, pods: map[types.UID]bool{}, runners: map[types.UID]bool{}, created: map[string][]time.Time{}}
	for kind, note := range map[schema.GroupVersionKind]noteFunc{
		corev1.SchemeGroupVersion.WithKind("PodList"): s.notePod,
		v1alpha1.GroupVersion.WithKind("RunnerList"):  s.noteRunner,
	} {
		f := &follower{client: c, namespace: namespace, kind: kind, note: note}
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

type noteFunc func(watch.Event, *metav1.PartialObjectMetadata)

// follower reads the events of a kind. The API server ends a watch that it can't serve in
// time, which happens on a busy machine; then it goes on where it was.
type follower struct {
	client    client.WithWatch
	namespace string
	kind      schema.GroupVersionKind
	note      noteFunc
	version   string // of the last object seen
}

func (f *follower) begin(ctx context.Context) (watch.Interface, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(f.kind)
	if err := f.client.List(ctx, list, f.options()...); err != nil {
		return nil, fmt.Errorf("listing %s: %w", f.kind.Kind, err)
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("there is %s already", list.Items[0].Name)
	}
	f.version = list.ResourceVersion
	return f.watch(ctx)
}

func (f *follower) options() []client.ListOption {
	return []client.ListOption{client.InNamespace(f.namespace), client.HasLabels{v1alpha1.PoolLabel}}
}

func (f *follower) watch(ctx context.Context) (watch.Interface, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(f.kind)
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.version}}
	events, err := f.client.Watch(ctx, list, append([]client.ListOption{from}, f.options()...)...)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", f.kind.Kind, err)
	}
	return events, nil
}

// follow hands events on until ctx ends.
func (f *follower) follow(ctx context.Context, events watch.Interface) (err error) {
	for {
		if err := f.read(events); err != nil || ctx.Err() != nil {
			return err
		}
		if events, err = f.watch(ctx); err != nil {
			return err
		}
	}
}

// read hands on what one watch brings.
func (f *follower) read(events watch.Interface) error {
	defer events.Stop()
	for e := range events.ResultChan() {
		object, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("watching %s: %w", f.kind.Kind, apierrors.FromObject(e.Object))
		}
		f.version = object.ResourceVersion
		f.note(e, object)
	}
	return nil
}

func (s *sight) notePod(e watch.Event, pod *metav1.PartialObjectMetadata) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case watch.Added:
		s.pods[pod.UID] = true
		pool := pod.Labels[v1alpha1.PoolLabel]
		s.created[pool] = append(s.created[pool], now)
	case watch.Deleted:
		delete(s.pods, pod.UID)
	}
}

func (s *sight) noteRunner(e watch.Event, runner *metav1.PartialObjectMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case watch.Added:
		s.runners[runner.UID] = true
	case watch.Deleted:
		delete(s.runners, runner.UID)
	}
}

// there are as many pods and runners now, and so many pods were created.
func (s *sight) there() (pods, runners, created int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.created {
		created += len(all)
	}
	return len(s.pods), len(s.runners), created, s.err
}

// sightings are when pods were seen first, by pool.
func (s *sight) sightings() map[string][]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := maps.Clone(s.created)
	for pool := range out {
		out[pool] = slices.Clone(out[pool])
	}
	return out
}
