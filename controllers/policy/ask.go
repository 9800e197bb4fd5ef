// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

const (
	// cpuLimit is how much CPU time the process may use while one policy is asked. Usual is a tenth of a
	// millisecond. It is not the time by the clock that counts: a busy machine is no fault of a policy.
	cpuLimit = 100 * time.Millisecond
	// wallLimit bounds the time by the clock nevertheless.
	wallLimit = 2 * time.Second
	// allocationLimit is how many bytes the process may allocate while one policy is asked: a rule
	// that fills the memory does it faster than the other limits end it.
	allocationLimit = 96 << 20
	// look is the time between two looks at what an evaluation uses; most end before the first.
	look = 5 * time.Millisecond
)

// Permit asks whether the pods of a revision of a pool's template may run. The answer is
// remembered until the policies that bind the pool, or what it declares, change. An error
// names the field of a template that makes no pod.
func (e *Engine) Permit(ctx context.Context, p *v1alpha1.RunnerPool, revision string, template []byte) (policy.Template, error) {
	facts := policy.PoolOf(p)
	if e.Cache != nil {
		if known, err := e.Knows(ctx, e.Cache, facts); err != nil || !known {
			return policy.Template{Failures: []policy.Failure{Unloaded}}, err
		}
	}
	bound := e.For(facts)
	if bound.Digest() == "" {
		return policy.Template{}, nil
	}
	if answer, ok := e.verdict(keyOf(facts), bound, revision); ok {
		return answer, nil
	}
	pod, err := podspec.SpecimenOf(p.Namespace, p.Name, revision, template)
	if err != nil {
		return policy.Template{}, fmt.Errorf("building the pod for policies: %w", err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return policy.Template{}, fmt.Errorf("encoding the pod for policies: %w", err)
	}
	var answer policy.Template
	in := policy.TemplateInput{Pool: facts, Pod: text}
	took := e.ask(ctx, bound, policy.DecisionTemplate, func(ctx context.Context) { answer = bound.Template(ctx, in) })
	e.keep(keyOf(facts), bound, revision, answer)
	e.tellTemplate(bound, revision, in, &answer, took)
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
	took := e.ask(ctx, b, policy.DecisionUpdate, func(ctx context.Context) { answer = b.Update(ctx, in) })
	e.note(keyOf(in.Pool), policy.DecisionUpdate, answer.Audit)
	e.tellUpdate(b, in, &answer, took)
	return answer
}

// scaling asks what limits hold, and says how long that took.
func (e *Engine) scaling(ctx context.Context, b *policy.Bound, in policy.ScalingInput) (answer policy.Scaling, took time.Duration) {
	took = e.ask(ctx, b, policy.DecisionScaling, func(ctx context.Context) { answer = b.Scaling(ctx, in) })
	return answer, took
}

// ask runs an evaluation in its turn, each policy of it within the limits, and says how long
// it took.
func (e *Engine) ask(ctx context.Context, b *policy.Bound, decision string, evaluate func(context.Context)) time.Duration {
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-ctx.Done():
	}
	began := e.Now()
	evaluate(policy.WithGuard(ctx, guard))
	took := e.Now().Sub(began)
	observe(b, decision, took)
	return took
}

// guard bounds the evaluation of one policy.
func guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wallLimit)
	watching := time.AfterFunc(look, func() { watch(ctx, cancel) })
	return ctx, func() {
		watching.Stop()
		cancel()
	}
}

// watch ends an evaluation that uses too much. The process does other things beside it; so
// the limits are generous, and only hold for what takes long.
func watch(ctx context.Context, cancel context.CancelFunc) {
	bytes, used := allocated(), cpuUsed()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for allocated()-bytes < allocationLimit && cpuUsed()-used < cpuLimit {
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
