// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/internal/clock"
	"github.com/corral-dev/corral/internal/kube"
)

// readTimeout limits how long a command reads from a cluster. Checks of vet --live that also ask
// GitHub, and each page of status --watch, have this time separately.
const readTimeout = time.Minute

// clusterOptions are the flags that select the cluster to read. They have the same names as the flags
// of kubectl.
type clusterOptions struct {
	version, kubeconfig, context, namespace string
	// clock returns the API server's time after the first response, and the local time before.
	clock *clock.Clock
}

// bindCluster adds the flags. The help of each flag begins with the text when.
func bindCluster(flags *pflag.FlagSet, version, when string) *clusterOptions {
	o := &clusterOptions{version: version, clock: clock.New(time.Now, time.Now, nil)}
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, when+"kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or in a cluster the pod's ServiceAccount)")
	flags.StringVar(&o.context, "context", o.context, when+"context of the kubeconfig (default: its current one)")
	return o
}

// connect returns a client for the cluster, and the namespace of the flag or else of the kubeconfig's
// context.
func (o *clusterOptions) connect() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	namespace, _, namespaceErr := loader.Namespace()
	if err = cmp.Or(err, namespaceErr); err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.UserAgent = "corral/" + o.version
	config.QPS = -1 // no limit
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(o.clock.Wrap)
	log.SetLogger(logr.Discard()) // the client returns all errors, so nothing has to be logged
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	return c, cmp.Or(o.namespace, namespace), wrap("making a client", err)
}
