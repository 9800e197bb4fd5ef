// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/yamldoc"
)

// Run runs the command line and tells its error. It returns the exit code. What is written has nothing in it that acts on a terminal:
// names of files, definitions and policies may be anybody's.
func Run(root *cobra.Command) int {
	root.SetOut(visible{to: root.OutOrStdout()})
	root.SetErr(visible{to: root.ErrOrStderr(), plain: true})
	err := root.Execute()
	if err != nil {
		root.PrintErrln("Error:", err)
	}
	return exitCode(err)
}

// visible escapes what acts on a terminal or, anywhere in a line, on GitHub's runner, as JSON has it; in plain text also what the runner takes
// for a workflow command at the beginning of a line.
type visible struct {
	to    io.Writer
	plain bool
}

// Write implements io.Writer.
func (v visible) Write(p []byte) (int, error) {
	text := strings.ReplaceAll(wording.Escape(string(p), "\n\t"), "##[", `#\u0023[`)
	if v.plain {
		text = wording.EscapeCommands(text)
	}
	_, err := io.WriteString(v.to, text)
	return len(p), err
}

// exactly returns a writer to which nothing is escaped.
func exactly(w io.Writer) io.Writer {
	if v, ok := w.(visible); ok {
		return v.to
	}
	return w
}

// writeYAML writes documents of YAML, in which an escape would be a part of the text: the encoder escapes what acts on a terminal, and what
// turns the direction of reading is to arrive as it was written. Texts in which GitHub's runner would see a command are written with
// escapes of YAML, which mean the same.
func writeYAML(w io.Writer, text []byte) error {
	w = exactly(w)
	if bytes.Contains(text, []byte("##[")) || wording.EscapeCommands(string(text)) != string(text) {
		var err error
		if text, err = quoted(text); err != nil {
			return fmt.Errorf("encoding the output: %w", err)
		}
	}
	_, err := w.Write(text)
	return err
}

// quoted writes texts with what the runner takes for a command in quotes, where there are escapes.
func quoted(text []byte) ([]byte, error) {
	var b bytes.Buffer
	documents, err := yamldoc.Parse(text)
	if err != nil {
		return nil, err
	}
	encoder := yamlv3.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, document := range documents {
		quote(document)
		if err := encoder.Encode(document); err != nil {
			return nil, err
		}
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("##["), []byte(`#\u0023[`)), encoder.Close()
}

func quote(n *yamlv3.Node) {
	if n.Kind == yamlv3.ScalarNode && (strings.Contains(n.Value, "##[") || strings.Contains(n.Value, "::")) {
		n.Style = yamlv3.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quote(child)
	}
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
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return allowed, cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag was added two lines above
	}
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

// texter is an answer that is also written as text.
type texter interface{ Text() string }

// write writes v as text, if that is the format and v has one, or encodes it as JSON or YAML.
func (f *format) write(w io.Writer, v any) error {
	if t, ok := v.(texter); ok && f.value == "text" {
		_, err := io.WriteString(w, t.Text())
		return err
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	if err == nil && f.value == "yaml" {
		var data []byte
		if data, err = yaml.JSONToYAML(b.Bytes()); err == nil {
			return writeYAML(w, data)
		}
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}
