// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// fieldClasses are the classes of fields, by their path or the beginning of it; the first that fits holds.
type fieldClasses []struct {
	path  string
	class Class
}

// poolClasses are the classes of a pool's fields, connectionClasses those of a connection's.
var poolClasses, connectionClasses = fieldClasses{
	{"metadata.name", Replaced}, {"metadata.namespace", Replaced}, {"metadata", Settings},
	{"spec.connectionRef", Replaced}, {"spec.registration", Replaced}, {"spec.lifetime", Replaced},
	{"spec.scaleSetName", ReroutesJobs}, {"spec.runnerGroup", ReroutesJobs}, {"spec.labels", ReroutesJobs}, {"spec.mode", ReroutesJobs}, {"spec.suspend", ReroutesJobs},
	{"spec.demand.webhook", ReroutesJobs},
	{"spec.template", ReplacesRunners}, {"spec.containerMode", ReplacesRunners},
	{"spec.scale", OtherLimits}, {"spec.demand", OtherLimits},
}, fieldClasses{{"spec.url", Replaced}, {"spec.allowedNamespaces", ReroutesJobs}}

// of is the class that a field is of.
func (c fieldClasses) of(path string) Class {
	for _, f := range c {
		if isWithin(path, f.path) {
			return f.class
		}
	}
	return Settings
}

// classOf is the class that a field of both has: labels in another order or case route no job otherwise.
func (p *pair) classOf(path string) Class {
	class := poolClasses.of(path)
	if class == ReroutesJobs && isWithin(path, "spec.labels") && isSame(p.base.Spec.Labels, p.head.Spec.Labels) {
		return Settings
	}
	return class
}

// classByTemplate gives fields of the template another class, if runners are made of the same one as before: a default that is spelled out
// replaces none.
func (p *pair) classByTemplate() {
	isTemplate := func(f FieldChange) bool { return f.Class == ReplacesRunners }
	revision := revisionOf(p.head)
	if !slices.ContainsFunc(p.shown.Fields, isTemplate) || revision != revisionOf(p.base) || revision == p.head.Name { // that names none
		return
	}
	for i := range p.shown.Fields {
		if f := &p.shown.Fields[i]; isTemplate(*f) {
			f.Class = Settings
		}
	}
}

// isWithin says whether a path is that of a field, or of one below it.
func isWithin(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// classesOf are the classes of a pool's change, the most far-reaching first.
func classesOf(p *Pool) []Class {
	var classes []Class
	for _, class := range Classes() {
		if p.Change == Renamed && class == Replaced || slices.ContainsFunc(p.Fields, func(f FieldChange) bool { return f.Class == class }) {
			classes = append(classes, class)
		}
	}
	return classes
}

// touches says whether a field, or one below it, differs.
func (p *Pool) touches(path string) bool {
	return slices.ContainsFunc(p.Fields, func(f FieldChange) bool { return isWithin(f.Path, path) })
}

// maxTakers bounds how many pools are named that jobs go to.
const maxTakers = 3

const noRunnerGoes = "It only observed: no runner goes."

func (p *pool) observes() bool { return p.Spec.GetMode() == v1alpha1.Observe }

func (p *pool) isREST() bool { return p.Spec.GetRegistration() == v1alpha1.RegisterREST }

// fate is what becomes of jobs that wait for a pool that goes: a scale set takes them with it.
func (p *pool) fate() string {
	if p.isREST() {
		return "stay queued until other runners take them"
	}
	return "are lost"
}

// deleted tells what becomes of a pool that is no longer declared.
func (p *pair) deleted() {
	switch {
	case p.base.observes():
		p.say(noRunnerGoes)
	case p.base.isREST():
		p.say("Runners without a job end, busy ones finish. Jobs that wait for its labels %s.", p.base.fate())
	default:
		p.say("Runners without a job end, busy ones finish; then its scale set is deleted on GitHub. Jobs that wait for it are lost.")
	}
}

// effects say what a change does to jobs and runners.
func (p *pair) effects() {
	if p.shown.Change == Renamed {
		p.renamed()
		p.denied()
		return
	}
	p.identity()
	p.labels()
	p.group()
	p.intake()
	p.template()
	p.cache()
	p.denied()
	p.numbers()
}

// outcome is what becomes of a pool whose pod policies deny at the head.
type outcome int

const (
	// unaffected is allowed, or denied as before, or by policies that fail: what was decided holds.
	unaffected outcome = iota
	// startsNone never gets runners: no template of it was allowed.
	startsNone
	// endsIdle ends the runners that have no job.
	endsIdle
	// keepsFormer goes on with the template that was allowed.
	keepsFormer
)

// outcome of a pair's pool at the head.
func (p *pair) outcome() outcome {
	switch {
	case p.head == nil, !p.shown.has(Deny, New, Still): // of a base that can't be compared nobody knows what went on
		return unaffected
	case p.base == nil, p.shown.Change == Renamed:
		return startsNone
	case p.shown.has(Deny, Still):
		return unaffected
	case p.rollout != nil && !p.formerDenied:
		return keepsFormer
	}
	return endsIdle
}

// countMost says how many runners there may be at either side: none that policies deny, unless the pool goes on with the template that was
// allowed.
func (p *pair) countMost() {
	s := &p.shown
	if !s.has(Deny, Still, Fixed) {
		s.mostBefore = s.Before.max()
	}
	if outcome := p.outcome(); outcome == keepsFormer || outcome == unaffected && !s.has(Deny, Still) {
		s.mostAfter = s.After.max()
	}
}

// denied tells what becomes of a pool that policies deny.
func (p *pair) denied() {
	switch p.outcome() {
	case startsNone:
		p.say("Policies deny its pod: it starts no runners, and takes in no jobs.")
	case endsIdle:
		p.say("Policies deny its pod from now on: runners without a job end, busy ones finish, and it takes in no jobs.")
	}
}

// say tells something that a change does to jobs and runners.
func (p *pair) say(format string, args ...any) {
	p.shown.Effects = append(p.shown.Effects, fmt.Sprintf(format, args...))
}

func (p *pair) refuse(field, message string) {
	p.say("%s.", p.c.refuseChange(p.head.object, "spec."+field, message))
}

// renamed tells of a pool that is another one to the cluster.
func (p *pair) renamed() {
	goes := noRunnerGoes
	if !p.base.observes() {
		goes = fmt.Sprintf("Jobs that wait for the former %s; busy runners finish.", p.base.fate())
	}
	p.say("To the cluster it is another pool: the former is deleted and this one is made. %s", goes)
	sameSet := strings.EqualFold(p.base.GetScaleSetName(), p.head.GetScaleSetName()) && strings.EqualFold(p.base.Spec.GetRunnerGroup(), p.head.Spec.GetRunnerGroup())
	if sameSet && !p.base.observes() && !p.head.isREST() && p.base.connectionName() == p.head.connectionName() {
		p.say("Both are the scale set %q: the new one can't hold it until the former is gone (OwnedElsewhere).", p.head.GetScaleSetName())
	}
	p.labels()
}

func (p *pair) identity() {
	from, to := p.base.connectionName(), p.head.connectionName()
	switch {
	case !p.shown.touches("spec.connectionRef"):
	case p.base.observes():
		p.say("It only observes, from now on on %s: no runner goes.", to)
	case p.base.isREST():
		p.say("Runners without a job are replaced by ones of %s, busy ones finish: jobs that wait on %s %s.", to, from, p.base.fate())
	default:
		p.say("Its scale set on %s is deleted once its runners are done, and made anew on %s: jobs that wait for it are lost.", from, to)
	}
	if p.base.Spec.GetRegistration() != p.head.Spec.GetRegistration() {
		p.refuse("registration", "registration never changes: make another pool")
	}
	if p.base.Spec.GetLifetime() != p.head.Spec.GetLifetime() {
		p.refuse("lifetime", "lifetime never changes: make another pool")
	}
}

// labels tells which jobs come here no more and who takes them, and which do from now on and who took them.
func (p *pair) labels() {
	before, after := p.base.GetRunnerLabels(), p.head.GetRunnerLabels()
	lost, gained := without(before, after), without(after, before)
	was, is := p.c.base.contenders[p.base.name()], p.c.head.contenders[p.head.name()]
	takers := func(label string) []string { return p.c.head.takers(is, label) }
	grouped(lost, takers, func(labels, pools string) {
		fate := "without another pool for them they wait"
		if pools != "" {
			fate = pools + " takes them"
		}
		p.say("Jobs that ask for %s no longer come here: %s.", labels, fate)
	})
	grouped(gained, func(label string) []string { return without(p.c.base.takers(was, label), takers(label)) }, func(labels, pools string) {
		come := " may come"
		if pools != "" {
			come = fmt.Sprintf(", which %s took, come", pools)
		}
		p.say("Jobs that ask for %s%s here from now on.", labels, come)
	})
	if len(lost)+len(gained) > 0 && p.head.isREST() {
		p.say("Runners without a job register anew: labels reach no runner that has registered.")
	}
}

// grouped puts labels together that the same pools have.
func grouped(labels []string, by func(label string) []string, say func(labels, pools string)) {
	groups, order := map[string]string{}, []string{}
	for _, label := range labels {
		pools := wording.List(by(label), maxTakers)
		if known, ok := groups[pools]; ok {
			label = known + " or " + label
		} else {
			order = append(order, pools)
		}
		groups[pools] = label
	}
	for _, pools := range order {
		say(groups[pools], pools)
	}
}

// without are the texts of a list that aren't in another, whatever their case.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(v string) bool {
		return slices.ContainsFunc(other, func(o string) bool { return strings.EqualFold(v, o) })
	})
}

// isSame says whether two lists have the same texts, in whatever order and case.
func isSame(a, b []string) bool { return len(without(a, b))+len(without(b, a)) == 0 }

func (p *pair) group() {
	if from, to := p.base.Spec.GetRunnerGroup(), p.head.Spec.GetRunnerGroup(); !strings.EqualFold(from, to) {
		p.say("It moves from the runner group %q to %q: repositories that may use the new one reach it, those of the former no longer do.", from, to)
	}
	if p.shown.touches("spec.scaleSetName") && len(p.base.Spec.Labels) > 0 && len(p.head.Spec.Labels) > 0 {
		p.say("The scale set is renamed on GitHub; its labels and jobs stay.")
	}
	if p.shown.touches("spec.demand.webhook") {
		p.say("Other jobs count that webhooks tell of.")
	}
}

// intake tells whether it takes in jobs.
func (p *pair) intake() {
	was, is := p.base.Spec, p.head.Spec
	switch {
	case is.Suspend && !was.Suspend:
		p.say("It takes in no more jobs: they wait until it is resumed. Runners without a job end, busy ones finish.")
	case was.Suspend && !is.Suspend:
		p.say("It takes in jobs again.")
	}
	switch from, to := was.GetMode(), is.GetMode(); {
	case from == to:
	case to == v1alpha1.Observe:
		p.refuse("mode", "mode never goes back to Observe: suspend the pool, or make another")
	default:
		p.say("It acts on what it decides from now on, and takes in jobs.")
	}
}

func (p *pair) template() {
	r := p.rollout
	switch {
	case r == nil:
	case p.formerDenied:
	case p.shown.isDenied():
		p.say("Policies deny it, or can't be asked: runners go on with the former template.")
	case r.Hold:
		p.say("Runners of the new template are held: %s.", strings.TrimSuffix(strings.Join(r.Reasons, "; "), "."))
	case r.Strategy == v1alpha1.OnIdle:
		p.say("No runner ends for it (OnIdle): each is of the new template from the next job on.")
	case r.Strategy == v1alpha1.Recreate:
		p.say("Runners without a job are ended at once and made anew (Recreate); busy ones finish.")
	default:
		p.say("Runners without a job are replaced in steps; busy ones finish.")
	}
}

// cache tells what becomes of the cache's claims.
func (p *pair) cache() {
	const deleted = "Claims of the cache that no runner holds are deleted: the next jobs start "
	switch was, is := p.base.Spec.Cache, p.head.Spec.Cache; {
	case was == nil, p.base.observes():
	case is == nil:
		p.say(deleted + "without.")
	case isUnlike(was, is):
		p.say(deleted + "with empty ones.")
	}
}

// isUnlike says whether claims of one cache are none of another.
func isUnlike(was, is *v1alpha1.CacheSpec) bool {
	before, err := was.Bytes()
	after, err2 := is.Bytes()
	return err != nil || err2 != nil || before != after || was.GetAccessMode() != is.GetAccessMode() ||
		is.StorageClassName != "" && is.StorageClassName != was.StorageClassName
}

// rolls says whether runners are replaced.
func (p *Pool) rolls() bool { return p.Rollout != nil && !p.Rollout.Hold }

// numbers tells what other limits do.
func (p *pair) numbers() {
	before, after := p.before.limits.Effective, p.after.limits.Effective
	if before == nil || after == nil {
		return
	}
	switch {
	case after.Max > before.Max && after.Max == v1alpha1.UnboundedMax:
		p.say("Nothing bounds how many runners there are any more; it was %s.", wording.Max(before.Max))
	case after.Max < before.Max && before.Max == v1alpha1.UnboundedMax:
		p.say("At most %s, where nothing bounded them: jobs that were accepted are served, and wait beyond that.", wording.Count(after.Max, "runner"))
	case after.Max < before.Max:
		p.say("At most %s instead of %s: jobs that were accepted are served, and wait beyond that.", wording.Count(after.Max, "runner"), wording.Max(before.Max))
	case after.Max > before.Max:
		p.say("At most %s instead of %s.", wording.Count(after.Max, "runner"), wording.Max(before.Max))
	case p.later == "" && p.head.Spec.Scale.Numbers().Max != p.base.Spec.Scale.Numbers().Max:
		p.say("The declared max has no effect: %s holds, as before.", wording.Max(after.Max))
	}
	if was, is := floor(*before), floor(*after); was != is {
		p.say("%s without any job instead of %s.", capital(wording.Count(int(is), "runner")), wording.Max(was))
	}
	if p.later != "" {
		p.say("%s", p.later)
	}
}

// floor is how many runners there are without any job.
func floor(s policy.Scale) int32 { return min(s.Max, max(s.Min, s.Idle)) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
