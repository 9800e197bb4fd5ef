// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy logs that one user made a request, and nothing of what was in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [%q]}
- {level: None}
`

// AuditLog is the path of the log that AuditUser asks for: one audit.k8s.io/v1 Event in JSON a line, written a moment after
// the answer. A watch has two, one when it begins and one when it ends. The log exists until Stop.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// audit has the API server write AuditLog. It does so beside its work, so that requests don't wait for the disk.
func (c *Cluster) audit(arguments *envtest.Arguments) error {
	if c.options.AuditUser == "" {
		return nil
	}
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, c.options.AuditUser), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	arguments.
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.AuditLog()).
		Set("audit-log-mode", "batch").
		Set("audit-log-maxsize", "1000")
	return nil
}
