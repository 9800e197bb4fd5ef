// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"io"
	"strconv"
	"strings"
)

// GitHub writes findings as workflow commands, which GitHub shows as annotations in a pull request. It shows 10 errors and
// 10 warnings per step, so the most severe findings come first.
func GitHub(w io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range worstFirst(findings) {
		b.WriteString(command(f))
	}
	return write(w, "workflow commands", b.String())
}

func command(f Finding) string {
	properties := named("=", ",", [][2]string{
		{"file", escapeProperty(f.Place.File)}, {"line", strconv.Itoa(f.Place.Line)}, {"col", strconv.Itoa(f.Place.Column)}, {"title", escapeProperty(f.Title)},
	})
	name := cmp.Or(map[Level]string{Error: "error", Warning: "warning"}[f.Level], "notice")
	return "::" + strings.TrimSuffix(name+" "+properties, " ") + "::" + escapeData(f.describe()) + "\n"
}

// named joins pairs of a name and a value, without the pairs whose value is empty or 0.
func named(between, separator string, all [][2]string) string {
	var parts []string
	for _, one := range all {
		if one[1] != "" && one[1] != "0" {
			parts = append(parts, one[0]+between+one[1])
		}
	}
	return strings.Join(parts, separator)
}

// describe returns the message of a finding, with the details for which workflow commands have no property.
func (f Finding) describe() string {
	return strings.TrimSuffix(f.says()+"\n"+named(": ", "\n", [][2]string{{"field", f.Path}, {"rule", f.By}, {"fix", f.Help}}), "\n")
}

// says returns the message of a finding, preceded by its subject.
func (f Finding) says() string {
	return strings.TrimPrefix(f.Subject+": "+f.Message, ": ")
}

// escapeData escapes the text of a command. The runner decodes it.
var escapeData = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace

// escapeProperty escapes the value of a command's property.
func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(s))
}
