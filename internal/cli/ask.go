// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
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

// asker evaluates a set of policies.
type asker struct {
	set *policy.Set
	translator
	// fleet contains the usage of the folder's pools while all of them are idle.
	fleet *policy.Fleet
}

// askerOf returns an asker for loaded policies. It returns a diagnostic for each policy that is
// declared twice.
func (w *workspace) askerOf(policies []*declaredPolicy) (_ asker, diagnostics []v1alpha1.Diagnostic) {
	first := map[string]*declaredPolicy{}
	var loaded []*policy.Policy
	for _, p := range policies {
		other, taken := first[p.source.Ref()]
		switch {
		case p.testsOnly:
		case taken:
			d := diagnosticAt(p.origin, fmt.Sprintf("%s is declared twice, here and in %s", p.source.Ref(), other.origin))
			diagnostics = append(diagnostics, d)
		default:
			first[p.source.Ref()] = p
			loaded = append(loaded, p.loaded)
		}
	}
	pools := converted(w.pools, func(p declaredPool) policy.Pool { return policy.PoolOf(p.RunnerPool) })
	return asker{policy.NewSet(loaded...), translator{policies}, policy.NewFleet(pools...)}, diagnostics
}

// ask evaluates one decision and stores the answer in to. It returns an error if the pod for a
// template decision cannot be built.
func (a asker) ask(ctx context.Context, decision string, q *questions, to *answers) error {
	switch decision {
	case policy.DecisionScaling:
		to.Scaling = a.limits(ctx, q.scaling)
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

// limits evaluates which limits apply to a pool.
func (a asker) limits(ctx context.Context, in policy.ScalingInput) scalingAnswer {
	return a.scaling(in.Pool.Scale, a.set.For(in.Pool).Scaling(ctx, in))
}

// idleInput returns the scaling input for a pool without jobs and runners, in a fleet whose other
// pools are idle.
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

// bind adds the flags to a command. at is the name of the flag for the time.
func (o *timeOptions) bind(c *cobra.Command, at, atHelp, zoneHelp string) {
	c.Flags().Func(at, atHelp, func(value string) (err error) {
		o.at, err = parseTime(value)
		return err
	})
	c.Flags().Var(checkedValue{&o.zone, "zone", checkZone}, "zone", zoneHelp)
}

// time returns the time of the flag. Without the flag, it returns the time of the first call.
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
