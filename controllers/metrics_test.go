// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
)

// one creates a series of each metric with any labels, because a metric without series is not gathered.
func one(t *testing.T, c prometheus.Collector) {
	t.Helper()
	descriptions := make(chan *prometheus.Desc, 1)
	c.Describe(descriptions)
	_, labels, _ := strings.Cut((<-descriptions).String(), "variableLabels: {")
	labels, _, _ = strings.Cut(labels, "}")
	var values []string
	if labels != "" {
		for range strings.SplitSeq(labels, ",") {
			values = append(values, "lint")
		}
	}
	switch vec := c.(type) {
	case meter.Vec[prometheus.Counter]:
		vec.WithLabelValues(values...)
		t.Cleanup(func() { vec.DeleteLabelValues(values...) })
	case meter.Vec[prometheus.Gauge]:
		vec.WithLabelValues(values...)
		t.Cleanup(func() { vec.DeleteLabelValues(values...) })
	case meter.Vec[prometheus.Observer]:
		vec.WithLabelValues(values...)
		t.Cleanup(func() { vec.DeleteLabelValues(values...) })
	}
}

// Names, units, help texts and labels follow Prometheus's conventions.
func TestMetricsPassPromlint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	follow(t, pool("linux", metav1.ConditionTrue, "Succeeded"))
	for _, c := range Collectors() {
		one(t, c)
		registry.MustRegister(c)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < len(Collectors()) {
		t.Errorf("%d of %d metrics were linted", len(families), len(Collectors()))
	}
}

func pool(name string, status metav1.ConditionStatus, reason string) *v1alpha1.RunnerPool {
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}}
	if reason != "" {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: status, Reason: reason}}
	}
	return p
}

// follow makes the collector count objects as a leader's.
func follow(t *testing.T, objects ...client.Object) {
	t.Helper()
	elected := make(chan struct{})
	close(elected)
	readiness.leader.Store(&leader{fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), elected})
	t.Cleanup(func() { readiness.leader.Store(nil) })
}

func TestObjectsAreCountedByTheirReadiness(t *testing.T) {
	follow(t, pool("a", metav1.ConditionTrue, "Succeeded"), pool("b", metav1.ConditionFalse, "QuotaExceeded"), pool("c", metav1.ConditionFalse, "QuotaExceeded"), pool("d", "", ""))
	want := `
		# HELP corral_objects Objects by kind, and by status and reason of their condition Ready.
		# TYPE corral_objects gauge
		corral_objects{kind="RunnerPool",reason="",status="Unknown"} 1
		corral_objects{kind="RunnerPool",reason="QuotaExceeded",status="False"} 2
		corral_objects{kind="RunnerPool",reason="Succeeded",status="True"} 1
	`
	if err := testutil.CollectAndCompare(readiness, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	readiness.leader.Store(&leader{readiness.leader.Load().cache, make(chan struct{})})
	if n := testutil.CollectAndCount(readiness); n != 0 {
		t.Errorf("who doesn't lead counts %d", n)
	}
}
