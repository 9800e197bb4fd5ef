// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// takeoverLimit bounds the time from a crash to the pod of the next job.
const takeoverLimit = 3 * time.Minute

// runCrash measures how long a job that is queued just after the leader was killed waits for its pod: when the leader's
// container restarts in place, when another replica takes over, and when the container restarts in place while GitHub
// rejects every attempt to resume a session.
func runCrash(ctx context.Context, o *options, latency time.Duration) (f figures, err error) {
	b, err := makeBed(ctx, o, latency, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.failed = err != nil
		err = errors.Join(err, b.remove())
	}()
	f = figures{}
	if f["in_place_s"], err = b.crash(ctx, o, "corral-0", "corral-0"); err != nil {
		return nil, fmt.Errorf("restarting in place: %w", err)
	}
	if f["replica_s"], err = b.crash(ctx, o, "corral-0", "corral-1"); err != nil {
		return nil, fmt.Errorf("leading by another replica: %w", err)
	}
	defer b.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRefreshSession, Status: http.StatusBadRequest})()
	if f["not_resumed_s"], err = b.crash(ctx, o, "corral-0", "corral-0"); err != nil {
		return nil, fmt.Errorf("restarting in place without resuming: %w", err)
	}
	return f, nil
}

// crash kills a controller that leads as one pod and starts one as the same or another pod. It returns the seconds from
// then until the pod of a job exists.
func (b *bed) crash(ctx context.Context, o *options, leader, successor string) (seconds float64, err error) {
	if err := b.controller.Stop(); err != nil {
		return 0, err
	}
	if b.controller, err = b.RunControllerAs(ctx, leader, o.corral); err != nil {
		return 0, err
	}
	if err := listen(ctx, b.GitHub, len(b.pools)); err != nil {
		return 0, err
	}
	next := b.controller
	if successor != leader {
		if next, err = b.RunControllerAs(ctx, successor, o.corral); err != nil {
			return 0, err
		}
	}
	killed := time.Now()
	b.controller.Kill()
	if _, err := b.GitHub.AddJob(githubsim.Job{Repository: organization + "/app", Labels: []string{b.pools[0]}, Duration: jobDuration}); err != nil {
		return 0, fmt.Errorf("adding a job: %w", err)
	}
	if successor == leader {
		if next, err = b.RunControllerAs(ctx, successor, o.corral); err != nil {
			return 0, err
		}
	}
	b.controller = next
	err = world.Until(ctx, takeoverLimit, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := b.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("there is no pod")
		}
		seconds = time.Since(killed).Seconds()
		return nil
	})
	if err != nil {
		return 0, err
	}
	return seconds, b.untilQuiet(ctx)
}

// untilQuiet waits until no pods are left.
func (b *bed) untilQuiet(ctx context.Context) error {
	return world.Until(ctx, takeoverLimit, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := b.client.List(ctx, pods, client.InNamespace(namespace)); err != nil || len(pods.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d pods are left", len(pods.Items))
	})
}
