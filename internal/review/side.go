// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/wording"
)

// side is a Side whose objects were decoded, with its policies bound to its pools.
type side struct {
	*Side
	in          *Input
	pools       map[string]*pool
	order       []*pool // by namespace and name
	connections map[string]*connection
	policies    map[string]*Policy
	declared    map[string]*compile.Object // the policies' objects, by reference
	set         *policy.Set
	judged      []*judgement
	// sharedWork is what is left of the constant with this name, and questions is maxQuestions. isPartlyShared is true if shared
	// ceilings were not evaluated for the whole week.
	sharedWork, questions int
	isPartlyShared        bool
}

// pool is a pool of one side.
type pool struct {
	*v1alpha1.RunnerPool
	object *compile.Object
	plan   *schedule.Plan
	// input is the pool in the form of a policy input, with its declared limits.
	input policy.Pool
	bound *policy.Bound
	// readsClock is true if rules of the pool read the time.
	readsClock bool
	// match decides which jobs the pool matches. asked contains the labels of the pool's runners, all of which a job may
	// request.
	match jobmatch.Pool
	asked []string
	// usage contains the usage that the pool's rules read, for a fleet in which all pools are idle.
	usage policy.Usage
	// last contains the limits of the last decision, which stay in force while a policy fails; nil if unknown.
	last *policy.Scale
}

// connection is a connection of one side.
type connection struct {
	*v1alpha1.GitHubConnection
	object *compile.Object
}

func (p *pool) name() string { return wording.Qualified(p.Namespace, p.Name) }

// connectionName returns the name of the connection that the pool uses.
func (p *pool) connectionName() string {
	ref := p.Spec.ConnectionRef.From(p.Namespace)
	return wording.Qualified(ref.Namespace, ref.Name)
}

// connectionOf returns the connection that a pool uses; an empty one if the side does not declare it.
func (s *side) connectionOf(p *pool) *connection {
	return cmp.Or(s.connections[p.connectionName()], &connection{GitHubConnection: &v1alpha1.GitHubConnection{}})
}

// network returns the network settings that the pool's pods get from its connection, if the side declares that connection.
func (s *side) network(p *pool) podspec.Network { return podspec.NetworkOf(&s.connectionOf(p).Spec) }

// named returns the names of the side's pools that satisfy a condition.
func (s *side) named(is func(*pool) bool) (all []string) {
	for _, p := range s.order {
		if is(p) {
			all = append(all, p.name())
		}
	}
	return all
}

func (p *pool) at() *Place { return new(fieldPlace(p.object, "")) }

// fieldPlace returns the place of a field, or of the closest known enclosing field or object.
func fieldPlace(o *compile.Object, path string) Place { return Place(o.PositionOf(path)) }

// open decodes the objects of a side, and binds its policies to its pools. It treats a side with diagnostics as empty.
func open(s *Side, in *Input) (*side, error) {
	o := &side{
		Side: s, in: in, pools: map[string]*pool{}, connections: map[string]*connection{}, policies: map[string]*Policy{},
		declared: map[string]*compile.Object{}, set: policy.NewSet(), sharedWork: sharedWork, questions: maxQuestions,
	}
	if len(s.Diagnostics) > 0 {
		return o, nil
	}
	for i := range s.Objects {
		if err := o.add(&s.Objects[i]); err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", s.Objects[i].Path, s.Name, err)
		}
	}
	slices.SortFunc(o.order, func(a, b *pool) int { return strings.Compare(a.name(), b.name()) })
	loaded := make([]*policy.Policy, len(s.Policies))
	for i := range s.Policies {
		loaded[i] = s.Policies[i].Policy
		o.policies[loaded[i].Ref()] = &s.Policies[i]
	}
	o.set = policy.NewSet(loaded...)
	fleet := o.idleFleet()
	for _, p := range o.order {
		o.readJobs(p)
		p.bound = o.set.For(p.input)
		p.readsClock = p.bound.Needs().Clock()
		p.usage = fleet.Usage(p.input, p.bound.Needs())
	}
	return o, nil
}

// idleFleet returns the usage of all pools of the side without jobs.
func (s *side) idleFleet() *policy.Fleet {
	inputs := make([]policy.Pool, len(s.order))
	for i, p := range s.order {
		inputs[i] = p.input
	}
	return policy.NewFleet(inputs...)
}

// add decodes one object.
func (s *side) add(o *compile.Object) error {
	switch o.Manifest.GetKind() {
	case "RunnerPool":
		p := &pool{RunnerPool: &v1alpha1.RunnerPool{}, object: o}
		if err := v1alpha1.FromUnstructured(o.Manifest.Object, p.RunnerPool); err != nil {
			return err
		}
		p.plan, _ = schedule.Compile(p.Spec.Scale.Schedules) // the compiler has already reported errors
		p.input = policy.PoolOf(p.RunnerPool)
		s.pools[p.name()] = p
		s.order = append(s.order, p)
	case "GitHubConnection":
		c := &connection{&v1alpha1.GitHubConnection{}, o}
		if err := v1alpha1.FromUnstructured(o.Manifest.Object, c.GitHubConnection); err != nil {
			return err
		}
		s.connections[wording.Qualified(c.Namespace, c.Name)] = c
	case policy.KindRunnerPolicy:
		ref := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: o.Manifest.GetNamespace(), Name: o.Manifest.GetName()}.Ref()
		s.declared[ref] = o
	}
	return nil
}

// revision describes the side for the result.
func (s *side) revision() Revision {
	r := Revision{Name: s.Name, Pools: len(s.order), Policies: names(s.policies, nil), Diagnostics: s.Diagnostics, Unpriced: s.Unpriced}
	h := sha256.New()
	for _, ref := range r.Policies {
		fmt.Fprintln(h, ref, s.policies[ref].Mode(), s.policies[ref].Digest())
	}
	if len(r.Policies) > 0 {
		r.Digest = fmt.Sprintf("sha256:%x", h.Sum(nil))
	}
	return r
}

// locate replaces the position in a module by a place in a file: the place of the rule, or of its policy if the place of
// the rule is unknown.
func (s *side) locate(r v1alpha1.RuleReference) v1alpha1.RuleReference {
	p := s.policies[r.Policy]
	if p == nil {
		return r
	}
	at := cmp.Or(p.Locate(r.File, int(r.Line)), p.At)
	r.File, r.Line = at.File, v1alpha1.LineNumber(at.Line)
	return r
}
