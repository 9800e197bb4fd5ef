// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// sample is a value at a point in time.
type sample struct {
	t int64
	f float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// series is a time series with all its samples.
type series struct {
	labels  labels.Labels
	samples []chunks.Sample
	// ahead is the amount that was added to a counter beyond its scraped value.
	ahead float64
	alive bool
}

// database holds the recorded samples.
type database struct {
	storage.Queryable
	series map[string]*series
	ticks  int
	begin  time.Time
}

// point is the value of a series in one scrape.
type point struct {
	labels labels.Labels
	value  float64
	counts bool // a counter, which only increases
}

// record builds a database from the phases of a request.
func record(q Request) (*database, error) {
	db := &database{series: map[string]*series{}, begin: q.Begin}
	for _, phase := range q.Phases {
		var scrapes []map[string]point
		for _, text := range phase.Scrapes {
			points, err := parse(text)
			if err != nil {
				return nil, err
			}
			scrapes = append(scrapes, points)
		}
		first := map[string]point{}
		if len(scrapes) > 0 {
			first = scrapes[0]
		}
		if phase.First != "" {
			var err error
			if first, err = parse(phase.First); err != nil {
				return nil, err
			}
		}
		db.play(phase, first, scrapes)
	}
	return db, nil
}

// play appends a phase. Counters continue at their rate between the first and last scrape. Other series cycle
// through the scraped values.
func (db *database) play(phase Phase, first map[string]point, scrapes []map[string]point) {
	n := phase.Minutes * int(time.Minute/tick)
	for i := range n {
		at := map[string]point{}
		if len(scrapes) > 0 {
			at = db.between(first, scrapes, i, phase.Seconds)
		}
		db.append(at)
	}
	if len(scrapes) == 0 {
		return
	}
	last := scrapes[len(scrapes)-1]
	for key, p := range db.between(first, scrapes, n-1, phase.Seconds) {
		if p.counts {
			db.series[key].ahead = p.value - last[key].value
		}
	}
}

// between returns what a scrape at a tick of a phase would return.
func (db *database) between(first map[string]point, scrapes []map[string]point, i int, seconds float64) map[string]point {
	last, now := scrapes[len(scrapes)-1], scrapes[i%len(scrapes)]
	at := map[string]point{}
	for key, p := range now {
		if !p.counts {
			at[key] = p
		}
	}
	from := last
	if i == 0 {
		from = first
	}
	for key, p := range from {
		if !p.counts {
			continue
		}
		began := first[key].value
		if pace := (last[key].value - began) / max(seconds, 1); pace > 0 {
			p.value = began + pace*float64(i)*tick.Seconds()
		} else {
			p.value = max(began, last[key].value)
		}
		if s := db.series[key]; s != nil {
			p.value += s.ahead
		}
		at[key] = p
	}
	return at
}

// append adds the points of a scrape. A series that disappeared gets Prometheus's staleness marker.
func (db *database) append(found map[string]point) {
	t := db.begin.Add(time.Duration(db.ticks) * tick).UnixMilli()
	db.ticks++
	for key, p := range found {
		s := db.series[key]
		if s == nil {
			s = &series{labels: p.labels}
			db.series[key] = s
		}
		s.samples, s.alive = append(s.samples, sample{t, p.value}), true
	}
	for key, s := range db.series {
		if _, ok := found[key]; !ok && s.alive {
			s.samples, s.alive = append(s.samples, sample{t, math.Float64frombits(value.StaleNaN)}), false
		}
	}
}

// parse reads a scrape in the text format.
func parse(text string) (map[string]point, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading a scrape: %w", err)
	}
	points := map[string]point{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			for suffix, v := range values(f.GetType(), m) {
				extra, le := strings.CutPrefix(suffix, "_bucket/")
				b := labels.NewBuilder(labels.EmptyLabels()).Set("job", "corral").Set("instance", "corral:8080")
				for _, l := range m.GetLabel() {
					b.Set(l.GetName(), l.GetValue())
				}
				if le {
					b.Set("le", extra)
					suffix = "_bucket"
				}
				all := b.Set(labels.MetricName, name+suffix).Labels()
				points[all.String()] = point{labels: all, value: v, counts: suffix != "" || f.GetType() == dto.MetricType_COUNTER}
			}
		}
	}
	return points, nil
}

// values returns the values of a metric, keyed by the suffix that Prometheus appends to its name.
func values(kind dto.MetricType, m *dto.Metric) map[string]float64 {
	switch kind {
	case dto.MetricType_COUNTER:
		return map[string]float64{"": m.GetCounter().GetValue()}
	case dto.MetricType_GAUGE:
		return map[string]float64{"": m.GetGauge().GetValue()}
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		all := map[string]float64{"_sum": h.GetSampleSum(), "_count": float64(h.GetSampleCount())}
		for _, b := range h.GetBucket() {
			all["_bucket/"+strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)] = float64(b.GetCumulativeCount())
		}
		return all
	}
	return map[string]float64{"": m.GetUntyped().GetValue()}
}

// Querier implements storage.Queryable.
func (db *database) Querier(from, to int64) (storage.Querier, error) {
	return querier{db, from, to}, nil
}

type querier struct {
	db       *database
	from, to int64
}

// Select returns the series that match.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, key := range slices.Sorted(maps.Keys(q.db.series)) {
		s := q.db.series[key]
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		begin, _ := slices.BinarySearchFunc(s.samples, q.from, func(x chunks.Sample, t int64) int { return int(x.T() - t) })
		end, _ := slices.BinarySearchFunc(s.samples, q.to+1, func(x chunks.Sample, t int64) int { return int(x.T() - t) })
		if begin < end {
			set.all = append(set.all, storage.NewListSeries(s.labels, s.samples[begin:end]))
		}
	}
	return set
}

// LabelValues is not used by the engine.
func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames is not used by the engine.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (querier) Close() error { return nil }

type seriesSet struct {
	all []storage.Series
	now storage.Series
}

// Next advances to the next series.
func (s *seriesSet) Next() bool {
	if len(s.all) == 0 {
		return false
	}
	s.now, s.all = s.all[0], s.all[1:]
	return true
}

// At returns the current series.
func (s *seriesSet) At() storage.Series { return s.now }

// Err implements storage.SeriesSet.
func (*seriesSet) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*seriesSet) Warnings() annotations.Annotations { return nil }
