// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// turns waits until a condition of an object has a status, and also a reason unless that is empty.
func (w *story) turns(t *testing.T, o kube.Object, condition string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := conditions.Get(o, condition)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason {
			return fmt.Errorf("%s is %+v", condition, c)
		}
		return nil
	})
}

// A cleanup job deletes each pod as soon as it runs.
func TestPodsThatAreDeletedAtOnceAreReplacedEverMoreSlowly(t *testing.T) {
	const namespace = "deleted-at-once"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	stop := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.Evicted, Namespace: namespace})
	t.Cleanup(stop)
	pool := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	must(t, w.Client.Create(t.Context(), pool))
	w.turns(t, pool, v1alpha1.HealthyCondition, metav1.ConditionFalse, v1alpha1.PodsDeletedReason)
	if n := w.GitHub.Report().RunnersMade; n > 6 {
		t.Errorf("%d runners were registered until the third that failed was noticed", n)
	}
	if n := pool.Status.Decision.Announced; n > 1 {
		t.Errorf("room for %d jobs is announced", n)
	}
	stop()
	ids := w.addJobs(t, namespace+"-org", "linux", 5, 50*time.Millisecond)
	w.allDone(t, ids)
	w.turns(t, pool, v1alpha1.HealthyCondition, metav1.ConditionTrue, "")
	w.cleanUp(t, namespace)
}

// Each pod takes longer to start than the pool's deadline allows. The deadline is extended until jobs start.
func TestPodsThatAreSlowerThanTheirDeadline(t *testing.T) {
	const namespace, jobs = "slower-than-deadline", 3
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	w.Node.Inject(nodeplay.Fault{Kind: nodeplay.StartsSlowly, Namespace: namespace, For: 25 * time.Second})
	pool := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Deadlines.Startup = &metav1.Duration{Duration: 10 * time.Second}
	})
	must(t, w.Client.Create(t.Context(), pool))
	w.listens(t, namespace, 1)
	w.allDone(t, w.addJobs(t, namespace+"-org", "linux", jobs, 50*time.Millisecond))
	if n := w.GitHub.Report().RunnersMade; n > 4*jobs {
		t.Errorf("%d runners were registered for %d jobs", n, jobs)
	}
	w.cleanUp(t, namespace)
}

// A quota rejects the Secrets with the runners' registrations.
func TestRefusedSecretsCostOneRegistrationEach(t *testing.T) {
	const namespace, jobs = "refused-secrets", 7
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	proxy := w.throughProxy(t)
	pool := newPool(namespace, "linux", "acme", atMost(10))
	must(t, w.Client.Create(t.Context(), pool))
	w.listens(t, namespace, 1)
	raiseQuota := proxy.Inject(apiproxy.Fault{
		Kind: apiproxy.Refuse, Verbs: []apiproxy.Verb{apiproxy.Create}, Resource: "secrets",
		Answer: &apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota: few, requested: secrets=1, used: secrets=5, limited: secrets=5")).ErrStatus,
	})
	ids := w.addJobs(t, namespace+"-org", "linux", jobs, 50*time.Millisecond)
	w.turns(t, pool, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.QuotaExceededReason)
	eventually(t, func(context.Context) error {
		if n := proxy.Struck(apiproxy.Refuse); n < 3*jobs {
			return fmt.Errorf("%d requests were refused", n)
		}
		return nil
	})
	if n := w.GitHub.Report().RunnersMade; n > jobs {
		t.Errorf("%d runners were registered for %d jobs", n, jobs)
	}
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	if n := pool.Status.Decision.Announced; n != 0 {
		t.Errorf("room for %d jobs is announced", n)
	}
	raiseQuota()
	w.allDone(t, ids)
	if n := w.GitHub.Report().RunnersMade; n > jobs {
		t.Errorf("%d runners were registered for %d jobs", n, jobs)
	}
	w.cleanUp(t, namespace)
}

// A quota allows three Runners. The other jobs that GitHub assigned wait, and run once the quota is raised.
func TestAQuotaOnRunnersIsTold(t *testing.T) {
	const namespace, jobs, admitted = "quota-on-runners", 10, 3
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	proxy := w.throughProxy(t)
	pool := newPool(namespace, "linux", "acme", atMost(jobs))
	must(t, w.Client.Create(t.Context(), pool))
	w.listens(t, namespace, 1)
	raiseQuota := proxy.Inject(apiproxy.Fault{
		Kind: apiproxy.Refuse, Verbs: []apiproxy.Verb{apiproxy.Create}, Resource: "runners", Skip: admitted,
		Answer: &apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "runners"}, "x", errors.New("exceeded quota: few")).ErrStatus,
	})
	ids := w.addJobs(t, namespace+"-org", "linux", jobs, harness.LongJob)
	w.turns(t, pool, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.QuotaExceededReason)
	eventually(t, func(ctx context.Context) error {
		must(t, w.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool))
		if d := pool.Status.Decision; d == nil || d.Desired != jobs || d.Announced != admitted || pool.Status.Runners.Busy != admitted {
			return fmt.Errorf("%d runners are busy, decided is %+v", pool.Status.Runners.Busy, d)
		}
		return nil
	})
	raiseQuota()
	harness.CutShort(t, w.GitHub, ids...)
	w.allDone(t, ids)
	w.cleanUp(t, namespace)
}

// GitHub temporarily rejects valid credentials.
func TestAPassingRefusalOfCredentialsIsWithdrawn(t *testing.T) {
	const namespace = "passing-refusal"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	pool := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	must(t, w.Client.Create(t.Context(), pool))
	w.turns(t, pool, v1alpha1.ReadyCondition, metav1.ConditionTrue, "")
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointOrg, githubsim.EndpointRunnerGroups, githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration, githubsim.EndpointUser} {
		w.GitHub.AddFault(githubsim.Fault{Endpoint: endpoint, Status: 401})
	}
	w.GitHub.ExpireAdminTokens()
	w.GitHub.ExpireQueueTokens()
	w.addJobs(t, namespace+"-org", "linux", 1, 50*time.Millisecond) // ends the long poll
	connection := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
	w.turns(t, connection, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.CredentialsRefusedReason)
	w.GitHub.ClearFaults()
	w.turns(t, connection, v1alpha1.ReadyCondition, metav1.ConditionTrue, "")
	w.allDone(t, w.addJobs(t, namespace+"-org", "linux", 1, 50*time.Millisecond))
	w.cleanUp(t, namespace)
}
