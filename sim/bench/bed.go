// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// namespace, connection and organization of the pools.
	namespace    = "bench"
	connection   = "github"
	organization = "bench-org"
	// appConnection is a connection with the credentials of a GitHub App.
	appConnection = "github-app"
	// readyLimit bounds the time until all pools listen.
	readyLimit = 3 * time.Minute
	// settle is how long the system is left idle before and after the jobs, so that late writes are counted, and
	// counted for the right jobs.
	settle = 3 * time.Second
)

// template is the pod template of the pools.
const template = `{"spec":{"containers":[{"name":"runner","image":"ghcr.io/actions/actions-runner:latest"}]}}`

// bed is a world in which the controller runs and the pools listen.
type bed struct {
	*world.World
	controller *world.Controller
	client     client.Client    // for measuring the floor
	eyes       client.WithWatch // for the watches
	pools      []string
	failed     bool // if set, the controller's log is kept
}

// makeBed starts a world with pools that listen. Stop it with remove.
func makeBed(ctx context.Context, o *options, latency time.Duration, pools int) (*bed, error) {
	w, err := world.Start(ctx, world.Options{GitHub: githubsim.Options{Latency: latency, Seed: o.seed}, Audit: true})
	if err != nil {
		return nil, err
	}
	b := &bed{World: w}
	if err := b.make(ctx, o, pools); err != nil {
		b.failed = true
		return nil, errors.Join(err, b.remove())
	}
	return b, nil
}

func (b *bed) make(ctx context.Context, o *options, pools int) (err error) {
	if b.client, err = client.New(ownConnections(b.Cluster.Config), client.Options{Scheme: kube.Scheme()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if b.eyes, err = client.NewWithWatch(ownConnections(b.Cluster.Config), client.Options{Scheme: kube.Scheme()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if b.controller, err = b.RunController(ctx, o.corral); err != nil {
		return err
	}
	if err := b.Connect(ctx, namespace, connection, organization); err != nil {
		return err
	}
	for i := range pools {
		b.pools = append(b.pools, fmt.Sprintf("pool-%02d", i+1))
	}
	if err := b.createPools(ctx, namespace, connection, b.pools); err != nil {
		return err
	}
	return listen(ctx, b.GitHub, len(b.pools))
}

// ownConnections prevents a client from sharing connections with other clients of this process, which is client-go's
// default: measured requests must not wait for the requests of the simulated node.
func ownConnections(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	return config
}

func (b *bed) createPools(ctx context.Context, namespace, connection string, names []string) error {
	for _, name := range names {
		pool := &v1alpha1.RunnerPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: v1alpha1.RunnerPoolSpec{
				ConnectionRef: v1alpha1.ConnectionReference{Name: connection}, RunnerLabels: []string{name},
				Template: runtime.RawExtension{Raw: []byte(template)},
			},
		}
		if err := b.client.Create(ctx, pool); err != nil {
			return fmt.Errorf("creating pool %s: %w", name, err)
		}
	}
	return nil
}

// listen waits until the given number of pools have announced their capacity to GitHub and nothing is in progress.
func listen(ctx context.Context, gh *githubsim.Running, pools int) error {
	err := world.Until(ctx, readyLimit, func(context.Context) error {
		listening := 0
		for _, s := range gh.Report().ScaleSets {
			if s.SessionOwner != "" && s.Capacity > 0 {
				listening++
			}
		}
		if listening != pools {
			return fmt.Errorf("%d of %d pools listen", listening, pools)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pause(ctx, settle)
}

// remove stops the world. If the run failed, it keeps the controller's log.
func (b *bed) remove() error {
	var errs []error
	if b.controller != nil {
		if b.failed {
			errs = append(errs, keep(b.controller.LogPath))
		}
		errs = append(errs, b.controller.Stop())
	}
	return errors.Join(append(errs, b.Stop())...)
}

// keep copies the controller's log to a permanent file. The returned error contains its path.
func keep(log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	kept, err := os.CreateTemp("", "corral-bench-*.log")
	if err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	defer kept.Close()
	if _, err := kept.Write(text); err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	return fmt.Errorf("the controller's log is %s", kept.Name())
}

// pause waits for d, or returns immediately if d is not positive.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
