// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// An object that was never at an API server, as in a review, means the same as one with the API server's defaults.
func TestDefaultsOfDefinitionsAgreeWithTheGetters(t *testing.T) {
	all := map[string]*schema.Structural{}
	for _, c := range readCRDs(t) {
		all[c.kind] = c.schema
	}
	for kind, of := range map[string]func(spec map[string]any) []any{
		"RunnerPool": func(spec map[string]any) []any {
			spec["cache"], spec["demand"] = map[string]any{}, map[string]any{
				"webhook": map[string]any{}, "boosts": []any{map[string]any{}},
				"metrics": []any{map[string]any{"busy": map[string]any{}, "prometheus": map[string]any{}, "external": map[string]any{}, "jobs": map[string]any{}}},
			}
			spec["containerMode"] = map[string]any{"docker": map[string]any{}}
			spec["rest"] = map[string]any{}
			spec["update"] = map[string]any{"canary": map[string]any{}}
			s := read[v1alpha1.RunnerPool](t, all["RunnerPool"], spec).Spec
			metric := s.Demand.Metrics[0]
			return []any{
				s.GetRunnerGroup(), s.GetRegistration(), s.GetLifetime(), s.GetMode(), s.Scale.GetMin(), s.Scale.GetIdle(), s.Scale.GetMax(), s.Deadlines.GetStartup(), s.Deadlines.GetConnect(),
				s.Update.GetStrategy(), s.Update.GetMaxSurge(), s.Update.GetMaxUnavailable(), s.Update.Canary.GetPause(), s.Cache.GetTimeToLive(), s.Cache.GetAccessMode(), s.GetFailedPodTTL(), s.GetPlaceholder(),
				s.ContainerMode.Docker.GetImage(), s.ContainerMode.Docker.GetGroupID(), s.Demand.Webhook.GetHoldFor(), s.Demand.Boosts[0].GetIdle(), s.Demand.Boosts[0].GetDuration(),
				metric.GetInterval(), metric.Busy.GetScaleUpThresholdPercent(), metric.Busy.GetScaleDownThresholdPercent(), metric.Busy.GetScaleUpBy(), metric.Busy.GetScaleDownBy(),
				metric.Prometheus.GetMaxAge(), metric.External.GetMaxAge(),
			}
		},
		"RunnerPolicy": func(spec map[string]any) []any {
			return []any{read[v1alpha1.RunnerPolicy](t, all["RunnerPolicy"], spec).GetRules().GetMode()}
		},
		"PoolSource": func(spec map[string]any) []any {
			s := read[v1alpha1.PoolSource](t, all["PoolSource"], spec).Spec
			return []any{s.GetPath(), s.GetTimeout(), s.GetPrune(), s.GetDeletionPolicy()}
		},
	} {
		declared := of(map[string]any{})
		full := of(map[string]any{"defaulted": true})
		if diff := cmp.Diff(declared, full); diff != "" {
			t.Errorf("%s: the getters say otherwise than its definition: %s", kind, diff)
		}
	}
}

// read decodes an object with a spec, with the defaults of its definition if the spec asks for them.
func read[T any](t *testing.T, definition *schema.Structural, spec map[string]any) *T {
	t.Helper()
	object := map[string]any{"spec": spec}
	if spec["defaulted"] != nil {
		delete(spec, "defaulted")
		defaulting.Default(object, definition)
	}
	into := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, into))
	return into
}

// A Go client that applies an object server-side must own only the fields that it set.
func TestGoClientsSendOnlyWhatTheySet(t *testing.T) {
	for want, object := range map[string]any{
		`{"metadata":{},"spec":{}}`:                                  &v1alpha1.PoolSource{},
		`{"metadata":{},"spec":{"scale":{"min":3}}}`:                 &v1alpha1.RunnerPool{Spec: v1alpha1.RunnerPoolSpec{Scale: v1alpha1.ScaleSpec{Min: new(int32(3))}}},
		`{"metadata":{},"spec":{"allowedNamespaces":["ci"]}}`:        &v1alpha1.GitHubConnection{Spec: v1alpha1.GitHubConnectionSpec{AllowedNamespaces: []string{"ci"}}},
		`{"metadata":{},"spec":{"library":{"pause":{"reason":""}}}}`: &v1alpha1.RunnerPolicy{Spec: v1alpha1.RunnerPolicySpec{PolicyRules: v1alpha1.PolicyRules{Library: &v1alpha1.PolicyLibrary{Pause: &v1alpha1.Pause{}}}}},
	} {
		got, err := json.Marshal(object)
		if err != nil || string(got) != want {
			t.Errorf("%v: got %s, not %s", err, got, want)
		}
	}
}
