// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package metricsource_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/metricsource"
)

func TestExternalValue(t *testing.T) {
	t.Parallel()
	const fresh = `{"metricName":"queue","timestamp":"2026-02-02T02:39:30Z","value":`
	for name, tc := range map[string]struct {
		status int
		answer string
		metric string
		want   float64
		err    string
		silent bool
	}{
		"one series":         {answer: `{"items":[` + fresh + `"12500m"}]}`, want: 12.5},
		"series are added":   {answer: `{"items":[` + fresh + `"1"},` + fresh + `"2k"}]}`, want: 2001},
		"none":               {answer: `{"items":[]}`, err: "the metric has no values", silent: true},
		"stale":              {answer: `{"items":[` + fresh + `"1"},{"timestamp":"2026-02-02T02:30:00Z","value":"1"}]}`, err: "a value is of 2026-02-02T02:30:00Z, more than 2m0s from now", silent: true},
		"of no time":         {answer: `{"items":[{"value":"1"}]}`, err: "a value is of 0001-01-01T00:00:00Z, more than 2m0s from now", silent: true},
		"negative":           {answer: `{"items":[` + fresh + `"-1"}]}`, err: "a value is -1, which is not a valid number of jobs", silent: true},
		"no quantity":        {answer: `{"items":[` + fresh + `"NaN"}]}`, err: "the metric's values can't be read", silent: true},
		"hours to parse":     {answer: `{"items":[` + fresh + `"1e-2147483647"}]}`, err: "the metric's values can't be read", silent: true},
		"as a number":        {answer: `{"items":[` + fresh + `1e-2147483647}]}`, err: "the metric's values can't be read", silent: true},
		"no JSON":            {answer: `<html>`, err: "the metric's values can't be read", silent: true},
		"no such API":        {status: 404, answer: "404 page not found", err: `asking for the external metric "queue": the cluster has no such metric, or nothing that serves external metrics`},
		"an adapter is down": {status: 503, answer: "error trying to reach service", err: `asking for the external metric "queue": the cluster has no such metric, or nothing that serves external metrics`},
		"forbidden":          {status: 403, answer: `{"kind":"Status","message":"not for you"}`, err: `asking for the external metric "queue": the API answered 403: not for you`},
		"a redirect":         {status: 302, err: `asking for the external metric "queue": the API answered 302`},
		"another path":       {metric: "../../secrets", err: `"../../secrets" isn't the name of a metric`, silent: true},
		"the path above":     {metric: "..", err: `".." isn't the name of a metric`, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.String()
				w.Header().Set("Location", "/elsewhere")
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				io.WriteString(w, tc.answer)
			}))
			t.Cleanup(s.Close)
			x, err := metricsource.NewExternal(&rest.Config{Host: s.URL}, func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
			metric := tc.metric
			if metric == "" {
				metric = "queue"
			}
			got, err := x.Value(t.Context(), "team-a", metric, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ci"}}, 2*time.Minute)
			if tc.err == "" {
				if err != nil || got != tc.want {
					t.Fatalf("got %v, %v; want %v", got, err, tc.want)
				}
				if want := "/apis/external.metrics.k8s.io/v1beta1/namespaces/team-a/queue?labelSelector=app%3Dci"; asked != want {
					t.Errorf("asked %s, want %s", asked, want)
				}
				return
			}
			if err == nil || err.Error() != tc.err {
				t.Errorf("error %v\n want %s", err, tc.err)
			}
			if silent := (*demand.NoSignal)(nil); errors.As(err, &silent) != tc.silent {
				t.Errorf("no signal: %v, want %v", !tc.silent, tc.silent)
			}
			if tc.metric != "" && asked != "" {
				t.Errorf("asked %s", asked)
			}
		})
	}
}
