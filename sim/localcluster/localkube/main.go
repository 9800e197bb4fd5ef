// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command localkube is a Kubernetes control plane in one binary, built from Go modules alone: etcd, kube-apiserver and the
// controllers of package cleanup under the name kube-controller-manager. A folder with symbolic links of these names is
// what envtest expects in KUBEBUILDER_ASSETS.
//
// The module is separate because Corral must not depend on it. Both modules use the same versions of their common
// dependencies, so that the control plane reuses about 950 packages that the build of Corral compiles.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/corral-dev/corral/sim/localcluster/localkube/cleanup"
	"github.com/corral-dev/corral/sim/localcluster/localkube/multicall"
)

func main() {
	multicall.Main(map[string]func() int{
		"etcd":                    etcd,
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": cleanup.Main,
	})
}

func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}
