// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package review predicts what a change of definitions and policies would do before it is merged: to pools, their limits,
// their pods, their jobs and their cost. It is pure: it compares two compiled sides, with optional prices, recorded
// decisions and the state of the cluster, and returns one Result, from which all reports are rendered.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// Input contains everything that a review depends on.
type Input struct {
	// Base is the current state, and Head the proposed one.
	Base, Head Side
	Moment
	// Namespace of the PoolSource that applies the definitions; empty if unknown.
	Namespace string
	// ManySources is true if several PoolSources apply the definitions, each into its own namespace.
	ManySources bool
	// Records of decisions, see ReadRecords; nil unless requested. Unread is the number of decisions that could not be read.
	Records []Record
	Unread  int
	// Live contains the pools in the cluster by NAMESPACE/NAME; nil unless requested. A pool without an entry does not exist
	// in the cluster.
	Live map[string]*v1alpha1.RunnerPool
	// LiveNamespace is the namespace in which pools without a namespace were looked up.
	LiveNamespace string
	// Refused contains the errors with which the cluster refused objects of the head in a dry run.
	Refused []v1alpha1.Diagnostic
	// Diff requests a unified diff of the objects.
	Diff bool
}

// Side is one of the two compared sides: compiled definitions, and the policies that apply to its pools.
type Side struct {
	// Name of the revision or folder.
	Name string
	// Objects have their namespaces filled in. They include the positions of fields if they were compiled with
	// compile.Options.Positions.
	Objects []compile.Object
	// Policies to evaluate: the policies that are declared with the pools, and the policies of --policy.
	Policies []Policy
	// Prices, see ReadPrices; nil if there are none. Unpriced is true if they cannot be read.
	Prices   *Prices
	Unpriced bool
	// Diagnostics are the reasons why the side cannot be applied. If there are any, the other fields are not used.
	Diagnostics []v1alpha1.Diagnostic
}

// Policy is a loaded policy with the place of its declaration.
type Policy struct {
	*policy.Policy
	// At is where the policy is declared: the place of its object, or its first file.
	At Place
	// Locate returns the place of a line of one of the modules, or an empty Place if the line is not in a file.
	Locate func(module string, line int) Place
}

// Compare reviews a change. The guard of the context limits each evaluation of a policy, see policy.WithGuard. Failures of
// policies are part of the result. Compare returns an error if an object is not valid for its kind.
func Compare(ctx context.Context, in Input) (*Result, error) {
	base, err := open(&in.Base, &in)
	head, err2 := open(&in.Head, &in)
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	r := &Result{APIVersion: APIVersion, Kind: Kind, Verdict: Allowed, Compared: Compared{base.revision(), head.revision(), in.utc()}}
	if len(in.Head.Diagnostics) > 0 {
		return r.broken(), nil
	}
	r.Head.Diagnostics = append(r.Head.Diagnostics, in.Refused...)
	if in.Diff && r.Comparable() {
		r.Diff = diffObjects(&in.Base, &in.Head)
	}
	c := &comparison{ctx: ctx, in: &in, base: base, head: head, result: r, jobs: recordedJobs(in.Records)}
	c.run()
	return r, nil
}

// comparison is a review in progress.
type comparison struct {
	ctx        context.Context
	in         *Input
	base, head *side
	result     *Result
	pairs      []*pair
	jobs       map[string][]jobsAt // recorded numbers of jobs by pool
	unsearched int                 // pools whose schedules change too often to find all differences within a year
}

// pair is a pool on both sides. base or head is nil if that side does not have the pool.
type pair struct {
	c          *comparison
	base, head *pool
	before     *judgement
	after      *judgement
	// fields are the fields in which the sides differ; nil except while they are compared.
	fields *differences
	// rollout describes how a changed template rolls out, even if policies deny the template.
	rollout *Rollout
	// later describes when the limits of the sides begin to differ, if they are equal now.
	later string
	// formerDenied is true if the head's policies also deny the base's template.
	formerDenied bool
	shown        Pool
}

// name returns the pool's name at the head, or at the base if it was deleted.
func (p *pair) name() string { return p.either().name() }

func (p *pair) either() *pool { return cmp.Or(p.head, p.base) }

func (c *comparison) run() {
	c.pairs = pairUp(c.base, c.head)
	for _, p := range c.pairs {
		p.c = c
		c.judge(p)
		c.describe(p)
	}
	c.refuseObjects()
	if c.result.Comparable() {
		c.comparePolicies()
		c.compareConnections()
		c.findOverlaps()
		c.replay()
	}
	say(&c.result.Notes, !c.result.Comparable() && len(c.in.Records) > 0, "Recorded decisions weren't evaluated, because the base's policies are unknown.")
	c.price()
	c.look()
	c.summarize()
	c.prune()
	c.result.Worst = Worst(c.result)
}

// judge evaluates the policies of each side for a pool. It reuses the base's judgement if nothing relevant differs.
func (c *comparison) judge(p *pair) {
	if p.base != nil {
		p.before = c.base.judge(c.ctx, p.base)
	}
	if p.head == nil {
		return
	}
	if p.base != nil && p.before.holdsFor(c.base, c.head, p) {
		p.after = new(*p.before)
		p.after.pool, c.head.judged = p.head, append(c.head.judged, p.after)
	} else {
		p.head.last = c.lastDecision(p)
		p.after = c.head.judge(c.ctx, p.head)
	}
	if p.after.refused != "" {
		c.refuse(p.head.object, "", p.after.refused)
	}
}

// lastDecision returns the base's limits for a pool, which stay in force while a policy of the head fails. A new pool has no
// last decision, so it gets no runners then. The result is nil if the limits of the base are unknown.
func (c *comparison) lastDecision(p *pair) *policy.Scale {
	switch {
	case !c.result.Comparable():
		return nil
	case p.base == nil || p.base.name() != p.head.name():
		return &policy.Scale{}
	}
	return p.before.limits.Effective
}

// describe fills in the description of a pair for the result.
func (c *comparison) describe(p *pair) {
	s := &p.shown
	s.Namespace, s.Name = p.either().Namespace, p.either().Name
	s.Change = changeOf(p.base, p.head)
	if p.base != nil {
		s.BaseAt, s.Before = p.base.at(), p.before.limits
	}
	if p.head != nil {
		s.HeadAt, s.After = p.head.at(), p.after.limits
	}
	s.Findings = compareFindings(p.before, p.after)
	switch {
	case !c.result.Comparable():
		s.Change = Uncompared
		for i := range s.Findings {
			s.Findings[i].State = Unknown
		}
	case s.Change == Changed:
		c.compareFields(p)
	default:
		s.Classes = classesOf(s.Change, nil)
		p.effects()
	}
	s.LosesJobs = p.base != nil && s.Class() == Replaced && !p.base.Spec.Observes() && !p.base.Spec.IsREST()
}

// compareFields describes the differences between the sides of a pool, and their effects.
func (c *comparison) compareFields(p *pair) {
	s := &p.shown
	keepsRevision := sync.OnceValue(p.keepsRevision)
	p.fields = diff(p.base.object, p.head.object, func(path string) Class { return p.classOf(path, keepsRevision) })
	s.Fields, s.MoreFields = p.fields.fields()
	if p.base.name() != p.head.name() {
		s.Change, s.Former = Renamed, p.base.name()
	} else if p.fields.total == 0 {
		s.Change = Same
	}
	s.Classes = classesOf(s.Change, p.fields.classes)
	if slices.Contains(s.Classes, ReplacesRunners) && s.Change == Changed {
		p.rollout = c.head.rollout(c.ctx, p.head, p.after, revisionOf(p.base), revisionOf(p.head))
		if p.isRefused() {
			p.formerDenied = c.head.denies(c.ctx, p)
		} else {
			s.Rollout = p.rollout
		}
	}
	p.later = c.laterText(p)
	p.effects()
	p.fields = nil // it refers to copies of the objects
	if s.Change == Same && (c.rollsOtherwise(p) || isMoved(p) || p.later != "") {
		s.Change = Moved
	}
}

// refuse adds a diagnostic for an object of the head that cannot be applied. The message is the same as the cluster's.
func (c *comparison) refuse(o *compile.Object, path, message string) {
	c.result.Head.Diagnostics = append(c.result.Head.Diagnostics, o.Diagnostic(path, message))
}

// refuseChange adds a diagnostic for a change that the API server refuses because of a validation rule of the CRD. message
// ends with a remedy, after a colon. The result is the message as sentences for the list of effects.
func (c *comparison) refuseChange(o *compile.Object, path, message string) string {
	c.refuse(o, path, message)
	what, remedy, _ := strings.Cut(message, ": ")
	return fmt.Sprintf("The API server refuses this: %s. %s", what, capital(remedy))
}

// isMoved reports whether the limits or findings of a pool with an unchanged declaration change.
func isMoved(p *pair) bool {
	return !p.before.limits.same(p.after.limits) || slices.ContainsFunc(p.shown.Findings, func(f Finding) bool { return f.State != Still })
}

// rollsOtherwise reports whether a future template of a pool with an unchanged declaration would roll out differently, and
// adds this as an effect.
func (c *comparison) rollsOtherwise(p *pair) bool {
	if p.before.digest == p.after.digest {
		return false
	}
	// Percentages of both rollouts refer to the head's max, because smaller steps that follow from a smaller max are not worth
	// reporting.
	next := p.head.Name + "-next"
	was := c.base.rollout(c.ctx, p.base, p.after, revisionOf(p.base), next).text()
	is := c.head.rollout(c.ctx, p.head, p.after, revisionOf(p.head), next).text()
	say(&p.shown.Effects, was != is, "A new template would roll out differently: %s instead of %s.", is, was)
	return was != is
}

// summarize counts and sorts the pools, leaves out unchanged pools that are not denied, and sets the verdict.
func (c *comparison) summarize() {
	r, s := c.result, &c.result.Summary
	s.Classes = map[Class]int{}
	for _, p := range c.pairs {
		s.count(&p.shown)
		before, after, _ := p.runs()
		p.shown.mostBefore, p.shown.mostAfter = before.most(p.shown.Before), after.most(p.shown.After)
		addMax(&s.MaxBefore, p.shown.mostBefore)
		addMax(&s.MaxAfter, p.shown.mostAfter)
		if p.shown.Change != Same || p.shown.isDenied() {
			r.Pools = append(r.Pools, p.shown)
		}
	}
	slices.SortFunc(r.Pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(r.Head.Diagnostics) > 0:
		r.Verdict = Broken
	case s.Denied > 0:
		r.Verdict = Denied
	case len(c.base.order)+len(c.head.order) == 0:
		r.Warnings = append(r.Warnings, "Neither side declares a pool, so nothing was judged: is this the folder of the definitions?")
	}
	c.notes()
}

// prune warns if the head removes so many pools that a PoolSource would refuse to prune them. A renamed pool counts as
// removed, because the cluster deletes it.
func (c *comparison) prune() {
	removed := slices.DeleteFunc(names(c.base.pools, nil), func(name string) bool { return c.head.pools[name] != nil })
	why := compile.RemovesTooMany(len(c.base.order), removed, len(c.head.order))
	if why == "" {
		return
	}
	why += fmt.Sprintf(". A PoolSource refuses this until the annotation %s names the commit.", v1alpha1.AllowPruneAnnotation)
	if len(c.head.order) == 0 {
		why += " Argo CD's plugin refuses a folder without pools."
	}
	c.result.Warnings = append(c.result.Warnings, why)
}

// count adds a pool to the summary.
func (s *Summary) count(p *Pool) {
	counts := map[Change]*int{Added: &s.Added, Deleted: &s.Deleted, Renamed: &s.Renamed, Changed: &s.Changed, Moved: &s.Moved, Same: &s.Same, Uncompared: &s.Uncompared}
	*counts[p.Change]++
	if class := p.Class(); class != "" {
		s.Classes[class]++
	}
	if p.isDenied() {
		s.Denied++
	}
	if p.has(Deny, New) || p.has(Failure, New) {
		s.NewlyDenied++
	}
	s.Warnings += p.count(Warn, New, Still, Unknown)
}

// isDenied reports whether a policy denies the pool at the head, or fails for it.
func (p *Pool) isDenied() bool { return p.Fails() || p.has(Deny, New, Still, Unknown) }

// reaches lists classes, and the changes of pools that have no class, the most far-reaching first.
var reaches = []string{string(Replaced), string(ReroutesJobs), string(ReplacesRunners), string(Added), string(OtherLimits), string(Settings), string(Moved), string(Same), string(Uncompared)}

// rank returns the position of the pool's change in reaches.
func (p *Pool) rank() int { return slices.Index(reaches, cmp.Or(string(p.Class()), string(p.Change))) }

// notes adds notes about assumptions of the review.
func (c *comparison) notes() {
	usage := slices.ContainsFunc(slices.Concat(c.base.order, c.head.order), func(p *pool) bool { return p.bound.Needs().Usage() })
	say(&c.result.Notes, usage, "Rules that read usage were evaluated for an idle pool in an idle fleet: shared ceilings and fair shares may limit it further.")
	say(&c.result.Notes, c.unsearched > 0, "For %s, schedules change too often to find all times of the year at which limits will differ.",
		wording.Count(c.unsearched, "pool"))
	say(&c.result.Notes, c.base.isPartlyShared || c.head.isPartlyShared,
		"Limits change so often that shared ceilings were evaluated for only a part of the week: in the rest, each pool counts with its own max.")
}
