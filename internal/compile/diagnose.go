// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// outOfPattern matches CUE's message for a string that does not match a regular expression.
var outOfPattern = regexp.MustCompile(`^invalid value (.*) \(out of bound =~(".*")\)$`)

// mismatch matches CUE's message for two values of different types.
var mismatch = regexp.MustCompile(`(?s)^conflicting values (.*) and (.*) \(mismatched types (\S+) and (\S+)\)$`)

// number matches a decimal number.
var number = regexp.MustCompile(`^-?[0-9.]+$`)

// runes matches CUE's message for a string that is too short or too long.
var runes = regexp.MustCompile(`(?s)^invalid value (".*") \(does not satisfy strings\.(Min|Max)Runes\((\d+)\)\)$`)

// requiredMissing matches CUE's message for a required field that is not set, if another value refers to the field.
var requiredMissing = regexp.MustCompile(`required field missing: (\w+)$`)

// cannotFetch matches the loader's message that wraps an error of the type registry.
var cannotFetch = regexp.MustCompile(`cannot fetch .*: (module .* is not in the repository.*)`)

// badFolder is the message for a folder whose name cannot be part of an import path.
const badFolder = "CUE can't import from a folder of this name; rename it: ASCII letters and digits, and - _ + . between them"

// finding is one error of the parser, the evaluator or Options.Check. explain rewords its message.
type finding struct {
	path      []string
	format    string
	args      []any
	message   string
	positions []token.Pos
	// at is the position to change, if known. shared is the position to change if many rows have the finding.
	at, shared token.Position
}

// reportAt reports a message about the struct v.
func (c *compilation) reportAt(p *pkg, v cue.Value, message string) {
	c.reportFinding(p, finding{path: selectors(v.Path()), message: message, positions: []token.Pos{v.Pos()}})
}

// reportError reports each error in err. The package is nil before evaluation. object is the checked object, if any.
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

// findingsOf returns the findings in an error of the evaluator, below a path prefix. ok is false for any other error.
func findingsOf(err error, prefix []string, around []token.Pos) (findings []finding, ok bool) {
	var cueError cueerrors.Error
	if !errors.As(err, &cueError) {
		return nil, false
	}
	for _, e := range cueerrors.Errors(err) {
		e = withoutImports(e)
		format, args := e.Msg()
		at := unquoted(e.Path())
		if prefix != nil && !hasPrefix(at, prefix) {
			at = append(slices.Clone(prefix), withoutDefinition(at)...)
		}
		findings = append(findings, finding{path: at, format: format, args: args, message: text(e), positions: append(cueerrors.Positions(e), around...)})
	}
	return findings, true
}

// withoutImports returns the cause of an error of an import, so that all packages that import a broken one have the same
// error.
func withoutImports(e cueerrors.Error) cueerrors.Error {
	for {
		format, _ := e.Msg()
		cause, ok := errors.Unwrap(e).(cueerrors.Error) //nolint:errorlint // one level, not the whole chain
		if format != "import failed" || !ok || !cause.Position().IsValid() {
			return e
		}
		e = cause
	}
}

// reportFindings reports findings, separately for each object.
func (c *compilation) reportFindings(p *pkg, findings []finding) {
	if p == nil {
		for i := range findings {
			findings[i].at = first(userPositions(findings[i].positions))
		}
		// Errors that the parser finds in a file after its first error are consequences of the first one.
		ofOneFile := func(a, b finding) bool { return a.at.IsValid() && a.at.Filename == b.at.Filename }
		for _, f := range slices.CompactFunc(withoutConsequences(simplify(findings)), ofOneFile) {
			f = c.explain(p, f)
			c.report(v1alpha1.Diagnostic{File: f.at.Filename, Line: v1alpha1.LineNumber(f.at.Line), Column: v1alpha1.LineNumber(f.at.Column), Path: joinPath(f.path), Message: f.message})
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

// withoutEffects drops findings that only follow from another finding about the same object: a missing field in its
// table row, a closed definition, or a wrong part of a computed name.
func withoutEffects(findings []finding) []finding {
	ofName := func(f finding) bool {
		return strings.HasPrefix(f.format, "key value of dynamic field") || strings.HasPrefix(f.format, "invalid interpolation")
	}
	if causes := slices.DeleteFunc(slices.Clone(findings), ofName); len(causes) > 0 {
		findings = causes
	}
	isClosed := func(f finding) bool { return f.message == ofClosedDefinition }
	closed, located := slices.ContainsFunc(findings, isClosed), slices.ContainsFunc(findings, func(f finding) bool { return f.at.IsValid() })
	return slices.DeleteFunc(findings, func(f finding) bool {
		return closed && !isClosed(f) && strings.HasPrefix(f.format, "field not allowed") || located && strings.HasPrefix(f.format, "incomplete value")
	})
}

// reportFinding reports a finding at the position to change.
func (c *compilation) reportFinding(p *pkg, f finding) {
	depth, name := p.objectOf(f.path)
	m := p.place(f)
	if f.shared.IsValid() {
		m.shared = f.shared
	}
	rule := ""
	if f.format != "" {
		rule = f.format + " " + joinPath(f.path[depth:])
	}
	c.problems = append(c.problems, problem{object: name, rule: rule, shared: m.shared, brief: m.brief, Diagnostic: short(v1alpha1.Diagnostic{
		File: m.at.Filename, Line: v1alpha1.LineNumber(m.at.Line), Column: v1alpha1.LineNumber(m.at.Column), Path: joinPath(f.path), Message: m.message})})
}

// withoutCopies drops findings about a field that refers to a hidden field or a definition with the same finding. If several
// fields in building blocks refer to the same value, only the first of their findings remains.
func withoutCopies(findings []finding) []finding {
	blocks, positions := map[string][]int{}, make([][]token.Pos, len(findings))
	inBlock := func(f finding) bool { return len(f.path) > 0 && isBlock(f.path[0]) }
	for i, f := range findings {
		positions[i] = userPositions(f.positions)
		if inBlock(f) && len(positions[i]) > 0 {
			blocks[f.message] = append(blocks[f.message], i)
		}
	}
	copied := map[string]bool{}
	var kept []finding
	for i, f := range findings {
		isCopy := slices.ContainsFunc(blocks[f.message], func(j int) bool {
			isCommon := func(pos token.Pos) bool { return slices.Contains(f.positions, pos) }
			isOther := func(pos token.Pos) bool { return !isCommon(pos) }
			if !inBlock(f) {
				return slices.ContainsFunc(positions[j], isCommon)
			}
			return j < i && !slices.ContainsFunc(positions[j], isOther) && !slices.Equal(f.path, findings[j].path)
		})
		if isCopy {
			copied[strings.Join(f.path, "\x00")] = true
		} else {
			kept = append(kept, f)
		}
	}
	return slices.DeleteFunc(kept, func(f finding) bool {
		return (isDisjunction(f) || isConflict(f)) && copied[strings.Join(f.path, "\x00")]
	})
}

// isBlock reports whether a label belongs to a hidden field or a definition, which are used as building blocks.
func isBlock(label string) bool {
	return strings.HasPrefix(label, "_") || strings.HasPrefix(label, "#")
}

// reportModuleError reports an error before evaluation. If it has no position, it is usually about the module file.
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

// mergeMarker returns the line of Git's first conflict marker, 0 if there is none.
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

// text returns an error's message with its causes, without path and positions.
func text(e cueerrors.Error) string {
	return cueerrors.StringWithConfig(e, &cueerrors.Config{OmitPath: true})
}

// simplify reduces the errors about the alternatives of a failed disjunction: it keeps the errors that are not conflicts or,
// if there are none, replaces the conflicts with one error that names the allowed values.
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

// withoutConsequences drops a finding about a struct that names one of its fields if there is a finding about that field.
// The schema's rules treat a field with an error as missing.
func withoutConsequences(findings []finding) []finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f finding) bool {
		return slices.ContainsFunc(findings, func(other finding) bool {
			return len(other.path) > len(f.path) && hasPrefix(other.path, f.path) &&
				slices.Contains(strings.FieldsFunc(f.message, func(r rune) bool { return r == ' ' || r == ',' }), other.path[len(f.path)])
		})
	})
}

// ofNoValue reports whether a finding only says that a rule cannot evaluate a value with another error in it.
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

// conflictMessage returns the given and the allowed values. Each of the conflicts contains the given value and one
// allowed value.
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
	allowed = withoutExamples(allowed)
	if strings.HasPrefix(given, "'") {
		given += ", whose quotes are not double quotes"
	}
	return fmt.Sprintf("invalid value %s: must be %s", given, strings.Join(allowed, " or "))
}

// withoutExamples drops values whose type is among the allowed values as well.
func withoutExamples(allowed []string) []string {
	anyBool, anyInt := slices.Contains(allowed, "bool"), slices.Contains(allowed, "int")
	return slices.DeleteFunc(allowed, func(s string) bool {
		return (s == "true" || s == "false") && anyBool || number.MatchString(s) && anyInt
	})
}

// explain rewords a finding so that its message contains the solution. The package is nil before evaluation.
func (c *compilation) explain(p *pkg, f finding) finding {
	if p == nil {
		return c.explainImport(f)
	}
	switch missing := requiredMissing.FindStringSubmatch(f.message); {
	case missing != nil && len(f.path) > 0 && !p.isInObject(f.path): // in the value that a computed name refers to
		return finding{path: f.path[:1], message: missing[1] + " must be set"}
	case missing != nil:
		f.message = missing[1] + " must be set"
	case p.isNull(f):
		f.message = "is empty (null): give it a value, or remove the field"
	case strings.HasPrefix(f.message, "field not allowed"):
		return p.explainUnknown(f)
	case strings.HasPrefix(f.format, "undefined field"):
		return p.explainUndefined(f)
	case strings.HasPrefix(f.message, "incomplete value {"), strings.HasPrefix(f.message, "incomplete value ["), strings.HasPrefix(f.message, "unresolved disjunction"):
		return p.explainAlternatives(f)
	case strings.HasPrefix(f.message, "incomplete value"):
		return p.explainIncomplete(f)
	case strings.HasPrefix(f.format, "reference %q not found"):
		return c.explainReference(p, f)
	case unknownImport.MatchString(f.message):
		f.at = first(userPositions(f.positions))
		return c.explainImport(f)
	default:
		return p.explainOther(f)
	}
	return f
}

// isInObject reports whether a path leads to an object or one of its fields.
func (p *pkg) isInObject(path []string) bool {
	_, kind := p.enclosingObject(path)
	return kind != ""
}

// explainReference explains an unknown name. A missing import is reported once in each file.
func (c *compilation) explainReference(p *pkg, f finding) finding {
	given, at := fmt.Sprint(f.args[0]), first(userPositions(f.positions))
	source := c.files[at.Filename]
	before, after := source[:min(at.Offset, len(source))], source[min(at.Offset+len(given), len(source)):]
	isMember := bytes.HasPrefix(after, []byte("."))
	for _, importPath := range slices.Concat(c.importable, standardPackages) {
		if isMember && path.Base(withoutVersion(importPath)) == given {
			f.message += fmt.Sprintf("; add import %q below the package clause", importPath)
			return c.atFirst(f, at, at.Filename+f.message)
		}
	}
	switch hint := p.nameHint(given); {
	case hint != "" || isBlock(given):
		f.message += hint
	case bytes.HasSuffix(before, []byte(interpolation)):
		isComputed := func(name string) bool { return name == anyLabel }
		f.message += "; the names of this package are " + wording.List(slices.DeleteFunc(slices.Sorted(maps.Keys(p.fields.children)), isComputed), maxHit)
	case isMember, bytes.HasPrefix(after, []byte("(")):
		f.message += "; import the package, or use a name of this file"
	default:
		f.message += "; put strings in double quotes"
	}
	return f
}

// nameHint suggests what an unknown name may have meant, without looking at the text around it; "" if nothing is similar.
func (p *pkg) nameHint(given string) string {
	labels := p.written().labels()
	switch block := blockOf(given, labels); {
	case block != "":
		return block
	case otherNames[given] != "":
		return "; " + otherNames[given]
	case isBlock(given):
		return didYouMeanMember(given, labels)
	}
	return ""
}

// explainOther explains other messages of CUE by their format.
func (p *pkg) explainOther(f finding) finding {
	switch {
	case strings.HasPrefix(f.format, "imported and not used"):
		return p.explainUnused(f)
	case strings.HasPrefix(f.format, "unreferenced alias") && slices.Contains(types, fmt.Sprint(f.args[0])):
		f.message = nameAndValue // the parser takes int = 5 for an alias
	case strings.HasPrefix(f.format, "invalid operands") && strings.Contains(f.message, "string"):
		f.message += `; write "\(NAME)" for a value in a string`
	default:
		f.message = valueMessage(f.message)
	}
	return f
}

// types are the names of CUE's types.
var types = []string{"bool", "bytes", "float", "int", "number", "string"}

// otherNames contains hints for names that have a meaning in other languages.
var otherNames = map[string]string{
	"True": "did you mean true?", "yes": "did you mean true?", "on": "did you mean true?",
	"False": "did you mean false?", "no": "did you mean false?", "off": "did you mean false?",
	"None": "did you mean null?", "nil": "did you mean null?", "boolean": "did you mean bool?", "integer": "did you mean int?", "str": "did you mean string?",
	"env": setByTag, "getenv": setByTag, "os": setByTag,
}

const setByTag = "CUE reads no environment: write @tag(NAME) after a field, and set it with --tag NAME=VALUE"

// standardPackages are packages of CUE that definitions often use.
var standardPackages = []string{"encoding/base64", "encoding/json", "encoding/yaml", "list", "math", "net", "path", "regexp", "strconv", "strings", "struct", "time"}

// explainUnused explains an unused import. The import may be meant for a hidden field that is named after a definition of
// the imported package.
func (p *pkg) explainUnused(f finding) finding {
	f.message += "; remove the import, or use it"
	imported := strings.Trim(fmt.Sprint(f.args[0]), `"`)
	for _, definition := range p.written().labels() {
		name := "_" + strings.ToLower(strings.TrimPrefix(definition, "#"))
		if rows := p.written().rows[name]; len(rows) == 1 && strings.HasPrefix(definition, "#") && slices.Contains(p.importable, imported) {
			f.message = fmt.Sprintf("write %s: %s.%s & {…}, or remove the import of %q, which is not used", name, path.Base(imported), definition, imported)
			f.at = rows[0].node.Pos().Position()
		}
	}
	return f
}

// explainIncomplete explains a field without a value. In an object, it also adds the positions of the expressions that
// should have given the value, which may be in an imported package.
func (p *pkg) explainIncomplete(f finding) finding {
	if !p.isInObject(f.path) {
		f.message += "; begin the name of a building block with _ or #"
		return f
	}
	f.message = fmt.Sprintf("has no value, only %v: set it, or give it a default", f.args[0])
	f.positions = append(f.positions, operands(p.valueAt(f.path))...)
	for _, pos := range userPositions(f.positions) {
		field, name := p.written().origin(pos)
		switch tag := tagOf(field); {
		case tag != "":
			f.message += setTag(tag)
		case name != "" && name == label(field.Label):
			f.message = "has no value, because " + name + " refers to itself" + cmp.Or(blockOf(name, p.written().labels()), ": give it a value")
		}
	}
	return f
}

// operands returns the positions of the expressions that a value unifies.
func operands(v cue.Value) (positions []token.Pos) {
	op, args := v.Expr()
	if op != cue.AndOp {
		return []token.Pos{v.Pos()}
	}
	for _, arg := range args {
		positions = append(positions, operands(arg)...)
	}
	return positions
}

// isNull reports whether a finding is about a null field, such as a key without a value in embedded or imported YAML.
func (p *pkg) isNull(f finding) bool {
	nodes, depth := p.fields.find(f.path)
	return isConflict(f) && slices.ContainsFunc(f.args[:min(2, len(f.args))], func(value any) bool { return fmt.Sprint(value) == "null" }) ||
		depth == len(f.path) && slices.ContainsFunc(nodes, func(node ast.Node) bool {
			if field, ok := node.(*ast.Field); ok {
				node = field.Value
			}
			literal, ok := node.(*ast.BasicLit)
			return ok && literal.Kind == token.NULL
		})
}

// unknownImport matches CUE's messages for an import path that leads to no package, and the path.
var unknownImport = regexp.MustCompile(`cannot find module providing package (\S+)|relative import paths not allowed \("(.*)"\)|builtin package "(.*)" undefined`)

// explainImport explains an error in an import or in an imported package. The same error of several imports is reported
// at the first one.
func (c *compilation) explainImport(f finding) finding {
	unknown := unknownImport.FindStringSubmatch(f.message)
	switch {
	case unknown != nil:
		name := strings.Join(unknown[1:], "")
		f.message = fmt.Sprintf("unknown import %q", name) + cmp.Or(c.didYouMeanImport(name), fmt.Sprintf(
			": this module, %s, does not contain it; add its module with cue mod get and run corral mod vendor, or copy the package to cue.mod/pkg; only %q is built in",
			c.module, schema.Module))
	case strings.Contains(f.message, "no dependency found for package"):
		f.message = badFolder
	case cannotFetch.MatchString(f.message):
		f.message = cannotFetch.FindStringSubmatch(f.message)[1]
	case strings.Contains(f.message, "no files in package directory"):
		_, f.message, _ = strings.Cut(f.message, "cannot find package ")
		f.message = "cannot import " + f.message + "; correct the package clause of the files in that folder"
	case strings.Contains(f.message, "import cycle"):
		f.message = "package import cycle not allowed: move what both packages need to a third"
	default:
		return explainSyntax(f, c.files)
	}
	return c.atFirst(f, f.at, f.message)
}

// atFirst moves a finding about an import to the place of the first one with the same key.
func (c *compilation) atFirst(f finding, at token.Position, key string) finding {
	f.path = nil
	if _, known := c.imports[key]; !known {
		c.imports[key] = at
	}
	f.at = c.imports[key]
	return f
}

// didYouMeanImport suggests a folder of the module: with the same last name, or else with nearly the same path.
func (c *compilation) didYouMeanImport(name string) string {
	const mostLetters = 2 // that may differ
	best := wording.Closest(name, c.importable, mostLetters)
	for _, other := range c.importable {
		if best == "" && path.Base(other) == path.Base(name) {
			best = other
		}
	}
	if best != "" {
		best = strconv.Quote(best)
	}
	return wording.DidYouMean(best)
}

// valueMessage describes the valid values, without quoting values that may be very long.
func valueMessage(message string) string {
	if m := outOfPattern.FindStringSubmatch(message); m != nil {
		pattern, err := strconv.Unquote(m[2])
		switch {
		case err == nil && pattern == timeOfDay:
			return fmt.Sprintf("invalid value %s: must be a time of day, from 00:00 to 23:59, as 07:30", m[1])
		case err == nil:
			message = fmt.Sprintf("invalid value %s: must match %s", m[1], pattern)
			if strings.Contains(m[1], "${") {
				message += `; CUE does not expand ${…}: write \(NAME)`
			}
			return message
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

// timeOfDay is the pattern for times in a schedule.
const timeOfDay = "^([01][0-9]|2[0-3]):[0-5][0-9]$"

// lengthMessage describes the valid length of a string, without quoting values that may be very long.
func lengthMessage(value, bound, characters string) string {
	switch {
	case value == `""`:
		return "must not be empty"
	case bound == "Min":
		return "must have at least " + characters + " characters"
	}
	return "must have at most " + characters + " characters"
}

// ofSchema matches text that users do not write in a definition: a validator, or a field with a marker.
var ofSchema = regexp.MustCompile(`^(\(|\{\[|=~|strings\.|time\.|list\.)|[!?]:|\.\.\.`)

// mismatchMessage reports which of two values was given and which type is required. The schema's value is the type itself or
// a validator. If neither value is one, and only one of them is a struct or a list, the other value is the user's.
func mismatchMessage(message, a, b, typeOfA, typeOfB string) string {
	isSchema := func(value, kind string) bool { return value == kind || ofSchema.MatchString(value) }
	isPlain := func(kind string) bool { return kind != "struct" && kind != "list" }
	switch {
	case isSchema(b, typeOfB) && !isSchema(a, typeOfA), isPlain(typeOfA) && !isPlain(typeOfB) && !isSchema(a, typeOfA):
		return fmt.Sprintf("invalid value %s: must be %s, not %s", a, described(b, typeOfB, a), typeOfA)
	case isSchema(a, typeOfA) && !isSchema(b, typeOfB), isPlain(typeOfB) && !isPlain(typeOfA) && !isSchema(b, typeOfB):
		return fmt.Sprintf("invalid value %s: must be %s, not %s", b, described(a, typeOfA, b), typeOfB)
	}
	return message
}

// described returns how to write a value of the schema, with the given value as an example.
func described(required, kind, value string) string {
	pattern, isPattern := strings.CutPrefix(required, "=~")
	switch {
	case isPattern:
		text, err := strconv.Unquote(pattern)
		if err == nil {
			return "a string in double quotes that matches " + text
		}
	case kind == "struct":
		return "fields in braces, as {} or {NAME: VALUE}"
	case kind == "list" && len(value) <= maxQuoted:
		return "a list, as [" + value + "]"
	case kind == "string" && number.MatchString(value):
		return `a string, as "` + value + `"`
	}
	return kind
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
