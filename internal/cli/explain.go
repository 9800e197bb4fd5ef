// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
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
		Short: "Explain the numbers of a pool, the state of a runner, or why a job waits",
		Long: `Explain the state of a pool, a runner or a job, and what would change it:

  pool/NAME    jobs, runners, the last decision with its rules and schedules, the sources of demand,
               and what is on hold since when; with --at, the decision at that time
  runner/NAME  its state, what it waits for, and until when
  job URL      the runner that has the job, or the pools for which it may wait and why they do not take
               it; URL of a job or of a workflow run, as GitHub shows it

The command reads Corral's objects, some ConfigMaps and pods with your own permissions, and lists what
it could not read. It sends no requests to GitHub.`,
		Example: "  corral explain pool/linux -n ci\n  corral explain pool/linux -n ci --at 2h30m\n  corral explain runner/linux-x7k2p-42 -n ci -o json\n" +
			"  corral explain job https://github.com/acme/app/actions/runs/123/job/456 --labels linux,x64",
		Args: cobra.RangeArgs(1, 2),
	}
	o := &explainOptions{cluster: bindCluster(c.Flags(), version, ""), output: bindFormat(c, "text", "json", "yaml")}
	c.Flags().StringVarP(&o.cluster.namespace, "namespace", "n", o.cluster.namespace, "namespace (default: the namespace of the context; for a job: all namespaces)")
	c.Flags().StringVar(&o.at, "at", o.at, "time of a pool's decision: 2026-07-06T12:00:00Z, 15:04 (local time in the last 24 hours), or a duration before now such as 2h30m")
	c.Flags().StringSliceVar(&o.labels, "labels", o.labels, "labels of the job's runs-on, separated by commas")
	c.RunE = o.run
	return c
}

// subject is the object or job to explain.
type subject struct{ kind, name string }

// subjectKinds maps the names of kinds that users write, including the names that kubectl accepts, to the kind of a subject.
var subjectKinds = map[string]string{
	"pool": "pool", "pools": "pool", "rpool": "pool", "runnerpool": "pool", "runnerpools": "pool", "runner": "runner", "runners": "runner", "job": "job",
}

func parseSubject(args []string) (subject, error) {
	given := strings.Join(args, "/")
	kind, name, _ := strings.Cut(given, "/")
	if len(args) == 1 && strings.Contains(given, "://") {
		kind, name = "job", given
	}
	kind = subjectKinds[strings.ToLower(kind)]
	if kind == "" || name == "" {
		return subject{}, fmt.Errorf("the argument must be pool/NAME, runner/NAME or job URL, found %q", strings.Join(args, " "))
	}
	return subject{kind, name}, nil
}

func (o *explainOptions) run(c *cobra.Command, args []string) error {
	target, err := parseSubject(args)
	if err != nil {
		return err
	}
	switch {
	case o.at != "" && target.kind != "pool":
		return fmt.Errorf("--at applies only to a pool, not to a %s", target.kind)
	case len(o.labels) > 0 && target.kind != "job":
		return fmt.Errorf("--labels applies only to a job, not to a %s", target.kind)
	}
	at, err := parseAt(o.at, time.Now())
	if err != nil {
		return err
	}
	cluster, namespace, err := o.cluster.connect()
	if err != nil {
		return err
	}
	// Send a request, because the response sets the clock. The client has to discover the kinds of the API server in any case.
	_, _ = cluster.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("RunnerPool").GroupKind())
	e := &explainer{reader{cluster, o.cluster.namespace, namespace, error.Error, nil}, o.cluster.clock.Now()}
	ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
	defer cancel()
	answer, err := e.explain(ctx, target, at, o.labels)
	if err != nil {
		return err
	}
	return o.output.write(c.OutOrStdout(), answer)
}

// parseAt parses a time: RFC 3339, a time of day within the last 24 hours, or a duration before now. It returns the zero
// time for an empty value.
func parseAt(value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, value)
	ago, durationErr := time.ParseDuration(value)
	clock, clockErr := time.Parse("15:04", value)
	switch {
	case err == nil:
	case durationErr == nil:
		at = now.Add(-ago)
	case clockErr == nil:
		at = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
	default:
		return at, fmt.Errorf("reading --at: must be a time such as 2026-07-06T12:00:00Z or 15:04, or a duration such as 2h30m, found %q", value)
	}
	if at.After(now) {
		return at, fmt.Errorf("reading --at: %s is in the future", at.Format(time.RFC3339))
	}
	return at, nil
}
