// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package localcluster runs a real Kubernetes control plane on this machine, for tests and the demo: etcd,
// kube-apiserver with RBAC, and the controllers that clean up. It has no nodes: package nodeplay simulates them.
package localcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/corral-dev/corral/sim/gobuild"
)

// Options determine which components run besides etcd and kube-apiserver, and how.
type Options struct {
	// ControllerManager enables garbage collection, namespace deletion, ServiceAccounts and resource quotas. Without it
	// none of these work, and pods are admitted without a ServiceAccount.
	ControllerManager bool
	// Manifests are applied before the controller-manager starts. Its garbage collector discovers new kinds only every
	// 30 seconds, but immediately knows kinds that existed before it started.
	Manifests [][]byte
	// Address is the host and port of the API server, for clients that cannot reach the loopback interface. If it is
	// empty, the API server listens on a free port of the loopback interface.
	Address string
	// AuditUser is the user whose requests the API server logs, see AuditLog; if it is empty, no requests are logged.
	AuditUser string
	// Progress receives the progress of Assets while it builds; standard error if nil.
	Progress io.Writer
}

// Cluster is a running control plane. Its processes end with Stop, or when this process ends for any reason.
type Cluster struct {
	// Config is the configuration of the administrator, without a client-side rate limit. Copy it before changing it.
	Config *rest.Config

	options     Options
	assets      string
	managerPath string
	dir         string
	environment *envtest.Environment
	manager     *controllerManager
	client      client.Client
	stopped     chan struct{}
}

// Start starts a control plane and returns when it is ready, usually within five seconds. On an error, nothing is left
// running, and the error contains the end of the failed component's log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = gobuild.Terminal(os.Stderr)
	}
	assets, err := Assets(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	manager := ""
	if o.ControllerManager {
		if manager, err = managerPath(ctx, o.Progress, assets); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "localcluster-")
	if err != nil {
		return nil, fmt.Errorf("making the cluster's folder: %w", err)
	}
	c := &Cluster{options: o, assets: assets, managerPath: manager, dir: dir, stopped: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop stops the controller-manager, then the API server, then etcd, because an API server without etcd hangs. It
// removes all files of the cluster. It returns an error if a component had ended on its own or did not end.
func (c *Cluster) Stop() error {
	defer close(c.stopped)
	err := c.manager.stop()
	if c.environment != nil {
		err = errors.Join(err, c.environment.Stop())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Kubeconfig returns the path of the administrator's kubeconfig file. The file exists until Stop.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

func (c *Cluster) start(ctx context.Context) error {
	if err := c.startControlPlane(); err != nil {
		return err
	}
	if err := WriteKubeconfig(c.Kubeconfig(), c.Config); err != nil {
		return err
	}
	var err error
	if c.client, err = client.New(c.Config, client.Options{}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := c.Apply(ctx, c.options.Manifests...); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	err = c.onLastingThread(func() (err error) {
		c.manager, err = startControllerManager(c.managerPath, c.dir, c.Kubeconfig(), c.Config.CAData)
		return err
	})
	if err != nil {
		return err
	}
	return c.waitForServiceAccount(ctx, "default")
}

// startControlPlane starts etcd and kube-apiserver through envtest. The administrator authenticates with a token:
// verifying a certificate at each request would take a twentieth of the API server's CPU time.
func (c *Cluster) startControlPlane() error {
	certificates := filepath.Join(c.dir, "certificates")
	if err := os.Mkdir(certificates, 0o700); err != nil {
		return fmt.Errorf("making the certificates' folder: %w", err)
	}
	apiServerLog, err := os.Create(filepath.Join(c.dir, "kube-apiserver.log"))
	if err != nil {
		return fmt.Errorf("making the API server's log: %w", err)
	}
	defer func() { _ = apiServerLog.Close() }()
	server := &envtest.APIServer{CertDir: certificates, Out: apiServerLog, Err: apiServerLog}
	server.Configure().
		Set("authorization-mode", "RBAC").
		Set("endpoint-reconciler-type", "none")
	if c.options.Address != "" {
		if server.Address, server.Port, err = net.SplitHostPort(c.options.Address); err != nil {
			return fmt.Errorf("reading the API server's address: %w", err)
		}
	}
	if err := c.audit(server.Configure()); err != nil {
		return err
	}
	tokens, token := filepath.Join(c.dir, "tokens.csv"), rand.Text()
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("writing the administrator's token: %w", err)
	}
	server.Configure().Set("token-auth-file", tokens)
	if c.options.ControllerManager {
		server.Configure().Disable("disable-admission-plugins")
	}
	etcd := &envtest.Etcd{DataDir: filepath.Join(c.dir, "etcd")}
	c.environment = &envtest.Environment{
		BinaryAssetsDirectory:    c.assets,
		ControlPlane:             envtest.ControlPlane{APIServer: server, Etcd: etcd},
		ControlPlaneStartTimeout: time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	err = c.onLastingThread(func() (err error) {
		c.Config, err = c.environment.Start()
		return err
	})
	if err != nil {
		return fmt.Errorf("starting the control plane: %w\n%s", err, logTail(apiServerLog.Name()))
	}
	c.Config = rest.AnonymousClientConfig(c.Config)
	c.Config.BearerToken, c.Config.QPS = token, -1
	return nil
}

// onLastingThread runs start on a thread that lives until Stop. The components request a signal when their parent dies,
// and for the kernel the parent is the thread, not the process, that started them.
func (c *Cluster) onLastingThread(start func() error) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- start()
		<-c.stopped
	}()
	return <-started
}

// CreateNamespace creates a namespace and, if the controller-manager is running, waits until pods can be created in it.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	if !c.options.ControllerManager {
		return nil
	}
	return c.waitForServiceAccount(ctx, name)
}

// waitForServiceAccount waits until the controllers have created the namespace's default ServiceAccount.
func (c *Cluster) waitForServiceAccount(ctx context.Context, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: "default"}
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		err := c.client.Get(ctx, key, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("waiting for ServiceAccount %s: %w\n%s", key, err, logTail(controllerManagerLog(c.dir)))
	}
	return nil
}

// poll checks at short intervals, for at most three minutes. It tolerates errors of an API server that is still
// starting.
func poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		if apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) {
			return false, nil
		}
		return ok, err
	})
}

// logTail returns the end of a component's log for an error message.
func logTail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return tail(string(content))
}
