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
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// vetReport is the output of vet.
type vetReport struct {
	// Objects contains the number of declared objects by kind.
	Objects map[string]int `json:"objects"`
	// Diagnostics is empty if the definitions are valid.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics"`
	// At is the time for which policies were evaluated.
	At string `json:"at,omitempty"`
	// Policies that were evaluated.
	Policies []vetPolicy `json:"policies,omitempty"`
	// Pools contains the decisions of policies on each pool; empty if there are no policies.
	Pools []vetPool `json:"pools,omitempty"`
	// Findings are warnings about the definitions, and the results of policies. A finding about many pools is listed once.
	Findings []report.Finding `json:"findings,omitempty"`

	warnings []report.Finding
	version  string
	// root is the top folder of the definitions.
	root string
	// askedLines contains, with --verbose, a line for each pool with the names of the policies that bind it.
	askedLines []string
	// titles contains the titles of rules.
	titles map[annotated]string
}

// vetPolicy is a policy that was evaluated.
type vetPolicy struct {
	Policy    string              `json:"policy"`
	File      string              `json:"file,omitempty"`
	Line      int                 `json:"line,omitempty"`
	Mode      v1alpha1.PolicyMode `json:"mode"`
	Digest    string              `json:"digest"`
	Decisions []string            `json:"decisions"`
	// Pools is the number of pools that the policy binds.
	Pools int `json:"pools"`
	// Remark is the reason why the policy, or a part of it, was evaluated for no pool.
	Remark string `json:"remark,omitempty"`
}

// vetPool contains the decisions of policies on a pool.
type vetPool struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	report.Place
	Path string `json:"path,omitempty"`
	// Asked lists the policies that bind the pool.
	Asked []string `json:"asked"`
	// answers contains the decisions. The update decision is how a change of the pool's template would begin to roll out.
	answers

	declared *v1alpha1.RunnerPool
}

// vetOptions are the flags of vet.
type vetOptions struct {
	base, manifests string
	verbose, live   bool
	cluster         *clusterOptions
}

const vetHelp = `Check the definitions in DIR (default: the current folder) and below, as the controller would check
the next commit. For each problem, the command prints a line FILE:LINE:COLUMN: PATH: MESSAGE on
standard error, and the exit code is 1. Problems include schedules with an unknown time zone or a
time that never occurs. Warnings include:

  - schedules that are over or have no effect
  - files that Git ignores or that are in submodules, because the controller does not read them
  - with --base, pools that are gone since a revision
  - with --live, pools whose max exceeds the quotas and limit ranges of their namespaces
  - with --live, pools with a cache whose runner group takes jobs of public repositories. The command
    asks GitHub with the credentials of the connection, if you may read its Secret.

The command then evaluates, for each pool, the policies in DIR (*.rego files and RunnerPolicies) and
the policies of --policy. They decide whether the pool's pod may run, which limits apply while all
pools are idle, and how a change of the template would begin to roll out, at the time --at. A denial
or a policy that fails is reported on standard error with its rule and a fix, and the exit code is
2. Changed numbers, warnings and the results of policies in audit mode do not change the exit code.

Use --output github for annotations of a pull request, sarif for code scanning, and junit for CI
systems.`

func newVet(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "vet [DIR]",
		Short: "Check definitions, and evaluate policies for their pools",
		Long:  vetHelp,
		Example: "  corral vet\n  corral vet pools -o json\n  corral vet --tag env=prod\n  corral vet --base origin/main\n" +
			"  corral vet --policy ../guard --namespace ci\n  corral vet --at 2026-12-24T20:00:00Z -o sarif > corral.sarif",
	}
	in := bindInputs(c, "text", "json", "yaml", "github", "sarif", "junit")
	at := bindTime(c)
	o := vetOptions{cluster: bindCluster(c.Flags(), version, "with --live: ")}
	c.Flags().StringVar(&o.base, "base", o.base, "warn about pools that are gone since this revision: a branch, a tag, a hash or HEAD^1")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", o.verbose, "also print which policies are evaluated for each pool")
	c.Flags().BoolVar(&o.live, "live", o.live, "read the ResourceQuotas and LimitRanges of the pools' namespaces from the cluster, and the connections of pools with a cache, with your own permissions")
	c.Flags().StringVarP(&o.manifests, "filename", "f", o.manifests, "check the YAML or JSON in this file instead of definitions; - for standard input, as in helm template . | corral vet -f -")
	c.MarkFlagsMutuallyExclusive("filename", "base")
	c.MarkFlagsMutuallyExclusive("filename", "tag")
	c.RunE = func(c *cobra.Command, args []string) error {
		w, err := in.openOrRead(c, args, o.manifests)
		if err != nil {
			return err
		}
		r := &vetReport{Objects: map[string]int{}, Diagnostics: append(w.Diagnostics, w.notOfPolicies(w.unreadable)...), version: version, root: w.root}
		if o.verbose {
			r.askedLines = converted(w.pools, func(p declaredPool) string {
				return "pool " + p.name() + ": asked " + cmp.Or(strings.Join(w.boundBy(policy.PoolOf(p.RunnerPool)), ", "), "no policy")
			})
		}
		for _, object := range w.Objects {
			r.Objects[object.Manifest.GetKind()]++
		}
		if len(r.Diagnostics) == 0 {
			compared, err := w.comparedWarnings(c, in.definitions, args, o)
			if err != nil {
				return err
			}
			r.warnings = slices.Concat(w.warnings(at.time()), w.staleSchema(), w.commandWarnings(), w.doubts(), w.remarks(), compared)
			if len(w.policies) > 0 {
				r.judge(c.Context(), w, at.time(), at.zone)
				r.titles = titlesOf(w.policies)
			}
		}
		return cmp.Or(r.write(c, in.output), r.err())
	}
	return c
}

// openOrRead opens the definitions or, with --filename, reads the manifests in that file.
func (in *inputs) openOrRead(c *cobra.Command, args []string, manifests string) (*workspace, error) {
	if manifests == "" {
		if err := in.asSources(in.policies, args); err != nil {
			return nil, err
		}
		return in.open(c.Context(), args)
	}
	if len(args) > 0 {
		return nil, errors.New("give a folder of definitions or --filename, not both")
	}
	result, err := readManifests(c, manifests)
	if err != nil {
		return nil, err
	}
	return in.load(c.Context(), result)
}

// comparedWarnings returns the warnings of --base and --live.
func (w *workspace) comparedWarnings(c *cobra.Command, d *definitions, args []string, o vetOptions) (found []report.Finding, err error) {
	ctx := c.Context()
	if c.Flags().Changed("base") {
		found, err = w.goneSince(ctx, d, folderOf(args), o.base)
	}
	if err != nil || !o.live {
		return found, err
	}
	cluster, own, err := o.cluster.connect()
	if err != nil {
		return nil, err
	}
	unfitting, err := w.quotaWarnings(ctx, cluster, own)
	return slices.Concat(found, unfitting, w.publicCaches(ctx, cluster, own, o.cluster.version)), err
}

// remarks returns warnings about files that a source would not have or not read, and about objects that it would not apply.
func (w *workspace) remarks() []report.Finding {
	as := func(rule, title string) func(v1alpha1.Diagnostic) report.Finding {
		return func(d v1alpha1.Diagnostic) report.Finding { return warning(rule, title, d) }
	}
	found := slices.Concat(converted(w.uncommitted, as(ruleUncommitted, "Not in the repository")), converted(w.notOfPolicies(w.unread), as(ruleUnread, "File not read")))
	notApplied := w.foreignObjects
	switch {
	case w.fsys == nil: // the objects come from manifests of another program
		return found
	case w.isAssigned:
		notApplied = w.notCovered
	}
	return append(found, converted(notApplied(), as(ruleForeign, "Not applied by a PoolSource"))...)
}

// notOfPolicies returns the diagnostics about files that --policy does not read either.
func (w *workspace) notOfPolicies(all []v1alpha1.Diagnostic) []v1alpha1.Diagnostic {
	return slices.DeleteFunc(slices.Clone(all), func(d v1alpha1.Diagnostic) bool { return w.options.includes(d.File) })
}

// judge evaluates the policies for each pool.
func (r *vetReport) judge(ctx context.Context, w *workspace, at time.Time, zone string) {
	r.At = instant(at)
	r.Policies = policiesOf(w)
	for _, p := range w.pools {
		o := p.object
		v := vetPool{Namespace: p.Namespace, Name: p.Name, Place: report.Place{File: o.File, Line: o.Line, Column: o.Column}, Path: o.Path, declared: p.RunnerPool, Asked: w.boundBy(policy.PoolOf(p.RunnerPool))}
		// Assume that the update begins while the pool has its maximum number of runners.
		begin := situation{Desired: ptr.To(ptr.Deref(p.Spec.Scale.Max, 1)), Change: change{From: "before", To: "after"}}
		q := begin.questions(p.RunnerPool, w.network(p.RunnerPool), at, zone)
		q.scaling = w.idleInput(q.scaling.Pool, at, zone)
		for _, decision := range decisions {
			if err := w.ask(ctx, decision, q, &v.answers); err != nil {
				r.Diagnostics = append(r.Diagnostics, o.Diagnostic("", err.Error()))
			}
		}
		r.Pools = append(r.Pools, v)
	}
}

func policiesOf(w *workspace) (policies []vetPolicy) {
	for _, p := range w.deciding() {
		v := vetPolicy{
			Policy: p.source.Ref(), File: p.origin.File, Line: p.origin.Line,
			Mode: p.loaded.Mode(), Digest: p.loaded.Digest(), Decisions: p.loaded.Decisions(),
		}
		for _, pool := range w.pools {
			if p.loaded.Binds(policy.PoolOf(pool.RunnerPool)) {
				v.Pools++
			}
		}
		v.Remark = w.remarkFor(p, v.Pools)
		policies = append(policies, v)
	}
	return policies
}

// remarkFor returns the reason why a policy is not evaluated, or why it binds no pool; empty if there is no such reason. A
// policy of --policy may be meant for other repositories, so remarkFor does not report that its selector matches no pool.
func (w *workspace) remarkFor(p *declaredPolicy, pools int) string {
	isOwn := p.source.Kind == policy.KindRunnerPolicy
	for _, remark := range []struct {
		applies bool
		text    string
	}{
		{p.source.Partial, "its rules in ConfigMaps are not available here and are not evaluated"},
		{len(p.loaded.Decisions()) == 0, "decides nothing: set spec.library, or write rules in spec.modules"},
		{pools > 0, ""},
		{isOwn && p.isFromFlag && p.source.Namespace != w.options.namespace,
			fmt.Sprintf("binds no pool: it is in namespace %s, and the pools are not; set --namespace %[1]s if they belong there", p.source.Namespace)},
		{len(p.source.Namespaces) > 0 && w.options.namespace == "",
			fmt.Sprintf("binds no pool: it is for the namespaces %s, and the pools have none; set --namespace", strings.Join(p.source.Namespaces, ", "))},
		{p.isFromFlag || len(w.pools) == 0, ""},
		{isOwn && !slices.Contains(namespacesOf(w.Objects), p.source.Namespace), "binds no pool: no pool is in its namespace"},
	} {
		if remark.applies {
			return remark.text
		}
	}
	return "binds no pool: its selector matches none of the pools in its namespace"
}

// err returns the error that determines the exit code.
func (r *vetReport) err() error {
	refused := slices.DeleteFunc(slices.Clone(r.Pools), func(p vetPool) bool { return !p.isRefused() })
	if len(r.Diagnostics) > 0 {
		return problems(r.Diagnostics)
	}
	return deniedError(len(refused), len(r.Pools), slices.ContainsFunc(refused, func(p vetPool) bool { return len(p.failures()) > 0 }))
}

// deniedError returns the error for denied pools; nil if there are none. If failed is true, the error adds that a policy
// failed, so that some of these pools are undecided.
func deniedError(denied, pools int, failed bool) error {
	if denied == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %s %w", denied, wording.Count(pools, "pool"), errDenied)
	if failed {
		return fmt.Errorf("%w, or not decided because a policy failed", err)
	}
	return err
}

func (r *vetReport) write(c *cobra.Command, f *format) error {
	if f.value == "text" {
		r.writeText(c.OutOrStdout(), c.ErrOrStderr())
		return nil
	}
	r.Diagnostics = append([]v1alpha1.Diagnostic{}, r.Diagnostics...)
	r.Findings = r.results()
	return f.report(c.OutOrStdout(), r, forms{r.root, r.version, r.findings, r.suites})
}

func (r *vetReport) writeText(stdout, stderr io.Writer) {
	for _, line := range r.askedLines {
		fmt.Fprintln(stdout, line)
	}
	for _, f := range r.findings() {
		if f.Level == report.Note {
			fmt.Fprintf(stdout, "%s: %s\n", f.Subject, f.Message)
			continue
		}
		fmt.Fprint(stderr, texts.Execute("finding", f))
	}
	if r.err() == nil {
		fmt.Fprint(stdout, texts.Execute("ok", r))
	}
}

// notes lists the changes that policies make, and the changes that policies in audit mode would make.
func (p *vetPool) notes() []string {
	prefixed := func(prefix string, texts []string) []string {
		return converted(texts, func(text string) string { return prefix + text })
	}
	return slices.Concat(p.Scaling.Reasons(), prefixed("conflict: ", p.Scaling.Conflicts), prefixed("update: ", textsOf(p.Update.Reasons)),
		prefixed("audit: ", textsOf(slices.Concat(p.Template.Audit, p.Scaling.Audit, p.Update.Audit))))
}

func (p *vetPool) name() string { return wording.Qualified(p.Namespace, p.Name) }
