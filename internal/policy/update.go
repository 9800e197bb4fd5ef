// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/rollout"
)

// updateRule is one element of corral.update.rollout. A missing property is nil or has its zero value.
type updateRule struct {
	Hold        bool                    `json:"hold,omitempty"`
	Strategy    v1alpha1.UpdateStrategy `json:"strategy,omitempty"`
	Surge       *int32                  `json:"surge,omitempty"`
	Unavailable *int32                  `json:"unavailable,omitempty"`
	Canary      *int32                  `json:"canary,omitempty"`
	Reason      string                  `json:"reason,omitempty"`
	Until       time.Time               `json:"until,omitzero"`
	Rule        v1alpha1.RuleReference  `json:"rule"`
}

// strictness lists the strategies, least strict first.
var strictness = []v1alpha1.UpdateStrategy{v1alpha1.Recreate, v1alpha1.RollingUpdate, v1alpha1.OnIdle}

// Update decides how a change may roll out.
func (b *Bound) Update(ctx context.Context, in UpdateInput) Update {
	if len(b.policies) == 0 {
		return merge(in.Change, nil)
	}
	q := b.aboutUpdate(in)
	replies := askEach(ctx, b, q, decodeRollout)
	answer := Update{}
	if len(replies.failures) == 0 {
		answer = merge(in.Change, replies.enforced)
		for _, r := range replies.enforced {
			answer.Until = earliest(in.Now, answer.Until, r.Until)
		}
		for _, a := range replies.audited {
			with := merge(in.Change, slices.Concat(replies.enforced, a.elements))
			answer.Audit = append(answer.Audit, answer.changes(with, a.policy.Ref())...)
		}
	}
	answer.ID, answer.Digest, answer.Failures = q.id(), b.digest, replies.failures
	answer.Audit = sortAudit(append(answer.Audit, replies.audit...))
	return answer
}

func decodeRollout(_ *Policy, e *element) updateRule {
	r := updateRule{
		Hold: e.boolean("hold"), Strategy: v1alpha1.UpdateStrategy(e.text("strategy")), Reason: e.reason(), Until: e.until(), Rule: e.rule,
		Surge: e.optional("maxSurge"), Unavailable: e.optional("maxUnavailable"), Canary: e.optional("canary"),
	}
	e.require(!e.has("strategy") || slices.Contains(strictness, r.Strategy), "strategy is RollingUpdate, Recreate or OnIdle, not %q", r.Strategy)
	hasBound := slices.ContainsFunc([]string{"hold", "strategy", "maxSurge", "maxUnavailable", "canary"}, e.has)
	e.require(hasBound, "it must have hold, strategy, maxSurge, maxUnavailable or canary")
	return r
}

// optional reads a number of runners; nil if there is none.
func (e *element) optional(name string) *int32 {
	if !e.has(name) {
		return nil
	}
	n := e.number(name)
	return &n
}

// merge returns the strictest combination of the declared settings and all rules. The order of the rules does not
// matter.
func merge(declared Change, rules []updateRule) Update {
	u := Update{Bounds: rollout.Bounds{
		Strategy: v1alpha1.UpdateStrategy(declared.Strategy),
		MaxSurge: declared.MaxSurge, MaxUnavailable: declared.MaxUnavailable, Canary: declared.Canary,
	}}
	for _, r := range rules {
		u.add(r)
	}
	stuck := u.isStuck(declared)
	for _, r := range rules {
		if r.Hold || u.isBoundBy(r, declared) || stuck && (isZero(r.Surge) || isZero(r.Unavailable)) {
			u.Reasons = append(u.Reasons, UpdateReason{Message: r.Reason, Rule: r.Rule})
		}
	}
	u.Hold = u.Hold || stuck
	slices.SortFunc(u.Reasons, func(a, b UpdateReason) int {
		return cmp.Or(compareRules(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	u.Reasons = slices.Compact(u.Reasons)
	return u
}

// add applies a rule, which can only make the update stricter.
func (u *Update) add(r updateRule) {
	u.Hold = u.Hold || r.Hold
	if slices.Index(strictness, r.Strategy) > slices.Index(strictness, u.Strategy) {
		u.Strategy = r.Strategy
	}
	u.MaxSurge = lower(u.MaxSurge, r.Surge)
	u.MaxUnavailable = lower(u.MaxUnavailable, r.Unavailable)
	if r.Canary != nil && *r.Canary > 0 && (u.Canary == 0 || *r.Canary < u.Canary) {
		u.Canary = *r.Canary
	}
}

// isStuck reports whether an update cannot make a step, because maxSurge and maxUnavailable are both 0. That is the
// case if the strategy is RollingUpdate, which needs one of them, or if rules reduced declared numbers to 0.
func (u *Update) isStuck(declared Change) bool {
	if u.MaxSurge > 0 || u.MaxUnavailable > 0 || u.Strategy == v1alpha1.OnIdle {
		return false
	}
	return u.Strategy == v1alpha1.RollingUpdate || declared.MaxSurge > 0 || declared.MaxUnavailable > 0
}

// lower returns the lower of a number and a rule's number.
func lower(n int32, bound *int32) int32 {
	if bound == nil {
		return n
	}
	return min(n, *bound)
}

func isZero(n *int32) bool { return n != nil && *n == 0 }

// isBoundBy reports whether a rule determines one of the values that differ from the declared ones.
func (u *Update) isBoundBy(r updateRule, declared Change) bool {
	lowered := func(bound *int32, value, was int32) bool { return bound != nil && *bound == value && value != was }
	return r.Strategy == u.Strategy && string(r.Strategy) != declared.Strategy ||
		lowered(r.Surge, u.MaxSurge, declared.MaxSurge) ||
		lowered(r.Unavailable, u.MaxUnavailable, declared.MaxUnavailable) ||
		lowered(r.Canary, u.Canary, declared.Canary)
}

// changes describes how the answer with one more policy differs from this one.
func (u *Update) changes(with Update, policy string) []Audit {
	var changes []string
	if u.Hold != with.Hold {
		changes = append(changes, "the update would be held")
	}
	differ := func(name string, is, would any) {
		if is != would {
			changes = append(changes, fmt.Sprintf("%s would be %v, not %v", name, would, is))
		}
	}
	differ("strategy", u.Strategy, with.Strategy)
	differ("maxSurge", u.MaxSurge, with.MaxSurge)
	differ("maxUnavailable", u.MaxUnavailable, with.MaxUnavailable)
	differ("canary", u.Canary, with.Canary)
	if len(changes) == 0 {
		return nil
	}
	var why []string
	for _, r := range with.Reasons {
		if r.Rule.Policy == policy {
			why = append(why, fmt.Sprintf("%s (%s)", r.Message, rulePlace(r.Rule)))
		}
	}
	return []Audit{{Policy: policy, Message: fmt.Sprintf("%s: %s", strings.Join(changes, ", "), strings.Join(why, "; "))}}
}
