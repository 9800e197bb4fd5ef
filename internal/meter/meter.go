// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package meter has short constructors for Prometheus metrics, and a metric that can delete all series of an object.
package meter

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Counter returns a counter.
func Counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters returns a metric with a counter for each combination of label values.
func Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// CountersOf returns a metric with a counter for each of the given values of a label. All counters exist from the start,
// with the value 0.
func CountersOf(name, help, label string, values ...string) *prometheus.CounterVec {
	counters := Counters(name, help, label)
	for _, value := range values {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauges returns a metric with a gauge for each combination of label values.
func Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Histograms returns a metric with a histogram for each combination of label values.
func Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Vec is a metric with labels. M is the type for one combination of label values, for example prometheus.Counter.
type Vec[M any] interface {
	prometheus.Collector
	WithLabelValues(values ...string) M
	DeleteLabelValues(values ...string) bool
}

// Owned is a Vec whose first two labels are the namespace and the name of an object. It records which series each object
// has, so that Drop can delete them one by one. With a deletion by label, Prometheus would visit the series of all objects
// while it holds a lock that every measurement needs.
type Owned[M any] struct {
	Vec[M]

	mu     sync.Mutex
	series map[owner][][]string
}

type owner struct{ namespace, name string }

// OwnedBy returns an Owned for a Vec, so that Drop can delete the series of an object.
func OwnedBy[M any](vec Vec[M]) *Owned[M] {
	return &Owned[M]{Vec: vec, series: map[owner][][]string{}}
}

// WithLabelValues returns the metric for the given label values. The first two values are the namespace and name of the
// object.
func (o *Owned[M]) WithLabelValues(values ...string) M {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := owner{values[0], values[1]}
	if !slices.ContainsFunc(o.series[of], func(known []string) bool { return slices.Equal(known, values) }) {
		o.series[of] = append(o.series[of], values)
	}
	return o.Vec.WithLabelValues(values...)
}

// Drop deletes all series of an object.
func (o *Owned[M]) Drop(namespace, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := owner{namespace, name}
	for _, values := range o.series[of] {
		o.DeleteLabelValues(values...)
	}
	delete(o.series, of)
}
