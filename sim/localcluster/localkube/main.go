// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command localkube is the parts of a Kubernetes cluster in one binary, built from Go modules alone.
//
//	localkube COMPONENT [flags]
//
// The component is also chosen by the name it is called by: a folder with symbolic links named etcd, kube-apiserver and
// kubectl is what envtest expects in KUBEBUILDER_ASSETS. A module of its own, because it pins all of Kubernetes to one
// release, which is older than the client libraries that Corral uses.
//
//	go run . install PATH
//
// puts it where it is wanted. The go command keeps what it runs in the build cache, so that another clone needn't link it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs on a host that has none

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plug-ins of kubectl
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps each name to its main function, which reads os.Args and returns the exit code.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 runKubectl,
	"install":                 runInstall,
}

func main() {
	component, ok := components[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		component, ok = components[os.Args[0]]
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "usage: localkube COMPONENT [flags]\ncomponents: %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(component())
}

// runInstall copies this binary.
func runInstall() int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: localkube install PATH")
		return 2
	}
	self, err := os.Executable()
	if err == nil {
		var binary []byte
		if binary, err = os.ReadFile(self); err == nil {
			err = os.WriteFile(os.Args[1], binary, 0o755)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "installing this binary:", err)
		return 1
	}
	return 0
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runKubectl sets the log level first, as kubectl's own main does: building the command already logs.
func runKubectl() int {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func names() []string {
	var all []string
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
