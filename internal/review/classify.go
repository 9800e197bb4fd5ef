// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"maps"
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
	{"spec.scaleSetName", ReroutesJobs}, {"spec.runnerGroup", ReroutesJobs}, {"spec.runnerLabels", ReroutesJobs}, {"spec.mode", ReroutesJobs}, {"spec.stopPolicy", ReroutesJobs},
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
	if class == ReroutesJobs && isWithin(path, "spec.runnerLabels") && isSame(p.base.Spec.RunnerLabels, p.head.Spec.RunnerLabels) {
		return Settings
	}
	return class
}

// classByTemplate gives fields of the template another class, if runners are made of the same one as before: a default that is spelled out
// replaces none.
func (p *pair) classByTemplate() {
	revision := revisionOf(p.head)
	if revision != revisionOf(p.base) || revision == p.head.Name { // that names none
		return
	}
	for i := range p.shown.Fields {
		if f := &p.shown.Fields[i]; f.Class == ReplacesRunners {
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
	return slices.DeleteFunc(slices.Clone(classes), func(class Class) bool {
		is := p.Change == Renamed && class == Replaced
		return !is && !slices.ContainsFunc(p.Fields, func(f FieldChange) bool { return f.Class == class })
	})
}

// touches says whether a field, or one below it, differs.
func (p *Pool) touches(path string) bool {
	return slices.ContainsFunc(p.Fields, func(f FieldChange) bool { return isWithin(f.Path, path) })
}

// maxTakers bounds how many pools are named that jobs go to.
const maxTakers = 3

func (p *pool) observes() bool { return p.Spec.GetMode() == v1alpha1.Observe }

func (p *pool) isREST() bool { return p.Spec.GetRegistration() == v1alpha1.RegisterREST }

// fate is what becomes of jobs that wait for a pool that goes: a scale set takes them with it.
func (p *pool) fate() string {
	if p.isREST() {
		return "stay queued until other runners take them"
	}
	return "are lost"
}

// goes tells what becomes of a pool as GitHub and the cluster know it.
func (p *pool) goes() string {
	if p.observes() {
		return "It only observes: no runner goes."
	}
	return fmt.Sprintf("Runners without a job end, busy ones finish; jobs that wait for it %s.", p.fate())
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
	p.intake()
	p.template()
	p.cache()
	p.denied()
	if before, after := p.before.limits.Effective, p.after.limits.Effective; before != nil && after != nil { // the numbers stand with the limits
		p.sayIf(after.Max < before.Max, "Jobs that were accepted are served, and others wait beyond the lower max.")
		p.sayIf(after.Max > before.Max && after.Max == v1alpha1.UnboundedMax, "Nothing bounds how many runners there are any more.")
	}
	p.sayIf(p.later != "", "%s", p.later)
}

// isRefused says whether the head's template isn't taken: policies deny it, or can't be asked. Of a base that can't be compared nobody
// knows what went on.
func (p *pair) isRefused() bool {
	return p.shown.has(Deny, New, Still) || p.after.unasked && !p.shown.has(Failure, Unknown)
}

// runs are the pools whose templates there are runners of at either side, nil where there are none, and what is said of a pool that policies
// deny: it goes on with the template that was allowed, if there is one.
func (p *pair) runs() (before, after *pool, says string) {
	if !p.shown.has(Deny, Still, Fixed) {
		before = p.base
	}
	switch {
	case p.head == nil || !p.isRefused():
		return before, p.head, ""
	case (p.base == nil || p.shown.Change == Renamed) && p.after.unasked:
		return before, nil, "Policies can't be asked about its pod: it starts no runners, and takes in no jobs."
	case p.base == nil || p.shown.Change == Renamed:
		return before, nil, "Policies deny its pod: it starts no runners, and takes in no jobs."
	case p.shown.has(Deny, Still):
		return before, nil, ""
	case p.rollout != nil && !p.formerDenied:
		return before, p.base, ""
	case !p.shown.has(Deny, New): // what was decided holds
		return before, p.head, ""
	}
	return before, nil, "Policies deny its pod from now on: runners without a job end, busy ones finish, and it takes in no jobs."
}

// denied tells what becomes of a pool that policies deny.
func (p *pair) denied() {
	_, _, says := p.runs()
	p.sayIf(says != "", "%s", says)
}

// say adds a sentence on what a change does to jobs and runners, if it is so.
func say(effects *[]string, is bool, format string, args ...any) {
	if is {
		*effects = append(*effects, fmt.Sprintf(format, args...))
	}
}

func (p *pair) say(format string, args ...any) { say(&p.shown.Effects, true, format, args...) }

func (p *pair) sayIf(is bool, format string, args ...any) { say(&p.shown.Effects, is, format, args...) }

// refuse tells of a field that differs and may not.
func (p *pair) refuse(is bool, field, message string) {
	if is {
		p.say("%s.", p.c.refuseChange(p.head.object, "spec."+field, message))
	}
}

// renamed tells of a pool that is another one to the cluster.
func (p *pair) renamed() {
	p.say("To the cluster it is another pool: this one is made, and the former is deleted. %s", p.base.goes())
	sameSet := strings.EqualFold(p.base.GetScaleSetName(), p.head.GetScaleSetName()) && strings.EqualFold(p.base.Spec.GetRunnerGroup(), p.head.Spec.GetRunnerGroup())
	p.sayIf(sameSet && !p.base.observes() && !p.head.isREST() && p.base.connectionName() == p.head.connectionName(),
		"Both are the scale set %q: the new one can't hold it until the former is gone (OwnedElsewhere).", p.head.GetScaleSetName())
	p.labels()
}

func (p *pair) identity() {
	p.sayIf(p.shown.touches("spec.connectionRef"), "It moves from %s to %s. %s", p.base.connectionName(), p.head.connectionName(), p.base.goes())
	p.refuse(p.base.Spec.GetRegistration() != p.head.Spec.GetRegistration(), "registration", "registration never changes: make another pool")
	p.refuse(p.base.Spec.GetLifetime() != p.head.Spec.GetLifetime(), "lifetime", "lifetime never changes: make another pool")
}

// labels tells which jobs come here no more and who takes them, and which do from now on and who took them.
func (p *pair) labels() {
	before, after := p.base.GetRunnerLabels(), p.head.GetRunnerLabels()
	lost, gained := without(before, after), without(after, before)
	takers := func(label string) []string { return p.c.head.takers(p.head, label) }
	grouped(lost, takers, func(labels, pools string) {
		fate := "without another pool for them they wait"
		if pools != "" {
			fate = pools + " takes them"
		}
		p.say("Jobs that ask for %s no longer come here: %s.", labels, fate)
	})
	grouped(gained, func(label string) []string { return without(p.c.base.takers(p.base, label), takers(label)) }, func(labels, pools string) {
		come := " may come"
		if pools != "" {
			come = fmt.Sprintf(", which %s took, come", pools)
		}
		p.say("Jobs that ask for %s%s here from now on.", labels, come)
	})
	p.sayIf(len(lost)+len(gained) > 0 && p.head.isREST(), "Runners without a job register anew: labels reach no runner that has registered.")
}

// grouped puts labels together that the same pools have, and those first that none has.
func grouped(labels []string, by func(label string) []string, say func(labels, pools string)) {
	groups := map[string][]string{}
	for _, label := range labels {
		pools := wording.List(by(label), maxTakers)
		groups[pools] = append(groups[pools], label)
	}
	for _, pools := range slices.Sorted(maps.Keys(groups)) {
		say(strings.Join(groups[pools], " or "), pools)
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

// intake tells which jobs it takes in, but for its labels.
func (p *pair) intake() {
	from, to := p.base.Spec.GetRunnerGroup(), p.head.Spec.GetRunnerGroup()
	p.sayIf(!strings.EqualFold(from, to), "It moves from the runner group %q to %q: repositories that may use the new one reach it, those of the former no longer do.", from, to)
	p.sayIf(p.shown.touches("spec.scaleSetName") && len(p.base.Spec.RunnerLabels) > 0 && len(p.head.Spec.RunnerLabels) > 0,
		"The scale set is renamed on GitHub; its labels and jobs stay.")
	p.sayIf(p.shown.touches("spec.demand.webhook"), "Other jobs count that webhooks tell of.")
	was, is := p.base.Spec, p.head.Spec
	if was.GetStopPolicy() != is.GetStopPolicy() {
		p.say("%s", stopEffects[is.GetStopPolicy()])
	}
	p.refuse(p.head.observes() && !p.base.observes(), "mode", "mode never goes back to Observe: set stopPolicy, or make another pool")
	p.sayIf(p.base.observes() && !p.head.observes(), "It acts on what it decides from now on, and takes in jobs.")
}

// stopEffects are what a pool does with a stop policy that it didn't have.
var stopEffects = map[v1alpha1.StopPolicy]string{
	v1alpha1.StopNone:  "It accepts jobs again.",
	v1alpha1.StopHold:  "It accepts no more jobs: they wait until stopPolicy is None. It keeps min and idle runners.",
	v1alpha1.StopDrain: "It accepts no more jobs: they wait until stopPolicy is None. Runners without a job end, busy ones finish.",
}

// rollouts are how runners of a template replace those of another.
var rollouts = map[v1alpha1.UpdateStrategy]string{
	v1alpha1.OnIdle:        "No runner ends for it (OnIdle): each is of the new template from the next job on.",
	v1alpha1.Recreate:      "Runners without a job are ended at once and made anew (Recreate); busy ones finish.",
	v1alpha1.RollingUpdate: "Runners without a job are replaced in steps; busy ones finish.",
}

func (p *pair) template() {
	switch r := p.rollout; {
	case r == nil || p.formerDenied:
	case p.isRefused():
		p.say("Policies deny it, or can't be asked: runners go on with the former template.")
	case r.Hold:
		p.say("Runners of the new template are held: %s.", strings.TrimSuffix(strings.Join(r.Reasons, "; "), "."))
	default:
		p.say("%s", rollouts[r.Strategy])
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

// floor is how many runners there are without any job.
func floor(s policy.Scale) int32 { return min(s.Max, max(s.Min, s.Idle)) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
