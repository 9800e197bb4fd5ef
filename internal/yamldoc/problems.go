// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package yamldoc

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Problem is one problem in a YAML text. Line is the number of the line to change, from 1.
type Problem struct {
	Line    int
	Message string
}

// Problems splits a parser's error about a text into the problems that it reports. The message of a problem ends with a fix,
// if one is known.
func Problems(text []byte, err error) (problems []Problem) {
	messages := []string{err.Error()}
	if several := (*yamlv3.TypeError)(nil); errors.As(err, &several) {
		messages = several.Errors
	}
	if alias := (aliasError{}); errors.As(err, &alias) {
		return []Problem{{Line: alias.line, Message: alias.Error()}}
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for _, message := range messages {
		p := Problem{Line: 1}
		if found := atLine.FindStringSubmatch(message); found != nil {
			number, _ := strconv.Atoi(found[1]) // the pattern matches only digits
			p.Line = min(max(number, 1), len(lines))
		}
		p.Message = noise.ReplaceAllString(atLine.ReplaceAllString(message, ""), "")
		if found := setTwice.FindStringSubmatch(p.Message); found != nil && found[1] == "apiVersion" {
			p.Message = "another object begins here: put a line with --- before it"
			return append(problems, p) // the parser reports the other keys of that object as well
		}
		problems = append(problems, explain(p, lines))
	}
	return problems
}

var (
	atLine = regexp.MustCompile(`\bline (\d+): ?`)
	noise  = regexp.MustCompile(`^(error converting YAML to JSON: )?(yaml: )?(unmarshal errors:\s*)?`)

	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	setTwice      = regexp.MustCompile(`key "([^"]*)" already set in map`)
	withoutSpace  = regexp.MustCompile(`^\s*(- )?[\w./-]+:[^\s:]`)
	twoColons     = regexp.MustCompile(`^\s*(- +)?[^\s:"']+:\s.*:(\s|$)`)
	tabbed        = regexp.MustCompile(`^ *\t`)
	keyed         = regexp.MustCompile(`^\s*(- +)?([^\s:]+|"[^"]*"):(\s|$)`)
)

// explain corrects the line of a problem, because the parser counts from 0 in some messages, and adds a fix to the message.
func explain(p Problem, lines []string) Problem {
	anchor, twice := unknownAnchor.FindStringSubmatch(p.Message), setTwice.FindStringSubmatch(p.Message)
	line := func() string { return lines[p.Line-1] }
	switch {
	case anchor != nil:
		p.Line = lineWith(lines, 1, regexp.MustCompile(`(^|\s)\*`+regexp.QuoteMeta(anchor[1])+`\b`))
		p.Message = fmt.Sprintf("there is no anchor &%s for *%[1]s: put a value that begins with * in double quotes", anchor[1])
	case twice != nil:
		p.Message = twice[1] + " is set twice in one mapping: remove one"
	case strings.Contains(p.Message, "a tab character"):
		p.Line = lineWith(lines, p.Line, tabbed)
		p.Message += ": indent with spaces"
	case strings.HasPrefix(p.Message, "did not find expected"):
		p.Line = min(p.Line+1, len(lines))
		if strings.ContainsAny(line(), "{[") {
			p.Message += ": close each { and [, and put commas between their entries"
		}
	case strings.HasPrefix(p.Message, "could not find expected ':'"):
		return explainNoColon(p, lines)
	case strings.HasPrefix(p.Message, "mapping values are not allowed") && twoColons.MatchString(line()):
		p.Message += ": put a value with a colon and a space in double quotes"
	case strings.HasPrefix(p.Message, "mapping values are not allowed"):
		return explainNesting(p, lines)
	}
	return p
}

// explainNoColon explains a problem if its line, or the closest line above it, has no colon or no space after the colon.
// Otherwise it returns the problem unchanged.
func explainNoColon(p Problem, lines []string) Problem {
	for _, at := range []int{p.Line, max(lineAbove(lines, p.Line), 1)} {
		switch text := lines[at-1]; {
		case withoutSpace.MatchString(text):
			return Problem{at, "put a space after the colon"}
		case !keyed.MatchString(text) && strings.TrimSpace(text) != "":
			return Problem{at, fmt.Sprintf("%s has no colon: write NAME: VALUE", shown(text))}
		}
	}
	return p
}

// explainNesting explains a mapping that is nested below a line with a value. Either the line above has no colon, or one of
// the two lines has the wrong indentation.
func explainNesting(p Problem, lines []string) Problem {
	above := lineAbove(lines, p.Line)
	if above == 0 {
		return p
	}
	if name := lines[above-1]; !keyed.MatchString(name) {
		return Problem{above, fmt.Sprintf("%s has no colon: write NAME: VALUE", shown(name))}
	}
	like := above
	if other := lineAbove(lines, above); other > 0 && indent(lines[other-1]) == indent(lines[p.Line-1]) {
		like, p.Line = other, above
	}
	p.Message = fmt.Sprintf("%s is indented differently: indent it like %s", keyOf(lines[p.Line-1]), keyOf(lines[like-1]))
	return p
}

// keyOf returns the key of a line, or the quoted line if it has no key or a very long one.
func keyOf(line string) string {
	found := keyed.FindStringSubmatch(line)
	if found == nil || len(found[2]) > maxShown {
		return shown(line)
	}
	return found[2]
}

// maxShown is the maximum number of bytes of a line in a message.
const maxShown = 80

// shown returns a line as a quoted text for a message. It cuts long lines.
func shown(line string) string {
	line = strings.TrimSpace(line)
	return strconv.Quote(strings.ToValidUTF8(line[:min(len(line), maxShown)], ""))
}

// lineAbove returns the number of the closest line above the given line that is neither empty nor a comment; 0 if there is
// none.
func lineAbove(lines []string, line int) int {
	for i := min(line, len(lines)) - 1; i > 0; i-- {
		if text := strings.TrimSpace(lines[i-1]); text != "" && text[0] != '#' {
			return i
		}
	}
	return 0
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// lineWith returns the number of the first line, starting at from, that matches a pattern; from if none matches.
func lineWith(lines []string, from int, pattern *regexp.Regexp) int {
	for i := max(from, 1); i <= len(lines); i++ {
		if pattern.MatchString(lines[i-1]) {
			return i
		}
	}
	return from
}
