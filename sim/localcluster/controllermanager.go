// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// controllers lists the controllers for cleanup and admission. It omits those that need nodes which report their
// status, or that would act on nodes which do not.
var controllers = []string{
	"disruption-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"persistentvolumeclaim-protection-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
}

// controllerManager is a running kube-controller-manager; nil if none is running.
type controllerManager struct {
	command *exec.Cmd
	ended   chan error
}

func controllerManagerLog(dir string) string {
	return filepath.Join(dir, "kube-controller-manager.log")
}

// startControllerManager starts kube-controller-manager with higher rate limits: with the defaults it would be the
// slowest component.
func startControllerManager(assets, dir, kubeconfig string, ca []byte) (*controllerManager, error) {
	path := filepath.Join(assets, "kube-controller-manager")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("finding kube-controller-manager (unset KUBEBUILDER_ASSETS to have it built): %w", err)
	}
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
		"--controllers="+strings.Join(controllers, ","),
		"--kubeconfig="+kubeconfig,
		"--service-account-private-key-file="+filepath.Join(dir, "certificates", "sa-signer.key"),
		"--root-ca-file="+authority,
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--concurrent-gc-syncs=10",
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
