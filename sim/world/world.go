// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package world provides the environment of the controller on one machine: an API server with Corral's
// CustomResourceDefinitions and permissions, a simulated GitHub, and a simulated node that runs the runners. The demo
// and the tests use it.
package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

const (
	// SystemNamespace is the namespace of the controller's ServiceAccount and lease.
	SystemNamespace = "corral-system"
	// ServiceAccount is the name of the controller's ServiceAccount.
	ServiceAccount = "corral"
	// Token is a personal access token that the simulated GitHub accepts for everything.
	Token = "ghp_simulated"
)

// Options of a World.
type Options struct {
	GitHub githubsim.Options
	// Progress receives the progress of building the control plane.
	Progress io.Writer
	// StartDelay is how long a pod takes to start.
	StartDelay time.Duration
	// Nodes is the number of nodes; 0 means one.
	Nodes int
	// NoNodes leaves all pods to the caller, who simulates nodes with RunRunner.
	NoNodes bool
	// APIServer is the host and port of the API server; a free port of the loopback interface if it is empty.
	APIServer string
	// Bare omits what install installs. The caller must install it with the same names.
	Bare bool
	// Audit makes the API server log the controller's requests to Cluster.AuditLog.
	Audit bool
}

// World is everything except the controller.
type World struct {
	Cluster *localcluster.Cluster
	GitHub  *githubsim.Running
	// Node simulates the pods and injects faults; nil with NoNodes.
	Node *nodeplay.Node
	// Client has the administrator's permissions.
	Client client.Client
	// Dir is a folder that is removed with the world.
	Dir string
	// Env is added to the environment of controllers.
	Env []string

	hubs     *sync.Map // keys are *githubsim.Running: the instances whose runners the node simulates
	stopNode context.CancelFunc
	nodeDone chan error
}

// Start starts a world. It must also be stopped after the context of the caller has ended.
func Start(ctx context.Context, o Options) (*World, error) {
	var manifests [][]byte
	if !o.Bare {
		installed, err := install()
		if err != nil {
			return nil, err
		}
		manifests = installed
	}
	options := localcluster.Options{ControllerManager: true, Manifests: manifests, Address: o.APIServer, Progress: o.Progress}
	if o.Audit {
		options.AuditUser = "system:serviceaccount:" + SystemNamespace + ":" + ServiceAccount
	}
	cluster, err := localcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	w := &World{Cluster: cluster, hubs: &sync.Map{}}
	if err := w.start(ctx, o); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *World) start(ctx context.Context, o Options) (err error) {
	if w.Dir, err = os.MkdirTemp("", "corral-world-"); err != nil {
		return fmt.Errorf("making the world's folder: %w", err)
	}
	if w.Client, err = client.New(w.Cluster.Config, client.Options{Scheme: kube.Scheme()}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if w.GitHub, err = githubsim.Start(o.GitHub); err != nil {
		return fmt.Errorf("starting the simulated GitHub: %w", err)
	}
	w.GitHub.AddToken(Token)
	w.hubs.Store(w.GitHub, nil)
	if o.NoNodes {
		return nil
	}
	config := rest.CopyConfig(w.Cluster.Config)
	config.Wrap((&kube.Watches{Now: time.Now}).Wrap) // nodes reconnect after a restore of etcd, like restarted kubelets
	w.Node, err = nodeplay.New(config, nodeplay.Options{
		Nodes: o.Nodes, Run: RunRunner, StartDelay: o.StartDelay,
		OnFault: func(pod *corev1.Pod, _ nodeplay.FaultKind) { w.excuse(pod.Name) },
	})
	if err != nil {
		return err
	}
	node, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.stopNode, w.nodeDone = cancel, make(chan error, 1)
	go func() { w.nodeDone <- w.Node.Play(node) }()
	return nil
}

// WithGitHub returns the same world with another GitHub instance, which end closes. Only the original world must be
// stopped.
func (w *World) WithGitHub(o githubsim.Options) (other *World, end func(), err error) {
	beside := *w
	if beside.GitHub, err = githubsim.Start(o); err != nil {
		return nil, nil, fmt.Errorf("starting another simulated GitHub: %w", err)
	}
	beside.GitHub.AddToken(Token)
	w.hubs.Store(beside.GitHub, nil)
	return &beside, func() {
		w.hubs.Delete(beside.GitHub)
		beside.GitHub.Close()
	}, nil
}

// excuse calls Excuse of every GitHub instance, so that a failure is not blamed on the runner. Only one instance knows it.
func (w *World) excuse(runner string) {
	w.hubs.Range(func(hub, _ any) bool {
		hub.(*githubsim.Running).Excuse(runner)
		return true
	})
}

// RunRunner is the runner container of every pod. It ends with the same exit codes as the runner's image.
func RunRunner(ctx context.Context, c nodeplay.Container, reached func(nodeplay.Stage)) int {
	hooks := simrunner.Hooks{
		Connected: func() { reached(nodeplay.Connected) },
		Working:   func() { reached(nodeplay.Working) },
		Transport: networkOf(c),
	}
	if token := c.Env[nodeplay.TokenEnv]; token != "" {
		return stay(ctx, hooks, token, c)
	}
	code, _ := hooks.Run(ctx, c.JITConfig)
	return simrunner.ContainerExitCode(code, true)
}

// stay is RunRunner for a persistent runner: it registers once, and uses that registration when it runs again in place.
func stay(ctx context.Context, hooks simrunner.Hooks, token string, c nodeplay.Container) int {
	config := string(c.Kept[".runner"])
	if config == "" {
		made, err := hooks.Configure(ctx, token, c.Args)
		if err != nil {
			return 1
		}
		config, c.Kept[".runner"] = made, []byte(made)
	}
	code, _ := hooks.Stay(ctx, config)
	return simrunner.ContainerExitCode(code, true)
}

// networkOf returns the transport of a runner with proxies or certificates, which it uses like the real runner; nil if
// it has neither.
func networkOf(c nodeplay.Container) *http.Transport {
	proxies := &httpproxy.Config{HTTPProxy: c.Env["http_proxy"], HTTPSProxy: c.Env["https_proxy"], NoProxy: c.Env["no_proxy"]}
	ca := c.Files[c.Env["NODE_EXTRA_CA_CERTS"]]
	if proxies.HTTPProxy+proxies.HTTPSProxy == "" && ca == nil {
		return nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(req *http.Request) (*url.URL, error) { return proxies.ProxyFunc()(req.URL) }
	if c.Env["RUNNER_UPDATE_CA_CERTS"] == "1" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return t
}

// Stop stops the node, GitHub and the cluster, in this order.
func (w *World) Stop() error {
	var errs []error
	if w.stopNode != nil {
		w.stopNode()
		errs = append(errs, <-w.nodeDone)
	}
	if w.GitHub != nil {
		w.GitHub.Close()
	}
	errs = append(errs, w.Cluster.Stop())
	if w.Dir != "" {
		errs = append(errs, os.RemoveAll(w.Dir))
	}
	return errors.Join(errs...)
}

// install returns the manifests that a cluster needs before the controller can run: the CustomResourceDefinitions, and
// the ServiceAccount with the generated permissions.
func install() ([][]byte, error) {
	manifests := access()
	for _, folder := range []string{"corral/files/crds", "corral/files/rbac"} {
		files, err := fs.Glob(charts.Corral, folder+"/*.yaml")
		if err != nil {
			return nil, fmt.Errorf("reading the chart: %w", err)
		}
		for _, file := range files {
			text, err := charts.Corral.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading the chart: %w", err)
			}
			manifests = append(manifests, bytes.TrimSpace(text))
		}
	}
	return manifests, nil
}

// access returns the objects of the chart besides the generated rules, without the controller, which runs as a separate
// process here.
func access() [][]byte {
	documents := [][]byte{[]byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + SystemNamespace + "}\n")}
	for document := range bytes.SplitSeq(charts.Default, []byte("---\n")) {
		if !bytes.Contains(document, []byte("\nkind: Deployment\n")) {
			documents = append(documents, document)
		}
	}
	return documents
}

// Connect creates an organization on the simulated GitHub, a namespace, and a GitHubConnection to the organization with
// its Secret.
func (w *World) Connect(ctx context.Context, namespace, name, organization string) error {
	w.GitHub.AddOrg(organization)
	if err := w.Cluster.CreateNamespace(ctx, namespace); err != nil {
		return fmt.Errorf("making namespace %s: %w", namespace, err)
	}
	if err := w.Client.Create(ctx, w.CredentialsSecret(namespace, name)); err != nil {
		return fmt.Errorf("making the credentials: %w", err)
	}
	connection := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.GitHubConnectionSpec{
			URL: w.GitHub.ConfigURL(organization), SecretRef: &v1alpha1.LocalObjectReference{Name: name},
		},
	}
	if err := w.Client.Create(ctx, connection); err != nil {
		return fmt.Errorf("making the connection: %w", err)
	}
	return nil
}

// CredentialsSecret returns a Secret with a valid token.
func (*World) CredentialsSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{v1alpha1.TokenKey: Token},
	}
}
