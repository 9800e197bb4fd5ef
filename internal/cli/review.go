// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// reviewOptions are the flags of review.
type reviewOptions struct {
	definitions *definitions
	policies    *policyOptions
	at          *timeOptions
	output      *format
	revisions
	prices   string
	recorded string
	writes   map[string]string
	marker   string
	failFlags
	live, diff bool
	cluster    *clusterOptions
	version    string
	// folder is the folder of the head.
	folder string
}

// revisions are the values of --base and --head; empty if the user did not set the flags.
type revisions struct{ base, head string }

// failFlags select the results for which the command fails.
type failFlags struct {
	failOn   []string
	exitCode bool
}

const reviewHelp = `Report what a change of definitions and policies would do before it is merged: to pools, to
waiting jobs, to limits before and after policies, and to costs. The report names the positions
that differ.

The command compares the revision --base of the repository that contains DIR (default: the current
folder) with the files in DIR, or with the revision --head. With two arguments, it compares two
folders. To review a pull request, compare it with the commit from which it branched:

  corral review --base "$(git merge-base origin/main HEAD)"

Each side has its own policies, which are declared with its pools. Policies of --policy apply to
both sides. Each side reads prices from prices.yaml in DIR or the closest folder above it, unless
--prices sets a file for both. The command uses no network, no cluster and no credentials, except
with --live.

Exit codes: 0 nothing fails, 1 the head is invalid or another error occurred, 2 policies deny a pool
of the head, 3 there are changes (with --exit-code), 4 another condition of --fail-on holds.`

func newReview(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "review [DIR | BASE-DIR HEAD-DIR]",
		Short: "Report what a change would do to pools, jobs and costs",
		Long:  reviewHelp,
		Example: "  corral review\n  corral review --base origin/main\n  corral review --base v1 --head v2 pools -o json\n" +
			"  corral review ../before ../after --policy ../guard\n" +
			"  corral review --base HEAD^1 -o github --write markdown=review.md --write sarif=review.sarif",
	}
	o := &reviewOptions{
		definitions: bindDefinitions(c), policies: bindPolicyOptions(c), at: bindTime(c), output: bindFormat(c, reviewForms...),
		cluster: bindCluster(c.Flags(), version, "with --live: "), version: version,
		marker: defaultMarker, failFlags: failFlags{failOn: []string{"broken", "denied"}},
	}
	c.Args = cobra.MaximumNArgs(2)
	flags := c.Flags()
	flags.StringVar(&o.base, "base", o.base, "revision to compare with: a branch, a tag, a hash or HEAD^1 (default: HEAD)")
	flags.StringVar(&o.head, "head", o.head, "revision to review (default: the files in DIR)")
	flags.StringVar(&o.prices, "prices", o.prices, "price file for both sides (default: prices.yaml of each side)")
	flags.StringVar(&o.recorded, "recorded", o.recorded, "decision log as JSON lines: print the decisions that the head's policies would have made differently; - for standard input")
	flags.StringVar(&o.marker, "marker", o.marker, "marker in the first line of the markdown, <!-- MARKER -->, which identifies the comment to replace")
	flags.BoolVar(&o.exitCode, "exit-code", o.exitCode, "exit with code 3 if there are changes")
	flags.StringSliceVar(&o.failOn, "fail-on", o.failOn, "fail on any of "+strings.Join(failChoices, ", ")+"; a broken head always fails")
	flags.BoolVar(&o.diff, "diff", o.diff, "add a unified diff of the compiled objects")
	flags.BoolVar(&o.live, "live", o.live, "read the current pools from the cluster, and apply each changed object as a dry run, with your own permissions")
	flags.StringToStringVar(&o.writes, "write", nil, "also write the report in a format to a file, as `FORM=FILE`; may be repeated")
	flags.Lookup("write").DefValue = ""
	c.RunE = o.run
	return c
}

func (o *reviewOptions) run(c *cobra.Command, args []string) error {
	o.folder = folderOf(args[max(0, len(args)-1):])
	if err := o.check(args); err != nil {
		return err
	}
	result, failed := o.review(c, args)
	if failed != nil { // overwrite the files of --write, because the results of an earlier review in them are outdated
		result = review.Failed(failed, review.Moment{At: o.at.time(), Zone: o.at.zone})
	}
	err := failed
	if failed == nil || o.output.value != "text" {
		err = errors.Join(err, o.write(c.OutOrStdout(), o.output.value, result))
	}
	for _, form := range slices.Sorted(maps.Keys(o.writes)) {
		err = errors.Join(err, o.writeFile(o.writes[form], form, result))
	}
	if err != nil {
		return err
	}
	return o.judge(result)
}

// check validates the flags.
func (o *reviewOptions) check(args []string) error {
	if len(args) == 2 && o.base+o.head != "" {
		return errors.New("two folders are compared as they are: leave out --base and --head, or one of the folders")
	}
	if !validMarker.MatchString(o.marker) || strings.Contains(o.marker, "--") {
		return fmt.Errorf("--marker must be at most 100 letters, digits, spaces, dots, slashes and single dashes, found %q", o.marker)
	}
	for _, word := range o.failOn {
		if _, isCost := costLimit(word); !isCost && !slices.Contains(failChoices[:len(failChoices)-1], word) {
			return fmt.Errorf("--fail-on must be one of %s, where N is a number; found %q", strings.Join(failChoices, ", "), word)
		}
	}
	for form, file := range o.writes {
		if file == "" || file == "-" || !slices.Contains(reviewForms, form) {
			return fmt.Errorf("--write must be FORM=FILE, with one of the forms %s and the name of a file; found \"%s=%s\"", strings.Join(reviewForms, ", "), form, file)
		}
	}
	return o.policies.check()
}

// review reads both sides, and compares them.
func (o *reviewOptions) review(c *cobra.Command, args []string) (*review.Result, error) {
	for _, name := range []string{"base", "head"} {
		flag := c.Flags().Lookup(name)
		if flag.Changed && flag.Value.String() == "" {
			return nil, fmt.Errorf("--%s is empty: if git merge-base finds no commit, fetch more history", name)
		}
	}
	ctx := c.Context()
	in := review.Input{Moment: review.Moment{At: o.at.time(), Zone: o.at.zone}, Namespace: o.policies.namespace, Diff: o.diff}
	notes, err := o.sides(ctx, args, &in)
	if err != nil {
		return nil, err
	}
	if in.Records, in.Unread, err = o.records(c.InOrStdin()); err != nil {
		return nil, err
	}
	if o.live {
		more, err := o.askCluster(ctx, &in)
		if err != nil {
			return nil, err
		}
		notes = append(notes, more...)
	}
	result, err := review.Compare(ctx, in)
	if err != nil {
		return nil, err
	}
	result.Notes = append(result.Notes, notes...)
	if len(args) < 2 && o.base+o.head == "" && result.Verdict != review.Broken && !result.HasChanges() {
		result.Notes = append(result.Notes, "Nothing was compared: no definition here differs from HEAD. Set --base to see what a branch changes, for example --base origin/main.")
	}
	return result, nil
}

func (o *reviewOptions) records(stdin io.Reader) (records []review.Record, unread int, err error) {
	if o.recorded == "" {
		return nil, 0, nil
	}
	from, err := openInput(stdin, o.recorded)
	if err == nil {
		defer from.Close()
		records, unread, err = review.ReadRecords(from)
	}
	if err == nil && len(records) == 0 {
		err = errors.New("the file has no readable line of a decision log")
	}
	return records, unread, wrap("reading recorded decisions", err)
}

// failChoices are the values of --fail-on. N is an amount of money per month, in the
// currency of the prices.
var failChoices = []string{"broken", "denied", "newly-denied", "deleted", "cost>N"}

// costLimit parses cost>N.
func costLimit(word string) (limit float64, ok bool) {
	text, ok := strings.CutPrefix(word, "cost>")
	limit, err := strconv.ParseFloat(text, 64)
	return limit, ok && err == nil && limit >= 0
}

// judge returns the error that determines the exit code.
func (o *reviewOptions) judge(r *review.Result) error {
	if r.Verdict == review.Broken {
		return fmt.Errorf("%s: %w", r.Problem(), problems(r.Head.Diagnostics))
	}
	var err error
	for _, word := range o.failOn {
		err = errors.Join(err, failOnError(word, r))
	}
	if err == nil && o.exitCode && r.HasChanges() {
		return errChanged
	}
	return err
}

// failOnError returns an error if the result meets a condition of --fail-on, or if it
// cannot be determined whether it does.
func failOnError(word string, r *review.Result) error {
	limit, isCost := costLimit(word)
	switch {
	case word == "denied", word == "newly-denied" && (!r.Comparable() || r.Summary.NewlyDenied > 0):
		return deniedError(r.Summary.Denied, r.Head.Pools, slices.ContainsFunc(r.Pools, func(p review.Pool) bool { return p.Fails() }))
	case word == "broken", word == "newly-denied":
	case !r.Comparable():
		return fmt.Errorf("the base cannot be compared, so --fail-on %s cannot be evaluated", word)
	case isCost:
		return costError(limit, word, r)
	default:
		gone := slices.DeleteFunc(slices.Clone(r.Pools), func(p review.Pool) bool { return p.Change != review.Deleted && !p.LosesJobs })
		if len(gone) > 0 {
			return fmt.Errorf("%s deleted, or replaced together with its waiting jobs, %w", wording.Count(len(gone), "pool"), errFailOn)
		}
	}
	return nil
}

// costError returns an error if the typical monthly cost increases by more than the limit,
// or if the increase is unknown.
func costError(limit float64, word string, r *review.Result) error {
	c, n := r.Cost, r.Uncounted()
	switch {
	case c == nil || c.Before == nil:
		return fmt.Errorf("the prices of both sides are not known, so --fail-on %s cannot be evaluated", word)
	case c.After.Typical-c.Before.Typical > limit:
		return fmt.Errorf("%s %s more per month, %w", review.Money(c.After.Typical-c.Before.Typical), c.Currency, errFailOn)
	case n > 0:
		return fmt.Errorf("%s without a price or without a max, so --fail-on %s cannot be evaluated", wording.Count(n, "pool"), word)
	case len(c.Frequent) > 0:
		return fmt.Errorf("the limits of %s change too often, so --fail-on %s cannot be evaluated", wording.Count(len(c.Frequent), "pool"), word)
	}
	return nil
}

// reviewForms are the output formats of a review. The first is the default.
var reviewForms = []string{"text", "markdown", "github", "sarif", "json", "yaml"}

// defaultMarker identifies the comment of a review, so that a later review can replace it.
const defaultMarker = "corral-review"

var validMarker = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ./_-]{0,98}[A-Za-z0-9])?$`)

// write writes the review in one format.
func (o *reviewOptions) write(w io.Writer, form string, r *review.Result) error {
	switch form {
	case "text":
		return report.ReviewText(w, r)
	case "markdown":
		return report.ReviewMarkdown(w, o.marker, r)
	}
	findings := func() []report.Finding { return report.ReviewFindings(r) }
	return (&format{value: form}).report(w, r, forms{root: o.folder, version: o.version, findings: findings})
}

// writeFile writes the review in one format to a file.
func (o *reviewOptions) writeFile(name, form string, r *review.Result) error {
	var b bytes.Buffer
	err := o.write(&b, form, r)
	if err == nil {
		err = os.WriteFile(name, b.Bytes(), 0o644)
	}
	return wrap("writing the review as "+form, err)
}
