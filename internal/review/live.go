// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/wording"
)

// maxDiffering bounds how many fields are named in which the cluster isn't the base.
const maxDiffering = 10

// look adds what runs now.
func (c *comparison) look() {
	if c.in.Live == nil {
		return
	}
	for _, p := range c.pairs {
		asked := cmp.Or(p.base, p.head)
		p.shown.Live = liveOf(p, c.in.Live[asked.name()])
		p.shown.Live.Namespace = cmp.Or(asked.Namespace, c.in.LiveNamespace)
	}
}

func liveOf(p *pair, runs *v1alpha1.RunnerPool) *Live {
	if runs == nil {
		return &Live{Absent: true}
	}
	l := &Live{Jobs: explain.Known(&runs.Status), Runners: runs.Status.Runners, Decision: runs.Status.Decision}
	if p.base != nil {
		for _, f := range diff(specOf(p.base.RunnerPool), specOf(runs), poolClasses.of) {
			l.Differs = append(l.Differs, f.Path)
		}
		l.Differs = l.Differs[:min(len(l.Differs), maxDiffering)]
	}
	l.judge(p)
	return l
}

// specOf is a pool's spec, written the way that Go writes it.
func specOf(p *v1alpha1.RunnerPool) *compile.Object {
	spec, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Spec) // it was read from such
	return &compile.Object{Manifest: unstructured.Unstructured{Object: map[string]any{"spec": spec}}}
}

// judge tells what the change does to what runs.
func (l *Live) judge(p *pair) {
	jobs, free, busy := ptr.Deref(l.Jobs, 0), are(int(l.Runners.Idle+l.Runners.Pending)), are(int(l.Runners.Busy))
	isReplaced := p.shown.Class() == Replaced
	if p.base == nil || !p.base.observes() {
		waits := int(jobs - l.Runners.Busy)
		say(&l.Effects, isReplaced && waits > 0, "%s for it now without a runner: such jobs %s.", Agreeing(waits, "job", "waits", "wait"), cmp.Or(p.base, p.head).fate())
		say(&l.Effects, isReplaced, "%s without a job: ended. %s busy: each finishes its job.", free, busy)
		say(&l.Effects, !isReplaced && p.shown.rolls(), "%s without a job: replaced. %s busy: each finishes its job.", free, busy)
	}
	if p.after == nil || p.after.limits.Effective == nil {
		return
	}
	most := p.after.limits.Effective.Max
	over := l.Runners.Busy + l.Runners.Idle + l.Runners.Pending - most
	say(&l.Effects, over > 0, "%s there now, %d more than the new max of %d: those without a job end, the others finish.", are(int(over+most)), over, most)
	say(&l.Effects, jobs > most, "%s now: beyond %d at once they wait.", wording.Count(jobs, "job"), most)
}

func are(n int) string { return Agreeing(n, "runner", "is", "are") }

// Agreeing counts something, with a verb for one and for several.
func Agreeing(n int, noun, one, many string) string {
	if n == 1 {
		many = one
	}
	return wording.Count(n, noun) + " " + many
}
