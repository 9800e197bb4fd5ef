// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// Run runs the command line and tells its error. It returns the exit code. What is written has nothing in it that acts on a terminal:
// names of files, definitions and policies may be anybody's.
func Run(root *cobra.Command) int {
	root.SetOut(visible{to: root.OutOrStdout()})
	root.SetErr(visible{to: root.ErrOrStderr()})
	err := root.Execute()
	if err != nil {
		root.PrintErrln("Error:", err)
	}
	return exitCode(err)
}

// visible escapes what acts on a terminal or, anywhere in a line, on GitHub's runner, as JSON has it; and what the runner takes for a workflow
// command at the beginning of a line, unless it is to be one.
type visible struct {
	to       io.Writer
	commands bool
}

// Write implements io.Writer.
func (v visible) Write(p []byte) (int, error) {
	text := strings.ReplaceAll(wording.Escape(string(p), "\n\t"), "##[", `#\u0023[`)
	if !v.commands {
		text = wording.EscapeCommands(text)
	}
	_, err := io.WriteString(v.to, text)
	return len(p), err
}

// annotating returns a writer of workflow commands, whose texts are escaped already.
func annotating(w io.Writer) io.Writer {
	if v, ok := w.(visible); ok {
		return visible{to: v.to, commands: true}
	}
	return w
}

// exactly returns a writer to which nothing is escaped.
func exactly(w io.Writer) io.Writer {
	if v, ok := w.(visible); ok {
		return v.to
	}
	return w
}

// writeYAML writes a value as a document of YAML, in which an escape would be a part of the text: the encoder escapes what acts on a terminal,
// and what turns the direction of reading is to arrive as it was written. A value in which GitHub's runner would see a command is written as
// JSON, which is YAML too: each of its texts is in quotes, where escapes mean the same.
func writeYAML(w io.Writer, v any) error {
	text, err := yaml.Marshal(v)
	if strings.Contains(string(text), "##[") || wording.EscapeCommands(string(text)) != string(text) {
		return writeJSON(visible{to: exactly(w)}, v)
	}
	if err == nil {
		_, err = exactly(w).Write(text)
	}
	return err
}

// writeJSON writes a value as JSON.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// checked is the value of a flag that must pass a check.
type checked struct {
	value *string
	kind  string
	check func(string) error
}

// String implements pflag.Value.
func (v checked) String() string {
	if v.value == nil {
		return "" // pflag compares with the zero value
	}
	return *v.value
}

// Type implements pflag.Value.
func (v checked) Type() string { return v.kind }

// Set implements pflag.Value.
func (v checked) Set(value string) error {
	if err := v.check(value); err != nil {
		return err
	}
	*v.value = value
	return nil
}

// format is the value of --output: one of a command's formats.
type format struct{ value string }

// bindFormat adds --output to a command; the first of the formats is the default.
func bindFormat(c *cobra.Command, allowed ...string) *format {
	f := &format{value: allowed[0]}
	check := func(value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		return nil
	}
	c.Flags().VarP(checked{&f.value, "format", check}, "output", "o", "output format: "+strings.Join(allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return f
}

// bindNamespace adds --namespace for objects.
func bindNamespace(c *cobra.Command, namespace *string) {
	c.Flags().VarP(checked{namespace, "string", checkNamespace}, "namespace", "n", "namespace for the objects that name none")
}

// checkNamespace refuses what is neither the name of a namespace nor empty.
func checkNamespace(value string) error {
	if value != "" && len(validation.IsDNS1123Label(value)) > 0 {
		return fmt.Errorf("%q can't be a namespace's name: it must be at most %d lower-case letters, digits and, between them, -", value, validation.DNS1123LabelMaxLength)
	}
	return nil
}

// forms are what CI systems read of a report.
type forms struct {
	// root is the folder of the definitions.
	root, version string
	findings      func() []report.Finding
	suites        func() []report.Suite
}

// report writes v as write does, or a form of it.
func (f *format) report(w io.Writer, v any, of forms) error {
	switch f.value {
	case "github":
		return report.GitHub(annotating(w), fromCheckout(of.root, of.findings()))
	case "sarif":
		return report.SARIF(w, of.version, fromCheckout(of.root, of.findings()))
	case "junit":
		return report.JUnit(w, of.suites())
	}
	return f.write(w, v)
}

// texter is an answer that is also written as text.
type texter interface{ Text() string }

// write writes v as text, if that is the format and v has one, or encodes it as JSON or YAML.
func (f *format) write(w io.Writer, v any) (err error) {
	t, isText := v.(texter)
	switch {
	case isText && f.value == "text":
		_, err = io.WriteString(w, t.Text())
	case f.value == "yaml":
		err = writeYAML(w, v)
	default:
		err = writeJSON(w, v)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
