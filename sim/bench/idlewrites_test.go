// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/pools"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/controllers/scalesets"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
)

// hourPools is 8 by default because the fake client is slow: 200 pools take a minute of CPU.
var hourPools = flag.Int("hour-pools", 8, "pools that are idle for an hour")

// An hour of the controllers of connections, scale sets and pools, with the clock of
// TestAnIdleHourCostsFewRESTCallsHoweverManyPoolsThereAre.
func TestIdlePoolsAreHardlyEverWrittenInAnHour(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pools := *hourPools
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, key)
		defer o.close()
		for i := range pools {
			o.addPool(fmt.Sprintf("pool-%d", i))
		}
		o.pause(time.Minute)
		o.checkListening(pools)
		before, asked := o.writes.Load(), o.server.Report().Requests
		o.pause(time.Hour)
		writes, counts := o.writes.Load()-before, githubRequests(asked, o.server.Report().Requests)
		rest := 0
		for endpoint := range restEndpoints {
			rest += counts[string(endpoint)]
		}
		t.Logf("%d pools, %d writes, %d REST calls, of all calls: %v", pools, writes, rest, counts)
		if int(writes) > pools || rest > maxRESTCalls {
			t.Errorf("%d pools cost %d writes and %d REST calls", pools, writes, rest)
		}
	})
}

// office runs the controllers without a manager: the writes themselves trigger the events that an API server's watches
// would deliver.
type office struct {
	*testing.T
	ctx     context.Context
	cancel  context.CancelFunc
	server  *githubsim.Server
	cluster client.WithWatch
	writes  atomic.Int64
	// queues of the controllers of connections, scale sets and pools.
	queues  []workqueue.TypedRateLimitingInterface[reconcile.Request]
	running sync.WaitGroup
}

var appName = types.NamespacedName{Namespace: "team", Name: "github"}

func newOffice(t *testing.T, key *rsa.PrivateKey) *office {
	o := &office{T: t, server: newAppServer(key)}
	o.ctx, o.cancel = context.WithCancel(t.Context())
	network := shortcut{o.server}
	known := github.NewConnections(time.Now)
	clients := scaleset.NewClients(known, github.Options{Transport: network})
	connections := connectionReconciler(t, known, network, key, appName)
	o.cluster = interceptor.NewClient(connections.Client.(client.WithWatch), o.intercept())
	report := kube.Reporter{Client: o.cluster, Events: events.NewFakeRecorder(1000)}
	connections.Reporter = report
	sessions, memory := scalesets.NewSessions(leads{}), runners.NewMemory()
	o.running.Go(func() { _ = sessions.Start(o.ctx) })
	o.work(connections)
	o.work(&scalesets.Reconciler{Reporter: report, Clients: clients, Sessions: sessions, Memory: memory, Cluster: "cluster", Now: time.Now}, &sessions.States)
	report.Gathered = kube.Gather(time.Second, 25, time.Now)
	tracker := jobs.NewJobTracker(jobs.Config{Client: report.Client, Now: time.Now})
	o.running.Go(func() { _ = tracker.Start(o.ctx) })
	o.work(&pools.Reconciler{Reporter: report, Sessions: sessions, Jobs: tracker, Results: memory, Live: report.Client, Policies: policies.NewEngine(time.Now), Now: time.Now,
		Claims: runners.Claims{Client: report.Client, Live: report.Client, Memory: memory}}, &sessions.Events)
	o.queues[0].Add(reconcile.Request{NamespacedName: appName})
	return o
}

func (o *office) close() {
	o.cancel()
	for _, q := range o.queues {
		q.ShutDown()
	}
	o.running.Wait()
	o.server.Close()
}

func (o *office) pause(d time.Duration) {
	o.Helper()
	if err := pause(o.ctx, d); err != nil {
		o.Fatal(err)
	}
}

// work makes a controller reconcile the requests of its queue.
func (o *office) work(r reconcile.Reconciler, sources ...source.Source) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	for _, s := range sources {
		if err := s.Start(o.ctx, q); err != nil {
			o.Fatal(err)
		}
	}
	o.queues = append(o.queues, q)
	o.running.Go(func() {
		for {
			request, shutdown := q.Get()
			if shutdown {
				return
			}
			result, err := r.Reconcile(o.ctx, request)
			switch {
			case err != nil:
				q.AddRateLimited(request)
			case result.RequeueAfter > 0:
				q.Forget(request)
				q.AddAfter(request, result.RequeueAfter)
			}
			q.Done(request)
		}
	})
}

// wrote counts a write. For a RunnerScaleSet, it also queues requests for the scale set's and the pool's controllers;
// both objects have the same name.
func (o *office) wrote(obj client.Object, err error) error {
	o.writes.Add(1)
	if _, ok := obj.(*v1alpha1.RunnerScaleSet); ok && err == nil {
		for _, q := range o.queues[1:] {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
	}
	return err
}

func (o *office) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return o.wrote(obj, c.Create(ctx, obj, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return o.wrote(obj, c.Update(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return o.wrote(obj, c.Patch(ctx, obj, patch, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			o.writes.Add(1)
			return c.Apply(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return o.wrote(obj, c.Delete(ctx, obj, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return o.wrote(obj, c.SubResource(sub).Patch(ctx, obj, patch, opts...))
		},
	}
}

func (o *office) addPool(name string) {
	o.Helper()
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: appName.Namespace, Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: appName.Name}, RunnerLabels: []string{name},
			Template: runtime.RawExtension{Raw: []byte(template)},
		},
	}
	if err := o.cluster.Create(o.ctx, pool); err != nil {
		o.Fatal(err)
	}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pool)}
	o.queues[2].Add(request)
	o.queues[1].AddAfter(request, time.Second) // the pool has applied its RunnerScaleSet by then
}

func (o *office) checkListening(pools int) {
	o.Helper()
	listening := 0
	for _, s := range o.server.Report().ScaleSets {
		if s.SessionOwner != "" && s.Capacity > 0 {
			listening++
		}
	}
	revisions := &appsv1.ControllerRevisionList{}
	if err := o.cluster.List(o.ctx, revisions); err != nil {
		o.Fatal(err)
	}
	if listening != pools || len(revisions.Items) != pools {
		o.Fatalf("%d of %d pools listen, %d have a template", listening, pools, len(revisions.Items))
	}
}

// leads is the lease of a process that is the leader.
type leads struct{}

func (leads) Held() bool        { return true }
func (leads) Former() time.Time { return time.Time{} }
func (leads) Key() string       { return "" }
