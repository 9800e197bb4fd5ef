// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy logs the requests of one user, without their bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [%q]}
- {level: None}
`

// AuditLog returns the path of the log for AuditUser: one audit.k8s.io/v1 Event as JSON per line, written shortly after
// the response. A watch has two events, one when it starts and one when it ends. The log exists until Stop.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// audit makes the API server write AuditLog, in the background, so that requests do not wait for the disk.
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

// Request is a line of AuditLog: a request to the API server and its result. For the format, see
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type Request struct {
	// AuditID is the same in all lines of a request.
	AuditID string `json:"auditID"`
	// Stage is ResponseStarted for the start of a watch, and ResponseComplete for the end of a request.
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	// ImpersonatedUser is the user that was impersonated; nil if none was.
	ImpersonatedUser *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	// ObjectRef is nil for a request that concerns no object, such as discovery.
	ObjectRef *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Forbidden reports whether the authorizer rejected the request. A quota or an admission plug-in can reject with the
// same status code.
func (r *Request) Forbidden() bool { return r.Annotations["authorization.k8s.io/decision"] == "forbid" }

// maxAuditLine bounds a line of the audit log, in bytes.
const maxAuditLine = 1 << 20

// ReadAudit calls do with each line of an AuditLog. While the cluster is running, the last line may be missing.
func ReadAudit(log io.Reader, do func(*Request)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		r := &Request{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		do(r)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	return nil
}
