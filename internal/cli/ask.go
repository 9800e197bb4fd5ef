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

// asker asks a set of policies.
type asker struct {
	set *policy.Set
	translator
	// fleet of the folder, while nothing runs.
	fleet *policy.Fleet
}

func (w *workspace) asker() asker { return w.askerOf(w.set, w.policies) }

func (w *workspace) askerOf(set *policy.Set, policies []*declaredPolicy) asker {
	pools := make([]policy.Pool, len(w.pools))
	for i, p := range w.pools {
		pools[i] = policy.PoolOf(p.RunnerPool)
	}
	return asker{set, translator{policies}, policy.NewFleet(pools...)}
}

// askIdle asks for the limits of an idle pool in an idle fleet.
func (a asker) askIdle(ctx context.Context, pool policy.Pool, at time.Time, zone string) *scalingAnswer {
	bound := a.set.For(pool)
	usage := a.fleet.Usage(pool, bound.Needs())
	return a.scaling(pool.Scale, bound.Scaling(ctx, policy.ScalingInput{Pool: pool, Usage: usage, Now: at.UnixNano(), Zone: zone}))
}

func (a asker) askScaling(ctx context.Context, in policy.ScalingInput) *scalingAnswer {
	return a.scaling(in.Pool.Scale, a.set.For(in.Pool).Scaling(ctx, in))
}

func (a asker) askTemplate(ctx context.Context, in policy.TemplateInput) *templateAnswer {
	return a.template(a.set.For(in.Pool).Template(ctx, in))
}

func (a asker) askUpdate(ctx context.Context, in policy.UpdateInput) *updateAnswer {
	return a.update(a.set.For(in.Pool).Update(ctx, in))
}

// timeOptions say when a question is asked.
type timeOptions struct {
	at, zone string
}

func bindTime(c *cobra.Command) *timeOptions {
	o := &timeOptions{zone: "UTC"}
	o.bind(c, "at", "time of the question, as 2026-07-05T18:00:00Z (default now)", "time zone of the controller, as in the IANA database")
	return o
}

// bind adds the flags, the time by a name.
func (o *timeOptions) bind(c *cobra.Command, at, atHelp, zoneHelp string) {
	check := func(value string) error {
		_, err := parseTime(value)
		return err
	}
	c.Flags().Var(checked{&o.at, "time", check}, at, atHelp)
	c.Flags().Var(checked{&o.zone, "zone", checkZone}, "zone", zoneHelp)
}

// time is the one that was given, or now.
func (o *timeOptions) time() time.Time {
	if at, err := parseTime(o.at); err == nil {
		return at
	}
	return time.Now().Truncate(time.Second)
}

func parseTime(value string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, fmt.Errorf("must be a time as 2026-07-05T18:00:00Z or 2026-07-05T20:00:00+02:00, found %q", value)
	}
	return at, nil
}

func checkZone(value string) error {
	if _, err := time.LoadLocation(value); err != nil || value == "" || value == "Local" {
		return fmt.Errorf("must be a time zone as Europe/Berlin or UTC, found %q", value)
	}
	return nil
}
