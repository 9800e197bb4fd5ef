// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// evalReport is the output of eval: one decision.
type evalReport struct {
	Decision  string `json:"decision"`
	Namespace string `json:"namespace,omitempty"`
	Pool      string `json:"pool"`
	// At and Zone are of the question; a verdict on a pod has neither.
	At   string `json:"at,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Policies that bind the pool.
	Policies []string        `json:"policies"`
	Scaling  *scalingAnswer  `json:"scaling,omitempty"`
	Template *templateAnswer `json:"template,omitempty"`
	Update   *updateAnswer   `json:"update,omitempty"`
}

// evalOptions are the flags of eval.
type evalOptions struct {
	file, name string
	*timeOptions
}

var decisions = []string{policy.DecisionScaling, policy.DecisionTemplate, policy.DecisionUpdate}

func newEval() *cobra.Command {
	c := &cobra.Command{
		Use:   "eval DECISION -f FILE [DIR]",
		Short: "Answer one decision from a file",
		Long: `Ask the policies in DIR (default: the current folder) and those of --policy for one
decision (scaling, template or update), and print the answer with the rules that made it.

FILE is a scenario, as corral test reads it (what it expects is passed over), or the input of
the decision as JSON or YAML, as rules read it; - is standard input. The exit code is 2 when a pod
is denied or a policy fails.`,
		Example: "  corral eval scaling -f sunday.scenario.yaml\n  corral eval scaling -f pool.scenario.yaml --case sunday --at 2026-07-05T03:00:00Z\n" +
			"  corral eval template -f input.json --policy ../guard -o json",
		ValidArgs: decisions,
	}
	d := bindDefinitions(c)
	d.allowEmpty = true
	c.Args = cobra.RangeArgs(1, 2)
	o := bindPolicyOptions(c)
	e := evalOptions{timeOptions: bindTime(c)}
	c.Flags().StringVarP(&e.file, "filename", "f", "", "file with the question; - for standard input (required)")
	c.Flags().StringVar(&e.name, "case", "", "name of the case, of a scenario file with several")
	if err := c.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag was added two lines above
	}
	f := bindFormat(c, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(decisions, args[0]) {
			return fmt.Errorf("there is no decision %q: it must be one of %s", args[0], strings.Join(decisions, ", "))
		}
		data, err := readInput(c.InOrStdin(), e.file)
		if err != nil {
			return err
		}
		w, err := open(c.Context(), d, o, args[1:])
		if err != nil {
			return err
		}
		r := &evalReport{Decision: args[0]}
		diagnostics := w.Diagnostics
		if len(diagnostics) == 0 {
			diagnostics = r.eval(c.Context(), w, e, data)
		}
		if len(diagnostics) > 0 {
			printDiagnostics(c.ErrOrStderr(), diagnostics)
			return problems(diagnostics)
		}
		return r.finish(c.OutOrStdout(), f)
	}
	return c
}

// openInput opens a file, or standard input for -.
func openInput(stdin io.Reader, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// readInput reads the file of a question, within the bound that definitions have.
func readInput(stdin io.Reader, name string) ([]byte, error) {
	in, err := openInput(stdin, name)
	if err != nil {
		return nil, fmt.Errorf("reading the question: %w", err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, compile.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the question: %w", err)
	}
	if len(data) > compile.MaxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes, the most that is read", name, compile.MaxFileBytes)
	}
	return data, nil
}

// eval asks what a file asks: an input, or a scenario.
func (r *evalReport) eval(ctx context.Context, w *workspace, e evalOptions, data []byte) []v1alpha1.Diagnostic {
	documents, diagnostics := parseDocuments(e.file, data, plainYAML)
	switch {
	case len(diagnostics) > 0:
		return diagnostics
	case len(documents) != 1:
		return []v1alpha1.Diagnostic{{File: e.file, Message: fmt.Sprintf("must hold one document, found %d", len(documents))}}
	case isInput(documents[0]):
		return r.evalInput(ctx, w, documents[0])
	}
	c, diagnostics := e.pick(data)
	if len(diagnostics) > 0 {
		return diagnostics
	}
	q, diagnostics := c.question(w, e.time(), e.zone)
	if len(diagnostics) > 0 {
		return diagnostics
	}
	a, diagnostics := c.asker(ctx, w)
	if len(diagnostics) > 0 {
		return diagnostics
	}
	switch r.Decision {
	case policy.DecisionScaling:
		r.askScaling(ctx, a, scalingInput(scheduledAt(q.pool, q.at), q.state, q.at, q.zone))
	case policy.DecisionUpdate:
		r.askUpdate(ctx, a, updateInput(q))
	default:
		in, err := review.TemplateInput(q.pool, q.network)
		if err != nil {
			return []v1alpha1.Diagnostic{c.problem("pool", "%v", err)}
		}
		r.askTemplate(ctx, a, in)
	}
	return nil
}

// isInput tells an input, whose pool is as rules read it, from a scenario.
func isInput(d document) bool {
	var content struct {
		Pool map[string]json.RawMessage `json:"pool"`
	}
	if json.Unmarshal(d.json, &content) != nil || content.Pool == nil {
		return false
	}
	return content.Pool["metadata"] == nil && content.Pool["spec"] == nil
}

// evalInput asks about an input as it is.
func (r *evalReport) evalInput(ctx context.Context, w *workspace, d document) []v1alpha1.Diagnostic {
	a := w.asker()
	switch r.Decision {
	case policy.DecisionScaling:
		return decoded(ctx, d, a, r.askScaling)
	case policy.DecisionUpdate:
		return decoded(ctx, d, a, r.askUpdate)
	}
	return decoded(ctx, d, a, r.askTemplate)
}

// decoded asks about what a document says.
func decoded[T any](ctx context.Context, d document, a asker, ask func(context.Context, asker, T)) []v1alpha1.Diagnostic {
	var in T
	diagnostics := d.decode(&in)
	if len(diagnostics) == 0 {
		ask(ctx, a, in)
	}
	return diagnostics
}

// pick returns the case that is asked for.
func (e evalOptions) pick(data []byte) (scenarioCase, []v1alpha1.Diagnostic) {
	cases, diagnostics := parseScenarios(e.file, data)
	if len(diagnostics) > 0 {
		return scenarioCase{}, diagnostics
	}
	var names []string
	for _, c := range cases {
		if c.Name == e.name || e.name == "" && len(cases) == 1 {
			return c, nil
		}
		names = append(names, fmt.Sprintf("%q", c.Name))
	}
	return scenarioCase{}, []v1alpha1.Diagnostic{{File: e.file, Message: fmt.Sprintf("--case must be one of %s", strings.Join(names, ", "))}}
}

func (r *evalReport) about(a asker, p policy.Pool) {
	r.Namespace, r.Pool, r.Policies = p.Namespace, p.Name, []string{}
	for _, declared := range a.policies {
		if !declared.testsOnly && declared.loaded.Binds(p) {
			r.Policies = append(r.Policies, declared.source.Ref())
		}
	}
	slices.Sort(r.Policies)
}

func (r *evalReport) askScaling(ctx context.Context, a asker, in policy.ScalingInput) {
	r.about(a, in.Pool)
	r.At, r.Zone = instant(time.Unix(0, in.Now)), in.Zone
	r.Scaling = a.askScaling(ctx, in)
}

func (r *evalReport) askTemplate(ctx context.Context, a asker, in policy.TemplateInput) {
	r.about(a, in.Pool)
	r.Template = a.askTemplate(ctx, in)
}

func (r *evalReport) askUpdate(ctx context.Context, a asker, in policy.UpdateInput) {
	r.about(a, in.Pool)
	r.At, r.Zone = instant(time.Unix(0, in.Now)), in.Zone
	r.Update = a.askUpdate(ctx, in)
}

// finish prints the decision and tells a refusal.
func (r *evalReport) finish(w io.Writer, f *format) error {
	err := f.write(w, r)
	if err == nil && r.refused() {
		return fmt.Errorf("pool %s: %w", r.name(), errDenied)
	}
	return err
}

func (r *evalReport) refused() bool {
	return r.Scaling != nil && len(r.Scaling.Failures) > 0 || r.Template != nil && !r.Template.Allowed || r.Update != nil && len(r.Update.Failures) > 0
}

func (r *evalReport) name() string { return wording.Qualified(r.Namespace, r.Pool) }

// Text implements texter.
func (r *evalReport) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s, %s", r.name(), r.Decision)
	if r.At != "" {
		fmt.Fprintf(&b, ", at %s (%s)", r.At, cmp.Or(r.Zone, "UTC"))
	}
	fmt.Fprintf(&b, "\npolicies: %s\n", orNone(strings.Join(r.Policies, ", ")))
	switch {
	case r.Scaling != nil:
		r.Scaling.write(&b)
	case r.Template != nil:
		r.Template.write(&b)
	default:
		r.Update.write(&b)
	}
	return b.String()
}
