// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
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
var cannotFetch = regexp.MustCompile(`cannot fetch .*: (module .* is not in the repository.*)`)

// badFolder says that a folder's name can't be part of an import path.
const badFolder = "CUE can't import from a folder of this name; rename it: ASCII letters and digits, and - _ + . between them"

// finding is one error of the evaluator in our words.
type finding struct {
	path      []string
	format    string
	args      []any
	message   string
	positions []token.Pos
	// at is the place that has to be changed, if that is known.
	at token.Position
}

// reportAt reports a message about the struct v.
func (c *compilation) reportAt(p *pkg, v cue.Value, message string) {
	c.reportFinding(p, finding{path: selectors(v.Path()), message: message, positions: []token.Pos{v.Pos()}})
}

// reportError reports each of the errors that err holds. The package is nil before
// evaluation; object is the one that was checked, if any.
func (c *compilation) reportError(p *pkg, err error, object ...cue.Value) {
	var prefix []string
	var around []token.Pos
	for _, v := range object {
		prefix, around = selectors(v.Path()), []token.Pos{v.Pos()}
	}
	findings, ok := findingsOf(err, prefix, around)
	if !ok {
		c.report(v1alpha1.Diagnostic{Path: joinPath(prefix), Message: err.Error()})
		return
	}
	c.reportFindings(p, findings)
}

// findingsOf returns what an error of the evaluator holds, below the path prefix; it says whether the error is one of the evaluator's.
func findingsOf(err error, prefix []string, around []token.Pos) (findings []finding, ok bool) {
	var cueError cueerrors.Error
	if !errors.As(err, &cueError) {
		return nil, false
	}
	for _, e := range cueerrors.Errors(err) {
		format, args := e.Msg()
		at := unquoted(e.Path())
		if prefix != nil && !hasPrefix(at, prefix) {
			at = append(slices.Clone(prefix), withoutDefinition(at)...)
		}
		findings = append(findings, finding{path: at, format: format, args: args, message: text(e), positions: append(cueerrors.Positions(e), around...)})
	}
	return findings, true
}

// reportFindings reports what was found, for each object by itself.
func (c *compilation) reportFindings(p *pkg, findings []finding) {
	if p == nil {
		for _, f := range withoutConsequences(simplify(findings)) {
			f = c.explain(p, f)
			at := first(userPositions(f.positions))
			c.report(v1alpha1.Diagnostic{File: at.Filename, Line: at.Line, Column: at.Column, Path: joinPath(f.path), Message: f.message})
		}
		return
	}
	byObject := map[string][]finding{}
	for _, f := range withoutCopies(findings) {
		depth, _ := p.objectOf(f.path)
		key := strings.Join(f.path[:depth], "\x00")
		byObject[key] = append(byObject[key], f)
	}
	for _, key := range slices.Sorted(maps.Keys(byObject)) {
		findings := p.missing(withoutConsequences(simplify(byObject[key])))
		for i, f := range findings {
			findings[i] = c.explain(p, f)
		}
		for _, f := range withoutEffects(findings) {
			c.reportFinding(p, f)
		}
	}
}

// withoutEffects drops what only follows from another finding about the same object: from a field of its row that is not set, or from a
// definition that is closed.
func withoutEffects(findings []finding) []finding {
	isClosed := func(f finding) bool { return f.message == ofClosedDefinition }
	closed, located := slices.ContainsFunc(findings, isClosed), slices.ContainsFunc(findings, func(f finding) bool { return f.at.IsValid() })
	return slices.DeleteFunc(findings, func(f finding) bool {
		return closed && !isClosed(f) && strings.HasPrefix(f.format, "field not allowed") || located && strings.HasPrefix(f.format, "incomplete value")
	})
}

// reportFinding reports a finding at the place that has to be changed.
func (c *compilation) reportFinding(p *pkg, f finding) {
	depth, name := p.objectOf(f.path)
	m := p.place(f)
	rule := ""
	if f.format != "" {
		rule = f.format + " " + joinPath(f.path[depth:])
	}
	c.problems = append(c.problems, problem{object: name, rule: rule, shared: m.shared, Diagnostic: short(v1alpha1.Diagnostic{
		File: m.at.Filename, Line: m.at.Line, Column: m.at.Column, Path: joinPath(f.path), Message: m.message})})
}

// withoutCopies drops findings about a field that refers to a hidden one or a definition of which the same is found.
func withoutCopies(findings []finding) []finding {
	blocks := map[string][]finding{}
	for _, f := range findings {
		if len(f.path) > 0 && isBlock(f.path[0]) {
			blocks[f.message] = append(blocks[f.message], f)
		}
	}
	copied := map[string]bool{}
	kept := slices.DeleteFunc(slices.Clone(findings), func(f finding) bool {
		isCopy := slices.ContainsFunc(blocks[f.message], func(block finding) bool {
			return !slices.Equal(f.path, block.path) && slices.ContainsFunc(userPositions(block.positions), func(pos token.Pos) bool { return slices.Contains(f.positions, pos) })
		})
		if isCopy {
			copied[strings.Join(f.path, "\x00")] = true
		}
		return isCopy
	})
	return slices.DeleteFunc(kept, func(f finding) bool { return isDisjunction(f) && copied[strings.Join(f.path, "\x00")] })
}

// isBlock says whether a label is of a hidden field or a definition, of which building blocks are made.
func isBlock(label string) bool {
	return strings.HasPrefix(label, "_") || strings.HasPrefix(label, "#")
}

// reportModuleError reports what went wrong before evaluation. What has no place is
// mostly about the module file.
func (c *compilation) reportModuleError(m *module, err error) {
	before := len(c.problems)
	c.reportError(nil, err)
	moduleFile := path.Join(m.root, "cue.mod/module.cue")
	for i := before; i < len(c.problems); i++ {
		d := &c.problems[i].Diagnostic
		if d.File == "" && m.files[moduleFile] != nil {
			d.File = moduleFile
		}
	}
}

// mergeMarker returns the line of Git's first marker of a conflict, 0 if there is none.
func mergeMarker(text []byte) int {
	line := 1
	for l := range bytes.Lines(text) {
		if bytes.HasPrefix(l, []byte("<<<<<<< ")) {
			return line
		}
		line++
	}
	return 0
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
				slices.Contains(strings.FieldsFunc(f.message, func(r rune) bool { return r == ' ' || r == ',' }), other.path[len(f.path)])
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

// explain words a finding so that it says what to do. The package is nil before evaluation.
func (c *compilation) explain(p *pkg, f finding) finding {
	if p == nil {
		return explainImport(f)
	}
	switch {
	case strings.HasPrefix(f.message, "field not allowed"):
		return p.explainUnknown(f)
	case strings.HasPrefix(f.format, "undefined field"):
		return p.explainUndefined(f)
	case strings.HasPrefix(f.message, "incomplete value {"), strings.HasPrefix(f.message, "incomplete value ["), strings.HasPrefix(f.message, "unresolved disjunction"):
		return p.explainAlternatives(f)
	case strings.HasPrefix(f.message, "incomplete value"):
		f.message += "; begin the name of a building block with _ or #"
	default:
		f.message = valueMessage(f.message)
	}
	return f
}

// explainImport says what is wrong with an import, or with a package that is imported.
func explainImport(f finding) finding {
	switch {
	case strings.Contains(f.message, "cannot find module providing package"):
		_, name, _ := strings.Cut(f.message, "cannot find module providing package ")
		f.message = fmt.Sprintf("unknown import %q: add its module with cue mod get and run corral mod vendor, or copy the package to cue.mod/pkg; only %q is built in",
			name, schema.Module)
	case strings.Contains(f.message, "no dependency found for package"):
		f.message = badFolder
	case cannotFetch.MatchString(f.message):
		f.message = cannotFetch.FindStringSubmatch(f.message)[1]
	case strings.Contains(f.message, "import failed: "):
		_, f.message, _ = strings.Cut(f.message, "import failed: ")
		if strings.Contains(f.message, "import cycle") {
			f.message += ": move what both packages need to a third"
		}
	default:
		return f
	}
	f.path = nil
	return f
}

// valueMessage says what a value must be, and doesn't quote what may be very long.
func valueMessage(message string) string {
	if m := outOfPattern.FindStringSubmatch(message); m != nil {
		pattern, err := strconv.Unquote(m[2])
		switch {
		case err == nil && pattern == timeOfDay:
			return fmt.Sprintf("invalid value %s: must be a time of day, from 00:00 to 23:59, as 07:30", m[1])
		case err == nil:
			return fmt.Sprintf("invalid value %s: must match %s", m[1], pattern)
		}
	}
	if m := runes.FindStringSubmatch(message); m != nil {
		return lengthMessage(m[1], m[2], m[3])
	}
	if m := mismatch.FindStringSubmatch(message); m != nil {
		return mismatchMessage(message, m[1], m[2], m[3], m[4])
	}
	return message
}

// timeOfDay is the pattern of the times in a schedule.
const timeOfDay = "^([01][0-9]|2[0-3]):[0-5][0-9]$"

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
		case strings.HasPrefix(label, "_"):
			selectors[i] = cue.Hid(label, "_")
		default:
			selectors[i] = cue.Str(label)
		}
	}
	return cue.MakePath(selectors...).String()
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
