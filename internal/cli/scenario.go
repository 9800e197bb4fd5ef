// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/wording"
)

// scenarioFile is a file *.scenario.yaml: cases, and what they have in common. Without cases it is one.
type scenarioFile struct {
	scenario
	Cases []scenario `json:"cases"`
}

// scenario is a question to policies, and the answer that is expected.
type scenario struct {
	// Name of the case. Default: the file's name.
	Name string `json:"name"`
	// Policies are files and folders as those of --policy, relative to the file, which are asked too.
	Policies []string `json:"policies"`
	// Pool is the name of a pool of DIR, or a RunnerPool.
	Pool json.RawMessage `json:"pool"`
	// At is the time of the question.
	At string `json:"at"`
	// Zone of the controller. Default: UTC.
	Zone string `json:"zone"`
	// State of the pool and of the fleet. Default: no jobs, no runners.
	State *situation `json:"state"`
	// Expect is what policies are to answer.
	Expect *expectation `json:"expect"`
}

// situation is the state of a pool and of the fleet.
type situation struct {
	// Jobs assigned to the pool and not finished.
	Jobs int32 `json:"jobs"`
	// Runners of the pool. The total is their sum by default.
	Runners policy.Runners `json:"runners"`
	// Usage across the fleet. The pool's own is its total of runners by default.
	Usage usage `json:"usage"`
	// Desired number of runners, of which an update's percentages are parts. Default: their total.
	Desired *int32 `json:"desired"`
	// Change is the update under way.
	Change change `json:"change"`
}

// usage is what the pool and others were granted.
type usage struct{ policy.Usage }

// change is an update under way; its numbers are the pool's.
type change struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Phase string `json:"phase"`
	// Since is when the phase began.
	Since   string `json:"since"`
	Updated int32  `json:"updated"`
}

// expectation is what policies are to answer. What is not mentioned may be anything.
type expectation struct {
	Scaling  *scalingExpectation  `json:"scaling"`
	Template *templateExpectation `json:"template"`
	Update   *updateExpectation   `json:"update"`
}

// commonExpectation is what every decision may be expected to have.
type commonExpectation struct {
	// Failures each have one of these texts. Without, a failure of a policy fails the case.
	Failures []excerpt `json:"failures"`
	// Audit findings have each of these texts.
	Audit []excerpt `json:"audit"`
}

type scalingExpectation struct {
	commonExpectation
	Max  *int32 `json:"max"`
	Min  *int32 `json:"min"`
	Idle *int32 `json:"idle"`
	// AssignedJobs is Serve or Wait; empty expects nothing.
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs"`
	Until        string                `json:"until"`
	// Bounds are there, each; an empty list expects none.
	Bounds []boundExpectation `json:"bounds"`
	// Conflicts have each of these texts; an empty list expects none.
	Conflicts []excerpt `json:"conflicts"`
}

type boundExpectation struct {
	Field  string `json:"field"`
	Value  *int32 `json:"value"`
	Reason string `json:"reason"`
	Rule   string `json:"rule"`
	Policy string `json:"policy"`
}

type templateExpectation struct {
	commonExpectation
	Allowed *bool `json:"allowed"`
	// Denied and Warnings are there, each; an empty list expects none.
	Denied   []verdictExpectation `json:"denied"`
	Warnings []verdictExpectation `json:"warnings"`
}

type verdictExpectation struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Path    string `json:"path"`
	Rule    string `json:"rule"`
	Policy  string `json:"policy"`
}

type updateExpectation struct {
	commonExpectation
	Hold           *bool  `json:"hold"`
	Strategy       string `json:"strategy"`
	MaxSurge       *int32 `json:"maxSurge"`
	MaxUnavailable *int32 `json:"maxUnavailable"`
	Canary         *int32 `json:"canary"`
	Until          string `json:"until"`
	// Reasons have each of these texts; an empty list expects none.
	Reasons []excerpt `json:"reasons"`
}

// scenarioCase is one case with what its file says of all of them.
type scenarioCase struct {
	scenario
	file string
	line int
	// document and field, for problems.
	document document
	field    string
}

// isScenario tells scenario files by their names.
func isScenario(name string) bool {
	return slices.ContainsFunc([]string{".scenario.yaml", ".scenario.yml", ".scenario.json"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// parseScenarios reads the cases of a file.
func parseScenarios(file string, data []byte) ([]scenarioCase, []v1alpha1.Diagnostic) {
	documents, diagnostics := parseDocuments(file, data, plainYAML)
	var cases []scenarioCase
	for _, d := range documents {
		var f scenarioFile
		if problems := d.decode(&f); len(problems) > 0 {
			diagnostics = append(diagnostics, problems...)
			continue
		}
		base := path.Base(file)
		f.Name = cmp.Or(f.Name, base[:strings.Index(base+".scenario.", ".scenario.")])
		if f.Cases == nil {
			cases = append(cases, scenarioCase{scenario: f.scenario, file: file, line: d.line(), document: d})
			continue
		}
		if f.Expect != nil {
			diagnostics = append(diagnostics, d.problem("expect", "each case has an expect of its own"))
		}
		for i, c := range f.Cases {
			field := fmt.Sprintf("cases[%d]", i)
			line, _ := d.at(field)
			if c.Name == "" {
				diagnostics = append(diagnostics, d.problem(field, "name is required"))
			}
			cases = append(cases, scenarioCase{scenario: c.over(f.scenario), file: file, line: line, document: d, field: field})
		}
	}
	if len(documents) == 0 && len(diagnostics) == 0 {
		diagnostics = []v1alpha1.Diagnostic{{File: file, Line: 1, Column: 1, Message: "the file is empty"}}
	}
	return cases, diagnostics
}

// over fills what a case leaves out with what its file says.
func (s scenario) over(common scenario) scenario {
	s.Policies = slices.Concat(common.Policies, s.Policies)
	s.At, s.Zone = cmp.Or(s.At, common.At), cmp.Or(s.Zone, common.Zone)
	if s.Pool == nil {
		s.Pool = common.Pool
	}
	if s.State == nil {
		s.State = common.State
	}
	return s
}

// problem is a diagnostic at a field of the case.
func (c scenarioCase) problem(field, format string, args ...any) v1alpha1.Diagnostic {
	switch {
	case c.field != "" && field != "":
		field = c.field + "." + field
	case field == "":
		field = c.field
	}
	return c.document.problem(field, format, args...)
}

// question is a case as policies are asked: with a pool, a time and a state.
type question struct {
	pool  *v1alpha1.RunnerPool
	at    time.Time
	zone  string
	state *situation
	// network is what the pool's pods get of its connection's.
	network podspec.Network
}

// question completes a case. Fallback is the time of a case that names none; the zero time demands one.
func (c scenarioCase) question(w *workspace, fallback time.Time, in string) (question, []v1alpha1.Diagnostic) {
	q := question{zone: cmp.Or(c.Zone, in), state: c.State, at: fallback}
	if q.state == nil {
		q.state = &situation{}
	}
	var diagnostics []v1alpha1.Diagnostic
	refuse := func(field string, err error) {
		if err != nil {
			diagnostics = append(diagnostics, c.problem(field, "%v", err))
		}
	}
	var err error
	if q.pool, err = c.pool(w); err == nil {
		err = checkSchedules(q.pool)
	}
	refuse("pool", err)
	refuse("zone", checkZone(q.zone))
	switch {
	case c.At != "":
		q.at, err = parseTime(c.At)
		refuse("at", err)
	case fallback.IsZero() && c.Expect != nil && (c.Expect.Scaling != nil || c.Expect.Update != nil):
		refuse("at", fmt.Errorf("at is required: what policies decide may depend on the time"))
	}
	if q.pool != nil {
		q.network = w.network(q.pool)
		refuse(q.state.Usage.check(q.pool))
	}
	if q.state.Change.Since != "" {
		_, err = parseTime(q.state.Change.Since)
		refuse("state.change.since", err)
	}
	return q, diagnostics
}

// pool returns the pool that a case names or declares.
func (c scenarioCase) pool(w *workspace) (*v1alpha1.RunnerPool, error) {
	if c.Pool == nil {
		return nil, fmt.Errorf("pool is required: the name of a pool, or a RunnerPool")
	}
	var name string
	if json.Unmarshal(c.Pool, &name) == nil {
		return w.poolNamed(name)
	}
	pool := &v1alpha1.RunnerPool{}
	d := document{json: c.Pool, node: c.document.node}
	if problems := d.decode(pool); len(problems) > 0 {
		return nil, fmt.Errorf("%s", problems[0].Message)
	}
	if pool.Name == "" {
		return nil, fmt.Errorf("metadata.name is required")
	}
	pool.Namespace = cmp.Or(pool.Namespace, w.options.namespace)
	return pool, nil
}

// poolNamed returns a pool of the workspace by name, or NAMESPACE/NAME.
func (w *workspace) poolNamed(name string) (*v1alpha1.RunnerPool, error) {
	var names []string
	for _, p := range w.pools {
		if p.Name == name || p.Namespace+"/"+p.Name == name {
			return p.RunnerPool, nil
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no pool %q: the folder declares none", name)
	}
	return nil, fmt.Errorf("there is no pool %q, but %s", name, wording.List(names, 10))
}

// scalingInput is the question what limits hold for a pool in a situation.
func scalingInput(pool policy.Pool, s *situation, at time.Time, zone string) policy.ScalingInput {
	in := policy.ScalingInput{Pool: pool, Jobs: s.Jobs, Runners: s.runners(), Usage: s.Usage.Usage, Now: at.UnixNano(), Zone: zone}
	u := &in.Usage
	u.Granted = cmp.Or(u.Granted, in.Runners.Total)
	labels := map[string]policy.Group{}
	for key := range pool.Labels {
		labels[key] = counted(s.Usage.Labels[key])
	}
	u.All, u.Namespace, u.Connection, u.Labels = counted(u.All), counted(u.Namespace), counted(u.Connection), labels
	return in
}

// check finds what can't be in the cluster, and its field.
func (u *usage) check(p *v1alpha1.RunnerPool) (field string, err error) {
	groups := map[string]policy.Group{"all": u.All, "namespace": u.Namespace, "connection": u.Connection}
	for key, g := range u.Labels {
		name := "labels." + key
		if groups[name] = g; p.Labels[key] == "" {
			return "state.usage." + name, fmt.Errorf("the pool has no label %s", key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g, counted := groups[name], counted(groups[name])
		for _, n := range []struct {
			field    string
			said, is int32
		}{{"granted", g.Granted, counted.Granted}, {"pools", g.Pools, counted.Pools}} {
			if n.said != 0 && n.said != n.is {
				return "state.usage." + name + "." + n.field, fmt.Errorf("is %d, but the members come to %d: leave it out, it is counted", n.said, n.is)
			}
		}
	}
	return "", nil
}

// counted is a group as the controller tells it: with members, what they come to.
func counted(g policy.Group) policy.Group {
	if len(g.Members) == 0 {
		return g
	}
	return policy.GroupOf(g.Members)
}

func (s *situation) runners() policy.Runners {
	r := s.Runners
	r.Total = cmp.Or(r.Total, r.Pending+r.Idle+r.Busy+r.Finished+r.Failed)
	return r
}

// updateInput is the question how a change may roll out.
func updateInput(q question) policy.UpdateInput {
	s := q.state
	declared := rollout.Declared(q.pool.Spec.Update, ptr.Deref(s.Desired, s.runners().Total))
	c := policy.Change{
		From: s.Change.From, To: s.Change.To, Phase: s.Change.Phase, Updated: s.Change.Updated, Strategy: string(declared.Strategy),
		MaxSurge: declared.MaxSurge, MaxUnavailable: declared.MaxUnavailable, Canary: declared.Canary,
	}
	if since, err := parseTime(s.Change.Since); err == nil {
		c.Since = since.UnixNano()
	}
	return policy.UpdateInput{Pool: policy.PoolOf(q.pool), Change: c, Jobs: s.Jobs, Runners: s.runners(), Now: q.at.UnixNano(), Zone: q.zone}
}
