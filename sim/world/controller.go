// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/localcluster"
)

const (
	// readyTimeout bounds the controller's start.
	readyTimeout = 3 * time.Minute
	// stopTimeout bounds stopping the controller.
	stopTimeout = 2 * time.Minute
)

// Controller is a controller process that authenticates as its ServiceAccount.
type Controller struct {
	// LogPath is the path of its log, one JSON object per line.
	LogPath string
	// MetricsURL is the URL of its metrics.
	MetricsURL string

	command *exec.Cmd
	ended   chan struct{}
	err     error // why it ended; set when ended is closed
}

// RunController starts the corral binary as the controller and waits until it is healthy.
func (w *World) RunController(ctx context.Context, binary string, args ...string) (*Controller, error) {
	return w.RunReplica(ctx, Replica{}, binary, args...)
}

// RunControllerAs is RunController for a container of the named pod, or of no pod if the name is empty.
func (w *World) RunControllerAs(ctx context.Context, pod, binary string, args ...string) (*Controller, error) {
	return w.RunReplica(ctx, Replica{Pod: pod}, binary, args...)
}

// RunControllerThrough is RunController with a proxy between the controller and the API server.
func (w *World) RunControllerThrough(ctx context.Context, proxy *apiproxy.Proxy, binary string, args ...string) (*Controller, error) {
	return w.RunReplica(ctx, Replica{Proxy: proxy}, binary, args...)
}

// Replica describes one process of the controller.
type Replica struct {
	// Pod is the name of the pod that the process runs in. It may be empty.
	Pod string
	// Proxy is between the process and the API server. Without one, the process connects directly.
	Proxy *apiproxy.Proxy
	// Env is added to the environment of the process, besides World.Env.
	Env []string
}

// RunReplica is RunController for a process that has a pod's name, a proxy, or both.
func (w *World) RunReplica(ctx context.Context, r Replica, binary string, args ...string) (*Controller, error) {
	config, err := w.Cluster.ServiceAccountConfig(ctx, SystemNamespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	if r.Proxy != nil {
		config = r.Proxy.Config(config)
	}
	log, err := os.CreateTemp(w.Dir, "controller-*.log")
	if err != nil {
		return nil, fmt.Errorf("making the controller's log: %w", err)
	}
	defer log.Close()
	kubeconfig := log.Name() + ".kubeconfig" // other replicas may be starting
	if err := localcluster.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	metrics, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	health, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	c := &Controller{LogPath: log.Name(), MetricsURL: "http://" + metrics + "/metrics", ended: make(chan struct{})}
	c.command = exec.Command(binary, append([]string{"controller",
		"--kubeconfig=" + kubeconfig, "--metrics-addr=" + metrics, "--health-addr=" + health,
		"--leader-election-namespace=" + SystemNamespace, "--leader-election-lease-duration=40s", "--leader-election-renew-deadline=35s", "--log-encoding=json", "--allow-file-sources"}, args...)...)
	c.command.Env = append(append(os.Environ(), "GOGC=100", "POD_NAME="+r.Pod), slices.Concat(w.Env, r.Env)...) // the value of the container image, whatever the tests use
	c.command.Stdout, c.command.Stderr = log, log
	c.command.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// A terminal interrupt is passed on by us. Linux also divides CPU time between sessions, as it does between
		// containers: policies that run at the lowest priority compete only with this controller.
		Setsid: true,
	}
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	go func() {
		c.err = c.command.Wait()
		close(c.ended)
	}()
	if err := c.waitHealthy(ctx, "http://"+health+"/healthz"); err != nil {
		c.Kill()
		return nil, fmt.Errorf("%w; its log ends with:\n%s", err, tail(c.LogPath))
	}
	return c, nil
}

// Ended is closed when the process has ended for any reason.
func (c *Controller) Ended() <-chan struct{} { return c.ended }

// Stop sends SIGTERM to the controller and waits until it has ended.
func (c *Controller) Stop() error {
	if err := c.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping the controller: %w", err)
	}
	select {
	case <-c.ended:
	case <-time.After(stopTimeout):
		c.Kill()
		return fmt.Errorf("the controller did not end within %s", stopTimeout)
	}
	if c.err != nil {
		return fmt.Errorf("the controller ended with %w; its log ends with:\n%s", c.err, tail(c.LogPath))
	}
	return nil
}

// Kill ends the controller without warning, like a lost machine.
func (c *Controller) Kill() {
	_ = c.command.Process.Kill()
	<-c.ended
}

func (c *Controller) waitHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("asking for the controller's health: %w", err)
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return fmt.Errorf("the controller ended at once: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("the controller is not healthy: %w", ctx.Err())
		}
	}
}

// tail returns the end of a file, for an error message.
func tail(path string) string {
	const limit = 4 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}
