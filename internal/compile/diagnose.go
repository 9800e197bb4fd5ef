// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/schema"
)

// outOfPattern is CUE's message for a string that doesn't match a regular expression.
var outOfPattern = regexp.MustCompile(`^invalid value (.*) \(out of bound =~(".*")\)$`)

// mismatch is CUE's message for two values of different types.
var mismatch = regexp.MustCompile(`(?s)^conflicting values (.*) and (.*) \(mismatched types (\S+) and (\S+)\)$`)

// runes is CUE's message for a string that is too short or too long.
var runes = regexp.MustCompile(`(?s)^invalid value (".*") \(does not satisfy strings\.(Min|Max)Runes\((\d+)\)\)$`)

// cannotFetch is the loader's message around that of our registry.
var cannotFetch = regexp.MustCompile(`cannot fetch .*: (module .* can't be had: .*)`)

// badFolder says that a folder's name can't be part of an import path.
const badFolder = "CUE can't import from a folder of this name; rename it: ASCII letters and digits, and - _ + . between them"

// finding is one error of the evaluator in our words.
type finding struct {
	path      []string
	format    string
	args      []any
	message   string
	positions []token.Pos
}

// reportAt reports a message about the struct v.
func (c *compilation) reportAt(p *pkg, v cue.Value, message string) {
	at := p.position(selectors(v.Path()), v.Pos())
	c.report(v1alpha1.Diagnostic{File: at.Filename, Line: at.Line, Column: at.Column, Path: v.Path().String(), Message: message})
}

// reportError reports each of the errors that err holds. The package is nil before
// evaluation; object is the one that was checked, if any.
func (c *compilation) reportError(p *pkg, err error, object ...cue.Value) {
	var prefix []string
	var around []token.Pos
	for _, v := range object {
		prefix, around = selectors(v.Path()), []token.Pos{v.Pos()}
	}
	var cueError cueerrors.Error
	if !errors.As(err, &cueError) {
		c.report(v1alpha1.Diagnostic{Path: joinPath(prefix), Message: err.Error()})
		return
	}
	var findings []finding
	for _, e := range cueerrors.Errors(err) {
		format, args := e.Msg()
		at := unquoted(e.Path())
		if prefix != nil && !hasPrefix(at, prefix) {
			at = append(slices.Clone(prefix), withoutDefinition(at)...)
		}
		findings = append(findings, finding{path: at, format: format, args: args, message: text(e), positions: append(cueerrors.Positions(e), around...)})
	}
	for _, f := range withoutConsequences(simplify(findings)) {
		f = c.explain(p, f)
		at := p.position(f.path, f.positions...)
		c.report(v1alpha1.Diagnostic{File: at.Filename, Line: at.Line, Column: at.Column,
			Path: joinPath(f.path), Message: f.message})
	}
}

// reportModuleError reports what went wrong before evaluation. What has no place is
// mostly about the module file.
func (c *compilation) reportModuleError(m *module, err error) {
	before := len(c.diagnostics)
	c.reportError(nil, err)
	moduleFile := path.Join(m.root, "cue.mod/module.cue")
	for i := before; i < len(c.diagnostics); i++ {
		if c.diagnostics[i].File == "" && m.files[moduleFile] != nil {
			c.diagnostics[i].File = moduleFile
		}
	}
}

// withoutDefinition drops the name of a definition that an object was unified with.
func withoutDefinition(path []string) []string {
	if len(path) > 0 && strings.HasPrefix(path[0], "#") {
		return path[1:]
	}
	return path
}

// text is an error's message with its causes, without path and positions.
func text(e cueerrors.Error) string {
	return cueerrors.StringWithConfig(e, &cueerrors.Config{OmitPath: true})
}

// simplify replaces the errors of each alternative of a failed disjunction by one: a
// message of its own if there is any, or else what was allowed.
func simplify(findings []finding) []finding {
	byPath := map[string][]finding{}
	var order []string
	for _, f := range findings {
		key := strings.Join(f.path, "\x00")
		if byPath[key] == nil {
			order = append(order, key)
		}
		byPath[key] = append(byPath[key], f)
	}
	var out []finding
	for _, key := range order {
		group := byPath[key]
		if causes := slices.DeleteFunc(slices.Clone(group), ofNoValue); len(causes) > 0 {
			group = causes
		}
		if len(group) > 1 && slices.ContainsFunc(group, isDisjunction) {
			group = simplifyDisjunction(group)
		}
		out = append(out, group...)
	}
	return out
}

// withoutConsequences drops what is said of a struct by naming one of its fields where something
// is wrong with that field: to a rule of the schema, a field that is wrong is not there.
func withoutConsequences(findings []finding) []finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f finding) bool {
		return slices.ContainsFunc(findings, func(other finding) bool {
			return len(other.path) > len(f.path) && hasPrefix(other.path, f.path) &&
				slices.Contains(strings.Fields(f.message), other.path[len(f.path)])
		})
	})
}

// ofNoValue says that a finding is that a rule can't judge a value in which something else is wrong.
func ofNoValue(f finding) bool { return strings.Contains(f.message, "(type _|_)") }

func isDisjunction(f finding) bool { return strings.Contains(f.format, "errors in empty disjunction") }

func isConflict(f finding) bool { return strings.HasPrefix(f.format, "conflicting values") }

func simplifyDisjunction(group []finding) []finding {
	alternatives := slices.DeleteFunc(slices.Clone(group), isDisjunction)
	other := slices.DeleteFunc(slices.Clone(alternatives), isConflict)
	if len(other) > 0 {
		return other
	}
	if len(alternatives) == 0 {
		return group
	}
	merged := alternatives[0]
	merged.message = conflictMessage(alternatives)
	for _, f := range alternatives[1:] {
		merged.positions = append(merged.positions, f.positions...)
	}
	return []finding{merged}
}

// conflictMessage says what was given and what is allowed. Each of the conflicts names
// the value given and one that is allowed.
func conflictMessage(conflicts []finding) string {
	seen := map[string]int{}
	for _, f := range conflicts {
		for _, arg := range f.args[:min(2, len(f.args))] {
			seen[fmt.Sprint(arg)]++
		}
	}
	var given string
	var allowed []string
	for _, f := range conflicts {
		for _, arg := range f.args[:min(2, len(f.args))] {
			s := fmt.Sprint(arg)
			switch {
			case seen[s] == len(conflicts) && len(conflicts) > 1:
				given = s
			case !slices.Contains(allowed, s):
				allowed = append(allowed, s)
			}
		}
	}
	if given == "" {
		return conflicts[0].message
	}
	return fmt.Sprintf("invalid value %s: must be %s", given, strings.Join(allowed, " or "))
}

// explain words a finding so that it says what to do.
func (c *compilation) explain(p *pkg, f finding) finding {
	switch {
	case strings.HasPrefix(f.message, "field not allowed") && p != nil:
		return p.explainUnknown(f)
	case strings.HasPrefix(f.message, "incomplete value"):
		f.message += "; make a building block a definition (#name) or a hidden field (_name)"
	case strings.Contains(f.message, "cannot find module providing package"):
		_, name, _ := strings.Cut(f.message, "cannot find module providing package ")
		f.message = fmt.Sprintf("unknown import %q: nothing is downloaded; Corral brings %q along, others are copied to cue.mod/pkg",
			name, schema.Module)
		f.path = nil
	case strings.Contains(f.message, "no dependency found for package"):
		f.message = badFolder
		f.path = nil
	case cannotFetch.MatchString(f.message):
		f.message = cannotFetch.FindStringSubmatch(f.message)[1]
		f.path = nil
	case strings.Contains(f.message, "import failed: "):
		_, f.message, _ = strings.Cut(f.message, "import failed: ")
		f.path = nil
	case outOfPattern.MatchString(f.message):
		m := outOfPattern.FindStringSubmatch(f.message)
		if pattern, err := strconv.Unquote(m[2]); err == nil {
			f.message = fmt.Sprintf("invalid value %s: must match %s", m[1], pattern)
		}
	case runes.MatchString(f.message):
		m := runes.FindStringSubmatch(f.message)
		f.message = lengthMessage(m[1], m[2], m[3])
	case mismatch.MatchString(f.message):
		m := mismatch.FindStringSubmatch(f.message)
		f.message = mismatchMessage(f.message, m[1], m[2], m[3], m[4])
	}
	return f
}

// lengthMessage says how long a string must be; it doesn't quote what may be very long.
func lengthMessage(value, bound, characters string) string {
	switch {
	case value == `""`:
		return "must not be empty"
	case bound == "Min":
		return "must have at least " + characters + " characters"
	}
	return "must have at most " + characters + " characters"
}

// ofSchema begins or marks what no one writes into a definition: a validator, or a field with a mark.
var ofSchema = regexp.MustCompile(`^(\(|=~|strings\.|time\.|list\.)|[!?]:|\.\.\.`)

// mismatchMessage says which of two values was given and of what type it must be. The schema's is
// the type itself or a validator; else a plain value beside a struct or a list is somebody's.
func mismatchMessage(message, a, b, typeOfA, typeOfB string) string {
	isSchema := func(value, kind string) bool { return value == kind || ofSchema.MatchString(value) }
	isPlain := func(kind string) bool { return kind != "struct" && kind != "list" }
	switch {
	case isSchema(b, typeOfB) && !isSchema(a, typeOfA), isPlain(typeOfA) && !isPlain(typeOfB) && !isSchema(a, typeOfA):
		return fmt.Sprintf("invalid value %s: must be %s, not %s", a, typeOfB, typeOfA)
	case isSchema(a, typeOfA) && !isSchema(b, typeOfB), isPlain(typeOfB) && !isPlain(typeOfA) && !isSchema(b, typeOfB):
		return fmt.Sprintf("invalid value %s: must be %s, not %s", b, typeOfA, typeOfB)
	}
	return message
}

func unquoted(path []string) []string {
	out := make([]string, len(path))
	for i, label := range path {
		out[i] = label
		if s, err := strconv.Unquote(label); err == nil {
			out[i] = s
		}
	}
	return out
}

func joinPath(path []string) string {
	selectors := make([]cue.Selector, len(path))
	for i, label := range path {
		n, err := strconv.Atoi(label)
		switch {
		case err == nil && n >= 0:
			selectors[i] = cue.Index(n)
		case strings.HasPrefix(label, "#"):
			selectors[i] = cue.Def(label)
		default:
			selectors[i] = cue.Str(label)
		}
	}
	return cue.MakePath(selectors...).String()
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
