// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// prometheus is a simulated Prometheus server with a replaceable handler.
type prometheus struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
}

func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	p := &prometheus{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	p.says("0")
	return p
}

func (p *prometheus) does(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// says sets the answer to an instant vector with one sample.
func (p *prometheus) says(value string) {
	p.does(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`, time.Now().Unix(), value)
	})
}

// externalMetrics simulates a server of the external metrics API. It defines a custom resource whose list has the
// form of the API's answer.
const externalMetrics = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: queue-messages-ready.external.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a stand-in for tests"}
spec:
  group: external.metrics.k8s.io
  scope: Namespaced
  names: {plural: queue-messages-ready, kind: ExternalMetricValue, listKind: ExternalMetricValueList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// value returns a series of the external metric.
func value(name, queue, value string) string {
	return fmt.Sprintf(`---
apiVersion: external.metrics.k8s.io/v1beta1
kind: ExternalMetricValue
metadata: {name: %s, labels: {queue: %s}}
metricName: queue-messages-ready
metricLabels: {queue: %s}
timestamp: %q
value: %q
`, name, queue, queue, time.Now().UTC().Format(time.RFC3339), value)
}

// held reports whether a source of demand currently has no data, so that its last value is used.
func held(p *v1alpha1.RunnerPool, name string) bool {
	return slices.ContainsFunc(p.Status.Demand, func(d v1alpha1.DemandStatus) bool { return d.Name == name && d.Stale })
}

func (w *story) metricsAreDemand(t *testing.T, address string, prom *prometheus) {
	d := w.newDemandWorld(t, "metrics", address)
	if out, err := kubectl(t, externalMetrics, "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	eventually(t, func(context.Context) error {
		out, err := kubectl(t, value("a", "builds", "15")+value("b", "builds", "6")+value("c", "other", "500"), "apply", "-n", d.namespace, "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, name := range []string{"reports", "etl-x", "app"} { // the controller lists repositories once a minute
		must(t, w.GitHub.AddRepository(githubsim.Repository{FullName: d.org + "/" + name}))
	}
	d.example("metrics", "interval: 30s", "interval: 10s", "queue_messages_ready", "queue-messages-ready",
		"name: busy\n", "name: busy\n      interval: 10s\n", "name: trains\n", "name: trains\n      interval: 10s\n", "name: orders\n", "name: orders\n      interval: 10s\n")

	t.Run("the external metrics API", func(t *testing.T) {
		d.t = t
		d.idle("release", 3) // the selected series add up to 21, with ten per runner
	})
	t.Run("Prometheus", func(t *testing.T) {
		d.t = t
		prom.says("9")
		d.idle("release", 5) // two per runner
	})
	t.Run("a Prometheus that hangs holds", func(t *testing.T) {
		d.t = t
		prom.does(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client disconnected
			<-r.Context().Done()
		})
		d.until("release", func(p *v1alpha1.RunnerPool) bool { return held(p, "trains") })
		if p := d.pool("release"); p.Status.Runners.Idle != 5 {
			t.Errorf("it has %+v", p.Status.Runners)
		}
	})
	t.Run("jobs of repositories, half a runner each", func(t *testing.T) {
		d.t = t
		w.allDone(t, d.jobs(8, "reports", "linux", "batch"))
		d.idle("batch", 0)
	})
	t.Run("the part of the runners that is busy", func(t *testing.T) {
		d.t = t
		d.idle("shared", 4)
		ids := d.long(4, time.Hour, "app", "self-hosted", "linux")
		d.until("shared", func(p *v1alpha1.RunnerPool) bool {
			return p.Status.Runners.Busy == 4 && p.Status.Runners.Idle == 2 && p.Status.Decision.Desired == 6 // 150 %
		})
		for _, id := range ids {
			w.GitHub.CancelJob(id)
		}
	})
	t.Run("to zero", func(t *testing.T) {
		d.t = t
		prom.says("0")
		if out, err := kubectl(t, value("a", "builds", "0")+value("b", "builds", "0"), "apply", "-n", d.namespace, "-f", "-"); err != nil {
			t.Fatal(out)
		}
		d.idle("release", 0)
	})
	d.t = t
	d.end()
}
