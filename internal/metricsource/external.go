// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package metricsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

// External reads the cluster's external metrics API, as a HorizontalPodAutoscaler does.
type External struct {
	host   *url.URL
	client *http.Client
	now    func() time.Time
}

// NewExternal returns an External for a cluster.
func NewExternal(config *rest.Config, now func() time.Time) (*External, error) {
	c := rest.CopyConfig(config)
	c.Timeout = Timeout
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("making a client of external metrics: %w", err)
	}
	client.Transport = unredirected{client.Transport}
	host, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("making a client of external metrics: %w", err)
	}
	return &External{host: host, client: client, now: now}, nil
}

// values holds the used fields of an ExternalMetricValueList of external.metrics.k8s.io/v1beta1.
type values struct {
	Items []struct {
		Timestamp metav1.Time       `json:"timestamp"`
		Value     v1alpha1.Quantity `json:"value"`
	} `json:"items"`
}

// Value reads a metric of a namespace and adds up its series. It returns an error if there are none, or if one is more
// than maxAge away from now. The error is a *demand.NoSignal if the arguments are invalid, or if the API answered with
// values that cannot be used.
//
// The protocol is https://github.com/kubernetes/design-proposals-archive/blob/main/instrumentation/external-metrics-api.md.
func (x *External) Value(ctx context.Context, namespace, metric string, selector *metav1.LabelSelector, maxAge time.Duration) (float64, error) {
	s := ""
	if selector != nil {
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return 0, &demand.NoSignal{Reason: "the selector: " + err.Error()}
		}
		s = parsed.String()
	}
	if metric == "" || metric == "." || metric == ".." || strings.ContainsAny(metric, "/%\\") {
		return 0, &demand.NoSignal{Reason: fmt.Sprintf("%q isn't the name of a metric", metric)}
	}
	raw, err := x.get(ctx, x.host.JoinPath("apis/external.metrics.k8s.io/v1beta1/namespaces", namespace, metric), s)
	if err != nil {
		return 0, fmt.Errorf("asking for the external metric %q: %w", metric, err)
	}
	v := &values{}
	if err := json.Unmarshal(raw, v); err != nil {
		return 0, &demand.NoSignal{Reason: "the metric's values can't be read"}
	}
	return v.sum(x.now(), maxAge)
}

func (x *External) get(ctx context.Context, u *url.URL, selector string) ([]byte, error) {
	if selector != "" {
		u.RawQuery = url.Values{"labelSelector": {selector}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	code, raw, err := send(x.client, req)
	if err != nil || code == http.StatusOK {
		return raw, err
	}
	status := &metav1.Status{}
	switch {
	case code == http.StatusNotFound || code == http.StatusServiceUnavailable:
		return nil, errors.New("the cluster has no such metric, or nothing that serves external metrics")
	case json.Unmarshal(raw, status) == nil && status.Message != "":
		return nil, fmt.Errorf("the API answered %d: %s", code, quote(status.Message))
	}
	return nil, fmt.Errorf("the API answered %d", code)
}

// sum adds up the values. Their number is limited by the maximum size of an answer.
func (v *values) sum(now time.Time, maxAge time.Duration) (float64, error) {
	if len(v.Items) == 0 {
		return 0, &demand.NoSignal{Reason: "the metric has no values"}
	}
	sum := 0.0
	for _, i := range v.Items {
		if age := now.Sub(i.Timestamp.Time); age > maxAge || age < -maxAge {
			return 0, &demand.NoSignal{Reason: fmt.Sprintf("a value is of %s, more than %s from now", i.Timestamp.UTC().Format(time.RFC3339), maxAge)}
		}
		n := i.Value.Float()
		if n < 0 {
			return 0, &demand.NoSignal{Reason: fmt.Sprintf("a value is %s, which is not a valid number of jobs", i.Value)}
		}
		sum += n
	}
	return sum, nil
}
