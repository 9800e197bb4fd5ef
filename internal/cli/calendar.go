// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/wording"
)

// calendarReport is the output of calendar.
type calendarReport struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Pools in the order of their declarations.
	Pools []calendarPool `json:"pools"`
}

// calendarPool lists the consecutive periods of a pool.
type calendarPool struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	report.Place
	// Zone is the time zone of the times in Periods.
	Zone    string   `json:"zone"`
	Periods []period `json:"periods"`
	// Truncated is true if later periods were left out.
	Truncated bool `json:"truncated,omitempty"`
}

// Title returns the pool's qualified name.
func (p calendarPool) Title() string { return wording.Qualified(p.Namespace, p.Name) }

// period is a time span in which the numbers and their reasons do not change. It ends where the next period begins.
type period struct {
	From string `json:"from"`
	// Scale contains the min, idle and max that apply after policies.
	policy.Scale
	// Schedules lists the active schedules.
	Schedules []string `json:"schedules,omitempty"`
	// Policies describes the numbers that policies change.
	Policies []string `json:"policies,omitempty"`
	// Failures of policies. If there are any, there is no decision, and Scale contains the numbers before policies.
	Failures []policy.Failure `json:"failures,omitempty"`

	from time.Time
}

// Start formats the beginning of the period.
func (p period) Start() string { return p.from.Format("Mon 2006-01-02 15:04 MST") }

// equals reports whether two periods have the same numbers, schedules, policies and failures.
func (p *period) equals(other *period) bool {
	return p.Scale == other.Scale && slices.Equal(p.Schedules, other.Schedules) && slices.Equal(p.Policies, other.Policies) &&
		slices.Equal(p.Failures, other.Failures)
}

const (
	// maxDays is the largest number of days that a calendar covers.
	maxDays = 3 * 366
	// maxSteps limits the number of policy evaluations for each pool, because a policy may request an evaluation every second.
	maxSteps = 20_000
)

// calendarOptions are the flags of calendar.
type calendarOptions struct {
	*timeOptions
	pools      []string
	days, most int
}

func bindCalendar(c *cobra.Command) *calendarOptions {
	o := &calendarOptions{timeOptions: &timeOptions{}, days: 7, most: 100}
	o.bind(c, "from", "start `time` of the calendar, such as 2026-07-05T18:00:00Z (default now)",
		"time zone for policies and for the printed times (default: UTC for policies, and the time zone of a pool's schedules for its printed times)")
	c.Flags().IntVar(&o.days, "days", o.days, fmt.Sprintf("days that the calendar covers, 1 to %d", maxDays))
	c.Flags().IntVar(&o.most, "most", o.most, "maximum number of periods printed for each pool")
	c.Flags().StringArrayVar(&o.pools, "pool", nil, "print only this pool, NAME or NAMESPACE/NAME; may be repeated (default: all)")
	return o
}

func newCalendar() *cobra.Command {
	c := &cobra.Command{
		Use:   "calendar [DIR]",
		Short: "Print which min, idle and max apply over time",
		Long: `Print which min, idle and max apply over time to the pools defined in DIR (default: the current
folder) and below. The command applies the schedules of each pool, then the policies in DIR and
the policies of --policy.

The command evaluates policies for an idle pool at each schedule boundary and when an answer
expires. If a rule depends on the time but does not set until in its answer, the answer may change
in between.

Times follow the local clock of a zone. If a time occurs twice because clocks go back, the first
occurrence counts. If a time does not exist because clocks go forward, the moment of the change
counts. The exit code is 2 if a policy fails.`,
		Example: "  corral calendar\n  corral calendar --pool linux --days 365 -o json\n" +
			"  corral calendar --from 2026-12-20T00:00:00Z --days 21 --zone Europe/Berlin --policy ../guard",
	}
	in := bindInputs(c, "text", "json", "yaml")
	options := bindCalendar(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if options.days < 1 || options.days > maxDays || options.most < 1 {
			return fmt.Errorf("--days must be 1 to %d and --most at least 1, found %d and %d", maxDays, options.days, options.most)
		}
		w, err := in.open(c.Context(), args)
		if err != nil {
			return err
		}
		if len(w.Diagnostics) > 0 {
			return refuse(c, w.Diagnostics)
		}
		r, err := options.report(c.Context(), w)
		if err != nil {
			return err
		}
		return errors.Join(in.output.write(c.OutOrStdout(), r), r.err())
	}
	return c
}

// report returns the calendar of each selected pool.
func (o *calendarOptions) report(ctx context.Context, w *workspace) (*calendarReport, error) {
	for _, name := range o.pools {
		if _, err := w.poolNamed(name); err != nil {
			return nil, fmt.Errorf("--pool: %w", err)
		}
	}
	from := o.time()
	to := from.AddDate(0, 0, o.days)
	r := &calendarReport{From: instant(from), To: instant(to), Pools: []calendarPool{}}
	for _, p := range w.pools {
		if len(o.pools) == 0 || slices.Contains(o.pools, p.Name) || slices.Contains(o.pools, p.Namespace+"/"+p.Name) {
			r.Pools = append(r.Pools, o.pool(ctx, w.asker, p, from, to))
		}
	}
	return r, nil
}

// pool evaluates a pool at each time between from and to at which its numbers may change.
func (o *calendarOptions) pool(ctx context.Context, a asker, p declaredPool, from, to time.Time) calendarPool {
	place, _ := schedule.Location(cmp.Or(o.zone, zoneOf(p.Spec.Scale.Schedules))) // the flag and the compiler check zones
	c := calendarPool{Namespace: p.Namespace, Name: p.Name, Place: report.Place{File: p.object.File, Line: p.object.Line}, Zone: place.String()}
	at := from.In(place)
	for range maxSteps {
		next, now := o.period(ctx, a, p, at)
		last := len(c.Periods) - 1
		if last < 0 || !c.Periods[last].equals(&now) {
			if len(c.Periods) == o.most {
				break
			}
			c.Periods = append(c.Periods, now)
		}
		if next.IsZero() || !next.Before(to) {
			return c
		}
		at = next.In(place)
	}
	c.Truncated = true
	return c
}

// period evaluates a pool at one time. next is the time of the next evaluation; zero if the numbers do not change any more.
func (o *calendarOptions) period(ctx context.Context, a asker, p declaredPool, at time.Time) (next time.Time, now period) {
	n := p.plan.At(at, p.Spec.Scale)
	limits := a.limits(ctx, a.idleInput(scheduledPool(p.RunnerPool, n), at, cmp.Or(o.zone, "UTC")))
	now = period{from: at, From: at.Format(time.RFC3339), Scale: limits.Declared, Schedules: n.Active, Policies: limits.Reasons(), Failures: limits.Failures}
	if limits.Effective != nil {
		now.Scale = *limits.Effective
	}
	next = n.Next
	if until, err := time.Parse(time.RFC3339, limits.Until); err == nil && until.After(at) && (next.IsZero() || until.Before(next)) {
		next = until
	}
	return next, now
}

// zoneOf returns the time zone of the recurring schedules if all of them have the same one, and otherwise UTC. Schedules
// with once have no zone.
func zoneOf(schedules []v1alpha1.Schedule) string {
	recurring := slices.DeleteFunc(slices.Clone(schedules), func(s v1alpha1.Schedule) bool { return s.Once != nil })
	zones := slices.Compact(converted(recurring, func(s v1alpha1.Schedule) string { return s.GetTimeZone() }))
	if len(zones) == 1 {
		return zones[0]
	}
	return "UTC"
}

// err returns the error that determines the exit code.
func (r *calendarReport) err() error {
	for _, p := range r.Pools {
		for _, q := range p.Periods {
			if len(q.Failures) > 0 {
				return fmt.Errorf("pool %s: %w, because a policy failed", p.Title(), errDenied)
			}
		}
	}
	return nil
}

// Text implements texter.
func (r *calendarReport) Text() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, err := io.WriteString(table, texts.Execute("calendar", r))
	_ = errors.Join(err, table.Flush()) // a strings.Builder returns no errors
	return b.String()
}
