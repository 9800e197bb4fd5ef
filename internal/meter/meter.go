// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package meter defines metrics in one line each.
package meter

import "github.com/prometheus/client_golang/prometheus"

// Counter counts from 0 on.
func Counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters are a Counter for each combination of labels.
func Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// CountersOf are a Counter for each of the values of a label, which are there before anything is counted.
func CountersOf(name, help, label string, values ...string) *prometheus.CounterVec {
	counters := Counters(name, help, label)
	for _, value := range values {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauges are numbers that rise and fall, one for each combination of labels.
func Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Histograms count by how large a value is, for each combination of labels.
func Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
