// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
)

// ManagerOptions configure the process in which the controllers run.
type ManagerOptions struct {
	// Namespaces are the namespaces to watch; all if empty.
	Namespaces []string
	// MetricsAddress and HealthAddress are the addresses to listen on; "0" for none.
	MetricsAddress, HealthAddress string
	// ProfilesPort is the localhost port for profiles of the process; 0 for none.
	ProfilesPort uint16
	// LogLevel handles GET and PUT of /loglevel on the metrics server.
	LogLevel http.Handler
	// Version is Corral's version, which the leader writes into the lease.
	Version string
	// LeaderElection ensures that only one of several replicas runs the controllers. LeaderElectionNamespace is the
	// namespace of the lease.
	LeaderElection          bool
	LeaderElectionNamespace string
	// LeaseDuration is how long the other replicas wait before they take over from a leader that does not renew the lease.
	// The leader tries to renew the lease every RetryPeriod, and exits if it has not succeeded for RenewDeadline.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// WebhookAddress is where other replicas reach this replica's webhook server; the zero value if it has none.
	WebhookAddress netip.AddrPort
	// WebhookKey proves to that server that a request comes from another replica.
	WebhookKey string
}

// requestTimeout limits a request to the API server, which uses the same limit by default. Watches have no limit.
const requestTimeout = time.Minute

// requestClient returns the HTTP client for all requests except watches.
func requestClient(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the API server: %w", err)
	}
	return c, nil
}

// leaseName is the name of the leader election lease.
const leaseName = "corral.corral.dev"

// Lease returns the name of the leader election lease.
func (o ManagerOptions) Lease() types.NamespacedName {
	namespace := o.LeaderElectionNamespace
	if namespace == "" {
		// controller-runtime determines its namespace in the same way. Outside of a cluster the file does not exist, and an
		// election requires LeaderElectionNamespace.
		own, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		namespace = string(own)
	}
	return types.NamespacedName{Namespace: namespace, Name: leaseName}
}

// profilesAddress returns the address for profiles; empty for none. Profiles show the process's memory, so no other host
// may reach them.
func (o ManagerOptions) profilesAddress() string {
	if o.ProfilesPort == 0 {
		return ""
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), o.ProfilesPort).String()
}

// Manager is a ctrl.Manager with the leader election lease, the watches of its cache, and the clock of all controllers.
type Manager struct {
	ctrl.Manager
	lease   *lease
	watches *kube.Watches
	clock   *clock.Clock
}

// reportClock reports how far a server's clock is ahead: the API server's compared with this machine's or, for a
// connection, GitHub's compared with the API server's.
func reportClock(server, connection string, ahead time.Duration, crossed bool) {
	clock.Offsets.WithLabelValues(server, connection).Set(ahead.Seconds())
	if crossed {
		kube.Warn(ctrl.LoggerInto(context.Background(), ctrl.Log.WithName("clock")), "A server's clock differs by more than 30 s, or no longer does",
			"server", server, "connection", connection, "ahead", ahead.Round(time.Second).String())
	}
}

// trimRevision removes the template of a ControllerRevision if the template is too large for a pool. Pools never create
// such a ControllerRevision, but other users may create any number of them, which would fill the cache.
func trimRevision(obj any) (any, error) {
	if revision, ok := obj.(*appsv1.ControllerRevision); ok && !podspec.Fits(revision.Data.Raw) {
		revision.Data.Raw = nil
	}
	return kube.TrimForeign(obj)
}

// NewManager creates a manager whose cache contains Corral's kinds, and only the pods and revisions that belong to a pool.
// Secrets are never cached, and therefore never listed.
func NewManager(config *rest.Config, o ManagerOptions) (*Manager, error) {
	ours, err := labels.NewRequirement(v1alpha1.PoolLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting the objects of pools: %w", err)
	}
	// Pods and ControllerRevisions are only read, so the cache need not copy them.
	belonging := cache.ByObject{Label: labels.NewSelector().Add(*ours), UnsafeDisableDeepCopy: new(true)}
	pods := belonging
	pods.Transform = podspec.Trim
	revisions := belonging
	revisions.Transform = trimRevision
	configMaps := &metav1.PartialObjectMetadata{}
	configMaps.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	caches, err := labels.NewRequirement(v1alpha1.CacheLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting the claims of caches: %w", err)
	}
	namespaces := map[string]cache.Config{}
	for _, ns := range o.Namespaces {
		namespaces[ns] = cache.Config{}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit, because the API server's priority and fairness limits requests
	watches := &kube.Watches{Now: time.Now}
	config.Wrap(watches.Wrap)
	// All controllers use the API server's clock instead of this machine's clock, because times in objects come from the
	// API server, and other replicas run on other machines.
	server := clock.New(clock.Steady(), time.Now, func(ahead time.Duration, crossed bool) { reportClock("kubernetes", "", ahead, crossed) })
	config.Wrap(server.Wrap)
	held, err := newLease(config, o, server.Now)
	if err != nil {
		return nil, err
	}
	config.Wrap(held.guard)
	requests, err := requestClient(config)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                              kube.Scheme(),
		LeaderElection:                      o.LeaderElection,
		LeaderElectionResourceLockInterface: held,
		LeaderElectionID:                    o.Lease().Name, // controller-runtime's metrics use this name
		LeaseDuration:                       new(o.LeaseDuration),
		RenewDeadline:                       new(o.RenewDeadline),
		RetryPeriod:                         new(o.RetryPeriod),
		LeaderElectionReleaseOnCancel:       true,
		HealthProbeBindAddress:              o.HealthAddress,
		PprofBindAddress:                    o.profilesAddress(),
		Metrics:                             metricsserver.Options{BindAddress: o.MetricsAddress, ExtraHandlers: map[string]http.Handler{"/loglevel": o.LogLevel}},
		Client:                              client.Options{HTTPClient: requests, Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		Cache: cache.Options{
			DefaultNamespaces: namespaces,
			DefaultTransform:  kube.Trim,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: pods, &appsv1.ControllerRevision{}: revisions,
				&corev1.PersistentVolumeClaim{}: {Label: labels.NewSelector().Add(*caches), UnsafeDisableDeepCopy: new(true), Transform: kube.TrimForeign},
				&policyv1.PodDisruptionBudget{}: {Transform: kube.TrimForeign},
				configMaps:                      {Label: labels.SelectorFromSet(policies.WatchedConfigMaps()), Transform: kube.TrimForeign},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return &Manager{mgr, held, watches, server}, firstError(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping))
}
