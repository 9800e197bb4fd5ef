// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// evalReport is the output of eval: one decision.
type evalReport struct {
	Decision  string `json:"decision"`
	Namespace string `json:"namespace,omitempty"`
	Pool      string `json:"pool"`
	// At and Zone are the time and the time zone of the input. The input of a template decision has neither.
	At   string `json:"at,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Policies that bind the pool.
	Policies []string `json:"policies"`
	// Output is the text that rules printed with print.
	Output string `json:"output,omitempty"`
	answers
}

// evalOptions are the flags of eval.
type evalOptions struct {
	file, name string
	*timeOptions
}

func newEval() *cobra.Command {
	c := &cobra.Command{
		Use:   "eval DECISION -f FILE [DIR]",
		Short: "Evaluate one policy decision for an input from a file",
		Long: `Evaluate the policies in DIR (default: the current folder) and the policies of --policy for one
decision (scaling, template or update). Print the answer with the rules that led to it.

FILE is a scenario file of corral test, whose expectations are ignored, or the policy input of
the decision as JSON or YAML. The name - stands for standard input. The exit code is 2 if a pod is
denied or a policy fails.`,
		Example: "  corral eval scaling -f sunday.scenario.yaml\n  corral eval scaling -f pool.scenario.yaml --case sunday --at 2026-07-05T03:00:00Z\n" +
			"  corral eval template -f input.json --policy ../guard -o json",
		ValidArgs: decisions,
	}
	in := bindInputs(c, "text", "json", "yaml")
	in.allowEmpty, in.policies.record = true, true
	c.Args = cobra.RangeArgs(1, 2)
	e := evalOptions{timeOptions: bindTime(c)}
	c.Flags().StringVarP(&e.file, "filename", "f", e.file, "file with the scenario or policy input; - for standard input (required)")
	c.Flags().StringVar(&e.name, "case", e.name, "name of the case, if the scenario file has several")
	_ = c.MarkFlagRequired("filename") // the flag exists
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(decisions, args[0]) {
			return fmt.Errorf("there is no decision %q: it must be one of %s", args[0], strings.Join(decisions, ", "))
		}
		data, err := readInput(c.InOrStdin(), e.file, compile.MaxFileBytes)
		if err != nil {
			return fmt.Errorf("reading the input: %w", err)
		}
		w, err := in.open(c.Context(), args[1:])
		if err != nil {
			return err
		}
		r := &evalReport{Decision: args[0]}
		diagnostics := w.Diagnostics
		if len(diagnostics) == 0 {
			diagnostics = r.eval(c.Context(), w, e, data)
		}
		if len(diagnostics) > 0 {
			return refuse(c, diagnostics)
		}
		err = in.output.write(c.OutOrStdout(), r)
		if err == nil && r.isRefused() {
			return fmt.Errorf("pool %s: %w", r.Title(), errDenied)
		}
		return err
	}
	return c
}

// openInput opens a file, or standard input if the name is -.
func openInput(stdin io.Reader, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// readInput reads a file, and returns an error if it is larger than most bytes.
func readInput(stdin io.Reader, name string, most int64) ([]byte, error) {
	in, err := openInput(stdin, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes, the limit", name, most)
	}
	return data, err
}

// eval evaluates the decision for the policy input or the scenario in a file.
func (r *evalReport) eval(ctx context.Context, w *workspace, e evalOptions, data []byte) []v1alpha1.Diagnostic {
	documents, diagnostics := parseDocuments(e.file, data, plainYAML)
	if len(diagnostics) == 0 && len(documents) != 1 {
		diagnostics = []v1alpha1.Diagnostic{{File: e.file, Message: fmt.Sprintf("must hold one document, found %d", len(documents))}}
	}
	if len(diagnostics) > 0 {
		return diagnostics
	}
	q, a := &questions{}, w.asker
	if isInput(documents[0]) {
		diagnostics = documents[0].decode(map[string]any{
			policy.DecisionScaling: &q.scaling, policy.DecisionTemplate: &q.template, policy.DecisionUpdate: &q.update,
		}[r.Decision])
	} else {
		q, a, diagnostics = e.scenario(ctx, w, data)
	}
	if len(diagnostics) > 0 {
		return diagnostics
	}
	if err := a.ask(ctx, r.Decision, q, &r.answers); err != nil {
		return []v1alpha1.Diagnostic{{File: e.file, Path: "pool", Message: err.Error()}}
	}
	r.describe(a, q)
	return nil
}

// isInput reports whether a document is a policy input. The pool of a policy input has the form that rules read, while the
// pool of a scenario is a name or a RunnerPool.
func isInput(d document) bool {
	var content struct {
		Pool map[string]json.RawMessage `json:"pool"`
	}
	return json.Unmarshal(d.json, &content) == nil && content.Pool != nil && content.Pool["metadata"] == nil && content.Pool["spec"] == nil
}

// scenario returns the policy inputs of the selected case, and the asker with the policies to evaluate.
func (e evalOptions) scenario(ctx context.Context, w *workspace, data []byte) (*questions, asker, []v1alpha1.Diagnostic) {
	cases, diagnostics := parseScenarios(e.file, data)
	i := slices.IndexFunc(cases, func(c scenarioCase) bool { return c.Name == e.name || e.name == "" && len(cases) == 1 })
	switch {
	case len(diagnostics) > 0:
	case i < 0:
		names := converted(cases, func(c scenarioCase) string { return strconv.Quote(c.Name) })
		diagnostics = []v1alpha1.Diagnostic{{File: e.file, Message: "--case must be one of " + strings.Join(names, ", ")}}
	default:
		return cases[i].ask(ctx, w, e.time(), e.zone)
	}
	return nil, asker{}, diagnostics
}

// describe adds the pool and time of the input, and the policies that bind the pool.
func (r *evalReport) describe(a asker, q *questions) {
	in := map[string]policy.ScalingInput{
		policy.DecisionScaling: q.scaling, policy.DecisionTemplate: {Pool: q.template.Pool},
		policy.DecisionUpdate: {Pool: q.update.Pool, Now: q.update.Now, Zone: q.update.Zone},
	}[r.Decision]
	r.Namespace, r.Pool = in.Pool.Namespace, in.Pool.Name
	r.Policies, r.Output = a.boundBy(in.Pool), takeOutput(a.policies)
	if in.Now != 0 {
		r.At, r.Zone = instant(time.Unix(0, in.Now)), in.Zone
	}
	slices.Sort(r.Policies)
}

// Title returns the pool's qualified name.
func (r *evalReport) Title() string { return wording.Qualified(r.Namespace, r.Pool) }

// Text implements texter.
func (r *evalReport) Text() string { return texts.Execute("eval", r) }
