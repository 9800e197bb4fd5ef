// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// GitHub writes findings as workflow commands, which GitHub shows at the line of the file
// in a pull request. It shows 10 errors and 10 warnings of a step; the worst come first.
func GitHub(w io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range worstFirst(findings) {
		b.WriteString(command(f))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing workflow commands: %w", err)
	}
	return nil
}

func command(f Finding) string {
	var properties []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			properties = append(properties, name+"="+escapeProperty(value))
		}
	}
	if f.Place.File != "" {
		add("file", f.Place.File)
		add("line", strconv.Itoa(f.Place.Line))
		add("col", strconv.Itoa(f.Place.Column))
	}
	add("title", f.Title)
	name := map[Level]string{Error: "error", Warning: "warning"}[f.Level]
	name = cmp.Or(name, "notice")
	head := "::" + name
	if len(properties) > 0 {
		head += " " + strings.Join(properties, ",")
	}
	return head + "::" + escapeData(f.describe()) + "\n"
}

// describe says all of a finding that has no property of its own.
func (f Finding) describe() string {
	text := f.Message
	if f.Subject != "" {
		text = f.Subject + ": " + text
	}
	if f.Path != "" {
		text += "\nfield: " + f.Path
	}
	if f.By != "" {
		text += "\nrule: " + f.By
	}
	if f.Help != "" {
		text += "\nfix: " + f.Help
	}
	return text
}

// String writes a place as FILE:LINE.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// escapeData escapes the text of a command, as the runner undoes it.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// escapeProperty escapes the value of a command's property.
func escapeProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}
