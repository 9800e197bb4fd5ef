// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/features"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/charts"
)

// pool is a RunnerPool with more of a spec, and a pod with more than its container, which has more, too.
func pool(spec, pod, container string) string {
	return `{apiVersion: corral.dev/v1alpha1, kind: RunnerPool, metadata: {name: linux}, spec: {connectionRef: {name: acme}, ` + spec +
		` template: {spec: {` + pod + ` containers: [{name: runner, image: "a:1", ` + container + `}]}}}}`
}

// manyLabels returns n labels.
func manyLabels(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("l%d: x", i))
	}
	return strings.Join(all, ", ")
}

// test/suite compares these messages with a real API server.
func TestWhatPeopleBreakIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   []string
	}{
		"nothing":              {pool("", "", ""), nil},
		"fields that are null": {pool("scale: null, runnerLabels: null, containerMode: null, deadlines: {startup: null}, update: {maxSurge: null}, mode: null,", "", ""), nil},
		"a kind of others":     {`{apiVersion: v1, kind: Secret}`, nil},
		"a version":            {`{apiVersion: corral.dev/v2, kind: RunnerPool}`, []string{"apiVersion"}},
		"a name":               {`{apiVersion: corral.dev/v1alpha1, kind: RunnerPolicy, metadata: {name: A_b}, spec: {mode: Enforce}}`, []string{"metadata.name"}},
		"a schedule twice":     {pool(`scale: {schedules: [{name: a, cron: {schedule: "0 7 * * *", duration: 1h}, scale: {max: 1}}, {name: a, cron: {schedule: "0 8 * * *", duration: 1h}, scale: {max: 1}}]},`, "", ""), []string{"spec.scale.schedules"}},
		"unknown fields":       {pool("scale: {mx: 1, schedules: [{name: a, zon: b, cron: {schedule: \"0 7 * * *\", duration: 1h}, scale: {max: 1}}]}, runnerLables: [a],", "", ""), []string{"spec.runnerLables", "spec.scale.mx", "spec.scale.schedules[0].zon"}},
		"labels twice":         {pool("runnerLabels: [a, a],", "", ""), []string{"spec.runnerLabels[1]"}},
		"rest of a scale set":  {pool("rest: {placeholder: Always},", "", ""), []string{"spec"}},
		"actions of a push":    {pool("demand: {boosts: [{name: a, event: push, actions: [created]}]},", "", ""), []string{"spec.demand.boosts[0]"}},
		"too large":            {pool("", fmt.Sprintf("hostname: %s,", strings.Repeat("a", v1alpha1.MaxPoolBytes)), ""), []string{"spec"}},
		"too many labels":      {strings.Replace(pool("", "", ""), "metadata: {", "metadata: {labels: {"+manyLabels(v1alpha1.MaxPoolLabels+1)+"}, ", 1), []string{"metadata"}},
		"no progress":          {pool("update: {maxSurge: 0, maxUnavailable: 0},", "", ""), []string{"spec.update"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, refused(t, tc.object)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// refused returns the fields that are wrong.
func refused(t *testing.T, object string) (fields []string) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &parsed); err != nil {
		t.Fatal(err)
	}
	for _, e := range Check(parsed) {
		fields = append(fields, e.Field)
	}
	return fields
}

// If a definition were missing, any object of its kind would be valid.
func TestEachDefinitionIsFound(t *testing.T) {
	files, err := charts.CRDs.ReadDir(definitions)
	if err != nil || len(files) != len(Kinds()) {
		t.Errorf("%d files (%v) and %d kinds, %v", len(files), err, len(Kinds()), Kinds())
	}
	for kind, read := range byKind() {
		if _, err := read(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Kubernetes' validation comes with a server's feature gates; client-go keeps its own, which are set in the environment.
func TestClientsKeepTheirOwnFeatureGates(t *testing.T) {
	t.Setenv("KUBE_FEATURE_WatchListClient", "false")
	if features.FeatureGates().Enabled(features.WatchListClient) {
		t.Error("KUBE_FEATURE_WatchListClient=false has no effect")
	}
}
