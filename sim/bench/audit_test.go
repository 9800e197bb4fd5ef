// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsOfTheAuditLogAreCountedOnce(t *testing.T) {
	const log = `{"auditID":"1","stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/x/pods","userAgent":"corral/dev","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:01.5Z"}
{"auditID":"2","stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?watch=true","userAgent":"corral/dev","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:02Z"}
{"auditID":"2","stage":"ResponseComplete","verb":"watch","requestURI":"/api/v1/pods?watch=true","userAgent":"corral/dev","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:02Z"}
{"auditID":"3","stage":"ResponseComplete","verb":"patch","requestURI":"/x","userAgent":"corral/dev","objectRef":{"resource":"runners","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T00:00:03Z"}
{"auditID":"4","stage":"ResponseComplete","verb":"get","requestURI":"/api?timeout=3s","userAgent":"corral/dev","requestReceivedTimestamp":"2026-01-01T00:00:03Z"}
{"auditID":"5","stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/x/pods","userAgent":"corral/dev","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:00Z"}
{"auditID":"6","stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/x/pods","userAgent":"corral/dev","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T00:00:09Z"}
`
	from := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	got, err := countAudit(strings.NewReader(log), from, from.Add(8*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"create pods": 1, "watch pods": 1, "patch runners/status": 1, "get /api": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnotherUserAgentIsAnError(t *testing.T) {
	const log = `{"auditID":"1","verb":"get","requestURI":"/x","userAgent":"kubectl","requestReceivedTimestamp":"2026-01-01T00:00:01Z"}`
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := countAudit(strings.NewReader(log), from, from.Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "kubectl") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheServersCountersAreComparedWithTheAuditLog(t *testing.T) {
	const metrics = `# HELP apiserver_request_total Counter of apiserver requests
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 2
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="binding",verb="POST",version="v1"} 9
apiserver_request_total{code="201",component="apiserver",dry_run="",group="corral.dev",resource="runners",scope="resource",subresource="",verb="POST",version="v1alpha1"} 1e+01
`
	got, err := parseRequestTotal(metrics)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"POST pods": 5, "POST runners": 10}, got); diff != "" {
		t.Error(diff)
	}
	if wrong := disagreements(map[string]int{"create pods": 5, "create runners": 10}, nil, got); len(wrong) > 0 {
		t.Errorf("they disagree: %v", wrong)
	}
	if wrong := disagreements(map[string]int{"create pods": 4, "create runners": 10}, nil, got); len(wrong) != 1 {
		t.Errorf("they disagree on %v", wrong)
	}
}
