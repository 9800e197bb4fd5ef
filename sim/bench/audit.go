// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// maxAuditLine bounds a line of the audit log, in bytes.
const maxAuditLine = 1 << 20

// auditEvent contains the fields that we read of an audit.k8s.io/v1 Event:
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type auditEvent struct {
	AuditID    string    `json:"auditID"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	ObjectRef  *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// name returns the verb and the resource or path.
func (e *auditEvent) name() string {
	if e.ObjectRef == nil {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		return e.Verb + " " + path
	}
	if e.ObjectRef.Subresource != "" {
		return e.Verb + " " + e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
	}
	return e.Verb + " " + e.ObjectRef.Resource
}

// countAudit counts the requests that the API server received in a period, by verb and resource. The audit log contains
// only requests of the controller's user. countAudit fails if one has a different user agent than the controller's.
func countAudit(log io.Reader, from, to time.Time) (map[string]int, error) {
	counts, known := map[string]int{}, map[string]bool{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		e := auditEvent{}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if e.Received.Before(from) || !e.Received.Before(to) || known[e.AuditID] {
			continue
		}
		if !strings.HasPrefix(e.UserAgent, "corral/") {
			return nil, fmt.Errorf("%s came from user agent %q", e.name(), e.UserAgent)
		}
		known[e.AuditID] = true
		counts[e.name()]++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return counts, nil
}

func readAudit(path string, from, to time.Time) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	return countAudit(file, from, to)
}

// exclusive lists requests that only the controller makes: their number in the audit log must equal the number in the
// API server's metrics.
var exclusive = map[string]string{
	"create runners": "POST runners", "create pods": "POST pods", "create secrets": "POST secrets",
}

// serverCounts reads the API server's own counters of the exclusive requests.
func serverCounts(ctx context.Context, config *rest.Config) (map[string]int, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	text, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return parseRequestTotal(string(text))
}

// parseRequestTotal sums apiserver_request_total by verb and resource, without subresources.
func parseRequestTotal(metrics string) (map[string]int, error) {
	counts := map[string]int{}
	for text := range strings.Lines(metrics) {
		labels, found := strings.CutPrefix(text, "apiserver_request_total{")
		if !found || !strings.Contains(labels, `subresource=""`) {
			continue
		}
		labels, value, found := strings.Cut(labels, "} ")
		if !found {
			return nil, fmt.Errorf("reading the API server's metrics: %q", text)
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return nil, fmt.Errorf("reading the API server's metrics: %w", err)
		}
		counts[label(labels, "verb")+" "+label(labels, "resource")] += int(n)
	}
	return counts, nil
}

// label returns the value of a label. None of the values contains a quote.
func label(labels, name string) string {
	for pair := range strings.SplitSeq(labels, ",") {
		if value, found := strings.CutPrefix(pair, name+`="`); found {
			return strings.TrimSuffix(value, `"`)
		}
	}
	return ""
}

// disagreements returns the differences between the audit log and the increase of the API server's counters.
func disagreements(audit, before, after map[string]int) []string {
	var found []string
	for audited, counted := range exclusive {
		if grown := after[counted] - before[counted]; grown != audit[audited] {
			found = append(found, fmt.Sprintf("%s: the audit log has %d, the API server's metrics %d", audited, audit[audited], grown))
		}
	}
	return found
}
