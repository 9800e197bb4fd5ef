// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/wording"
)

var (
	// errTrouble is the error of status if there is a problem.
	errTrouble = errors.New("found problems")
	// errUnseen is wrapped by the error of status if it finds no problem, but could not check
	// everything.
	errUnseen = errors.New("could not check everything")
)

// statusOptions are the flags of status.
type statusOptions struct {
	cluster    *clusterOptions
	everywhere bool
	lease      string
	watch      bool
	interval   time.Duration
	output     *format
}

func newStatus(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show all problems on one page: since when, what they affect, and how to fix them",
		Long: `Show all problems on one page, the most severe first: since when, what they affect, and how to fix
them. Each cause is one entry, however many objects report it. Upcoming problems follow, and then states
that a user requested or that pass without action.

  critical  no controller works
  error     pools accept no jobs, or runners do not start
  warning   pools work, but not as declared
  ahead     a problem that will occur at a known time
  note      a state that a user requested, or that passes without action

The command reads Corral's objects, ResourceQuotas and the controller's lease with your own permissions,
and lists what it could not read. It uses the API server's clock and sends no requests to GitHub.

Exit codes: 0 everything was checked and there is no problem, 1 there is a problem, 3 there is no known
problem, but not everything could be checked.`,
		Example: "  corral status -A\n  corral status -n ci -o json\n  corral status -A --watch\n  kubectl corral status -A",
		Args:    cobra.NoArgs,
	}
	o := &statusOptions{cluster: bindCluster(c.Flags(), version, ""), output: bindFormat(c, "text", "json", "yaml"), lease: defaultLeaseNamespace, interval: 5 * time.Second}
	c.Flags().StringVarP(&o.cluster.namespace, "namespace", "n", o.cluster.namespace, "namespace (default: the namespace of the context)")
	c.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", o.everywhere, "check all namespaces")
	c.Flags().StringVar(&o.lease, "lease-namespace", o.lease, "namespace of the controller's lease; with -A, the command also searches the other namespaces")
	c.Flags().BoolVarP(&o.watch, "watch", "w", o.watch, "keep checking and show changes: the page on a terminal, otherwise a line for each change")
	c.Flags().DurationVar(&o.interval, "interval", o.interval, "with --watch: the time between two checks, at least 1s")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.RunE = o.run
	return c
}

func (o *statusOptions) run(c *cobra.Command, _ []string) error {
	switch {
	case o.interval < time.Second:
		return fmt.Errorf("--interval: %s is below 1s", o.interval)
	case o.watch && o.output.value != "text":
		return fmt.Errorf("--watch supports only text output, not %s", o.output.value)
	}
	from, namespace, err := o.cluster.connect()
	if err != nil {
		return fmt.Errorf("%w: %w", errUnseen, err)
	}
	look := func(ctx context.Context) explain.Page {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		g := &statusReader{reader{from, namespace, namespace, briefReason, nil}, o.lease, o.cluster.clock.Now, wait}
		if o.everywhere {
			g.namespace = ""
		}
		read := g.read(ctx)
		read.Version = o.cluster.version
		return explain.Look(read)
	}
	if o.watch {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return o.follow(ctx, c.OutOrStdout(), look)
	}
	page := look(c.Context())
	return cmp.Or(o.output.write(c.OutOrStdout(), page), verdictError(&page))
}

// verdictError returns the error that determines the exit code for a page.
func verdictError(p *explain.Page) error {
	return map[explain.Verdict]error{explain.Trouble: errTrouble, explain.Unknown: errUnseen}[p.Verdict]
}

// clearScreen is the escape sequence that empties a terminal and moves the cursor to its top.
const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// follow reads the status at each interval, and shows changes, until ctx ends.
func (o *statusOptions) follow(ctx context.Context, w io.Writer, look func(context.Context) explain.Page) error {
	var former *explain.Page
	for {
		page := look(ctx)
		if former != nil && ctx.Err() != nil {
			return verdictError(former)
		}
		if err := show(w, &page, former, isTerminal(unescaped(w))); err != nil {
			return err
		}
		if former != nil {
			page.Keep(former)
		}
		former = &page
		if wait(ctx, o.interval) != nil {
			return verdictError(former)
		}
	}
}

// show writes the first page. Later, it writes only if the page differs from the previous page: the
// whole page to a terminal, and otherwise a line for each change.
func show(w io.Writer, page, former *explain.Page, isTerminal bool) error {
	text := page.Text()
	if former != nil {
		changes := page.Changes(former)
		if len(changes) == 0 {
			return nil
		}
		at := page.Time.UTC().Format(wording.Clock) + " "
		text = at + strings.Join(changes, "\n"+at) + "\n"
	}
	if isTerminal {
		text = page.Text()
		if _, err := io.WriteString(unescaped(w), clearScreen); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // a descriptor is small
}
