// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
)

// Collectors returns the metrics of the server.
func Collectors() []prometheus.Collector { return webhook.Collectors() }

// Options are the options of the server.
type Options struct {
	// Listener accepts the server's connections.
	Listener net.Listener
	// TrustedProxies are the proxies whose X-Forwarded-For header is trusted.
	TrustedProxies []netip.Prefix
	// Key identifies requests that other replicas forward.
	Key string
	// Lease is the leader election lease.
	Lease types.NamespacedName
	// Namespaces are the watched namespaces; all if empty.
	Namespaces []string
	// Tracker accepts events while this process leads.
	Tracker webhook.Tracker
	// Signatures records for each event whether its connection's secret signed it.
	Signatures *webhook.Signatures
	Now        func() time.Time
}

// server is the webhook server as a manager.Runnable.
type server struct {
	*webhook.Server
	listener net.Listener
	watch    func(context.Context) error
	serving  atomic.Bool
}

// SetupWithManager adds the server to the manager. The server runs in every replica, whether or not the replica leads.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	secrets := &Secrets{Connections: mgr.GetCache(), Live: mgr.GetAPIReader(), Namespaces: o.Namespaces, Signatures: o.Signatures, Now: o.Now}
	leader := &Leader{Elected: mgr.Elected(), Live: mgr.GetAPIReader(), Lease: o.Lease, Now: o.Now}
	s := &server{listener: o.Listener, Server: webhook.New(webhook.Options{
		Secrets: secrets, Tracker: o.Tracker, Signatures: o.Signatures, Leader: leader, Key: o.Key, TrustedProxies: o.TrustedProxies, Log: mgr.GetLogger().WithName("webhook"), Now: o.Now,
	})}
	s.watch = func(ctx context.Context) error { return watch(ctx, mgr, secrets) }
	if err := mgr.AddReadyzCheck("webhook", s.check); err != nil {
		return fmt.Errorf("adding a check: %w", err)
	}
	return mgr.Add(s)
}

// check keeps the replica unready until the server can answer events.
func (s *server) check(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the webhook server isn't ready yet")
	}
	return nil
}

// watch waits until the cache contains the GitHubConnections, and makes secrets forget each connection that is deleted.
func watch(ctx context.Context, mgr ctrl.Manager, secrets *Secrets) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.GitHubConnection{})
	if err != nil {
		return fmt.Errorf("watching connections: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if conn, ok := obj.(*v1alpha1.GitHubConnection); ok {
			secrets.Forget(client.ObjectKeyFromObject(conn))
		}
	}})
	if err != nil {
		return fmt.Errorf("watching connections: %w", err)
	}
	return nil
}

// Start implements manager.Runnable.
func (s *server) Start(ctx context.Context) error {
	if err := s.watch(ctx); err != nil {
		return err
	}
	s.serving.Store(true)
	defer s.serving.Store(false)
	return s.Serve(ctx, s.listener)
}

// NeedLeaderElection returns false, so that every replica answers.
func (s *server) NeedLeaderElection() bool { return false }
