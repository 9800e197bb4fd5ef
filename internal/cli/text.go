// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	_ "embed" // the templates of texts
	"strings"
	"sync"
	"text/template"

	"github.com/corral-dev/corral/internal/wording"
)

//go:embed text.tmpl
var textTemplates string

// texts parses the templates at the first use, because most commands need none.
var texts = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"max": wording.Max, "count": wording.Count[int], "lines": ranges,
		"list":   func(texts []string) string { return strings.Join(texts, ", ") },
		"upper":  func(text any) string { return strings.ToUpper(text.(string)) },
		"indent": func(text string) string { return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") },
	}).Parse(textTemplates))
})

// render executes a template.
func render(name string, value any) string {
	var b strings.Builder
	if err := texts().ExecuteTemplate(&b, name, value); err != nil {
		return err.Error() // tests execute each template
	}
	return b.String()
}

func orNone(text string) string { return cmp.Or(text, "none") }
