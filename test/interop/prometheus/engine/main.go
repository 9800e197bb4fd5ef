// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command engine evaluates alerts and queries with Prometheus's own engine over what was scraped of a controller. It reads a Request as
// JSON on standard input and writes an Answer.
//
// It is a module of its own: nobody else needs Prometheus's dependencies.
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

// tick is the time between two scrapes, and between two evaluations.
const tick = 30 * time.Second

// Request is what is to be evaluated over which phases.
type Request struct {
	// Rules is a file of rules.
	Rules string
	// Queries that a dashboard asks.
	Queries []string
	// Begin is when the first phase begins.
	Begin time.Time
	// Phases follow each other.
	Phases []Phase
}

// Phase is a time in which all goes on as it went between the first and the last of its scrapes.
type Phase struct {
	// Minutes that it takes.
	Minutes int
	// Seconds between the first scrape and the last.
	Seconds float64
	// First is a scrape from before all others, as far as what only rises goes; "" if the first of them is.
	First string
	// Scrapes in the text format; none while nobody can be scraped.
	Scrapes []string
}

// Answer is what came of it.
type Answer struct {
	// Alerts that fired.
	Alerts []Firing
	// Values is how many values each of the queries had.
	Values []int
	// Errors of rules and queries.
	Errors []string
}

// Firing is an alert that fired for a while, in minutes since the beginning.
type Firing struct {
	Alert  string
	Labels map[string]string
	// From and To are the first and the last evaluation at which it fired. Resolved is false if that was the last of all.
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

// evaluator evaluates at each tick.
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
	return nil, fmt.Errorf("%s is no vector", result.Value.Type())
}

// watch evaluates an alert as Prometheus does: it fires for each set of labels that its expression had at each evaluation for its time.
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

// ask counts the values of a query.
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
