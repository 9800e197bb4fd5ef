// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// readTimeout bounds all that a command reads from a cluster.
const readTimeout = time.Minute

// clusterOptions say which cluster a command reads, with the caller's rights; flags named as kubectl has them.
type clusterOptions struct {
	version, kubeconfig, context, namespace string
	// clock is the API server's, once it has answered.
	clock *clock.Clock
}

// bindCluster adds the flags; each one's help begins with when.
func bindCluster(flags *pflag.FlagSet, version, when string) *clusterOptions {
	o := &clusterOptions{version: version, clock: clock.New(time.Now, time.Now, nil)}
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", when+"kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or in a cluster the pod's ServiceAccount)")
	flags.StringVar(&o.context, "context", "", when+"context of the kubeconfig (default: its current one)")
	return o
}

// connect returns a client, and the namespace that was named, or else the context's.
func (o *clusterOptions) connect() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.UserAgent, config.QPS, config.WarningHandler = "corral/"+o.version, -1, rest.NoWarnings{}
	config.Wrap(o.clock.Wrap)
	log.SetLogger(logr.Discard()) // errors are returned
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	return c, cmp.Or(o.namespace, namespace), nil
}

// pools reads the pools of namespaces, by NAMESPACE/NAME. The empty namespace stands for the context's, which is
// returned; its pools are named without one.
func (o *clusterOptions) pools(ctx context.Context, namespaces []string) (map[string]*v1alpha1.RunnerPool, string, error) {
	c, own, err := o.connect()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pools := map[string]*v1alpha1.RunnerPool{}
	for _, namespace := range namespaces {
		list := &v1alpha1.RunnerPoolList{}
		if err := c.List(ctx, list, client.InNamespace(cmp.Or(namespace, own))); err != nil {
			return nil, "", fmt.Errorf("reading pools of the cluster: %w", err)
		}
		for i := range list.Items {
			pools[wording.Qualified(namespace, list.Items[i].Name)] = &list.Items[i]
		}
	}
	return pools, own, nil
}
