// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/controllers"
)

// monitored renders the chart with an object for the Prometheus Operator, and decodes that object strictly. The
// Operator itself ignores unknown fields.
func monitored(t *testing.T, value, key string, into any) {
	t.Helper()
	values := map[string]any{}
	set(values, value, true)
	object := objects(t, render(t, values))[key]
	if object == nil {
		t.Fatalf("%s isn't rendered", key)
	}
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestTheNotesSayThatPrometheusIsShutOut(t *testing.T) {
	for name, tc := range map[string]struct {
		peers []any
		want  bool
	}{"no peer may read": {[]any{}, true}, "a peer may": {[]any{peer("monitoring")}, false}} {
		values := map[string]any{}
		set(values, "metrics.serviceMonitor.enabled", true)
		set(values, "networkPolicy.enabled", true)
		set(values, "networkPolicy.metricsFrom", tc.peers)
		if got := strings.Contains(render(t, values)["NOTES.txt"], "Set networkPolicy.metricsFrom"); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestTheServiceMonitorSelectsTheServiceOfTheMetrics(t *testing.T) {
	monitor := &monitoringv1.ServiceMonitor{}
	monitored(t, "metrics.serviceMonitor.enabled", "ServiceMonitor "+namespace+"/corral", monitor)
	all := objects(t, render(t, map[string]any{"webhook": map[string]any{"enabled": true}}))
	var selected []string
	for key, object := range all {
		if object.GetKind() == "Service" && contains(object.GetLabels(), monitor.Spec.Selector.MatchLabels) {
			selected = append(selected, key)
		}
	}
	if !slices.Equal(selected, []string{"Service " + namespace + "/corral-metrics"}) {
		t.Errorf("the monitor selects %v", selected)
	}
	endpoint := monitor.Spec.Endpoints[0]
	ports, _, err := unstructured.NestedSlice(all["Service "+namespace+"/corral-metrics"].Object, "spec", "ports")
	if err != nil || ports[0].(map[string]any)["name"] != endpoint.Port {
		t.Errorf("the port is %s, the ports of the Service are %v (%v)", endpoint.Port, ports, err)
	}
	if !endpoint.HonorLabels {
		t.Error("the pool's namespace would be lost")
	}
}

func contains(labels, want map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return true
}

var (
	word     = regexp.MustCompile(`[a-z_]+_[a-z_]+`)
	selector = regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`(?:by|on) \(([a-z, ]+)\)`)
	used     = regexp.MustCompile(`\$labels\.([a-z]+)`)
	desc     = regexp.MustCompile(`fqName: "([a-z_]+)".*variableLabels: \{([a-z_,]*)\}`)
)

// metricsOfOurs returns the labels of each metric that the controller exports.
func metricsOfOurs(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"leader_election_master_status": {"name"}}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		for _, c := range controllers.Collectors() {
			c.Describe(descriptions)
		}
	}()
	for d := range descriptions {
		m := desc.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot parse the description: %s", d)
			continue
		}
		all[m[1]] = strings.Split(m[2], ",")
	}
	return all
}

// An alert on a metric or label that does not exist never fires, and nothing reports that.
func TestAlertsSpeakOfMetricsAndLabelsThatThereAre(t *testing.T) {
	rule := &monitoringv1.PrometheusRule{}
	monitored(t, "metrics.prometheusRule.enabled", "PrometheusRule "+namespace+"/corral", rule)
	ours := metricsOfOurs(t)
	for _, alert := range rule.Spec.Groups[0].Rules {
		t.Run(alert.Alert, func(t *testing.T) {
			expr := alert.Expr.String()
			labels := []string{"le"}
			for _, name := range word.FindAllString(expr, -1) {
				if name = strings.TrimSuffix(name, "_bucket"); ours[name] != nil {
					labels = append(labels, ours[name]...)
				} else if strings.HasPrefix(name, "corral_") {
					t.Errorf("there is no metric %s", name)
				}
			}
			for _, s := range selector.FindAllStringSubmatch(expr, -1) {
				for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
					if !slices.Contains(ours[s[1]], m[1]) {
						t.Errorf("%s has no label %s", s[1], m[1])
					}
				}
			}
			var grouped []string
			for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
				for label := range strings.SplitSeq(g[1], ", ") {
					grouped = append(grouped, label)
					if !slices.Contains(labels, label) {
						t.Errorf("no metric has the label %s", label)
					}
				}
			}
			for _, u := range used.FindAllStringSubmatch(alert.Annotations["summary"]+alert.Annotations["description"], -1) {
				if !slices.Contains(grouped, u[1]) {
					t.Errorf("the message uses the label %s, which the expression drops", u[1])
				}
			}
			if alert.Labels["severity"] == "" || alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
				t.Errorf("severity, summary or description is missing: %+v", alert)
			}
		})
	}
}

func TestAlertsAreExplained(t *testing.T) {
	rule := &monitoringv1.PrometheusRule{}
	monitored(t, "metrics.prometheusRule.enabled", "PrometheusRule "+namespace+"/corral", rule)
	text, err := os.ReadFile(filepath.FromSlash("../../docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := regexp.MustCompile(`(?m)^### (Corral[A-Za-z]+)$`).FindAllStringSubmatch(string(text), -1)
	var got, want []string
	for _, m := range explained {
		got = append(got, m[1])
	}
	for _, alert := range rule.Spec.Groups[0].Rules {
		want = append(want, alert.Alert)
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operations.md explains\n%v\nthe alerts are\n%v", got, want)
	}
}
