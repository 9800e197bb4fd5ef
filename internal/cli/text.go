// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	_ "embed" // the templates of texts
	"strings"
	"text/template"

	"github.com/corral-dev/corral/internal/wording"
)

//go:embed text.tmpl
var textTemplates string

// texts renders the text output of commands. Its function safe returns values
// unchanged, because Run escapes the output.
var texts = &wording.Book{Source: textTemplates, Functions: template.FuncMap{
	"max": wording.Max, "count": wording.Count[int], "lines": ranges, "redact": wording.Redact,
	"safe":   func(value any) any { return value },
	"list":   func(texts []string) string { return strings.Join(texts, ", ") },
	"upper":  func(text any) string { return strings.ToUpper(text.(string)) },
	"indent": func(text string) string { return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") },
}}

func orNone(text string) string { return cmp.Or(text, "none") }
