// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package argocd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/test/argocd"
)

// kinds maps each kind to whether its objects can be suspended.
var kinds = map[string]bool{
	"PoolSource": true, "GitHubConnection": true, "RunnerPool": true,
	"RunnerPolicy": false, "ClusterRunnerPolicy": false, "Runner": false, "RunnerScaleSet": false,
}

func groupKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
}

func script(t *testing.T, kind string) string {
	t.Helper()
	text, err := argocd.Script(groupKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The objects were recorded by test/suite. Run test/suite with UPDATE_GOLDEN=1 to record them again.
func TestHealthOfRecordedObjects(t *testing.T) {
	for kind, suspends := range kinds {
		var list struct {
			Tests []struct {
				InputPath    string        `json:"inputPath"`
				HealthStatus argocd.Health `json:"healthStatus"`
			} `json:"tests"`
		}
		folder := argocd.Folder(groupKind(kind))
		read(t, filepath.Join(folder, "health_test.yaml"), &list)
		missing := []string{"Healthy", "Progressing"}
		if kind != "Runner" { // a failed runner is deleted at once
			missing = append(missing, "Degraded")
		}
		if suspends {
			missing = append(missing, "Suspended")
		}
		for _, tc := range list.Tests {
			t.Run(filepath.Join(kind, tc.InputPath), func(t *testing.T) {
				var object map[string]any
				read(t, filepath.Join(folder, tc.InputPath), &object)
				got, err := argocd.Ask(script(t, kind), object)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.HealthStatus, got); diff != "" {
					t.Error(diff)
				}
			})
			missing = slices.DeleteFunc(missing, func(status string) bool { return status == tc.HealthStatus.Status })
		}
		if len(missing) > 0 {
			t.Errorf("no recorded %s has the status %v", kind, missing)
		}
	}
}

// status returns a status with a Ready condition and optional further conditions.
func status(ready, reason string, more ...any) map[string]any {
	conditions := append([]any{map[string]any{"type": "Ready", "status": ready, "reason": reason, "message": "why"}}, more...)
	return map[string]any{"observedGeneration": int64(1), "conditions": conditions}
}

func TestHealthFollowsConditions(t *testing.T) {
	stalled := map[string]any{"type": "Stalled", "status": "True", "reason": "InvalidSpec", "message": "no retry"}
	updating := map[string]any{"type": "Updated", "status": "False", "reason": "UpdateHeld", "message": "held until Monday"}
	for name, tc := range map[string]struct {
		kind   string
		status map[string]any
		spec   map[string]any
		want   argocd.Health
	}{
		"no status":                        {kind: "RunnerPool", want: argocd.Health{Status: "Progressing", Message: "Waiting for the controller"}},
		"an empty status":                  {kind: "RunnerPool", status: map[string]any{}, want: argocd.Health{Status: "Progressing", Message: "Waiting for the controller"}},
		"never looked at":                  {kind: "PoolSource", status: map[string]any{"observedGeneration": int64(-1)}, want: argocd.Health{Status: "Progressing", Message: "Waiting for the controller"}},
		"an older generation":              {kind: "RunnerPool", status: map[string]any{"observedGeneration": int64(0), "conditions": []any{stalled}}, want: argocd.Health{Status: "Progressing", Message: "Waiting for the controller"}},
		"no conditions":                    {kind: "RunnerScaleSet", status: map[string]any{"observedGeneration": int64(1)}, want: argocd.Health{Status: "Progressing", Message: "Waiting for the controller"}},
		"ready":                            {kind: "RunnerPool", status: status("True", "Succeeded"), want: argocd.Health{Status: "Healthy", Message: "why"}},
		"an update holds up no sync":       {kind: "RunnerPool", status: status("True", "Succeeded", updating), want: argocd.Health{Status: "Healthy", Message: "why; update: held until Monday"}},
		"stalled":                          {kind: "RunnerPool", status: status("Unknown", "Progressing", stalled), want: argocd.Health{Status: "Degraded", Message: "no retry"}},
		"stalled and suspended":            {kind: "RunnerPool", spec: map[string]any{"stopPolicy": "Drain"}, status: status("False", "Suspended", stalled), want: argocd.Health{Status: "Suspended", Message: "why"}},
		"the connection isn't there yet":   {kind: "RunnerPool", status: status("False", "ConnectionNotReady"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"policies were never asked":        {kind: "RunnerPool", status: status("False", "PolicyPending"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"a session of ours expires":        {kind: "RunnerScaleSet", status: status("False", "SessionRefused"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"policies can't be asked":          {kind: "RunnerPool", status: status("False", "PolicyFailed"), want: argocd.Health{Status: "Degraded", Message: "why"}},
		"runners fail":                     {kind: "RunnerPool", status: status("False", "RunnersFailing"), want: argocd.Health{Status: "Degraded", Message: "why"}},
		"GitHub is away":                   {kind: "GitHubConnection", status: status("False", "GitHubUnavailable"), want: argocd.Health{Status: "Degraded", Message: "why"}},
		"a revision is being compiled":     {kind: "PoolSource", status: status("Unknown", "Progressing"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"it waits for another source":      {kind: "PoolSource", status: status("False", "DependencyNotReady"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"an attempt failed":                {kind: "PoolSource", status: status("False", "ProgressingWithRetry"), want: argocd.Health{Status: "Degraded", Message: "why"}},
		"a runner whose pod can't start":   {kind: "Runner", status: map[string]any{"state": "Pending", "reason": "Unschedulable: no nodes"}, want: argocd.Health{Status: "Progressing", Message: "Unschedulable: no nodes"}},
		"a runner whose pod was refused":   {kind: "Runner", status: merge(status("False", "QuotaExceeded"), "state", "Pending"), want: argocd.Health{Status: "Progressing", Message: "why"}},
		"a runner that failed":             {kind: "Runner", status: map[string]any{"state": "Failed", "reason": "OOMKilled (exit code 137)"}, want: argocd.Health{Status: "Degraded", Message: "OOMKilled (exit code 137)"}},
		"a runner with a job without name": {kind: "Runner", status: map[string]any{"state": "Busy", "reason": "running a job", "job": map[string]any{"id": "unknown"}}, want: argocd.Health{Status: "Healthy", Message: "Busy, running a job, pod x"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{"kind": tc.kind, "metadata": map[string]any{"name": "x", "generation": int64(1)}, "spec": map[string]any{}}
			if tc.spec != nil {
				object["spec"] = tc.spec
			}
			if tc.status != nil {
				object["status"] = tc.status
			}
			got, err := argocd.Ask(script(t, tc.kind), object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func merge(into map[string]any, key string, value any) map[string]any {
	into[key] = value
	return into
}

// Argo CD requires each script to be self-contained. The helper functions that they share must stay identical.
func TestScriptsShareTheirHelpers(t *testing.T) {
	const end = `local ready, stalled = condition("Ready"), condition("Stalled")` + "\n"
	want, _, _ := strings.Cut(script(t, "RunnerPool"), end)
	for kind := range kinds {
		got, _, ok := strings.Cut(script(t, kind), end)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestSettingsHoldTheScripts(t *testing.T) {
	var settings struct{ Data map[string]string }
	read(t, filepath.Join(argocd.Customizations(), "..", "install", "argocd-cm.yaml"), &settings)
	want := map[string]string{}
	for kind := range kinds {
		want["resource.customizations.health.corral.dev_"+kind] = script(t, kind)
	}
	if diff := cmp.Diff(want, settings.Data); diff != "" {
		t.Error(diff)
	}
}
