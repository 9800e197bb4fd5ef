// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestARunnerGetsOfTheNetworkWhatItNeeds(t *testing.T) {
	network := github.Network{HTTPSProxy: "http://user:word@proxy", NoProxy: "a,b", CA: []byte("pem")}
	keys := func(n github.Network) []string { return slices.Sorted(maps.Keys(networkData(n))) }
	if got := keys(network); !slices.Equal(got, []string{"ca.crt"}) {
		t.Errorf("keys %v", got)
	}
	network.RunnersUseProxy = true
	if got := keys(network); !slices.Equal(got, []string{"HTTPS_PROXY", "NO_PROXY", "ca.crt"}) {
		t.Errorf("keys with proxies %v", got)
	}
}

// The work folder of jobs is part of the registration, with and without a scale set.
func TestJobsWorkInTheFolderOfTheirRevision(t *testing.T) {
	for name, newBench := range map[string]func(*testing.T) *bench{"with a scale set": newBench, "by REST": newRESTBench} {
		for declared, want := range map[string]string{"": "_work", "/builds": "/builds"} {
			b := newBench(t)
			r := b.runner()
			r.Spec.WorkFolder = declared
			b.update(r)
			b.reconcile()
			config, err := runnerwire.Decode(string(get(b, &corev1.Secret{}, "linux-a-jit").Data[podspec.JITKey]))
			if err != nil || config.Settings.WorkFolder != want {
				t.Errorf("%s, %q: %+v, %v", name, declared, config.Settings, err)
			}
		}
	}
}

// The Runner was deleted with its pool and awaits the garbage collector. No user created it.
func TestARunnerWhosePoolWasDeletedIsNoTrouble(t *testing.T) {
	b := newBench(t)
	if err := b.Client.Delete(t.Context(), b.pool()); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if c := conditions.Get(b.runner(), v1alpha1.ReadyCondition); c.Status != metav1.ConditionUnknown || c.Message != "its RunnerPool was deleted, so the runner is deleted as well" {
		t.Errorf("ready: %+v", c)
	}
}

// While the API server rejects the Secret, the registration is kept, and its cause is reported.
func TestASecretThatIsRefused(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct {
		err    error
		reason string
		cause  v1alpha1.RunnerCause
	}{
		"by a quota":           {apierrors.NewForbidden(secrets, "x", errors.New("exceeded quota: few")), v1alpha1.QuotaExceededReason, v1alpha1.CauseQuota},
		"by a webhook":         {apierrors.NewForbidden(secrets, "x", errors.New("denied the request")), v1alpha1.SecretRefusedReason, v1alpha1.CauseRefused},
		"by an internal error": {apierrors.NewInternalError(errors.New("etcd")), "", ""},
		"by a lost connection": {errors.New("connection reset by peer"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			direct := b.Client
			b.Client = interceptor.NewClient(direct.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*corev1.Secret); ok {
					return tc.err
				}
				return c.Create(ctx, o, opts...)
			}})
			for range 4 {
				b.step(refusalRetry)
			}
			if n := b.asked(githubsim.EndpointJITConfig); n != 1 || b.pod() != nil {
				t.Errorf("%d registrations", n)
			}
			if r := b.runner(); r.Status.Cause != tc.cause || tc.reason != "" && conditions.GetReason(r, v1alpha1.ReadyCondition) != tc.reason {
				t.Errorf("cause %q, reason %q", r.Status.Cause, conditions.GetReason(r, v1alpha1.ReadyCondition))
			}
			b.Client = direct
			b.step(refusalRetry)
			if n := b.asked(githubsim.EndpointJITConfig); n != 1 || b.pod() == nil {
				t.Errorf("once the Secret is accepted: %d registrations, pod %v", n, b.pod())
			}
		})
	}
}

// A runner ends before its Secret could be created.
func TestARegistrationWithoutASecretIsRemoved(t *testing.T) {
	for name, restarts := range map[string]bool{"by the process that made it": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*corev1.Secret); ok {
					return errors.New("connection reset by peer")
				}
				return c.Create(ctx, o, opts...)
			}})
			b.step(0)
			if restarts {
				b.restart()
			}
			b.delete()
			b.step(time.Second)
			if b.registered() != 0 || b.runner() != nil {
				t.Errorf("%d registrations are left, runner %+v", b.registered(), b.runner())
			}
		})
	}
}

// GitHub reports that the runner's name is taken, but no request returns that registration.
func TestANameThatGitHubDoesNotShowIsAskedForEverMoreSlowly(t *testing.T) {
	b := newBench(t)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Times: 1, DropAnswer: true, Status: 502})
	b.breaks(nothing["an empty list"], githubsim.EndpointFindAgent)
	b.step(0)
	for end := b.now.Add(time.Minute); b.now.Before(end); {
		b.now = b.now.Add(max(time.Millisecond, b.reconcile().RequeueAfter))
	}
	if n := b.asked(githubsim.EndpointJITConfig); n > 12 {
		t.Errorf("%d attempts in a minute", n)
	}
}
