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

// maxDiffering is the maximum number of fields that Live.Differs names.
const maxDiffering = 10

// look adds the state of the pools in the cluster.
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
		fields, _ := diff(specOf(p.base.RunnerPool), specOf(runs), poolClasses.of).fields()
		for _, f := range fields {
			l.Differs = append(l.Differs, f.Path)
		}
		l.Differs = l.Differs[:min(len(l.Differs), maxDiffering)]
	}
	l.judge(p)
	return l
}

// specOf returns a pool's spec as it is encoded from the Go types, so that both specs have
// the same form when they are compared.
func specOf(p *v1alpha1.RunnerPool) *compile.Object {
	spec, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Spec) // the spec was decoded from such a map
	return &compile.Object{Manifest: unstructured.Unstructured{Object: map[string]any{"spec": spec}}}
}

// judge adds sentences about how the change affects the pool in the cluster.
func (l *Live) judge(p *pair) {
	f := struct {
		Pool                    *pool
		Acts, IsReplaced, Rolls bool
		Jobs, Busy, Free        int
		Waiting, There          int // jobs without a runner, and runners that have not ended
		Most, Over, Beyond      int // the new max, and how many of the runners and of the jobs exceed it
	}{
		Pool: cmp.Or(p.base, p.head), Acts: p.base == nil || !p.base.Spec.Observes(), IsReplaced: p.shown.Class() == Replaced, Rolls: p.shown.rolls(),
		Jobs: int(ptr.Deref(l.Jobs, 0)), Busy: int(l.Runners.Busy), Free: int(l.Runners.Idle + l.Runners.Pending),
	}
	f.Waiting, f.There = f.Jobs-f.Busy, f.Busy+f.Free
	if p.after != nil && p.after.limits.Effective != nil {
		f.Most = int(p.after.limits.Effective.Max)
		f.Over, f.Beyond = f.There-f.Most, f.Jobs-f.Most
	}
	l.Effects = effects.Sentences("live", f)
}

// Agreeing returns a count with its noun, followed by the singular or plural form of a verb.
func Agreeing(n int, noun, one, many string) string {
	if n == 1 {
		many = one
	}
	return wording.Count(n, noun) + " " + many
}
