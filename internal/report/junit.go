// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed" // the template
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/corral-dev/corral/internal/wording"
)

//go:embed junit.xml.tmpl
var junitTemplate string

// JUnit writes suites in JUnit's XML format.
func JUnit(w io.Writer, suites []Suite) error {
	all := Suite{}
	for _, s := range suites {
		all.Cases = append(all.Cases, s.Cases...)
	}
	form := template.Must(template.New("JUnit").Funcs(template.FuncMap{"xml": escapeXML, "first": wording.FirstLine}).Parse(junitTemplate))
	if err := form.Execute(w, map[string]any{"All": all, "Suites": suites}); err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	return nil
}

// escapeXML escapes text for XML, and replaces characters that XML cannot contain.
func escapeXML(text string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}
