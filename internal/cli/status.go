// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/wording"
)

var (
	// errTrouble is the error of status when something is wrong.
	errTrouble = errors.New("something is wrong")
	// errUnseen is wrapped by the error of status when nothing is known to be wrong, and something was not looked at.
	errUnseen = errors.New("not all was looked at")
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
		Short: "Say on one page what is wrong, since when, whom it hurts and what to do",
		Long: `Say on one page what is wrong, the worst first: since when, whom it hurts, and what to do. One
cause is one entry, however many objects it shows in. Then what will go wrong if nobody does anything,
and what was done on purpose or passes by itself.

  critical  no work is done at all
  error     pools take no jobs, or runners don't start
  warning   it works, but not as it was asked to
  ahead     it will go wrong: no trouble yet
  note      somebody asked for it, or it passes by itself: no trouble

Reads Corral's objects, ResourceQuotas and the controller's lease with your own rights, and says what it
could not read. Times are by the API server's clock. Makes no request to GitHub.

Exit codes: 0 all was looked at and nothing is wrong now, 1 something is wrong, 3 something could not be
looked at, and nothing is known to be wrong.`,
		Example: "  corral status -A\n  corral status -n ci -o json\n  corral status -A --watch\n  kubectl corral status -A",
		Args:    cobra.NoArgs,
	}
	flags := c.Flags()
	o := &statusOptions{cluster: bindCluster(flags, version, "")}
	flags.StringVarP(&o.cluster.namespace, "namespace", "n", "", "namespace (default: the context's)")
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "look in all namespaces")
	flags.StringVar(&o.lease, "lease-namespace", defaultLeaseNamespace, "namespace of the controller's lease; with -A the lease is looked for in the others too")
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on looking, and show what changes: a page on a terminal, else a line for each change")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "with --watch: the time between two looks, 1s or more")
	o.output = bindFormat(c, "text", "json", "yaml")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c) }
	return c
}

func (o *statusOptions) run(c *cobra.Command) error {
	switch {
	case o.interval < time.Second:
		return fmt.Errorf("--interval: %s is below 1s", o.interval)
	case o.watch && o.output.value != "text":
		return fmt.Errorf("--watch: it shows text alone, not %s", o.output.value)
	}
	reader, namespace, err := o.cluster.connect()
	if err != nil {
		return fmt.Errorf("%w: %w", errUnseen, err)
	}
	look := func(ctx context.Context) explain.Page {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		g := &statusReader{client: reader, own: namespace, namespace: namespace, lease: o.lease, now: o.cluster.clock.Now, wait: wait}
		if o.everywhere {
			g.namespace = ""
		}
		return explain.Look(g.read(ctx))
	}
	if o.watch {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return o.follow(ctx, c.OutOrStdout(), look)
	}
	page := look(c.Context())
	if err := o.output.write(c.OutOrStdout(), page); err != nil {
		return err
	}
	return verdictError(&page)
}

// verdictError is the error by which a page's verdict becomes the exit code.
func verdictError(p *explain.Page) error {
	switch p.Verdict {
	case explain.Trouble:
		return errTrouble
	case explain.Unknown:
		return errUnseen
	}
	return nil
}

// clear empties a terminal and goes to its top.
const clear = "\x1b[H\x1b[2J\x1b[3J"

// follow looks again and again until it is interrupted, and shows what changes.
func (o *statusOptions) follow(ctx context.Context, w io.Writer, look func(context.Context) explain.Page) error {
	page := look(ctx)
	isTerminal := isTerminal(exactly(w))
	if err := show(w, &page, nil, isTerminal); err != nil {
		return err
	}
	ticks := time.NewTicker(o.interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return verdictError(&page)
		case <-ticks.C:
		}
		next := look(ctx)
		if ctx.Err() != nil {
			return verdictError(&page)
		}
		if err := show(w, &next, &page, isTerminal); err != nil {
			return err
		}
		next.Keep(&page)
		page = next
	}
}

// show writes a page that is the first, or differs from the former one.
func show(w io.Writer, page, former *explain.Page, isTerminal bool) error {
	if former == nil && !isTerminal {
		_, err := io.WriteString(w, page.Text())
		return err
	}
	var changes []string
	if former != nil {
		if changes = page.Changes(former); len(changes) == 0 {
			return nil
		}
	}
	if isTerminal {
		if _, err := io.WriteString(exactly(w), clear); err != nil {
			return err
		}
		_, err := io.WriteString(w, page.Text())
		return err
	}
	for _, line := range changes {
		if _, err := fmt.Fprintf(w, "%s %s\n", page.Time.UTC().Format(wording.Clock), line); err != nil {
			return err
		}
	}
	return nil
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // a descriptor is small
}
