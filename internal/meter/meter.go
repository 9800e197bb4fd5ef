// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package meter defines metrics in one line each.
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

// Counters returns a counter for each combination of labels.
func Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// CountersOf returns a counter for each value of a label. All of them exist from the start, with the value 0.
func CountersOf(name, help, label string, values ...string) *prometheus.CounterVec {
	counters := Counters(name, help, label)
	for _, value := range values {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauges returns a gauge for each combination of labels.
func Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Histograms returns a histogram for each combination of labels.
func Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Vec is a set of metrics, one per combination of labels.
type Vec[M any] interface {
	prometheus.Collector
	WithLabelValues(values ...string) M
	DeleteLabelValues(values ...string) bool
}

// Owned is a Vec whose first two labels are the namespace and the name of an object. It records the series of each object.
// Finding them by label would make Prometheus visit the series of all objects, under a lock that every measurement needs.
type Owned[M any] struct {
	Vec[M]

	mu     sync.Mutex
	series map[owner][][]string
}

type owner struct{ namespace, name string }

// OwnedBy returns a Vec that records the series of each object.
func OwnedBy[M any](vec Vec[M]) *Owned[M] {
	return &Owned[M]{Vec: vec, series: map[owner][][]string{}}
}

// WithLabelValues returns the metric for these values. The first two are the namespace and name of the object.
func (o *Owned[M]) WithLabelValues(values ...string) M {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := owner{values[0], values[1]}
	if !slices.ContainsFunc(o.series[of], func(known []string) bool { return slices.Equal(known, values) }) {
		o.series[of] = append(o.series[of], values)
	}
	return o.Vec.WithLabelValues(values...)
}

// Drop removes the series of an object.
func (o *Owned[M]) Drop(namespace, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := owner{namespace, name}
	for _, values := range o.series[of] {
		o.DeleteLabelValues(values...)
	}
	delete(o.series, of)
}
