// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/policy"
)

// decisions lists the decisions that policies make.
var decisions = []string{policy.DecisionScaling, policy.DecisionTemplate, policy.DecisionUpdate}

// questions holds the policy inputs for the decisions on a pool.
type questions struct {
	scaling  policy.ScalingInput
	template policy.TemplateInput
	update   policy.UpdateInput
	// err is set if the pool's pod cannot be built, so that there is no template input.
	err error
}

// poolAndTime returns the pool, the time and the time zone of a decision's input.
func (q *questions) poolAndTime(decision string) (pool policy.Pool, now int64, zone string) {
	switch decision {
	case policy.DecisionScaling:
		return q.scaling.Pool, q.scaling.Now, q.scaling.Zone
	case policy.DecisionUpdate:
		return q.update.Pool, q.update.Now, q.update.Zone
	}
	return q.template.Pool, 0, ""
}

// asker evaluates a set of policies.
type asker struct {
	set *policy.Set
	translator
	// fleet is the usage of the folder's pools when all of them are idle.
	fleet *policy.Fleet
}

func (w *workspace) asker() asker { return w.askerOf(w.set, w.policies) }

func (w *workspace) askerOf(set *policy.Set, policies []*declaredPolicy) asker {
	pools := converted(w.pools, func(p declaredPool) policy.Pool { return policy.PoolOf(p.RunnerPool) })
	return asker{set, translator{policies}, policy.NewFleet(pools...)}
}

// ask evaluates one decision and stores the answer in to.
func (a asker) ask(ctx context.Context, decision string, q *questions, to *answers) error {
	switch decision {
	case policy.DecisionScaling:
		to.Scaling = a.scaling(q.scaling.Pool.Scale, a.set.For(q.scaling.Pool).Scaling(ctx, q.scaling))
	case policy.DecisionUpdate:
		to.Update = a.update(a.set.For(q.update.Pool).Update(ctx, q.update))
	default:
		if q.err != nil {
			return q.err
		}
		to.Template = a.template(a.set.For(q.template.Pool).Template(ctx, q.template))
	}
	return nil
}

// idleInput returns the scaling input for a pool without runners, while all other pools are idle.
func (a asker) idleInput(pool policy.Pool, at time.Time, zone string) policy.ScalingInput {
	return policy.ScalingInput{Pool: pool, Usage: a.fleet.Usage(pool, a.set.For(pool).Needs()), Now: at.UnixNano(), Zone: zone}
}

// timeOptions are the flags for the time and the time zone of a policy input.
type timeOptions struct {
	at   time.Time
	zone string
}

func bindTime(c *cobra.Command) *timeOptions {
	o := &timeOptions{zone: "UTC"}
	o.bind(c, "at", "`time` at which policies decide, such as 2026-07-05T18:00:00Z (default now)", "time zone of the controller, by its name in the IANA database")
	return o
}

// bind adds the flags. The argument at is the name of the flag for the time.
func (o *timeOptions) bind(c *cobra.Command, at, atHelp, zoneHelp string) {
	c.Flags().Func(at, atHelp, func(value string) (err error) {
		o.at, err = parseTime(value)
		return err
	})
	c.Flags().Var(checkedValue{&o.zone, "zone", checkZone}, "zone", zoneHelp)
}

// time returns the time of the flag, or else the time of the first call.
func (o *timeOptions) time() time.Time {
	if o.at.IsZero() {
		o.at = time.Now().Truncate(time.Second)
	}
	return o.at
}

func parseTime(value string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, fmt.Errorf("must be a time such as 2026-07-05T18:00:00Z or 2026-07-05T20:00:00+02:00, found %q", value)
	}
	return at, nil
}

func checkZone(value string) error {
	if _, err := time.LoadLocation(value); err != nil || value == "" || value == "Local" {
		return fmt.Errorf("must be a time zone such as Europe/Berlin or UTC, found %q", value)
	}
	return nil
}
