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
	// statement matches the beginning of an action to whose value Safe is not applied: a keyword, an assignment, or an action
	// that trims the white space before it ({{-). keyword matches a line that contains only a keyword or an assignment.
	statement = regexp.MustCompile(`^\{\{(?:- |(?:if|else|end|range|with|define|template)\b|\$\w+ :=)`)
	keyword   = regexp.MustCompile(`(?m)^[ \t]*(\{\{(?:(?:if|else|end|range|with|define|template)\b|\$\w+ :=)[^{}\n]*\}\})[ \t]*\n`)
	action    = regexp.MustCompile(`\{\{[^{}]+\}\}`)
	// joint matches a line break before punctuation, which Phrase removes. lineBreak matches any line break; Phrase replaces it
	// by a space.
	joint     = regexp.MustCompile(`\s*\n\s*([,;.:])`)
	lineBreak = regexp.MustCompile(`\s*\n\s*`)
)

// FurtherLine replaces a line break inside a value until the template is rendered. It is not printable, so a value cannot
// contain it in another meaning.
const FurtherLine = "\v"

// Book renders text templates. It parses them at first use, so that commands that render nothing start faster. A line of a
// template that contains only a keyword, such as {{end}}, adds no line to the text. Each value is passed through Safe,
// except in actions that trim white space with {{-.
type Book struct {
	// Source contains the templates. They can call the Functions, and the functions line (Phrase), list (List), safe (Safe),
	// max (Max), count (Count) and join, which joins texts with commas.
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

// count is Count for a value of any signed integer type, or for a pointer to such a value.
func count(n any, noun string) string {
	return Count(int(reflect.Indirect(reflect.ValueOf(n)).Int()), noun)
}

// Phrase renders a template as one line. It joins the template's lines with spaces, but puts no space before a comma,
// semicolon, colon or period. Line breaks inside values remain.
func (b *Book) Phrase(name string, data any) string {
	text := joint.ReplaceAllString(strings.Trim(b.Execute(name, data), " \n"), "$1")
	return strings.ReplaceAll(lineBreak.ReplaceAllString(text, " "), FurtherLine, "\n")
}

// List renders a template as Phrase does, and removes the comma at the beginning. The template puts a comma before each
// element.
func (b *Book) List(name string, data any) string {
	return strings.TrimPrefix(b.Phrase(name, data), ", ")
}

// Sentences renders a template and returns its lines without empty ones. Each line is a sentence.
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
