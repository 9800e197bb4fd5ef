// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// deafNamespace has the pools whose GitHub does not answer, and deafOrganization is their organization.
	deafNamespace    = "deaf"
	deafOrganization = "deaf-org"
	// Each half has halfPools pools, and each pool halfJobs jobs.
	halfPools, halfJobs = 100, 3
)

// endpoints are all endpoints that a controller calls.
var endpoints = []githubsim.Endpoint{
	githubsim.EndpointApp, githubsim.EndpointInstallation, githubsim.EndpointAccessToken, githubsim.EndpointUser,
	githubsim.EndpointMeta, githubsim.EndpointOrg, githubsim.EndpointRunners, githubsim.EndpointRunner,
	githubsim.EndpointDeleteRunner, githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration,
	githubsim.EndpointFindScaleSet, githubsim.EndpointGetScaleSet, githubsim.EndpointCreateScaleSet,
	githubsim.EndpointUpdateScaleSet, githubsim.EndpointDeleteScaleSet, githubsim.EndpointFindGroup,
	githubsim.EndpointCreateSession, githubsim.EndpointRefreshSession, githubsim.EndpointDeleteSession,
	githubsim.EndpointGetMessage, githubsim.EndpointDeleteMessage, githubsim.EndpointJITConfig,
	githubsim.EndpointGetAgent, githubsim.EndpointFindAgent, githubsim.EndpointDeleteAgent,
}

// runDeaf measures how a connection whose GitHub never answers affects the pools of another connection: the same burst
// in two worlds that differ in nothing else.
func runDeaf(ctx context.Context, o *options, latency time.Duration) (figures, error) {
	without, err := runHalf(ctx, o, latency, false)
	if err != nil {
		return nil, fmt.Errorf("while both halves answer: %w", err)
	}
	f, err := runHalf(ctx, o, latency, true)
	if err != nil {
		return nil, fmt.Errorf("while one half is deaf: %w", err)
	}
	for _, q := range []string{"p50", "p99"} {
		f["answering_"+q+"_ms"] = without["pod_"+q+"_ms"]
	}
	f["p99_to_answering"] = f["pod_p99_ms"] / without["pod_p99_ms"]
	return f, nil
}

// runHalf adds jobs for one half of the pools. The other half is idle, or, if deaf, has jobs but its GitHub no longer
// answers.
func runHalf(ctx context.Context, o *options, latency time.Duration, deaf bool) (f figures, err error) {
	b, err := makeBed(ctx, o, latency, halfPools)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.failed = err != nil
		err = errors.Join(err, b.remove())
	}()
	other, err := githubsim.Start(githubsim.Options{Latency: latency, Seed: o.seed})
	if err != nil {
		return nil, fmt.Errorf("starting the other GitHub: %w", err)
	}
	defer other.Close()
	if err := b.addHalf(ctx, other); err != nil {
		return nil, err
	}
	if deaf {
		if err := b.deafen(ctx, other); err != nil {
			return nil, fmt.Errorf("deafening a connection: %w", err)
		}
	}
	return b.measure(ctx, o, burst(b.pools, halfJobs))
}

// addHalf creates pools on another GitHub and waits until they listen.
func (b *bed) addHalf(ctx context.Context, gh *githubsim.Running) error {
	gh.AddToken(world.Token)
	gh.AddOrg(deafOrganization)
	if err := b.Cluster.CreateNamespace(ctx, deafNamespace); err != nil {
		return err
	}
	objects := []client.Object{b.CredentialsSecret(deafNamespace, connection), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: deafNamespace, Name: connection},
		Spec: v1alpha1.GitHubConnectionSpec{
			URL: gh.ConfigURL(deafOrganization), SecretRef: &v1alpha1.LocalObjectReference{Name: connection},
		},
	}}
	for _, object := range objects {
		if err := b.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T: %w", object, err)
		}
	}
	if err := b.createPools(ctx, deafNamespace, connection, b.pools); err != nil {
		return err
	}
	return listen(ctx, gh, len(b.pools))
}

// deafen adds jobs whose runners cannot be registered, so that the controller keeps calling GitHub, and then makes
// GitHub stop answering.
func (b *bed) deafen(ctx context.Context, gh *githubsim.Running) error {
	gh.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Hang: true})
	for _, a := range burst(b.pools, halfJobs) {
		job := githubsim.Job{Repository: deafOrganization + "/app", Labels: []string{a.pool}, Duration: jobDuration}
		if _, err := gh.AddJob(job); err != nil {
			return fmt.Errorf("adding a job: %w", err)
		}
	}
	err := world.Until(ctx, readyLimit, func(context.Context) error {
		runners, pods := &v1alpha1.RunnerList{}, &corev1.PodList{}
		if err := b.client.List(ctx, runners, client.InNamespace(deafNamespace)); err != nil {
			return fmt.Errorf("listing Runners: %w", err)
		}
		if err := b.client.List(ctx, pods, client.InNamespace(deafNamespace)); err != nil {
			return fmt.Errorf("listing Pods: %w", err)
		}
		if len(pods.Items) > 0 {
			return errors.New("a runner was registered")
		}
		if wanted := len(b.pools) * halfJobs; len(runners.Items) < wanted {
			return fmt.Errorf("%d of %d Runners are there", len(runners.Items), wanted)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		gh.AddFault(githubsim.Fault{Endpoint: endpoint, Hang: true})
	}
	return pause(ctx, settle)
}
