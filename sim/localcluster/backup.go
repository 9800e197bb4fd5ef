// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
)

// Backup copies etcd's data and returns the folder of the copy. The control plane is stopped meanwhile.
func (c *Cluster) Backup() (folder string, err error) {
	folder, err = os.MkdirTemp(c.dir, "backup-")
	if err != nil {
		return "", fmt.Errorf("making the backup's folder: %w", err)
	}
	return folder, c.whileStopped(func(data string) error { return os.CopyFS(filepath.Join(folder, "etcd"), os.DirFS(data)) })
}

// Restore replaces etcd's data with a backup. It restores the UIDs and resource versions of the backup, and later changes
// are lost. As in a real restore, all components of the control plane restart. Clients and controllers do not.
func (c *Cluster) Restore(folder string) error {
	return c.whileStopped(func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return errors.Join(os.CopyFS(data, os.DirFS(filepath.Join(folder, "etcd"))), os.Chmod(data, 0o700))
	})
}

// whileStopped calls do with etcd's data folder while the control plane is stopped, and restarts the control plane at
// the same address.
func (c *Cluster) whileStopped(do func(data string) error) error {
	server, etcd := c.environment.ControlPlane.APIServer, c.environment.ControlPlane.Etcd
	if err := errors.Join(c.manager.stop(), killAPIServer(server.CertDir), server.Stop(), etcd.Stop()); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	hadManager := c.manager != nil
	c.manager = nil
	if err := do(etcd.DataDir); err != nil {
		return fmt.Errorf("copying etcd's data: %w", err)
	}
	return c.onLastingThread(func() (err error) {
		if err := etcd.Start(); err != nil {
			return fmt.Errorf("starting etcd again: %w", err)
		}
		if err := server.Start(); err != nil {
			return fmt.Errorf("starting the API server again: %w", err)
		}
		if hadManager {
			c.manager, err = startControllerManager(c.managerPath, c.dir, c.Kubeconfig(), c.Config.CAData)
		}
		return err
	})
}

// killAPIServer kills the API server with the given certificate folder. On SIGTERM it would wait a minute for its
// clients to end their watches.
func killAPIServer(certificates string) error {
	processes, err := procfs.AllProcs()
	if err != nil {
		return fmt.Errorf("looking for the API server: %w", err)
	}
	for _, p := range processes {
		if args, err := p.CmdLine(); err == nil && slices.Contains(args, "--cert-dir="+certificates) {
			return syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	return errors.New("the API server does not run")
}
