// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// wholeLibrary is a policy with all families of the library enabled.
func wholeLibrary() Source {
	weekdays := []v1alpha1.Weekday{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	return Source{
		Kind: KindClusterRunnerPolicy, Name: "guard",
		Library: &v1alpha1.PolicyLibrary{
			Images:      &v1alpha1.ImageRules{Allowed: []string{"ghcr.io/acme/", "ghcr.io/actions/*"}, RequireDigest: true},
			PodSecurity: &v1alpha1.PodSecurityRules{Level: "restricted"},
			Resources: &v1alpha1.ResourceRules{RequireRequests: names, RequireLimits: names, MaxPerPod: map[corev1.ResourceName]v1alpha1.Quantity{
				corev1.ResourceCPU: "8", corev1.ResourceMemory: "32Gi",
			}},
			Hours: &v1alpha1.HourRules{
				TimeZone: "Europe/Berlin",
				Open:     []v1alpha1.WeeklyWindow{{Days: weekdays, From: "06:00", To: "22:00"}},
				Closed:   &v1alpha1.HourLimits{Idle: new(int32(0))},
				Freezes:  []v1alpha1.Freeze{{Name: "year's end", From: metav1.Unix(1_703_000_000, 0), To: metav1.Unix(1_704_000_000, 0)}},
			},
			Ceilings: []v1alpha1.Ceiling{{Name: "team", By: v1alpha1.CeilingNamespace, Max: 400, Share: v1alpha1.ShareFair}},
		},
	}
}

// fleetInput is the input for a pool in a namespace with 20 pools.
func fleetInput() ScalingInput {
	p := pool()
	p.Labels = map[string]string{"team": "payments", "size": "small"}
	p.RunnerLabels, p.Connection, p.ScaleSet, p.RunnerGroup = []string{"linux", "x64"}, "acme", "linux", "default"
	in := ScalingInput{Pool: p, Jobs: 4, Runners: Runners{Total: 5, Busy: 4, Idle: 1}, Now: 1_800_000_000_000_000_000, Zone: "UTC"}
	fleet := NewFleet()
	for i := range 19 {
		fleet.Put(Pool{Namespace: p.Namespace, Name: fmt.Sprintf("pool-%d", i)}, Needs{}, 5, 7)
	}
	in.Usage = fleet.Usage(p, Needs{Ceilings: wholeLibrary().Library.Ceilings})
	return in
}

func readPod(t testing.TB) json.RawMessage {
	t.Helper()
	text, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return compact.Bytes()
}

func BenchmarkScaling(b *testing.B) {
	for name, source := range map[string]Source{
		"one rule":      guard(`{"field": "max", "atMost": 60, "reason": "r"} if input.pool.labels.team == "payments"`),
		"whole library": wholeLibrary(),
	} {
		b.Run(name, func(b *testing.B) {
			in := fleetInput()
			bound := NewSet(load(b, source)).For(in.Pool)
			if got := bound.Scaling(b.Context(), in); got.Failures != nil {
				b.Fatal(got.Failures)
			}
			b.ReportAllocs()
			for b.Loop() {
				bound.Scaling(b.Context(), in)
			}
		})
	}
}

func BenchmarkTemplate(b *testing.B) {
	pod := readPod(b)
	p := fleetInput().Pool
	bound := NewSet(load(b, wholeLibrary())).For(p)
	names := func(all ...string) v1alpha1.AllowedNames { return all }
	tenant := NewSet(load(b, Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: &v1alpha1.PolicyLibrary{
		Preset:          v1alpha1.PresetTenant,
		ServiceAccounts: &v1alpha1.ServiceAccountRules{Allowed: names("runner")},
		Scheduling:      &v1alpha1.SchedulingRules{PriorityClasses: names("ci"), Tolerations: names("ci"), NodeLabels: names("workload")},
		Volumes:         &v1alpha1.VolumeRules{Claims: names("ci-*")},
		Metadata:        &v1alpha1.MetadataRules{Labels: names("team", "cost-center=cc-*"), Annotations: names("prometheus.io/*", "cluster-autoscaler.kubernetes.io/*")},
	}})).For(p)
	b.Run("tenant", func(b *testing.B) {
		if got := tenant.Template(b.Context(), TemplateInput{Pool: p, Pod: pod}); got.Failures != nil || len(got.Denials) > 0 {
			b.Fatalf("%+v", got)
		}
		b.ReportAllocs()
		for b.Loop() {
			tenant.Template(b.Context(), TemplateInput{Pool: p, Pod: pod})
		}
	})
	in := TemplateInput{Pool: p, Pod: pod}
	if got := bound.Template(b.Context(), in); got.Failures != nil || len(got.Denials) > 0 {
		b.Fatalf("%+v", got)
	}
	b.Run("whole library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bound.Template(b.Context(), in)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for name, source := range map[string]Source{"one rule": team(mute), "whole library": wholeLibrary()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				load(b, source)
			}
		})
	}
}
