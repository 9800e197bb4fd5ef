// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// live reads pools from the cluster for `corral review --live`, with the caller's rights.
type live struct {
	explainFlags
	version string
}

// Bind adds the flags that say which cluster is meant.
func (l *live) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&l.kubeconfig, "kubeconfig", "", "with --live: kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or in a cluster the pod's ServiceAccount)")
	flags.StringVar(&l.context, "context", "", "with --live: context of the kubeconfig (default: its current one)")
}

// Pools reads the pools of namespaces. Of the empty one they are those of the context's namespace, which it returns, named without one.
func (l *live) Pools(ctx context.Context, namespaces []string) (map[string]*v1alpha1.RunnerPool, string, error) {
	e, err := l.connect(l.version)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	pools := map[string]*v1alpha1.RunnerPool{}
	for _, namespace := range namespaces {
		list := &v1alpha1.RunnerPoolList{}
		if err := e.client.List(ctx, list, client.InNamespace(cmp.Or(namespace, e.namespace))); err != nil {
			return nil, "", fmt.Errorf("reading pools of the cluster: %w", err)
		}
		for i := range list.Items {
			name := list.Items[i].Name
			if namespace != "" {
				name = namespace + "/" + name
			}
			pools[name] = &list.Items[i]
		}
	}
	return pools, e.namespace, nil
}
