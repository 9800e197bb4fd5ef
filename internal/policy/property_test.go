// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// cases is the number of seeded cases for each property.
const cases = 1500

// scalingModule is a policy whose answers come from the pool's annotation with its name, so that it is compiled once
// for all cases.
const scalingModule = `package corral.scaling

limit contains json.unmarshal(input.pool.annotations[data.parameters.limits])[_]
`

const templateModule = `package corral.template

rules := json.unmarshal(input.pool.annotations[data.parameters.findings])

matching contains rule if {
	some rule in rules
	input.pod.spec.containers[_].image == rule.image
}

deny contains rule.finding if {
	some rule in matching
	rule.denies
}

warn contains rule.finding if {
	some rule in matching
	not rule.denies
}
`

const updateModule = `package corral.update

rollout contains json.unmarshal(input.pool.annotations[data.parameters.rollouts])[_]
`

// player is a policy that takes part in cases.
type player struct {
	policy  *Policy
	name    string
	cluster bool
	audited bool
}

// players returns policies of both kinds and modes.
func players(t testing.TB) []player {
	var all []player
	for i := range 6 {
		p := player{name: fmt.Sprintf("p%d", i), cluster: i%2 == 0, audited: i >= 4}
		s := Source{
			Kind: KindRunnerPolicy, Namespace: "ci", Name: p.name, Parameters: map[string]any{"limits": p.name + "-limits", "findings": p.name + "-findings", "rollouts": p.name + "-rollouts"},
			Modules: map[string]string{"s.rego": scalingModule, "t.rego": templateModule, "u.rego": updateModule},
		}
		if p.cluster {
			s.Kind, s.Namespace = KindClusterRunnerPolicy, ""
		}
		if p.audited {
			s.Mode = v1alpha1.PolicyAudit
		}
		p.policy = load(t, s)
		all = append(all, p)
	}
	return all
}

// game is one case: some players and their answers.
type game struct {
	random  *rand.Rand
	players []player
	says    map[string]string
}

// find is a rule of toldTemplate.
type find struct {
	Image   string `json:"image"`
	Denies  bool   `json:"denies"`
	Finding string `json:"finding"`
}

func newGame(seed uint64, all []player) *game {
	g := &game{random: rand.New(rand.NewPCG(seed, 4)), says: map[string]string{}}
	for _, p := range all {
		if g.random.IntN(2) == 0 {
			g.players = append(g.players, p)
		}
		g.say(p.name+"-limits", g.limit)
		g.say(p.name+"-rollouts", g.rollout)
		g.say(p.name+"-findings", g.find)
	}
	return g
}

// say makes a player return up to three elements.
func (g *game) say(annotation string, element func() any) {
	var elements []any
	for range g.random.IntN(4) {
		elements = append(elements, element())
	}
	text, _ := json.Marshal(elements)
	g.says[annotation] = string(text)
}

// number returns small numbers, or numbers near the declared ones, so that rules often interact.
func (g *game) number() int { return []int{0, 1, 2, 5, 9, 10, 11, 20, 500}[g.random.IntN(9)] }

func (g *game) limit() any {
	limit := map[string]any{"field": fields[g.random.IntN(3)], "reason": fmt.Sprintf("r%d", g.random.IntN(3))}
	switch {
	case g.random.IntN(3) == 0:
		limit["atLeast"] = g.number()
	case limit["field"] == "max" && g.random.IntN(2) == 0:
		limit["atMost"], limit["assignedJobs"] = g.number(), "Wait"
	default:
		limit["atMost"] = g.number()
	}
	if g.random.IntN(3) == 0 {
		limit["until"] = g.random.IntN(100)
	}
	return limit
}

func (g *game) rollout() any {
	rollout := map[string]any{"hold": g.random.IntN(4) == 0, "reason": "r"}
	for _, name := range []string{"maxSurge", "maxUnavailable", "canary"} {
		if g.random.IntN(3) == 0 {
			rollout[name] = g.number()
		}
	}
	if g.random.IntN(3) == 0 {
		rollout["strategy"] = strictness[g.random.IntN(3)]
	}
	return rollout
}

func (g *game) find() any {
	return find{Image: fmt.Sprintf("i%d", g.random.IntN(4)), Denies: g.random.IntN(2) == 0, Finding: fmt.Sprintf("f%d", g.random.IntN(3))}
}

// hasFloors reports whether a cluster policy asks for more than is declared.
func (g *game) hasFloors(p player) bool {
	return p.cluster && strings.Contains(g.says[p.name+"-limits"], "atLeast")
}

func (g *game) pool() Pool {
	random := rand.New(rand.NewPCG(uint64(len(g.says["p0-limits"])), 9))
	scale := Scale{Max: []int32{0, 10, 20, 2147483647}[random.IntN(4)]}
	scale.Min, scale.Idle = min(scale.Max, random.Int32N(12)), min(scale.Max, random.Int32N(12))
	return Pool{Namespace: "ci", Name: "linux", Annotations: g.says, Scale: scale}
}

// decided holds all three decisions about a case.
type decided struct {
	Scaling  Scaling
	Template Template
	Update   Update
}

func (g *game) decide(t testing.TB, list []player) decided {
	var all []*Policy
	for _, p := range list {
		all = append(all, p.policy)
	}
	pool := g.pool()
	b := NewSet(all...).For(pool)
	change := Change{Strategy: "RollingUpdate", MaxSurge: 10, MaxUnavailable: 2}
	return decided{
		b.Scaling(t.Context(), ScalingInput{Pool: pool, Jobs: g.jobs(), Now: 50}),
		b.Template(t.Context(), TemplateInput{Pool: pool, Pod: json.RawMessage(`{"spec": {"containers": [{"image": "i1"}, {"image": "i2"}]}}`)}),
		b.Update(t.Context(), UpdateInput{Pool: pool, Change: change, Now: 50}),
	}
}

func (d decided) bytes(t testing.TB) string {
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// jobs returns a number below or above the limits of rules.
func (g *game) jobs() int32 { return int32(len(g.says["p1-rollouts"]) % 30) }

// runs returns the maximum number of runners for the pool's jobs.
func (d decided) runs(jobs int32) int32 {
	if d.Scaling.AssignedJobs == v1alpha1.AssignedJobsWait {
		return d.Scaling.Scale.Max
	}
	return max(d.Scaling.Scale.Max, jobs)
}

// TestDecisionsKeepTheirPromises tests each property with thousands of seeded cases.
func TestDecisionsKeepTheirPromises(t *testing.T) {
	all, others := players(t), players(t)
	for seed := range uint64(cases) {
		g := newGame(seed, all)
		d := g.decide(t, g.players)
		if len(d.Scaling.Failures)+len(d.Template.Failures)+len(d.Update.Failures) > 0 {
			t.Errorf("a policy fails: %v", d)
		}
		g.neverWidens(t, d)
		g.noPodPassesADeny(t, d)
		d.numbersStayInOrder(t)
		g.orderMakesNoDifference(t, d, others)
		g.auditChangesNothing(t, d)
		if t.Failed() {
			t.Fatalf("with seed %d: %v say %v of %+v with %d jobs", seed, g.players, g.says, g.pool().Scale, g.jobs())
		}
	}
}

// neverWidens: an additional policy widens nothing, except for a cluster policy's floors.
func (g *game) neverWidens(t *testing.T, with decided) {
	if len(g.players) == 0 {
		return
	}
	added := g.players[len(g.players)-1]
	d := g.decide(t, g.players[:len(g.players)-1])
	was, is := d.Scaling.Scale, with.Scaling.Scale
	wider := is.Max > was.Max || is.Min > was.Min || is.Idle > was.Idle || with.runs(g.jobs()) > d.runs(g.jobs())
	if wider && !g.hasFloors(added) {
		t.Errorf("%s widens %+v to %+v", added.name, d.Scaling, with.Scaling)
	}
	for _, denial := range d.Template.Denials {
		if !slices.Contains(with.Template.Denials, denial) {
			t.Errorf("%s lets through what is denied: %v", added.name, denial)
		}
	}
	u, w := d.Update, with.Update
	// An update that deletes no runner needs no room, so the lack of room no longer holds it.
	careless := u.Hold && !w.Hold && w.Strategy != v1alpha1.OnIdle || slices.Index(strictness, w.Strategy) < slices.Index(strictness, u.Strategy) ||
		w.MaxSurge > u.MaxSurge || w.MaxUnavailable > u.MaxUnavailable || u.Canary > 0 && (w.Canary == 0 || w.Canary > u.Canary)
	if careless {
		t.Errorf("%s makes %+v less strict: %+v", added.name, u, w)
	}
}

// noPodPassesADeny: a pod that a rule of an enforced policy denies is denied.
func (g *game) noPodPassesADeny(t *testing.T, d decided) {
	for _, p := range g.players {
		var finds []find
		_ = json.Unmarshal([]byte(g.says[p.name+"-findings"]), &finds)
		for _, s := range finds {
			denies := !p.audited && s.Denies && (s.Image == "i1" || s.Image == "i2")
			denied := slices.ContainsFunc(d.Template.Denials, func(f v1alpha1.PolicyFinding) bool {
				return f.Message == s.Finding && f.Rule.Policy == p.policy.Ref()
			})
			if denies && !denied {
				t.Errorf("%s denies %s, but the pod passes: %+v", p.name, s.Image, d.Template)
			}
		}
	}
}

// numbersStayInOrder: 0 ≤ min ≤ max and 0 ≤ idle ≤ max, and the reported bounds are effective.
func (d decided) numbersStayInOrder(t *testing.T) {
	s := d.Scaling
	if s.Scale.Min < 0 || s.Scale.Idle < 0 || s.Scale.Min > s.Scale.Max || s.Scale.Idle > s.Scale.Max {
		t.Errorf("the numbers are %+v", s.Scale)
	}
	if d.Update.MaxSurge < 0 || d.Update.MaxUnavailable < 0 || d.Update.Canary < 0 {
		t.Errorf("the update is %+v", d.Update)
	}
	for _, b := range s.Bounds {
		if b.Value != *s.Scale.Number(b.Field) || b.Value == b.Declared {
			t.Errorf("%+v bounds nothing of %+v", b, s.Scale)
		}
	}
}

// orderMakesNoDifference: the same policies, loaded again and in another order, decide the same.
func (g *game) orderMakesNoDifference(t *testing.T, d decided, others []player) {
	shuffled := slices.Clone(g.players)
	for i, p := range shuffled {
		shuffled[i] = others[slices.IndexFunc(others, func(o player) bool { return o.name == p.name })]
	}
	g.random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if diff := cmp.Diff(d.bytes(t), g.decide(t, shuffled).bytes(t)); diff != "" {
		t.Errorf("the decisions differ by order (-want +got):\n%s", diff)
	}
}

// auditChangesNothing: decisions do not change without the audited policies.
func (g *game) auditChangesNothing(t *testing.T, d decided) {
	enforced := slices.DeleteFunc(slices.Clone(g.players), func(p player) bool { return p.audited })
	if len(enforced) == len(g.players) {
		return
	}
	options := []cmp.Option{
		cmpopts.IgnoreFields(Scaling{}, "ID", "Digest", "CountsJobs", "Audit"), cmpopts.IgnoreFields(Template{}, "ID", "Digest", "Audit"),
		cmpopts.IgnoreFields(Update{}, "ID", "Digest", "Audit"), cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(g.decide(t, enforced), d, options...); diff != "" {
		t.Errorf("audited policies change decisions (-without +with):\n%s", diff)
	}
}
