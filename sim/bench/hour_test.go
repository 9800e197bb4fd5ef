// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/scalesets"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
)

// maxRESTCalls is how many calls an hour of idle pools on one App may make, of the 5000 that GitHub allows an App
// installation.
const maxRESTCalls = 120

// An hour of all sessions, of the connection's controller and of the scale set comparisons, with a clock that runs as
// fast as the machine allows: the real code against the simulated GitHub, without a network.
func TestAnIdleHourCostsFewRESTCallsHoweverManyPoolsThereAre(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[int]int{}
	for _, pools := range []int{1, 200} {
		t.Run(fmt.Sprint(pools), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := idleHour(t, key, pools)
				for endpoint := range restEndpoints {
					calls[pools] += counts[string(endpoint)]
				}
				t.Logf("%d pools, %d REST calls, of all calls: %v", pools, calls[pools], counts)
				if polls := counts[string(githubsim.EndpointGetMessage)]; polls < pools*3600/60 {
					t.Errorf("only %d polls: the pools don't listen", polls)
				}
				if asked := counts[string(githubsim.EndpointReleases)]; asked > 0 {
					t.Errorf("what GitHub lacks is asked again: %d times", asked)
				}
			})
		})
	}
	// Verification is jittered by 10 %, so an hour can have one more or one less.
	if perVerification := 5; calls[200] > maxRESTCalls || calls[200] > calls[1]+perVerification {
		t.Errorf("200 pools cost %d REST calls, one pool %d", calls[200], calls[1])
	}
}

// idleHour counts the calls of one hour, beginning a minute after the start.
func idleHour(t *testing.T, key *rsa.PrivateKey, pools int) map[string]int {
	server := newAppServer(key)
	t.Cleanup(server.Close)
	network := shortcut{server}
	known := github.NewConnections(time.Now)
	clients := scaleset.NewClients(known, github.Options{Transport: network})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	name := types.NamespacedName{Namespace: "team", Name: "github"}
	reconciler := connectionReconciler(t, known, network, key, name)
	wait := reconcileOnce(ctx, t, reconciler, name)
	running.Go(func() {
		for pause(ctx, wait) == nil {
			wait = reconcileOnce(ctx, t, reconciler, name)
		}
	})
	gh, ok := clients.Get(connections.Key(name))
	if !ok {
		t.Fatal("the connection is not ready")
	}
	for i := range pools {
		attendPool(ctx, t, &running, gh, fmt.Sprintf("pool-%d", i))
	}
	if err := pause(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	before := server.Report().Requests
	if err := pause(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	return githubRequests(before, server.Report().Requests)
}

// newAppServer returns a GitHub with an App.
func newAppServer(key *rsa.PrivateKey) *githubsim.Server {
	server := githubsim.New(githubsim.Options{})
	server.AddOrg("acme")
	server.AddApp(githubsim.App{
		ID: 7, InstallationID: 70, Account: "acme", PublicKey: &key.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	return server
}

// attendPool keeps a session of a new scale set open, and compares the scale set as its controller does.
func attendPool(ctx context.Context, t *testing.T, running *sync.WaitGroup, gh *scaleset.Client, name string) {
	set, err := gh.Create(ctx, scaleset.Set{Name: name, GroupID: github.DefaultRunnerGroupID, Labels: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	l := scaleset.NewListener(scaleset.Config{Client: gh, SetID: set.ID, Owner: "cluster/" + name, Recorder: forgetful{}})
	l.Announce(10)
	running.Go(func() { l.Run(ctx) })
	running.Go(func() {
		for pause(ctx, 10*time.Minute) == nil {
			if _, err := gh.Get(ctx, set.ID); err != nil && ctx.Err() == nil {
				t.Errorf("comparing %s: %v", name, err)
			}
		}
	})
}

// connectionReconciler returns the controller of a connection with the credentials of an App.
func connectionReconciler(t *testing.T, known *github.Connections, network http.RoundTripper, key *rsa.PrivateKey, name types.NamespacedName) *connections.Reconciler {
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	builder := fake.NewClientBuilder().WithScheme(kube.Scheme())
	for _, i := range append(scalesets.Indexes(), kube.Indexes("cluster")...) {
		builder.WithIndex(i.Object, i.Field, i.Values)
	}
	cluster := builder.WithStatusSubresource(
		&v1alpha1.GitHubConnection{}, &v1alpha1.RunnerScaleSet{}, &v1alpha1.RunnerPool{},
	).WithObjects(
		&v1alpha1.GitHubConnection{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "uid", Generation: 1},
			Spec:       v1alpha1.GitHubConnectionSpec{URL: "http://github.test/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "app"}},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: "app"},
			Data: map[string][]byte{
				v1alpha1.AppIDKey: []byte("7"), v1alpha1.AppInstallationIDKey: []byte("70"), v1alpha1.AppPrivateKeyKey: text,
			},
		}).Build()
	return &connections.Reconciler{
		Reporter: kube.Reporter{Client: cluster, Events: events.NewFakeRecorder(100)},
		Secrets:  cluster, Connections: known, Now: time.Now,
		Verify: func(ctx context.Context, _ string, c github.Credentials) (rest.Identity, error) {
			return rest.Verify(ctx, c, github.Options{Transport: network})
		},
		Probe: connections.NewProber(scaleset.NewClients(known, github.Options{Transport: network}), rest.NewClients(known, github.Options{Transport: network})),
	}
}

func reconcileOnce(ctx context.Context, t *testing.T, r *connections.Reconciler, name types.NamespacedName) time.Duration {
	result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: name})
	if err != nil && ctx.Err() == nil {
		t.Errorf("reconciling the connection: %v", err)
	}
	return result.RequeueAfter
}

// shortcut is a transport without sockets, so that a fake clock knows when goroutines wait.
type shortcut struct{ server http.Handler }

// RoundTrip calls the server's handler directly.
func (m shortcut) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.RequestURI, asked.Host = r.URL.RequestURI(), r.URL.Host
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	answered, recorder := make(chan struct{}), httptest.NewRecorder()
	go func() {
		defer close(answered)
		m.server.ServeHTTP(recorder, asked)
	}()
	select {
	case <-answered:
		response := recorder.Result()
		response.Request = r
		return response, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
