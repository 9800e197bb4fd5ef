// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"unicode"
)

var (
	// statement matches an action that renders nothing itself, and keyword a line that contains only such an action.
	statement = regexp.MustCompile(`^\{\{(?:- |(?:if|else|end|range|with|define|template)\b|\$\w+ :=)`)
	keyword   = regexp.MustCompile(`(?m)^[ \t]*(\{\{(?:(?:if|else|end|range|with|define|template)\b|\$\w+ :=)[^{}\n]*\}\})[ \t]*\n`)
	action    = regexp.MustCompile(`\{\{[^{}]+\}\}`)
	// joint and lineBreak match the separators between the lines of a phrase.
	joint     = regexp.MustCompile(`\s*\n\s*([,;.:])`)
	lineBreak = regexp.MustCompile(`\s*\n\s*`)
)

// FurtherLine stands for a line break in a value that a Book renders. It is not printable, so no value contains it otherwise.
const FurtherLine = "\v"

// Book renders text templates. It parses them at first use, so that commands that render nothing start faster. A line that contains only a
// keyword leaves no line, and each value goes through Safe.
type Book struct {
	// Source of the templates, and the Functions that they call in addition to line (Phrase), list (List), safe (Safe), max (Max), count (Count) and
	// join, which separates texts by commas.
	Source    string
	Functions template.FuncMap

	parsed  *template.Template
	parsing sync.Once
}

// Execute renders a template.
func (b *Book) Execute(name string, data any) string {
	b.parsing.Do(func() {
		source := action.ReplaceAllStringFunc(keyword.ReplaceAllString(b.Source, "$1"), func(action string) string {
			if statement.MatchString(action) {
				return action
			}
			return strings.TrimSuffix(action, "}}") + " | safe}}"
		})
		b.parsed = template.Must(template.New("").Funcs(template.FuncMap{
			"safe": Safe, "line": b.Phrase, "list": b.List, "max": Max, "count": count,
			"join": func(texts []string) string { return strings.Join(texts, ", ") },
		}).Funcs(b.Functions).Parse(source))
	})
	var text strings.Builder
	if err := b.parsed.ExecuteTemplate(&text, name, data); err != nil {
		return err.Error() // cannot happen, because tests render every part of each template
	}
	return text.String()
}

// count is Count for any integer, or for a pointer to one.
func count(n any, noun string) string {
	return Count(int(reflect.Indirect(reflect.ValueOf(n)).Int()), noun)
}

// Phrase renders a template as one line. It joins lines with a space, or without one before a comma, semicolon, colon or full stop.
func (b *Book) Phrase(name string, data any) string {
	text := joint.ReplaceAllString(strings.Trim(b.Execute(name, data), " \n"), "$1")
	return strings.ReplaceAll(lineBreak.ReplaceAllString(text, " "), FurtherLine, "\n")
}

// List renders a phrase whose parts begin with a comma, without the first comma.
func (b *Book) List(name string, data any) string {
	return strings.TrimPrefix(b.Phrase(name, data), ", ")
}

// Sentences renders a template and returns its lines, which are one sentence each.
func (b *Book) Sentences(name string, data any) (all []string) {
	for line := range strings.Lines(b.Execute(name, data)) {
		line = strings.TrimSpace(line)
		if line != "" {
			all = append(all, strings.ReplaceAll(line, FurtherLine, "\n"))
		}
	}
	return all
}

// Safe returns a value as text that cannot break the layout. It replaces line breaks by FurtherLine, and other unprintable characters by a space.
func Safe(value any) string {
	text := strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, fmt.Sprint(value))
	return strings.ReplaceAll(strings.TrimRight(strings.TrimLeft(text, " \n"), "\n"), "\n", FurtherLine)
}
