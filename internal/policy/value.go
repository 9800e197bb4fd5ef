// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// value is a part of an input as rules read it, with a hash of what it says. It is never
// changed, and may be shared.
type value struct {
	term *ast.Term
	sum  [sha256.Size]byte
}

// valueOf returns a term with the hash of its text, which has the keys of objects sorted.
func valueOf(term *ast.Term) value {
	text, err := term.AppendText(make([]byte, 0, 1024))
	if err != nil { // never, for what JSON can say
		text = []byte(term.String())
	}
	return value{term: term, sum: sha256.Sum256(text)}
}

// keys are the terms of all names in inputs, made once.
var keys = func() map[string]*ast.Term {
	known := map[string]*ast.Term{}
	seen := map[reflect.Type]bool{}
	for _, t := range inputs {
		addKeys(t, known, seen)
	}
	addKeys(podType, known, seen)
	return known
}()

func addKeys(t reflect.Type, known map[string]*ast.Term, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		addKeys(t.Elem(), known, seen)
	case reflect.Struct:
		if seen[t] {
			return
		}
		seen[t] = true
		for field := range t.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
				known[name] = ast.StringTerm(name)
			}
			addKeys(field.Type, known, seen)
		}
	}
}

// key returns the term of a name.
func key(name string) *ast.Term {
	if known, ok := keys[name]; ok {
		return known
	}
	return ast.StringTerm(name)
}

func property(name string, v *ast.Term) [2]*ast.Term { return [2]*ast.Term{key(name), v} }

func textProperty(name, text string) [2]*ast.Term { return property(name, ast.StringTerm(text)) }

func numberProperty(name string, n int32) [2]*ast.Term {
	return property(name, ast.InternedTerm(int(n)))
}

func mapTerm(m map[string]string) *ast.Term {
	object := ast.NewObject()
	for name, text := range m {
		object.Insert(key(name), ast.StringTerm(text))
	}
	return ast.NewTerm(object)
}

func listTerm(list []string) *ast.Term {
	terms := make([]*ast.Term, len(list))
	for i, text := range list {
		terms[i] = ast.StringTerm(text)
	}
	return ast.ArrayTerm(terms...)
}

// Equal compares with another pool.
func (p *Pool) Equal(o Pool) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && maps.Equal(p.Labels, o.Labels) &&
		maps.Equal(p.Annotations, o.Annotations) && p.Connection == o.Connection && p.ScaleSet == o.ScaleSet &&
		p.RunnerGroup == o.RunnerGroup && slices.Equal(p.RunnerLabels, o.RunnerLabels) &&
		p.Trust == o.Trust && p.Scale == o.Scale && p.Suspended == o.Suspended
}

func poolValue(p Pool) value {
	return valueOf(ast.ObjectTerm(
		textProperty("namespace", p.Namespace),
		textProperty("name", p.Name),
		property("labels", mapTerm(p.Labels)),
		property("annotations", mapTerm(p.Annotations)),
		textProperty("connection", p.Connection),
		textProperty("scaleSet", p.ScaleSet),
		textProperty("runnerGroup", p.RunnerGroup),
		property("runnerLabels", listTerm(p.RunnerLabels)),
		textProperty("trust", p.Trust),
		property("scale", ast.ObjectTerm(
			numberProperty("min", p.Scale.Min),
			numberProperty("max", p.Scale.Max),
			numberProperty("idle", p.Scale.Idle),
		)),
		property("suspended", ast.InternedTerm(p.Suspended)),
	))
}

func runnersTerm(r Runners) *ast.Term {
	return ast.ObjectTerm(
		numberProperty("total", r.Total),
		numberProperty("pending", r.Pending),
		numberProperty("idle", r.Idle),
		numberProperty("busy", r.Busy),
		numberProperty("finished", r.Finished),
		numberProperty("failed", r.Failed),
		numberProperty("outdated", r.Outdated),
	)
}

func usageTerm(u *Usage) *ast.Term {
	labels := ast.InternedEmptyObject
	if len(u.Labels) > 0 {
		object := ast.NewObject()
		for name, group := range u.Labels {
			object.Insert(key(name), groupTerm(&group))
		}
		labels = ast.NewTerm(object)
	}
	return ast.ObjectTerm(
		numberProperty("granted", u.Granted),
		property("all", groupTerm(&u.All)),
		property("namespace", groupTerm(&u.Namespace)),
		property("connection", groupTerm(&u.Connection)),
		property("labels", labels),
	)
}

// noGroup is what a group is that has nobody, or that rules don't read.
var noGroup = makeGroup(&Group{})

func groupTerm(g *Group) *ast.Term {
	if g.Pools == 0 && len(g.Members) == 0 && g.Granted == 0 && g.Claimed == 0 && g.Wanting == 0 && g.Largest == 0 {
		return noGroup
	}
	return makeGroup(g)
}

func makeGroup(g *Group) *ast.Term {
	members := make([]*ast.Term, len(g.Members))
	for i := range g.Members {
		members[i] = g.Members[i].asTerm()
	}
	return ast.ObjectTerm(
		numberProperty("granted", g.Granted),
		numberProperty("pools", g.Pools),
		numberProperty("claimed", g.Claimed),
		numberProperty("wanting", g.Wanting),
		numberProperty("largest", g.Largest),
		property("members", ast.ArrayTerm(members...)),
	)
}

// knownMember is a member as rules read it.
type knownMember struct {
	of   Member
	term *ast.Term
}

// asTerm returns what was made of the member, unless it was changed since.
func (m *Member) asTerm() *ast.Term {
	if m.known != nil && m.known.of.Equal(*m) {
		return m.known.term
	}
	return memberTerm(m)
}

func memberTerm(m *Member) *ast.Term {
	return ast.ObjectTerm(
		textProperty("namespace", m.Namespace),
		textProperty("name", m.Name),
		numberProperty("granted", m.Granted),
		numberProperty("wanted", m.Wanted),
	)
}

func changeTerm(c Change) *ast.Term {
	return ast.ObjectTerm(
		textProperty("from", c.From),
		textProperty("to", c.To),
		textProperty("phase", c.Phase),
		property("since", ast.InternedTerm(int(c.Since))),
		numberProperty("updated", c.Updated),
		textProperty("strategy", c.Strategy),
		numberProperty("maxSurge", c.MaxSurge),
		numberProperty("maxUnavailable", c.MaxUnavailable),
		numberProperty("canary", c.Canary),
	)
}

// question is what a decision is asked about. What only some policies need of it is made when it is asked for.
type question struct {
	decision string
	// namespace that asks.
	namespace string
	// now in nanoseconds since 1970; 0 for a decision without a clock.
	now int64
	// sum is a hash of the input and the policies, id the beginning of it.
	sum [sha256.Size]byte
	id  string
	// input as rules here read it.
	input func() (*ast.Term, error)
	// sets are the fields that the pod sets, of those that rules name.
	sets func() map[string]bool
	// wire is the question as another process reads it.
	wire func() ([]byte, error)
}

// question makes a question of the pool, of what else is in the input and of a hash over that.
func (b *Bound) question(decision string, pool Pool, now int64, h *hash, whole Question, rest func() ([][2]*ast.Term, error)) *question {
	known := b.poolOf(pool)
	h.text(b.digest, decision, string(known.sum[:]))
	sum := h.sum()
	return &question{
		decision: decision, namespace: pool.Namespace, now: now, sum: sum, id: hex.EncodeToString(sum[:8]), // enough to tell decisions apart
		input: sync.OnceValues(func() (*ast.Term, error) {
			properties, err := rest()
			return ast.ObjectTerm(append(properties, property("pool", known.term))...), err
		}),
		sets: func() map[string]bool { return nil },
		wire: sync.OnceValues(func() ([]byte, error) { return json.Marshal(whole) }),
	}
}

// aboutScaling makes the question of corral.scaling.
func (b *Bound) aboutScaling(in *ScalingInput) *question {
	h := newHash()
	h.number(int64(in.Jobs), in.Now)
	h.runners(in.Runners)
	h.usage(&in.Usage)
	h.text(in.Zone)
	return b.question(DecisionScaling, in.Pool, in.Now, h, Question{Scaling: in}, func() ([][2]*ast.Term, error) {
		return [][2]*ast.Term{
			numberProperty("jobs", in.Jobs),
			property("now", ast.InternedTerm(int(in.Now))),
			property("runners", runnersTerm(in.Runners)),
			property("usage", usageTerm(&in.Usage)),
			textProperty("zone", in.Zone),
		}, nil
	})
}

// aboutPod makes the question of corral.template. The pod is read once, if any rule here asks for it.
func (b *Bound) aboutPod(in *TemplateInput) *question {
	pod := sync.OnceValues(func() (parsedPod, error) { return parsePod(in.Pod) })
	sum := sha256.Sum256(in.Pod)
	h := newHash()
	h.text(string(sum[:]))
	q := b.question(DecisionTemplate, in.Pool, 0, h, Question{Template: in}, func() ([][2]*ast.Term, error) {
		parsed, err := pod()
		if err != nil {
			return nil, err
		}
		return [][2]*ast.Term{property("pod", parsed.term)}, nil
	})
	q.sets = func() map[string]bool {
		parsed, _ := pod() // input tells of the error
		return parsed.sets
	}
	return q
}

// aboutUpdate makes the question of corral.update.
func (b *Bound) aboutUpdate(in *UpdateInput) *question {
	h := newHash()
	h.number(int64(in.Jobs), in.Now)
	h.runners(in.Runners)
	h.change(in.Change)
	h.text(in.Zone)
	return b.question(DecisionUpdate, in.Pool, in.Now, h, Question{Update: in}, func() ([][2]*ast.Term, error) {
		return [][2]*ast.Term{
			property("change", changeTerm(in.Change)),
			numberProperty("jobs", in.Jobs),
			property("now", ast.InternedTerm(int(in.Now))),
			property("runners", runnersTerm(in.Runners)),
			textProperty("zone", in.Zone),
		}, nil
	})
}
