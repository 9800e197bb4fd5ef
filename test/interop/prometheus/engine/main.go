// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command engine evaluates alerts and queries with Prometheus's own engine over metrics that were scraped from a
// controller. It reads a Request as JSON from standard input and writes an Answer.
//
// It is a separate module because nothing else needs Prometheus's dependencies.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// tick is the interval of scrapes and of evaluations.
const tick = 30 * time.Second

// Request holds the rules and queries to evaluate, and the recorded phases.
type Request struct {
	// Rules is the content of a Prometheus rule file.
	Rules string
	// Queries are the dashboard's queries.
	Queries []string
	// Begin is the start of the first phase.
	Begin time.Time
	// Phases follow each other without a gap.
	Phases []Phase
}

// Phase is a period during which the metrics behave as they did between the first and the last of its scrapes.
type Phase struct {
	// Minutes is the simulated duration.
	Minutes int
	// Seconds is the time between the first scrape and the last.
	Seconds float64
	// First is an earlier scrape that provides the counters' starting values. If it is empty, the first of Scrapes
	// does.
	First string
	// Scrapes are in the text format. There are none while no controller is running.
	Scrapes []string
}

// Answer holds the results of the evaluation.
type Answer struct {
	// Alerts lists every alert that fired.
	Alerts []Firing
	// Values is the number of values that each query returned.
	Values []int
	// Errors lists the failures of rules and queries.
	Errors []string
}

// Firing is a period in which an alert fired, in minutes since the beginning.
type Firing struct {
	Alert  string
	Labels map[string]string
	// From and To are the first and last evaluations at which it fired. Resolved is false if To is the last
	// evaluation of all.
	From, To float64
	Resolved bool
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var q Request
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	db, err := record(q)
	if err != nil {
		return err
	}
	grammar := parser.NewParser(parser.Options{})
	rules, errs := rulefmt.Parse([]byte(q.Rules), false, model.UTF8Validation, grammar, promslog.NewNopLogger())
	if len(errs) > 0 {
		return fmt.Errorf("reading the rules: %w", errors.Join(errs...))
	}
	e := &evaluator{
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: grammar}),
		db:     db, begin: q.Begin,
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			e.watch(rule)
		}
	}
	for _, query := range q.Queries {
		e.ask(query)
	}
	return json.NewEncoder(os.Stdout).Encode(e.answer)
}

// evaluator evaluates expressions at each tick.
type evaluator struct {
	engine *promql.Engine
	db     *database
	begin  time.Time
	answer Answer
}

// at evaluates an expression at a tick.
func (e *evaluator) at(expr string, i int) (promql.Vector, error) {
	query, err := e.engine.NewInstantQuery(context.Background(), e.db, nil, expr, e.begin.Add(time.Duration(i)*tick))
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	switch v := result.Value.(type) {
	case promql.Vector:
		return slices.Clone(v), nil
	case promql.Scalar:
		return promql.Vector{{F: v.V}}, nil
	}
	return nil, fmt.Errorf("%s is not a vector", result.Value.Type())
}

// watch evaluates an alert as Prometheus does. The alert fires for each set of labels that its expression returned
// at every evaluation during the rule's "for" duration.
func (e *evaluator) watch(rule rulefmt.Rule) {
	since, firing := map[string]int{}, map[string]*Firing{}
	for i := range e.db.ticks {
		v, err := e.at(rule.Expr, i)
		if err != nil {
			e.answer.Errors = append(e.answer.Errors, rule.Alert+": "+err.Error())
			return
		}
		active := map[string]bool{}
		for _, s := range v {
			key := s.Metric.String()
			if active[key] {
				e.answer.Errors = append(e.answer.Errors, rule.Alert+": two results with the labels "+key)
			}
			active[key] = true
			if _, ok := since[key]; !ok {
				since[key] = i
			}
			if time.Duration(i-since[key])*tick < time.Duration(rule.For) {
				continue
			}
			if firing[key] == nil {
				firing[key] = &Firing{Alert: rule.Alert, Labels: s.Metric.DropReserved(func(name string) bool { return name == labels.MetricName }).Map(), From: minutes(i)}
			}
			firing[key].To = minutes(i)
		}
		for key := range since {
			if active[key] {
				continue
			}
			delete(since, key)
			if f := firing[key]; f != nil {
				f.Resolved = true
				e.answer.Alerts = append(e.answer.Alerts, *f)
				delete(firing, key)
			}
		}
	}
	for _, f := range firing {
		e.answer.Alerts = append(e.answer.Alerts, *f)
	}
}

func minutes(i int) float64 { return (time.Duration(i) * tick).Minutes() }

// ask counts the values that a query returns over all ticks.
func (e *evaluator) ask(query string) {
	n := 0
	for i := range e.db.ticks {
		v, err := e.at(query, i)
		if err != nil {
			e.answer.Errors = append(e.answer.Errors, strings.TrimSpace(query)+": "+err.Error())
			break
		}
		for _, s := range v {
			if !math.IsNaN(s.F) {
				n++
			}
		}
	}
	e.answer.Values = append(e.answer.Values, n)
}
