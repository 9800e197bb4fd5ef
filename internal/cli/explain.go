// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	cluster *clusterOptions
	at      string
	labels  []string
	output  *format
}

func newExplain(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain pool/NAME | runner/NAME | job URL",
		Short: "Say why a pool's numbers are what they are, and why a job waits",
		Long: `Explain why things are as they are, and what would change them:

  pool/NAME    jobs, runners, the last decision with its rules and schedules, the sources of demand,
               what is held and since when; with --at, the decision at that time
  runner/NAME  its state, what it waits for, and until when
  job URL      who has the job, or which pools it may wait for and why they don't take it;
               URL as GitHub shows it, of a job or of a workflow run

Reads Corral's objects, named ConfigMaps and pods with your own rights. Lists what it could not
read. Makes no request to GitHub.`,
		Example: "  corral explain pool/linux -n ci\n  corral explain pool/linux -n ci --at 2h30m\n  corral explain runner/linux-x7k2p-42 -n ci -o json\n" +
			"  corral explain job https://github.com/acme/app/actions/runs/123/job/456 --labels linux,x64",
		Args: cobra.RangeArgs(1, 2),
	}
	flags := c.Flags()
	o := &explainOptions{cluster: bindCluster(flags, version, "")}
	flags.StringVarP(&o.cluster.namespace, "namespace", "n", "", "namespace (default: the context's; for a job: all)")
	flags.StringVar(&o.at, "at", "", "time of a pool's decision: 2026-07-06T12:00:00Z, 15:04 (the last one, local), or 2h30m ago")
	flags.StringSliceVar(&o.labels, "labels", nil, "labels of the job's runs-on, separated by commas")
	o.output = bindFormat(c, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, args []string) error { return o.run(c, args) }
	return c
}

// subject is what is to be explained.
type subject struct{ kind, name string }

func parseSubject(args []string) (subject, error) {
	s := subject{}
	if len(args) == 2 {
		s.kind, s.name = args[0], args[1]
	} else if s.kind, s.name, _ = strings.Cut(args[0], "/"); strings.Contains(args[0], "://") {
		s.kind, s.name = "job", args[0]
	}
	for kind, names := range map[string][]string{
		"pool":   {"pool", "pools", "rpool", "runnerpool", "runnerpools"},
		"runner": {"runner", "runners"},
		"job":    {"job"},
	} {
		if slices.Contains(names, strings.ToLower(s.kind)) && s.name != "" {
			return subject{kind, s.name}, nil
		}
	}
	return s, fmt.Errorf("what is to be explained? want pool/NAME, runner/NAME or job URL, found %q", strings.Join(args, " "))
}

func (o *explainOptions) run(c *cobra.Command, args []string) error {
	about, err := parseSubject(args)
	if err != nil {
		return err
	}
	switch {
	case o.at != "" && about.kind != "pool":
		return fmt.Errorf("--at is for pools: there is no history of a %s", about.kind)
	case len(o.labels) > 0 && about.kind != "job":
		return fmt.Errorf("--labels are those of a job, not of a %s", about.kind)
	}
	now := time.Now()
	at, err := parseAt(o.at, now)
	if err != nil {
		return err
	}
	e := &explainer{everywhere: o.cluster.namespace == ""}
	cluster, namespace, err := o.cluster.connect()
	if err != nil {
		return err
	}
	// It is asked for its kinds in any case, and its answer has the time.
	_, _ = cluster.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("RunnerPool").GroupKind())
	e.client, e.namespace, e.now = cluster, namespace, o.cluster.clock.Now()
	ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
	defer cancel()
	answer, err := e.explain(ctx, about, at, o.labels)
	if err != nil {
		return err
	}
	return o.output.write(c.OutOrStdout(), answer)
}

// parseAt reads a time: RFC 3339, a time of the last 24 hours, or how long ago. The zero time for none.
func parseAt(value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := readTime(value, now)
	switch {
	case err != nil:
		return at, err
	case at.After(now):
		return at, fmt.Errorf("reading --at: %s is yet to come", at.Format(time.RFC3339))
	}
	return at, nil
}

func readTime(value string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(value); err == nil {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, value, now.Location()); err == nil {
			return at, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.Parse(layout, value); err == nil {
			y, m, d := now.Date()
			today := time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if today.After(now) {
				today = time.Date(y, m, d-1, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			}
			return today, nil
		}
	}
	return time.Time{}, fmt.Errorf("reading --at: want a time as 2026-07-06T12:00:00Z or 15:04, or a span as 2h30m, found %q", value)
}
