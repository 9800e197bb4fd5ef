// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers sets up all controllers and the manager in which they run. The main controller, which reconciles
// RunnerPools, is in controllers/pools.
package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/pools"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/controllers/scalesets"
	"github.com/corral-dev/corral/controllers/sources"
	"github.com/corral-dev/corral/controllers/webhooks"
	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/metricsource"
	"github.com/corral-dev/corral/internal/notify"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/internal/worker"
)

// Collectors returns the metrics of all controllers and of the calls to GitHub. They are global to the process, so register
// them only once.
func Collectors() []prometheus.Collector {
	return slices.Concat([]prometheus.Collector{buildInfo, readiness}, sources.Collectors(), policies.Collectors(), pools.Collectors(), runners.Collectors(), scalesets.Collectors(), jobs.Collectors(), scaleset.Collectors(), rest.Collectors(), turns.Collectors(), webhooks.Collectors(), notify.Collectors(), []prometheus.Collector{clock.Offsets})
}

// Options are the options of the controllers.
type Options struct {
	// Version is Corral's version, which the User-Agent of requests to GitHub contains.
	Version string
	// Cluster identifies this cluster on GitHub. It is the first part of a session owner's name, CLUSTER/POOL_UID, and the
	// owner labels of runners without a scale set are derived from it.
	Cluster string
	// Namespaces are the watched namespaces: ManagerOptions.Namespaces.
	Namespaces []string
	// CredentialsDir is the folder that contains a folder NAMESPACE/NAME for each spec.mount of a GitHubConnection.
	CredentialsDir string
	// EventsAddress is the URL to which events are posted in the format of Flux's notification-controller; empty to post
	// none.
	EventsAddress string
	// Sources are the options of PoolSources.
	Sources SourceOptions
	// Zone is the time zone, by its name in the IANA database, that policies receive in their input. Default: UTC.
	Zone string
	// LogDecisions enables the log of policy decisions. The log contains each decision that changes something, and every
	// DecisionSample-th of the others; none of the others if DecisionSample is 0.
	LogDecisions   bool
	DecisionSample int
	// Runners is how many runners are reconciled concurrently.
	Runners int
	// Others is how many objects of each other kind are reconciled concurrently.
	Others int
	// PrometheusServers are the servers that pools' metrics may refer to, each as NAME=URL.
	PrometheusServers []string
	// JobMetrics selects the labels that job metrics have in addition to the pool.
	JobMetrics jobs.MeterOptions
	// Webhook configures the server for GitHub's webhooks; nil for none.
	Webhook *WebhookOptions
}

// SourceOptions are the options of the controller of PoolSources.
type SourceOptions struct {
	// DefaultServiceAccount is the service account, in a PoolSource's namespace, that applies the objects of sources without
	// one; empty for the controller.
	DefaultServiceAccount string
	// NoCrossNamespaceRefs refuses a sourceRef or dependsOn that refers to another namespace.
	NoCrossNamespaceRefs bool
	// AllowFiles allows repositories in the local file system.
	AllowFiles bool
	// PostStatus reports the results of revisions to GitHub, for sources with spec.commitStatus.
	PostStatus bool
	// ArtifactHost, if set, replaces the host in URLs of Flux artifacts.
	ArtifactHost string
	// JitterPercent is the maximum random change of each interval, in percent from 0 to 99, so that sources are not all
	// reconciled at the same time.
	JitterPercent int
}

// WebhookOptions configure the server for GitHub's webhooks.
type WebhookOptions struct {
	// Listener accepts the server's connections, whether or not this process leads.
	Listener net.Listener
	// TrustedProxies are the proxies whose X-Forwarded-For header is trusted.
	TrustedProxies []netip.Prefix
	// Lease is the leader election lease: ManagerOptions.Lease.
	Lease types.NamespacedName
	// Key is ManagerOptions.WebhookKey.
	Key string
	// Namespaces are the watched namespaces: ManagerOptions.Namespaces.
	Namespaces []string
}

const (
	// poolStatusInterval is how long changes of a pool's counts are collected for one write of its status.
	poolStatusInterval = 2 * time.Second
	// runnerStatusDelay is how long a runner's changes, usually the changes of its start, are collected for one write of
	// its status.
	runnerStatusDelay = 2 * time.Second
	// statusRate is the number of these writes per second, for pools and for runners each, above which they are delayed
	// further.
	statusRate = 25
)

// shared contains the dependencies that several controllers use.
type shared struct {
	now   func() time.Time // the API server's clock
	guard func(http.RoundTripper) http.RoundTripper

	report, ofPools, ofRunners, ofSets kube.Reporter

	live        client.Reader
	engine      *policies.Engine
	connections *github.Connections
	scaleSets   *github.Clients[*scaleset.Client]
	rest        *github.Clients[*rest.Client]
	access      *connections.Access
	sessions    *scalesets.Sessions
	memory      *runners.Memory
	versions    *runners.Versions
	jobs        *jobs.JobMeter
	accounts    *sources.Impersonator
}

func newShared(mgr *Manager, o Options) (shared, error) {
	now := mgr.clock.Now
	report := kube.Reporter{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("corral"), Written: kube.NewWritten(), Now: now}
	if err := addNotifier(mgr, o.EventsAddress, &report); err != nil {
		return shared{}, err
	}
	s := shared{
		report: report, ofPools: report, ofRunners: report, ofSets: report, live: mgr.GetAPIReader(),
		now: now, guard: mgr.lease.guard, engine: policies.NewEngine(now), connections: github.NewConnections(now),
		access:   &connections.Access{Connections: mgr.GetClient(), Namespaces: o.Namespaces, Now: now},
		sessions: scalesets.NewSessions(mgr.lease), memory: runners.NewMemory(), jobs: jobs.NewJobMeter(o.JobMetrics),
		accounts: sources.NewImpersonator(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}),
	}
	s.ofSets.Mirrored = true // their pools repeat the conditions of RunnerScaleSets
	s.connections.Report = func(key string, ahead time.Duration, crossed bool) { reportClock(github.Server, key, ahead, crossed) }
	s.ofPools.Gathered = kube.Gather(poolStatusInterval, statusRate, time.Now)
	s.ofRunners.Quiet, s.ofRunners.Gathered = true, kube.Gather(runnerStatusDelay, statusRate, time.Now)
	s.engine.Cache = mgr.GetClient()
	if o.LogDecisions {
		s.engine.Log = policies.NewDecisionLog(ctrl.Log.WithName("decision"), o.DecisionSample)
	}
	s.scaleSets = scaleset.NewClients(s.connections, s.gitHub(o))
	s.rest = rest.NewClients(s.connections, s.gitHub(o))
	s.versions = &runners.Versions{
		Client: mgr.GetClient(), Access: s.access, Now: now,
		GitHub: func(c types.NamespacedName) (runners.VersionReader, bool) { return s.rest.Get(connections.Key(c)) },
	}
	return s, nil
}

// gitHub returns the options of all GitHub clients.
func (s shared) gitHub(o Options) github.Options {
	return github.Options{Version: o.Version, Now: s.now, Guard: s.guard}
}

// All adds every controller to the manager.
func All(mgr *Manager, o Options) error {
	s, err := newShared(mgr, o)
	if err != nil {
		return err
	}
	measure(mgr, o.Version)
	tracker, signatures := newTracker(mgr, s), &webhook.Signatures{}
	poller, err := newPoller(mgr, o, s)
	if err != nil {
		return err
	}
	verify := func(ctx context.Context, connection string, c github.Credentials) (rest.Identity, error) {
		return rest.Verify(ctx, c, s.connections.Watch(s.gitHub(o), connection))
	}
	return firstError(
		kube.AddIndexes(mgr.GetFieldIndexer(), kube.Indexes(o.Cluster)),
		mgr.Add(manager.RunnableFunc(lead)),
		mgr.Add(s.engine),
		addPolicies(mgr, o, s),
		addSources(mgr, o, s),
		connections.New(s.report, s.live, s.connections, verify, connections.NewProber(s.scaleSets, s.rest), signatures, o.CredentialsDir, s.now).SetupWithManager(mgr, o.Others),
		tracker.SetupWithManager(mgr),
		poller.SetupWithManager(mgr),
		addWebhook(mgr, o.Webhook, tracker, signatures),
		scalesets.New(s.ofSets, s.scaleSets, s.sessions, s.access, s.memory, s.jobs, o.Cluster, s.now).SetupWithManager(mgr, o.Others),
		addPools(mgr, o, s, tracker, poller),
		s.versions.SetupWithManager(mgr, o.Others),
		mgr.Add(runners.NewCollector(s.report, s.live, s.scaleSets, s.rest, s.sessions, s.access, s.memory, o.Cluster, s.now)),
		runners.New(s.ofRunners, s.live, s.scaleSets, s.rest, s.sessions, s.access, s.memory, s.engine, s.accounts.As, mgr.watches, o.Cluster, s.now).SetupWithManager(mgr, o.Runners),
	)
}

// lead logs that this process starts to lead, and that it stops.
func lead(ctx context.Context) error {
	ctrl.Log.Info("Leading: this process is now the leader")
	<-ctx.Done()
	ctrl.Log.Info("Stopping")
	return nil
}

// addPools adds the controller of RunnerPools.
func addPools(mgr *Manager, o Options, s shared, tracker *jobs.JobTracker, poller *jobs.Poller) error {
	return (&pools.Reconciler{
		Reporter: s.ofPools, Live: s.live, Sessions: s.sessions, Results: s.memory, Demand: []pools.Reader{tracker, poller}, Jobs: tracker,
		Policies: s.engine, Access: s.access, REST: s.rest, Versions: s.versions, Cluster: o.Cluster, Zone: o.Zone, Now: s.now,
		Watches: mgr.watches,
		Claims:  runners.Claims{Client: mgr.GetClient(), Live: s.live, Memory: s.memory},
	}).SetupWithManager(mgr, o.Others, &s.sessions.Events, &tracker.Events, &poller.Events)
}

// addPolicies adds the controllers of both kinds of policies, which share the child processes that evaluate them.
func addPolicies(mgr ctrl.Manager, o Options, s shared) error {
	rules := worker.NewEvaluator(evaluators, worker.DefaultEvaluatorLimits())
	for _, kind := range []string{policy.KindClusterRunnerPolicy, policy.KindRunnerPolicy} {
		r := &policies.Reconciler{Reporter: s.report, Live: s.live, Rules: rules, Engine: s.engine, Kind: kind}
		if err := r.SetupWithManager(mgr, o.Others); err != nil {
			return err
		}
	}
	return nil
}

// addSources adds the controller of PoolSources and, if enabled, the reporter of their revisions to GitHub.
func addSources(mgr ctrl.Manager, o Options, s shared) error {
	compiler := worker.NewCompiler(compilers, worker.DefaultLimits())
	source := sources.New(s.report, s.live, s.accounts.As, &gitsource.Client{AllowFile: o.Sources.AllowFiles}, &fluxsource.Client{Host: o.Sources.ArtifactHost}, compiler, sources.Options{
		Concurrent: min(o.Others, sourceWorkers), JitterPercent: o.Sources.JitterPercent,
		DefaultServiceAccount: o.Sources.DefaultServiceAccount, CrossNamespace: !o.Sources.NoCrossNamespaceRefs,
	})
	if o.Sources.PostStatus {
		gh := func(c types.NamespacedName) (sources.Commits, bool) { return s.rest.Get(connections.Key(c)) }
		if err := sources.NewCommitStatusReporter(source, gh, o.Cluster, s.now).SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return source.SetupWithManager(mgr)
}

// newTracker returns the JobTracker, which follows the jobs that webhook events report.
func newTracker(mgr ctrl.Manager, s shared) *jobs.JobTracker {
	return jobs.NewJobTracker(jobs.Config{
		Client: mgr.GetClient(), GitHub: func(c types.NamespacedName) (jobs.GitHub, bool) { return s.rest.Get(connections.Key(c)) },
		Record: func(ctx context.Context, namespace string, events []scaleset.JobEvent) error {
			return (&runners.Recorder{Client: mgr.GetClient(), Namespace: namespace, Memory: s.memory}).RecordJobs(ctx, events)
		},
		Access: s.access, Meter: s.jobs, Now: s.now,
	})
}

// newPoller returns the poller that reads the metrics to which pools refer.
func newPoller(mgr ctrl.Manager, o Options, s shared) (*jobs.Poller, error) {
	servers, err := metricsource.NewServers(o.PrometheusServers, metricsource.ServersOptions{Now: s.now})
	if err != nil {
		return nil, err
	}
	external, err := metricsource.NewExternal(mgr.GetConfig(), s.now)
	if err != nil {
		return nil, err
	}
	return jobs.NewPoller(jobs.PollerConfig{
		Client:     mgr.GetClient(),
		GitHub:     func(c types.NamespacedName) (jobs.JobLister, bool) { return s.rest.Get(connections.Key(c)) },
		ScaleSets:  func(c types.NamespacedName) (jobs.SetFinder, bool) { return s.scaleSets.Get(connections.Key(c)) },
		Prometheus: servers, External: external, Access: s.access, Now: s.now, Random: rand.Float64,
	}), nil
}

// addNotifier makes report post events to an address, unless the address is empty.
func addNotifier(mgr *Manager, address string, report *kube.Reporter) error {
	if address == "" {
		return nil
	}
	instance, _ := os.Hostname() // optional information
	poster, err := notify.New(notify.Options{URL: address, Scheme: mgr.GetScheme(), Instance: instance, Now: mgr.clock.Now})
	if err != nil {
		return err
	}
	report.Notifier = poster
	return mgr.Add(poster)
}

// addWebhook adds the webhook server, if it is enabled.
func addWebhook(mgr *Manager, o *WebhookOptions, tracker webhook.Tracker, signatures *webhook.Signatures) error {
	if o == nil {
		return nil
	}
	return webhooks.SetupWithManager(mgr, webhooks.Options{Listener: o.Listener, TrustedProxies: o.TrustedProxies, Lease: o.Lease, Key: o.Key, Namespaces: o.Namespaces, Tracker: tracker, Signatures: signatures, Now: mgr.clock.Now})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("setting up a controller: %w", err)
		}
	}
	return nil
}
