// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"unicode"
)

var (
	// statement is an action of a template that writes nothing itself, and keyword a line with nothing but one.
	statement = regexp.MustCompile(`^\{\{(?:- |(?:if|else|end|range|with|define|template)\b|\$\w+ :=)`)
	keyword   = regexp.MustCompile(`(?m)^[ \t]*(\{\{(?:(?:if|else|end|range|with|define|template)\b|\$\w+ :=)[^{}\n]*\}\})[ \t]*\n`)
	action    = regexp.MustCompile(`\{\{[^{}]+\}\}`)
	// joint and lineBreak are what separates the lines of a phrase.
	joint     = regexp.MustCompile(`\s*\n\s*([,;.:])`)
	lineBreak = regexp.MustCompile(`\s*\n\s*`)
)

// FurtherLine stands for a line break in a value that a Book writes. It can't be printed, so that no value has one of its own.
const FurtherLine = "\v"

// Book has text templates, which are parsed once, and not at the start of each command. A line of nothing but a keyword leaves no line, and
// each value goes through Safe.
type Book struct {
	// Source of the templates, and the Functions that they call beside safe, line, which is Phrase, and list, which is List.
	Source    string
	Functions template.FuncMap

	parsed  *template.Template
	parsing sync.Once
}

// Execute writes a template.
func (b *Book) Execute(name string, data any) string {
	b.parsing.Do(func() {
		source := action.ReplaceAllStringFunc(keyword.ReplaceAllString(b.Source, "$1"), func(action string) string {
			if statement.MatchString(action) {
				return action
			}
			return strings.TrimSuffix(action, "}}") + " | safe}}"
		})
		b.parsed = template.Must(template.New("").Funcs(template.FuncMap{"safe": Safe, "line": b.Phrase, "list": b.List}).Funcs(b.Functions).Parse(source))
	})
	var text strings.Builder
	if err := b.parsed.ExecuteTemplate(&text, name, data); err != nil {
		return err.Error() // the tests write each part of each template
	}
	return text.String()
}

// Phrase writes a template whose lines make one: they are joined by a space, and by nothing before a comma, semicolon, colon or full stop.
func (b *Book) Phrase(name string, data any) string {
	text := joint.ReplaceAllString(strings.Trim(b.Execute(name, data), " \n"), "$1")
	return strings.ReplaceAll(lineBreak.ReplaceAllString(text, " "), FurtherLine, "\n")
}

// List is a Phrase of parts each of which begins with a comma.
func (b *Book) List(name string, data any) string {
	return strings.TrimPrefix(b.Phrase(name, data), ", ")
}

// Sentences writes a template each of whose lines is a sentence.
func (b *Book) Sentences(name string, data any) (all []string) {
	for line := range strings.Lines(b.Execute(name, data)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, strings.ReplaceAll(line, FurtherLine, "\n"))
		}
	}
	return all
}

// Safe is a value that can't break out of its place. A space replaces each character that can't be printed.
func Safe(value any) string {
	text := strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, fmt.Sprint(value))
	return strings.ReplaceAll(strings.TrimRight(strings.TrimLeft(text, " \n"), "\n"), "\n", FurtherLine)
}
