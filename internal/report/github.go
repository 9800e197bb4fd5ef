// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
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
	return write(w, "workflow commands", b.String())
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
	name := cmp.Or(map[Level]string{Error: "error", Warning: "warning"}[f.Level], "notice")
	head := strings.TrimSuffix(name+" "+strings.Join(properties, ","), " ")
	return "::" + head + "::" + escapeData(f.describe()) + "\n"
}

// describe says all of a finding that has no property of its own.
func (f Finding) describe() string {
	text := f.says()
	for _, more := range [][2]string{{"field", f.Path}, {"rule", f.By}, {"fix", f.Help}} {
		if more[1] != "" {
			text += "\n" + more[0] + ": " + more[1]
		}
	}
	return text
}

// says what a finding is of whom.
func (f Finding) says() string {
	if f.Subject == "" {
		return f.Message
	}
	return f.Subject + ": " + f.Message
}

// escapeData escapes the text of a command, as the runner undoes it.
var escapeData = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace

// escapeProperty escapes the value of a command's property.
func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(s))
}
