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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// Run runs the command, prints its error and returns the exit code. It escapes control characters in the output, because
// untrusted users may have chosen the names of files, definitions and policies.
func Run(root *cobra.Command) int {
	root.SetOut(escapingWriter{to: root.OutOrStdout()})
	root.SetErr(escapingWriter{to: root.ErrOrStderr()})
	err := root.Execute()
	if err != nil {
		root.PrintErrln("Error:", err)
	}
	return exitCode(err)
}

// escapingWriter escapes control characters, and the commands that GitHub's runner recognizes anywhere in a line (##[), as
// in JSON strings. Unless commands is true, it also escapes workflow commands at the beginning of a line.
type escapingWriter struct {
	to       io.Writer
	commands bool
}

// Write implements io.Writer.
func (v escapingWriter) Write(p []byte) (int, error) {
	text := strings.ReplaceAll(wording.Escape(string(p), "\n\t"), "##[", `#\u0023[`)
	if !v.commands {
		text = wording.EscapeCommands(text)
	}
	_, err := io.WriteString(v.to, text)
	return len(p), err
}

// commandWriter returns a writer that does not escape workflow commands. The caller must have escaped the texts in the
// commands.
func commandWriter(w io.Writer) io.Writer {
	if v, ok := w.(escapingWriter); ok {
		return escapingWriter{to: v.to, commands: true}
	}
	return w
}

// unescaped returns a writer that escapes nothing.
func unescaped(w io.Writer) io.Writer {
	if v, ok := w.(escapingWriter); ok {
		return v.to
	}
	return w
}

// writeYAML writes a value as a YAML document. It bypasses escapingWriter, whose escapes would become part of unquoted
// texts. The YAML encoder escapes terminal controls itself, but not characters that change the direction of text. If
// GitHub's runner would recognize a command in the document, writeYAML writes JSON through an escapingWriter instead. JSON
// is valid YAML, and escapes do not change the meaning of quoted texts.
func writeYAML(w io.Writer, v any) error {
	text, err := yaml.Marshal(v)
	if strings.Contains(string(text), "##[") || wording.EscapeCommands(string(text)) != string(text) {
		return writeJSON(escapingWriter{to: unescaped(w)}, v)
	}
	if err == nil {
		_, err = unescaped(w).Write(text)
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

// checkedValue is a flag's value. A value that check refuses is an error.
type checkedValue struct {
	value *string
	kind  string
	check func(string) error
}

// String implements pflag.Value.
func (v checkedValue) String() string {
	return ptr.Deref(v.value, "") // pflag also calls String on a zero checkedValue
}

// Type implements pflag.Value.
func (v checkedValue) Type() string { return v.kind }

// Set implements pflag.Value.
func (v checkedValue) Set(value string) error {
	if err := v.check(value); err != nil {
		return err
	}
	*v.value = value
	return nil
}

// format is the value of --output.
type format struct{ value string }

// bindFormat adds --output to a command. The first of the allowed formats is the default.
func bindFormat(c *cobra.Command, allowed ...string) *format {
	f := &format{value: allowed[0]}
	check := func(value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		return nil
	}
	c.Flags().VarP(checkedValue{&f.value, "format", check}, "output", "o", "output format: "+strings.Join(allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return f
}

// bindNamespace adds --namespace to a command that reads definitions.
func bindNamespace(c *cobra.Command, namespace *string) {
	c.Flags().VarP(checkedValue{namespace, "string", checkNamespace}, "namespace", "n", "namespace for objects without a namespace")
}

// checkNamespace returns an error unless the value is empty or a valid name of a namespace.
func checkNamespace(value string) error {
	if value != "" && len(validation.IsDNS1123Label(value)) > 0 {
		return fmt.Errorf("%q is not a valid namespace: it must have at most %d lowercase letters, digits and dashes, and begin and end with a letter or digit", value, validation.DNS1123LabelMaxLength)
	}
	return nil
}

// forms provides the data for the output formats of CI systems.
type forms struct {
	// root is the folder of the definitions.
	root, version string
	findings      func() []report.Finding
	suites        func() []report.Suite
}

// report writes the output in the format github, sarif or junit with the data of forms. It calls write for the other
// formats.
func (f *format) report(w io.Writer, v any, of forms) error {
	switch f.value {
	case "github":
		return report.GitHub(commandWriter(w), fromCheckout(of.root, of.findings()))
	case "sarif":
		return writeJSON(w, report.SARIF(of.version, fromCheckout(of.root, of.findings())))
	case "junit":
		return report.JUnit(w, of.suites())
	}
	return f.write(w, v)
}

// texter is a value that can be written as text.
type texter interface{ Text() string }

// write writes v as text if the format is text and v is a texter. Otherwise it encodes v as JSON or YAML.
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
	return wrap("writing the output", err)
}

// wrap adds a description of the failed action to an error. It returns nil for nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
