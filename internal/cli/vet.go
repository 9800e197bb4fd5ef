// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// report is the output of vet as JSON and YAML.
type report struct {
	// Objects counts what is declared, by kind.
	Objects map[string]int `json:"objects"`
	// Diagnostics are empty when all is well.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics"`
}

func newVet() *cobra.Command {
	c := &cobra.Command{
		Use:   "vet [DIR]",
		Short: "Check definitions",
		Long: `Check the definitions in DIR (default: the current folder) and below, as the controller
would at the next commit. Each problem is a line FILE:LINE:COLUMN: PATH: MESSAGE on
standard error, and the exit code is 1; --output json or yaml puts all of them on
standard output.`,
		Example: "  corral vet\n  corral vet pools -o json\n  corral vet --tag env=prod",
	}
	d := bindDefinitions(c)
	f := bindFormat(c, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, args []string) error {
		result, err := d.compile(c.Context(), args)
		if err != nil {
			return err
		}
		if err := writeReport(c, f, result); err != nil {
			return err
		}
		if len(result.Diagnostics) > 0 {
			return problems(result)
		}
		return nil
	}
	return c
}

func writeReport(c *cobra.Command, f *format, result compile.Result) error {
	r := report{Objects: map[string]int{}, Diagnostics: result.Diagnostics}
	for _, o := range result.Objects {
		r.Objects[o.Manifest.GetKind()]++
	}
	if f.value != "text" {
		if r.Diagnostics == nil {
			r.Diagnostics = []v1alpha1.Diagnostic{}
		}
		return f.write(c.OutOrStdout(), r)
	}
	printDiagnostics(c.ErrOrStderr(), result)
	if len(result.Diagnostics) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "ok: %s, %s\n",
		count(r.Objects["RunnerPool"], "pool"), count(r.Objects["GitHubConnection"], "connection"))
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
