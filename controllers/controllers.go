// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers lists every controller and makes the manager they run in.
// The main loop is controllers/pools.
package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/pools"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/controllers/scalesets"
	"github.com/corral-dev/corral/controllers/sources"
	"github.com/corral-dev/corral/controllers/webhooks"
	"github.com/corral-dev/corral/internal/fairqueue"
	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/metricsource"
	"github.com/corral-dev/corral/internal/notify"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/internal/worker"
)

// Scheme knows every kind the controllers read or write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(sourcev1.AddToScheme(s))
	return s
}

// Collectors returns the metrics of all controllers and of the calls to GitHub, to be registered once.
func Collectors() []prometheus.Collector {
	return slices.Concat(sources.Collectors(), policies.Collectors(), pools.Collectors(), runners.Collectors(), scalesets.Collectors(), jobs.Collectors(), scaleset.Collectors(), rest.Collectors(), fairqueue.Collectors(), webhooks.Collectors(), notify.Collectors())
}

// Options of the controllers.
type Options struct {
	// Version of Corral, told to GitHub.
	Version string
	// Cluster names this cluster to GitHub: the first half of a session owner's name.
	Cluster string
	// Namespaces that are watched: ManagerOptions.Namespaces.
	Namespaces []string
	// DefaultServiceAccount in a PoolSource's namespace applies what the source declares if it names none itself; "" for the controller.
	DefaultServiceAccount string
	// NoCrossNamespaceRefs refuses sourceRef and dependsOn of PoolSources to other namespaces.
	NoCrossNamespaceRefs bool
	// CredentialsDir holds the folders that GitHubConnections name by mountRef.
	CredentialsDir string
	// AllowFileSources lets PoolSources name repositories of the own file system.
	AllowFileSources bool
	// PostStatus tells GitHub what becomes of revisions, for sources with spec.commitStatus.
	PostStatus bool
	// EventsAddress is where events are posted in the form of Flux's notification-controller; nowhere if empty.
	EventsAddress string
	// SourceControllerHost, if set, replaces the host of each URL of an artifact of Flux.
	SourceControllerHost string
	// JitterPercent spreads the sources' intervals to either side, 0 to 99.
	JitterPercent int
	// Zone is the time zone, in the IANA database, that policies are told. Default: UTC.
	Zone string
	// LogDecisions has policies' decisions logged that change something, and of the others every
	// DecisionSample-th, if it isn't 0.
	LogDecisions   bool
	DecisionSample int
	// Runners is how many runners are reconciled at once.
	Runners int
	// Others is how many objects of each other kind are reconciled at once.
	Others int
	// PrometheusServers that pools' metrics may name, each as NAME=URL.
	PrometheusServers []string
	// Webhook is where GitHub's webhooks are answered; nil if they aren't.
	Webhook *WebhookOptions
}

// WebhookOptions say where GitHub's webhooks are answered.
type WebhookOptions struct {
	// Listener that is answered, by this process whether it leads or not.
	Listener net.Listener
	// TrustedProxies are believed what they say in X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// Lease by which replicas agree on a leader: ManagerOptions.Lease.
	Lease types.NamespacedName
	// Key is ManagerOptions.WebhookKey.
	Key string
	// Namespaces that are watched: ManagerOptions.Namespaces.
	Namespaces []string
}

const (
	// poolStatusInterval is how long a pool's counts are gathered for one write.
	poolStatusInterval = 2 * time.Second
	// runnerStatusDelay is how long a runner's changes are gathered for one write: those
	// of its start, as a rule.
	runnerStatusDelay = 2 * time.Second
	// statusRate is how many such writes a second are made before they wait longer, for
	// pools and for runners each.
	statusRate = 25
)

// compilers is how many child processes compile at once: each may take a gigabyte.
const compilers = 2

// evaluators is how many child processes evaluate policies at once, beside a spare one: each may take 350 MB.
const evaluators = 2

// All adds every controller to the manager: one line each.
func All(mgr ctrl.Manager, o Options) error {
	report := kube.Reporter{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("corral")}
	if err := addNotifier(mgr, o.EventsAddress, &report); err != nil {
		return err
	}
	ofPools, ofRunners := report, report
	ofPools.Gathered = kube.Gather(poolStatusInterval, statusRate, time.Now)
	ofRunners.Quiet, ofRunners.Gathered = true, kube.Gather(runnerStatusDelay, statusRate, time.Now)
	memory := runners.NewMemory()
	live := mgr.GetAPIReader()
	engine := policies.NewEngine(time.Now)
	engine.Cache = mgr.GetClient()
	if o.LogDecisions {
		engine.Log = policies.NewDecisionLog(ctrl.Log.WithName("decision"), o.DecisionSample, time.Now)
	}
	access := &connections.Access{Connections: mgr.GetClient(), Namespaces: o.Namespaces, Now: time.Now}
	known := github.NewConnections(time.Now)
	clients := scaleset.NewClients(known, github.Options{Version: o.Version})
	gh := rest.NewClients(known, github.Options{Version: o.Version})
	sessions := scalesets.NewSessions()

	verify := func(ctx context.Context, c github.Credentials) (rest.Identity, error) {
		return rest.Verify(ctx, c, github.Options{Version: o.Version})
	}

	compiler, err := worker.NewCompiler(compilers, worker.DefaultLimits())
	if err != nil {
		return err
	}
	rules, err := worker.NewEvaluator(evaluators, worker.DefaultEvaluatorLimits())
	if err != nil {
		return err
	}
	impersonator := sources.NewImpersonator(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	git := &gitsource.Client{AllowFile: o.AllowFileSources}
	artifacts := &fluxsource.Client{Host: o.SourceControllerHost}
	ofPolicies := func(kind string) *policies.Reconciler {
		return &policies.Reconciler{Reporter: report, Live: live, Rules: rules, Engine: engine, Kind: kind}
	}

	tracker := jobs.NewJobTracker(jobs.Config{
		Client: mgr.GetClient(), GitHub: func(c types.NamespacedName) (jobs.GitHub, bool) { return gh.Get(connections.Key(c)) },
		Record: func(ctx context.Context, namespace string, events []scaleset.JobEvent) error {
			return (&runners.Recorder{Client: mgr.GetClient(), Namespace: namespace, Memory: memory}).RecordJobs(ctx, events)
		},
		Access: access, Now: time.Now,
	})

	poller, err := newPoller(mgr, o, clients, gh, access)
	if err != nil {
		return err
	}

	source := &sources.Reconciler{Reporter: report, Live: live, Impersonate: impersonator.As, DefaultServiceAccount: o.DefaultServiceAccount, CrossNamespace: !o.NoCrossNamespaceRefs, Fetcher: git, Artifacts: artifacts, Compiler: compiler}

	return firstError(
		mgr.Add(engine),
		tracker.SetupWithManager(mgr),
		poller.SetupWithManager(mgr),
		addWebhook(mgr, o.Webhook, tracker),
		ofPolicies(policy.KindClusterRunnerPolicy).SetupWithManager(mgr, o.Others),
		ofPolicies(policy.KindRunnerPolicy).SetupWithManager(mgr, o.Others),
		addTeller(mgr, o, &sources.Teller{Reporter: report, Live: live, Cluster: o.Cluster, Sources: source, Now: time.Now}, gh),
		source.SetupWithManager(mgr, sources.Options{Concurrent: o.Others, JitterPercent: o.JitterPercent}),
		connections.New(report, live, known, verify, o.CredentialsDir).SetupWithManager(mgr, o.Others),
		scalesets.New(report, clients, sessions, access, memory, o.Cluster).SetupWithManager(mgr, o.Others),
		(&pools.Reconciler{Reporter: ofPools, Sessions: sessions, Failures: memory, Live: live, Demand: []pools.Reader{tracker, poller}, Desk: tracker, Policies: engine, Access: access, REST: gh, Cluster: o.Cluster, Zone: o.Zone, Now: time.Now}).SetupWithManager(mgr, o.Others, sessions.Events(), tracker.Events(), poller.Events()),
		mgr.Add(runners.NewCollector(report, live, gh, access, memory, o.Cluster)),
		runners.New(ofRunners, live, clients, gh, sessions, access, memory, engine, o.Cluster).SetupWithManager(mgr, o.Runners),
	)
}

// addTeller adds what tells GitHub of revisions, if it is to be told.
func addTeller(mgr ctrl.Manager, o Options, teller *sources.Teller, gh *github.Clients[*rest.Client]) error {
	if !o.PostStatus {
		return nil
	}
	teller.GitHub = func(c types.NamespacedName) (sources.Commits, bool) { return gh.Get(connections.Key(c)) }
	return teller.SetupWithManager(mgr)
}

// newPoller makes what looks at pools' metrics.
func newPoller(mgr ctrl.Manager, o Options, clients *github.Clients[*scaleset.Client], gh *github.Clients[*rest.Client], access *connections.Access) (*jobs.Poller, error) {
	servers, err := metricsource.NewServers(o.PrometheusServers, metricsource.ServersOptions{})
	if err != nil {
		return nil, err
	}
	external, err := metricsource.NewExternal(mgr.GetConfig(), time.Now)
	if err != nil {
		return nil, err
	}
	return jobs.NewPoller(jobs.PollerConfig{
		Client:     mgr.GetClient(),
		GitHub:     func(c types.NamespacedName) (jobs.JobLister, bool) { return gh.Get(connections.Key(c)) },
		ScaleSets:  func(c types.NamespacedName) (jobs.SetFinder, bool) { return clients.Get(connections.Key(c)) },
		Prometheus: servers, External: external, Access: access, Now: time.Now, Random: rand.Float64,
	}), nil
}

// addNotifier has events posted to an address, if there is one.
func addNotifier(mgr ctrl.Manager, address string, report *kube.Reporter) error {
	if address == "" {
		return nil
	}
	instance, _ := os.Hostname() // a word more, if there is one
	poster, err := notify.New(notify.Options{URL: address, Scheme: mgr.GetScheme(), Instance: instance, Now: time.Now})
	if err != nil {
		return err
	}
	report.Notifier = poster
	return mgr.Add(poster)
}

// addWebhook adds the webhook server, if there is to be one.
func addWebhook(mgr ctrl.Manager, o *WebhookOptions, tracker webhook.Tracker) error {
	if o == nil {
		return nil
	}
	return webhooks.SetupWithManager(mgr, webhooks.Options{Listener: o.Listener, TrustedProxies: o.TrustedProxies, Lease: o.Lease, Key: o.Key, Namespaces: o.Namespaces, Tracker: tracker, Now: time.Now})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("setting up a controller: %w", err)
		}
	}
	return nil
}
