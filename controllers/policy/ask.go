// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/metrics"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

const (
	// evaluationLimit is how long one policy may take for one answer. Usual is a tenth of a millisecond.
	evaluationLimit = 100 * time.Millisecond
	// allocationLimit is how many bytes the process may allocate while one policy is asked for
	// longer than allocationLook: a rule that fills the memory does it faster than that limit.
	allocationLimit = 96 << 20
	allocationLook  = 5 * time.Millisecond
)

// Permit asks whether the pods of a revision of a pool's template may run. The answer is
// remembered until the policies that bind the pool, or what it declares, change. An error
// names the field of a template that makes no pod.
func (e *Engine) Permit(ctx context.Context, p *v1alpha1.RunnerPool, revision string, template []byte) (policy.Template, error) {
	facts := policy.PoolOf(p)
	bound := e.For(facts)
	if bound.Digest() == "" {
		return policy.Template{}, nil
	}
	if answer, ok := e.verdict(keyOf(facts), bound, revision); ok {
		return answer, nil
	}
	of := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	of.Spec.Template.Raw = template
	pod, err := podspec.Specimen(of)
	if err != nil {
		return policy.Template{}, fmt.Errorf("building the pod for policies: %w", err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return policy.Template{}, fmt.Errorf("encoding the pod for policies: %w", err)
	}
	var answer policy.Template
	e.ask(ctx, func(ctx context.Context) { answer = bound.Template(ctx, policy.TemplateInput{Pool: facts, Pod: text}) })
	e.keep(keyOf(facts), bound, revision, answer)
	return answer, nil
}

func (e *Engine) verdict(key types.NamespacedName, b *policy.Bound, revision string) (policy.Template, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools[key]; known != nil && known.bound == b {
		answer, ok := known.verdicts[revision]
		return answer, ok
	}
	return policy.Template{}, false
}

// keep remembers an answer; one that a policy failed to give is asked for again.
func (e *Engine) keep(key types.NamespacedName, b *policy.Bound, revision string, answer policy.Template) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.pools[key]
	if known == nil || known.bound != b {
		return
	}
	known.audit[policy.DecisionTemplate] = answer.Audit
	if len(answer.Failures) == 0 {
		known.verdicts[revision] = answer
	}
}

// Update asks how a change may roll out.
func (e *Engine) Update(ctx context.Context, b *policy.Bound, in policy.UpdateInput) policy.Update {
	var answer policy.Update
	e.ask(ctx, func(ctx context.Context) { answer = b.Update(ctx, in) })
	e.note(keyOf(in.Pool), policy.DecisionUpdate, answer.Audit)
	return answer
}

// scaling asks what limits hold.
func (e *Engine) scaling(ctx context.Context, b *policy.Bound, in policy.ScalingInput) policy.Scaling {
	var answer policy.Scaling
	e.ask(ctx, func(ctx context.Context) { answer = b.Scaling(ctx, in) })
	return answer
}

// ask runs an evaluation in its turn, each policy of it within the limits.
func (e *Engine) ask(ctx context.Context, evaluate func(context.Context)) {
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-ctx.Done():
	}
	evaluate(policy.WithGuard(ctx, guard))
}

// guard bounds the evaluation of one policy.
func guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, evaluationLimit)
	before := allocated()
	look := time.AfterFunc(allocationLook, func() { watch(ctx, cancel, before) })
	return ctx, func() {
		look.Stop()
		cancel()
	}
}

// watch ends an evaluation that fills the memory. The process does other things beside it; so
// the limit is generous, and only holds for what takes long.
func watch(ctx context.Context, cancel context.CancelFunc, before uint64) {
	tick := time.NewTicker(allocationLook)
	defer tick.Stop()
	for allocated()-before < allocationLimit {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	cancel()
}

// allocated returns the bytes that the process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
