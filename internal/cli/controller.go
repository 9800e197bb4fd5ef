// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpproxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/corral-dev/corral/controllers"
	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/internal/kube"
)

// controllerOptions are the flags of `corral controller`. A flag that Flux's controllers have, too, has the same name as
// there.
type controllerOptions struct {
	controllers controllers.Options
	manager     controllers.ManagerOptions
	kubeconfig  string
	logLevel    string
	// remoteLogLevel allows other hosts to change the log level.
	remoteLogLevel bool
	logEncoding    string
	decisionLog    string
	jobLabels      []string
	jobLabelLimit  int
	webhook        webhookOptions
}

func newController(version string) *cobra.Command {
	f := &controllerOptions{
		controllers: controllers.Options{
			Version: version, CredentialsDir: "/etc/corral/credentials", Zone: "UTC", Runners: 256, Others: 32,
			Sources: controllers.SourceOptions{NoCrossNamespaceRefs: true, JitterPercent: 5},
		},
		manager: controllers.ManagerOptions{
			Version: version, MetricsAddress: ":8080", HealthAddress: ":9440", LeaderElection: true,
			LeaseDuration: controllers.DefaultLeaseDuration, RenewDeadline: controllers.DefaultRenewDeadline, RetryPeriod: controllers.DefaultRetryPeriod,
		},
		logLevel: "info", logEncoding: "json", decisionLog: "changes", jobLabelLimit: jobs.DefaultLabelLimit,
	}
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers in a cluster",
		Long: `Run the controllers. They compile and apply sources, scale pools, and create and delete runners.
If there are several replicas, only the leader works.`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	f.bind(c)
	return c
}

func (f *controllerOptions) bind(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "kubeconfig file (default in a cluster: the pod's ServiceAccount)")
	flags.StringSliceVar(&f.manager.Namespaces, "watch-namespaces", f.manager.Namespaces, "namespaces to watch (default: all)")
	flags.StringVar(&f.manager.MetricsAddress, "metrics-addr", f.manager.MetricsAddress, "address that serves /metrics and /loglevel; 0 for none")
	flags.StringVar(&f.manager.HealthAddress, "health-addr", f.manager.HealthAddress, "address that serves /healthz and /readyz; 0 for none")
	flags.BoolVar(&f.manager.LeaderElection, "leader-elect", f.manager.LeaderElection, "elect a leader among the replicas; only the leader works")
	flags.StringVar(&f.manager.LeaderElectionNamespace, "leader-election-namespace", f.manager.LeaderElectionNamespace, "namespace of the lease (default: the pod's)")
	flags.DurationVar(&f.manager.LeaseDuration, "leader-election-lease-duration", f.manager.LeaseDuration, "time that other replicas wait after the last renewal before they replace the leader")
	flags.DurationVar(&f.manager.RenewDeadline, "leader-election-renew-deadline", f.manager.RenewDeadline, "time that the leader tries to renew its lease before it exits; must be less than the lease duration")
	flags.DurationVar(&f.manager.RetryPeriod, "leader-election-retry-period", f.manager.RetryPeriod, "time between two attempts to get or renew the lease")
	flags.StringVar(&f.controllers.Cluster, "cluster-id", f.controllers.Cluster, "name of this cluster on GitHub (default: the UID of namespace kube-system)")
	flags.StringVar(&f.controllers.Sources.DefaultServiceAccount, "default-service-account", f.controllers.Sources.DefaultServiceAccount, "ServiceAccount in the source's namespace that applies the objects of sources without spec.serviceAccountName (default: the controller itself)")
	flags.BoolVar(&f.controllers.Sources.NoCrossNamespaceRefs, "no-cross-namespace-refs", f.controllers.Sources.NoCrossNamespaceRefs, "refuse references of sources to objects in other namespaces")
	flags.StringVar(&f.controllers.CredentialsDir, "credentials-dir", f.controllers.CredentialsDir, "folder with the mounted credentials for connections with spec.mount")
	flags.BoolVar(&f.controllers.Sources.AllowFiles, "allow-file-sources", f.controllers.Sources.AllowFiles, "allow sources to use file:// repositories in the controller's file system")
	flags.IntVar(&f.controllers.Sources.JitterPercent, "interval-jitter-percentage", f.controllers.Sources.JitterPercent, "random variation of the sources' intervals in percent, 0 to 99")
	flags.BoolVar(&f.controllers.Sources.PostStatus, "post-status", f.controllers.Sources.PostStatus, "report revisions to GitHub with commit statuses and check runs, for sources with spec.commitStatus")
	flags.StringVar(&f.controllers.Zone, "time-zone", f.controllers.Zone, "time zone that policies read as input.zone, by its name in the IANA database")
	flags.StringVar(&f.controllers.EventsAddress, "events-addr", f.controllers.EventsAddress, "URL to which events are posted, in the format of Flux's notification-controller (default: none)")
	flags.IntVar(&f.controllers.Runners, "concurrent-runners", f.controllers.Runners, "number of runners reconciled concurrently")
	flags.IntVar(&f.controllers.Others, "concurrent", f.controllers.Others, "number of objects of each kind, except Runners, that are reconciled concurrently")
	flags.StringVar(&f.logLevel, "log-level", f.logLevel, "debug, info, warn or error; PUT /loglevel on the metrics address changes it at run time, from localhost")
	flags.BoolVar(&f.remoteLogLevel, "remote-log-level", f.remoteLogLevel, "accept PUT /loglevel from all hosts, not only from localhost")
	flags.StringVar(&f.logEncoding, "log-encoding", f.logEncoding, "json or text")
	flags.StringVar(&f.decisionLog, "decision-log", f.decisionLog, "changes, to log each policy decision that differs from the previous one; or off")
	flags.IntVar(&f.controllers.DecisionSample, "decision-log-sample", f.controllers.DecisionSample, "with `N`, also log every Nth decision that changes nothing; 0 for none")
	flags.StringSliceVar(&f.jobLabels, "job-metric-labels", f.jobLabels, "additional labels of job metrics: repository, workflow or both (default: none)")
	flags.IntVar(&f.jobLabelLimit, "job-metric-label-limit", f.jobLabelLimit, "maximum number of combinations of label values for which a pool has series, at most 1000; further combinations are counted as \"other\"")
	flags.Uint16Var(&f.manager.ProfilesPort, "profiles-port", 0, "port of localhost that serves Go's profiles at /debug/pprof/, reached by kubectl port-forward (default: none)")
	flags.StringArrayVar(&f.controllers.PrometheusServers, "prometheus-server", nil, "Prometheus server that pools may name in spec.demand.metrics, as NAME=URL; may be repeated (default: none)")
	f.webhook.bind(flags)
}

func (f *controllerOptions) run(c *cobra.Command, _ []string) error {
	notices, err := f.setLogger()
	if err = cmp.Or(err, f.complete()); err != nil {
		return err
	}
	if err := f.webhook.listen(f); err != nil {
		return err
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	config.UserAgent = "corral/" + f.controllers.Version
	proxy := proxyInTheWay(config, httpproxy.FromEnvironment().ProxyFunc())
	if proxy != "" {
		kube.Warn(c.Context(), "Requests to the API server go through a proxy: add the API server to NO_PROXY if it cannot be reached", "apiServer", config.Host, "proxy", proxy)
	}
	if f.controllers.Cluster == "" {
		if f.controllers.Cluster, err = controllers.ClusterID(c.Context(), config); err != nil {
			return err
		}
	}
	// Flux's controllers use the same variable when they run outside of the cluster.
	f.controllers.Sources.ArtifactHost = os.Getenv("SOURCE_CONTROLLER_LOCALHOST")
	metrics.Registry.MustRegister(controllers.Collectors()...)
	f.controllers.Namespaces = f.manager.Namespaces
	notices.Info("Starting", "flags", flagsSet(c.Flags()), "cluster", f.controllers.Cluster, "watches", f.watched())
	controllers.LimitMemory(os.DirFS("/sys/fs/cgroup"), os.Getenv("GOMEMLIMIT"))
	mgr, err := controllers.NewManager(config, f.manager)
	if err != nil {
		return err
	}
	if err := controllers.All(mgr, f.controllers); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// complete checks flags, and sets the options that are derived from them.
func (f *controllerOptions) complete() (err error) {
	o := &f.controllers
	o.LogDecisions = f.decisionLog == "changes"
	_, zoneErr := time.LoadLocation(o.Zone)
	o.JobMetrics, err = jobs.NewMeterOptions(f.jobLabels, f.jobLabelLimit)
	switch {
	case !o.LogDecisions && f.decisionLog != "off":
		return fmt.Errorf("reading --decision-log: must be changes or off, found %q", f.decisionLog)
	case o.DecisionSample < 0:
		return fmt.Errorf("reading --decision-log-sample: %d is below 0", o.DecisionSample)
	}
	return cmp.Or(wrap("--job-metric-labels", err), wrap("--time-zone", zoneErr))
}

func (f *controllerOptions) config() (*rest.Config, error) {
	if f.kubeconfig == "" {
		return ctrl.GetConfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	return config, wrap("reading --kubeconfig", err)
}

// proxyInTheWay returns the proxy, without its password, that environment variables set for requests to the API server. It
// returns "" if there is none, or if the kubeconfig sets a proxy. Users often set HTTPS_PROXY only for GitHub, but client-go
// uses it for the API server as well.
func proxyInTheWay(config *rest.Config, proxyOf func(*url.URL) (*url.URL, error)) string {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil || config.Proxy != nil {
		return ""
	}
	proxy, err := proxyOf(server)
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Redacted()
}
