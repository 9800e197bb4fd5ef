// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// controllerManager is a running kube-controller-manager; nil if none is running.
type controllerManager struct {
	command *exec.Cmd
	ended   chan error
}

func controllerManagerLog(dir string) string {
	return filepath.Join(dir, "kube-controller-manager.log")
}

// managerPath returns the path of the controllers in localkube/cleanup, which take fewer flags than a kube-controller-manager
// from elsewhere. Assets that were not built here do not contain them.
func managerPath(ctx context.Context, w io.Writer, assets string) (string, error) {
	if isFile(filepath.Join(assets, builtName)) {
		return filepath.Join(assets, controllers.programs[0]), nil
	}
	dir, err := controllers.build(ctx, w)
	return filepath.Join(dir, controllers.programs[0]), err
}

func startControllerManager(path, dir, kubeconfig string, ca []byte) (*controllerManager, error) {
	authority := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(authority, ca, 0o600); err != nil {
		return nil, fmt.Errorf("writing the certificate authority: %w", err)
	}
	log, err := os.Create(controllerManagerLog(dir))
	if err != nil {
		return nil, fmt.Errorf("making the controller-manager's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	m := &controllerManager{ended: make(chan error, 1), command: exec.Command(path,
		"--kubeconfig="+kubeconfig,
		"--service-account-private-key-file="+filepath.Join(dir, "certificates", "sa-signer.key"),
		"--root-ca-file="+authority,
	)}
	m.command.Stdout, m.command.Stderr = log, log
	m.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal interrupt is left to the parent
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("starting kube-controller-manager: %w", err)
	}
	go func() { m.ended <- m.command.Wait() }()
	return m, nil
}

// stop sends SIGTERM, and SIGKILL after ten seconds.
func (m *controllerManager) stop() error {
	if m == nil {
		return nil
	}
	select {
	case err := <-m.ended:
		return fmt.Errorf("kube-controller-manager ended on its own: %w", err)
	default:
	}
	if err := m.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping kube-controller-manager: %w", err)
	}
	insist := time.AfterFunc(time.Minute, func() { _ = m.command.Process.Kill() })
	defer insist.Stop()
	<-m.ended //nolint:errcheck // its exit code after a signal is meaningless
	return nil
}
