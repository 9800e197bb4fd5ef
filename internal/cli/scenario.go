// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/wording"
)

// scenarioFile is the content of a scenario file: a list of cases with the fields that they have in common, or a single
// case.
type scenarioFile struct {
	scenario
	Cases []scenario `json:"cases"`
}

// scenario is a situation in which policies decide, and the expected decisions.
type scenario struct {
	// Name of the case. Default: the file's name.
	Name string `json:"name"`
	// Policies are additional files and folders with policies, as for --policy. Their paths are relative to the scenario file.
	Policies []string `json:"policies"`
	// Pool is the name of a pool in the definitions, or a RunnerPool.
	Pool json.RawMessage `json:"pool"`
	// At is the time at which policies decide.
	At string `json:"at"`
	// Zone of the controller. Default: UTC.
	Zone string `json:"zone"`
	// State of the pool and of the fleet. Default: no jobs and no runners.
	State *situation `json:"state"`
	// Expect contains the expected decisions.
	Expect *expectation `json:"expect"`
}

// situation is the state of a pool and of the fleet.
type situation struct {
	// Jobs is the number of jobs that are assigned to the pool and not finished.
	Jobs int32 `json:"jobs"`
	// Runners contains the numbers of the pool's runners. The default of the total is the sum of the other numbers.
	Runners policy.Runners `json:"runners"`
	// Usage of the fleet. The default of the pool's own usage is its total number of runners.
	Usage policy.Usage `json:"usage"`
	// Desired is the number of runners to which the percentages of an update refer. Default: the total number of runners.
	Desired *int32 `json:"desired"`
	// Change is the update in progress.
	Change change `json:"change"`
}

// change is an update in progress. Its maxSurge, maxUnavailable and canary come from the pool.
type change struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Phase string `json:"phase"`
	// Since is when the phase began.
	Since   string `json:"since"`
	Updated int32  `json:"updated"`
}

// expectation contains the expected decisions. A field that is not set accepts any value.
type expectation struct {
	Scaling  *scalingExpectation  `json:"scaling"`
	Template *templateExpectation `json:"template"`
	Update   *updateExpectation   `json:"update"`
}

// commonExpectation contains the expectations for the fields that all decisions have in common.
type commonExpectation struct {
	// Failures are excerpts of the expected failures. Without this field, a failure of a policy fails the case.
	Failures []excerpt `json:"failures"`
	// Audit contains excerpts of the expected audit findings.
	Audit []excerpt `json:"audit"`
}

type scalingExpectation struct {
	commonExpectation
	Max  *int32 `json:"max"`
	Min  *int32 `json:"min"`
	Idle *int32 `json:"idle"`
	// AssignedJobs is Serve or Wait. If it is empty, both are accepted.
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs"`
	Until        string                `json:"until"`
	// Bounds that the decision must have. An empty list expects no bounds.
	Bounds []boundExpectation `json:"bounds"`
	// Conflicts contains excerpts of the expected conflicts. An empty list expects no conflicts.
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
	// Denied and Warnings are findings that the decision must have. An empty list expects no findings.
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
	// Reasons contains excerpts of the expected reasons. An empty list expects no reasons.
	Reasons []excerpt `json:"reasons"`
}

// scenarioCase is a case with the common fields of its file filled in.
type scenarioCase struct {
	scenario
	// document and field determine the positions of diagnostics.
	document document
	field    string
	line     int
}

// isScenario reports whether a file name is the name of a scenario file.
func isScenario(name string) bool {
	return slices.ContainsFunc([]string{".scenario.yaml", ".scenario.yml", ".scenario.json"}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// parseScenarios reads the cases of a file.
func parseScenarios(file string, data []byte) (cases []scenarioCase, diagnostics []v1alpha1.Diagnostic) {
	documents, diagnostics := parseDocuments(file, data, plainYAML)
	for _, d := range documents {
		f := scenarioFile{}
		diagnostics = append(diagnostics, d.decode(&f)...)
		if f.Cases == nil {
			name, _, _ := strings.Cut(path.Base(file), ".scenario.")
			f.Name = cmp.Or(f.Name, name)
			cases = append(cases, scenarioCase{scenario: f.scenario, document: d, line: d.line()})
		} else if f.Expect != nil {
			diagnostics = append(diagnostics, d.problem("expect", "each case has an expect of its own"))
		}
		for i, c := range f.Cases {
			one := scenarioCase{scenario: c.withDefaults(f.scenario), document: d, field: fmt.Sprintf("cases[%d]", i)}
			one.line, _ = d.at(one.field)
			cases = append(cases, one)
			if c.Name == "" {
				diagnostics = append(diagnostics, d.problem(one.field, "name is required"))
			}
		}
	}
	if len(documents) == 0 && len(diagnostics) == 0 {
		diagnostics = []v1alpha1.Diagnostic{{File: file, Line: 1, Column: 1, Message: "the file is empty"}}
	}
	return cases, diagnostics
}

// withDefaults fills in fields that a case leaves out from the common fields of its file.
func (s scenario) withDefaults(common scenario) scenario {
	s.Policies = slices.Concat(common.Policies, s.Policies)
	s.At, s.Zone = cmp.Or(s.At, common.At), cmp.Or(s.Zone, common.Zone)
	if s.Pool == nil {
		s.Pool = common.Pool
	}
	s.State = cmp.Or(s.State, common.State)
	return s
}

// problem returns a diagnostic at a field of the case.
func (c scenarioCase) problem(field, format string, args ...any) v1alpha1.Diagnostic {
	return c.document.problem(strings.Trim(c.field+"."+field, "."), format, args...)
}

// ask returns the policy inputs of a case, and the asker that evaluates them. If the case has no time, fallback is the time.
// If fallback is zero, too, decisions that depend on the time are reported as a problem.
func (c scenarioCase) ask(ctx context.Context, w *workspace, fallback time.Time, zone string) (*questions, asker, []v1alpha1.Diagnostic) {
	q, diagnostics := c.questions(w, fallback, zone)
	if len(diagnostics) > 0 {
		return nil, asker{}, diagnostics
	}
	a, diagnostics := c.asker(ctx, w)
	return q, a, diagnostics
}

// questions returns the policy inputs of a case.
func (c scenarioCase) questions(w *workspace, at time.Time, zone string) (_ *questions, diagnostics []v1alpha1.Diagnostic) {
	refuse := func(field string, err error) {
		if err != nil {
			diagnostics = append(diagnostics, c.problem(field, "%v", err))
		}
	}
	timeIn := func(field, value string, otherwise time.Time) time.Time {
		if value == "" {
			return otherwise
		}
		t, err := parseTime(value)
		refuse(field, err)
		return t
	}
	s, zone := ptr.Deref(c.State, situation{}), cmp.Or(c.Zone, zone)
	pool, err := c.pool(w)
	refuse("pool", err)
	refuse("zone", checkZone(zone))
	at = timeIn("at", c.At, at)
	if at.IsZero() && c.At == "" && c.Expect != nil && (c.Expect.Scaling != nil || c.Expect.Update != nil) {
		refuse("at", errors.New("at is required, because decisions of policies can depend on the time"))
	}
	since := timeIn("state.change.since", s.Change.Since, time.Time{})
	if pool == nil {
		return nil, diagnostics
	}
	refuse(s.complete(pool))
	q := s.questions(pool, w.network(pool), at, zone)
	if !since.IsZero() {
		q.update.Change.Since = since.UnixNano()
	}
	return q, diagnostics
}

// pool returns the pool that the case names or declares.
func (c scenarioCase) pool(w *workspace) (*v1alpha1.RunnerPool, error) {
	if c.Pool == nil {
		return nil, errors.New("pool is required: the name of a pool, or a RunnerPool")
	}
	var name string
	if json.Unmarshal(c.Pool, &name) == nil {
		return w.poolNamed(name)
	}
	pool := &v1alpha1.RunnerPool{}
	d := document{json: c.Pool, node: c.document.node}
	problems := d.decode(pool)
	if len(problems) > 0 {
		return nil, errors.New(problems[0].Message)
	}
	if pool.Name == "" {
		return nil, errors.New("metadata.name is required")
	}
	pool.Namespace = cmp.Or(pool.Namespace, w.options.namespace)
	_, invalid := schedule.Compile(pool.Spec.Scale.Schedules)
	if len(invalid) > 0 {
		return pool, errors.New(invalid[0].String())
	}
	return pool, nil
}

// poolNamed returns a pool of the workspace by NAME or NAMESPACE/NAME.
func (w *workspace) poolNamed(name string) (*v1alpha1.RunnerPool, error) {
	for _, p := range w.pools {
		if p.Name == name || p.Namespace+"/"+p.Name == name {
			return p.RunnerPool, nil
		}
	}
	names := converted(w.pools, func(p declaredPool) string { return p.Name })
	return nil, fmt.Errorf("there is no pool %q; existing: %s", name, orNone(wording.List(names, 10)))
}

// complete fills in the numbers that a situation leaves out. If the situation cannot exist in a cluster, it returns an error
// and the field that causes it.
func (s *situation) complete(p *v1alpha1.RunnerPool) (field string, err error) {
	summed := func(name string, g policy.Group) policy.Group {
		total := policy.GroupOf(g.Members)
		if len(g.Members) == 0 {
			return g
		}
		if cmp.Or(g.Granted, total.Granted) != total.Granted || cmp.Or(g.Pools, total.Pools) != total.Pools {
			field = "state.usage." + name
			err = fmt.Errorf("granted is %d and pools is %d, but the members have %d and %d: leave both out, because Corral counts the members", g.Granted, g.Pools, total.Granted, total.Pools)
		}
		return total
	}
	r, u := &s.Runners, &s.Usage
	r.Total = cmp.Or(r.Total, r.Pending+r.Idle+r.Busy+r.Finished+r.Failed)
	u.Granted = cmp.Or(u.Granted, r.Total)
	u.All = summed("all", u.All)
	u.Namespace = summed("namespace", u.Namespace)
	u.Connection = summed("connection", u.Connection)
	given := u.Labels
	u.Labels = map[string]policy.Group{}
	for key := range p.Labels {
		u.Labels[key] = summed("labels."+key, given[key])
	}
	for key := range given {
		if _, has := p.Labels[key]; !has {
			return "state.usage.labels." + key, fmt.Errorf("the pool has no label %s", key)
		}
	}
	return field, err
}

// questions returns the policy inputs for a pool in a situation.
func (s *situation) questions(p *v1alpha1.RunnerPool, network podspec.Network, at time.Time, zone string) *questions {
	declared := rollout.Declared(p.Spec.Update, ptr.Deref(s.Desired, s.Runners.Total))
	c := policy.Change{
		From: s.Change.From, To: s.Change.To, Phase: s.Change.Phase, Updated: s.Change.Updated, Strategy: string(declared.Strategy),
		MaxSurge: declared.MaxSurge, MaxUnavailable: declared.MaxUnavailable, Canary: declared.Canary,
	}
	now := at.UnixNano()
	q := &questions{
		scaling: policy.ScalingInput{Pool: scheduledPoolAt(p, at), Jobs: s.Jobs, Runners: s.Runners, Usage: s.Usage, Now: now, Zone: zone},
		update:  policy.UpdateInput{Pool: policy.PoolOf(p), Change: c, Jobs: s.Jobs, Runners: s.Runners, Now: now, Zone: zone},
	}
	q.template, q.err = review.TemplateInput(p, network)
	return q
}
