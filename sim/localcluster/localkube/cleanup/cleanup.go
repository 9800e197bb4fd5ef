// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package cleanup runs the controllers of kube-controller-manager that clean up and admit pods. The whole
// kube-controller-manager needs 600 more packages. Controllers that need real nodes are not among them.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	satoken "k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	// resync is the time after which informers deliver all objects again.
	resync = 12 * time.Hour
	// discoveryPeriod is the time after which new kinds of objects are found.
	discoveryPeriod = 30 * time.Second
	// workers is the number of concurrent workers of each busy controller.
	workers = 10
)

// Main reads the flags, runs the controllers until a signal, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the configuration of the API server's client")
	key := flags.String("service-account-private-key-file", "", "the key that signs tokens of ServiceAccounts")
	ca := flags.String("root-ca-file", "", "the certificate authority that is published to all namespaces")
	err := flags.Parse(os.Args[1:])
	if err == nil {
		err = run(ctx, *kubeconfig, *key, *ca)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-controller-manager:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, kubeconfig, key, ca string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1 // with a client-side limit the controllers would be the slowest component
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	m, err := newManager(ctx, config)
	if err != nil {
		return err
	}
	for _, add := range []func(context.Context) error{
		m.addServiceAccounts, m.addNamespaces, m.addGarbageCollector, m.addDisruption, m.addQuota, m.addClaimProtection,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(m.addTokens(ctx, key, ca), m.addRootCA(ca)); err != nil {
		return err
	}
	for _, start := range m.controllers {
		go start(ctx)
	}
	m.all.Start(ctx.Done())
	close(m.started)
	<-ctx.Done()
	return nil
}

// manager has what the controllers share.
type manager struct {
	config   *rest.Config
	objects  informers.SharedInformerFactory
	all      informerfactory.InformerFactory // objects, and the metadata of kinds that it does not know
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	metadata metadata.Interface
	started  chan struct{} // closed after the start of the informers

	controllers []func(context.Context)
}

func newManager(ctx context.Context, config *rest.Config) (*manager, error) {
	m := &manager{config: config, started: make(chan struct{})}
	shared, err := m.client("shared-informers")
	if err != nil {
		return nil, err
	}
	jsonConfig := rest.CopyConfig(config)
	jsonConfig.ContentType, jsonConfig.AcceptContentTypes = "", "" // custom resources have no protobuf
	if m.metadata, err = metadata.NewForConfig(rest.AddUserAgent(jsonConfig, "generic-garbage-collector")); err != nil {
		return nil, fmt.Errorf("making a client of metadata: %w", err)
	}
	m.objects = informers.NewSharedInformerFactory(shared, resync)
	m.all = informerfactory.NewInformerFactory(m.objects, metadatainformer.NewSharedInformerFactory(m.metadata, resync))
	m.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(shared.Discovery()))
	go wait.Until(m.mapper.Reset, discoveryPeriod, ctx.Done())
	return m, nil
}

func (m *manager) client(name string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(m.config, name))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", name, err)
	}
	return client, nil
}

func (m *manager) add(start func(context.Context)) { m.controllers = append(m.controllers, start) }

func (m *manager) addServiceAccounts(ctx context.Context) error {
	client, err := m.client("service-account-controller")
	if err != nil {
		return err
	}
	core := m.objects.Core().V1()
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("making the controller of ServiceAccounts: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	return nil
}

func (m *manager) addTokens(ctx context.Context, keyFile, caFile string) error {
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return fmt.Errorf("reading the key of ServiceAccounts: %w", err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	generator, err := satoken.JWTTokenGenerator(satoken.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("making the generator of tokens: %w", err)
	}
	client, err := m.client("tokens-controller")
	if err != nil {
		return err
	}
	core := m.objects.Core().V1()
	c, err := serviceaccount.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: ca})
	if err != nil {
		return fmt.Errorf("making the controller of tokens: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	return nil
}

func (m *manager) addRootCA(caFile string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	client, err := m.client("root-ca-cert-publisher")
	if err != nil {
		return err
	}
	core := m.objects.Core().V1()
	c, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, ca)
	if err != nil {
		return fmt.Errorf("making the publisher of the certificate authority: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, 1) })
	return nil
}

func (m *manager) addNamespaces(ctx context.Context) error {
	client, err := m.client("namespace-controller")
	if err != nil {
		return err
	}
	c := namespace.NewNamespaceController(ctx, client, m.metadata, client.Discovery().ServerPreferredNamespacedResources,
		m.objects.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	return nil
}

func (m *manager) addGarbageCollector(ctx context.Context) error {
	client, err := m.client("generic-garbage-collector")
	if err != nil {
		return err
	}
	ignored := map[schema.GroupResource]struct{}{{Group: "", Resource: "events"}: {}, {Group: "events.k8s.io", Resource: "events"}: {}}
	c, err := garbagecollector.NewGarbageCollector(ctx, client, m.metadata, m.mapper, ignored, m.all, m.started)
	if err != nil {
		return fmt.Errorf("making the garbage collector: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, workers, discoveryPeriod) })
	m.add(func(ctx context.Context) { c.Sync(ctx, client.Discovery(), discoveryPeriod) })
	return nil
}

func (m *manager) addDisruption(ctx context.Context) error {
	client, err := m.client("disruption-controller")
	if err != nil {
		return err
	}
	kinds := scale.NewDiscoveryScaleKindResolver(client.Discovery())
	scales, err := scale.NewForConfig(rest.AddUserAgent(m.config, "disruption-controller"), m.mapper, dynamic.LegacyAPIPathResolverFunc, kinds)
	if err != nil {
		return fmt.Errorf("making a client of scales: %w", err)
	}
	core, apps := m.objects.Core().V1(), m.objects.Apps().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), m.objects.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, m.mapper, scales, client.Discovery())
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	return nil
}

func (m *manager) addQuota(ctx context.Context) error {
	client, err := m.client("resourcequota-controller")
	if err != nil {
		return err
	}
	quotas, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(m.objects.ForResource), m.objects)
	if err != nil {
		return fmt.Errorf("configuring quotas: %w", err)
	}
	kinds := client.Discovery().ServerPreferredNamespacedResources
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     m.objects.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(5 * time.Minute),
		InformerFactory:           m.all,
		ReplenishmentResyncPeriod: func() time.Duration { return resync },
		DiscoveryFunc:             kinds,
		IgnoredResourcesFunc:      quotas.IgnoredResources,
		InformersStarted:          m.started,
		Registry:                  generic.NewRegistry(quotas.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return fmt.Errorf("making the controller of quotas: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	m.add(func(ctx context.Context) { c.Sync(ctx, kinds, discoveryPeriod) })
	return nil
}

func (m *manager) addClaimProtection(ctx context.Context) error {
	client, err := m.client("pvc-protection-controller")
	if err != nil {
		return err
	}
	core := m.objects.Core().V1()
	c, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), client)
	if err != nil {
		return fmt.Errorf("making the controller that protects claims: %w", err)
	}
	m.add(func(ctx context.Context) { c.Run(ctx, workers) })
	return nil
}
