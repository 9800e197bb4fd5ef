// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	_ "embed" // the sentences that describe effects
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// fieldClasses maps the paths of fields to classes. A path also covers all fields below it. The first matching path
// determines the class.
type fieldClasses []struct {
	path  string
	class Class
}

// poolClasses and connectionClasses classify the fields of pools and of connections.
var poolClasses, connectionClasses = fieldClasses{
	{"metadata.name", Replaced}, {"metadata.namespace", Replaced}, {"metadata", Settings},
	{"spec.connectionRef", Replaced}, {"spec.registration", Replaced}, {"spec.lifetime", Replaced},
	{"spec.scaleSetName", ReroutesJobs}, {"spec.runnerGroup", ReroutesJobs}, {"spec.runnerLabels", ReroutesJobs}, {"spec.mode", ReroutesJobs}, {"spec.stopPolicy", ReroutesJobs},
	{"spec.demand.webhook", ReroutesJobs},
	{"spec.template", ReplacesRunners}, {"spec.containerMode", ReplacesRunners},
	{"spec.scale", OtherLimits}, {"spec.demand", OtherLimits},
}, fieldClasses{{"spec.url", Replaced}, {"spec.allowedNamespaces", ReroutesJobs}}

// of returns the class of a field.
func (c fieldClasses) of(path string) Class {
	for _, f := range c {
		if isWithin(path, f.path) {
			return f.class
		}
	}
	return Settings
}

// classOf returns the class of a field that differs between the sides of a pool. Labels that differ only in order or case
// reroute no jobs, and a template that keeps its revision replaces no runners, for example if it only writes out a default.
// The class of such differences is Settings.
func (p *pair) classOf(path string, keepsRevision func() bool) Class {
	class := poolClasses.of(path)
	if class == ReroutesJobs && isWithin(path, "spec.runnerLabels") && isSame(p.base.Spec.RunnerLabels, p.head.Spec.RunnerLabels) ||
		class == ReplacesRunners && keepsRevision() {
		return Settings
	}
	return class
}

// keepsRevision reports whether the pool has the same name and the same revision of the template on both sides.
func (p *pair) keepsRevision() bool {
	revision := revisionOf(p.head)
	return p.base.name() == p.head.name() && revision == revisionOf(p.base) && revision != p.head.Name // revisionOf returns the name if it fails
}

// isWithin reports whether a path is the given field or a field below it.
func isWithin(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// classesOf returns the classes of a pool's change, the most far-reaching first, given the classes of its fields. The classes
// of a renamed or deleted pool always include Replaced.
func classesOf(change Change, fields sets.Set[Class]) []Class {
	return slices.DeleteFunc(slices.Clone(classes), func(class Class) bool {
		isGone := (change == Renamed || change == Deleted) && class == Replaced
		return !isGone && !fields.Has(class)
	})
}

// maxTakers is the maximum number of pools that a sentence names as taking over jobs.
const maxTakers = 3

//go:embed effects.tmpl
var sentences string

// effects renders the sentences that describe the effects of changes.
var effects = &wording.Book{Source: sentences, Functions: template.FuncMap{
	"agreeing": Agreeing, "alike": strings.EqualFold, "unlike": isUnlike, "namespaces": namespaces,
	"audited": isAudited, "format": compile.Format, "money": Money, "most": maxText, "signed": signed,
	"sentence": func(reasons []string) string { return strings.TrimSuffix(strings.Join(reasons, "; "), ".") },
}}

// facts contains the data for the sentences about a pool's change.
type facts struct {
	Change     Change
	Base, Head *pool // nil on a side without the pool
	// Denied describes what happens because policies deny the pool, and Later how limits differ from a later time on. Both are
	// sentences, or empty.
	Denied, Later string

	// From and To are the names of the connections. Touches reports whether a field differs. SharesSet is true if a renamed
	// pool keeps its scale set. These and the following fields are set only if both sides have the pool.
	From, To  string
	Touches   func(path string) bool
	SharesSet bool
	// Lost and Gained are the labels whose jobs the pool no longer serves, or serves from now on.
	Lost, Gained []routed
	// Refused describes immutable fields whose change the API server refuses. NeverObserves describes a change of the mode to
	// Observe, which the API server refuses, too.
	Refused       []string
	NeverObserves string
	// Rollout of the new template; nil if the template does not change, or if policies deny the base's template as well.
	Rollout   *Rollout
	IsRefused bool
	// Before and After are the effective limits; nil if a policy failed.
	Before, After *policy.Scale
}

// effects adds the sentences about what the change of a pool does to jobs and runners.
func (p *pair) effects() {
	f := facts{Change: p.shown.Change, Base: p.base, Head: p.head}
	_, _, f.Denied = p.runs()
	if p.base != nil && p.head != nil {
		p.compare(&f)
	}
	p.shown.Effects = append(p.shown.Effects, effects.Sentences("effects", f)...)
}

// compare fills in the facts about a pool that both sides have.
func (p *pair) compare(f *facts) {
	f.From, f.To, f.Touches = p.base.connectionName(), p.head.connectionName(), p.fields.touches
	before, after := p.base.GetRunnerLabels(), p.head.GetRunnerLabels()
	takers := func(label string) []string { return p.c.head.takers(p.head, label) }
	f.Lost = grouped(without(before, after), takers)
	f.Gained = grouped(without(after, before), func(label string) []string { return without(p.c.base.takers(p.base, label), takers(label)) })
	if p.shown.Change == Renamed {
		f.SharesSet = strings.EqualFold(p.base.GetScaleSetName(), p.head.GetScaleSetName()) && strings.EqualFold(p.base.Spec.GetRunnerGroup(), p.head.Spec.GetRunnerGroup()) &&
			!p.base.Spec.Observes() && !p.head.Spec.IsREST() && f.From == f.To
		return
	}
	if p.fields.touches("spec.registration") {
		f.Refused = append(f.Refused, p.refuse("registration", "registration is immutable: create another pool"))
	}
	if p.fields.touches("spec.lifetime") {
		f.Refused = append(f.Refused, p.refuse("lifetime", "lifetime is immutable: create another pool"))
	}
	if p.head.Spec.Observes() && !p.base.Spec.Observes() {
		f.NeverObserves = p.refuse("mode", "mode cannot change back to Observe: set stopPolicy, or create another pool")
	}
	f.IsRefused = p.isRefused()
	if !p.formerDenied {
		f.Rollout = p.rollout
	}
	f.Before, f.After, f.Later = p.before.limits.Effective, p.after.limits.Effective, p.later
}

// refuse adds a diagnostic for a change that the API server refuses, and returns it as a sentence.
func (p *pair) refuse(field, message string) string {
	return p.c.refuseChange(p.head.object, ".spec."+field, message)
}

// isRefused reports whether the head's template is not used, because policies deny it or a policy fails. If the base cannot
// be compared, it returns false, because the previous state is unknown.
func (p *pair) isRefused() bool {
	return p.shown.has(Deny, New, Still) || p.after.unasked && !p.shown.has(Failure, Unknown)
}

// runs returns the pools whose templates the runners use before and after the change; nil if there are no runners. If
// policies deny the pool, effect is a sentence about what happens then. A pool that has a previously allowed template keeps
// using it.
func (p *pair) runs() (before, after *pool, effect string) {
	if !p.shown.has(Deny, Still, Fixed) {
		before = p.base
	}
	switch {
	case p.head == nil || !p.isRefused():
		return before, p.head, ""
	case p.base == nil || p.shown.Change == Renamed:
		do := map[bool]string{true: "can't be evaluated for", false: "deny"}[p.after.unasked]
		return before, nil, "Policies " + do + " its pod: it starts no runners and accepts no jobs."
	case p.shown.has(Deny, Still):
		return before, nil, ""
	case p.rollout != nil && !p.formerDenied:
		return before, p.base, ""
	case !p.shown.has(Deny, New): // a policy fails, so the previous decision stays in force
		return before, p.head, ""
	}
	return before, nil, "Policies deny its pod from now on: runners without a job stop, busy runners finish their job, and it accepts no jobs."
}

// say adds a formatted sentence if the condition holds.
func say(effects *[]string, condition bool, format string, args ...any) {
	if condition {
		*effects = append(*effects, fmt.Sprintf(format, args...))
	}
}

// routed is a group of labels, with the other pools that serve jobs with any of these labels. Both are formatted as text.
type routed struct{ Labels, Pools string }

// grouped groups labels by the pools that serve them. The labels that no pool serves come first.
func grouped(labels []string, by func(label string) []string) (all []routed) {
	groups := map[string][]string{}
	for _, label := range labels {
		pools := wording.List(by(label), maxTakers)
		groups[pools] = append(groups[pools], label)
	}
	for _, pools := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, routed{strings.Join(groups[pools], " or "), pools})
	}
	return all
}

// without returns the texts of a list that are not in another list, ignoring case.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(v string) bool {
		return slices.ContainsFunc(other, func(o string) bool { return strings.EqualFold(v, o) })
	})
}

// isSame reports whether two lists contain the same texts, ignoring order and case.
func isSame(a, b []string) bool { return len(without(a, b))+len(without(b, a)) == 0 }

// isUnlike reports whether Corral cannot use the claims of the previous cache for the new one.
func isUnlike(was, is *v1alpha1.CacheSpec) bool {
	before, err := was.Bytes()
	after, err2 := is.Bytes()
	return err != nil || err2 != nil || before != after || was.GetAccessMode() != is.GetAccessMode() ||
		is.StorageClassName != "" && is.StorageClassName != was.StorageClassName
}

// rolls reports whether the change replaces runners, because a new template rolls out and the rollout is not on hold.
func (p *Pool) rolls() bool { return p.Rollout != nil && !p.Rollout.Hold }

// floor returns the number of runners of a pool that has no jobs.
func floor(s policy.Scale) int32 { return min(s.Max, max(s.Min, s.Idle)) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
