// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// maxDiagnostics is the maximum number of diagnostics for one policy.
const maxDiagnostics = 100

// local matches a name that OPA generates for a variable.
var local = regexp.MustCompile(`__local\d+__`)

// diagnostics collects the errors in a policy.
type diagnostics []v1alpha1.Diagnostic

// add adds an error at a position; nil means the policy as a whole.
func (d *diagnostics) add(at *ast.Location, format string, args ...any) {
	diagnostic := v1alpha1.Diagnostic{Message: fmt.Sprintf(format, args...)}
	if at != nil {
		diagnostic.File = at.File
		diagnostic.Line, diagnostic.Column = v1alpha1.LineNumber(at.Row), v1alpha1.LineNumber(at.Col)
	}
	*d = append(*d, diagnostic)
}

// addErrors adds OPA's errors, with hints.
func (d *diagnostics) addErrors(file string, err error) {
	var list ast.Errors
	var one *ast.Error
	switch {
	case errors.As(err, &list):
	case errors.As(err, &one):
		list = ast.Errors{one}
	default:
		*d = append(*d, v1alpha1.Diagnostic{File: file, Message: err.Error()})
	}
	for _, e := range list {
		at := *cmp.Or(e.Location, &ast.Location{})
		at.File = cmp.Or(at.File, file)
		d.add(&at, "%s", local.ReplaceAllString(explain(e), "_")) // the number differs between the copies of a rule
	}
}

var (
	packageClause = regexp.MustCompile(`(?m)^package\s+(\S+)`)
	// withoutBraces matches strings and comments, whose brackets do not count.
	withoutBraces = regexp.MustCompile("\"(\\\\.|[^\"\\\\\n])*\"|`[^`]*`|#.*")
	// ofOldRego matches the head of a rule in Rego v0.
	ofOldRego = regexp.MustCompile(`^\s*\w+(\[[^\]]*\])?\s*(=\s*\S+\s*)?\{`)
)

// addSyntax adds OPA's error about a module that cannot be parsed. If it recognizes the cause, it adds that instead: a
// package that no decision reads, as in policies for other tools, or a bracket that is never closed.
func (d *diagnostics) addSyntax(s *Source, name string, err error) {
	text := s.Modules[name]
	isOwn := func(module string) bool { return strings.Contains(module, "package corral.") }
	if at := packageClause.FindStringSubmatchIndex(text); at != nil && !slices.ContainsFunc(slices.Collect(maps.Values(s.Modules)), isOwn) {
		d.add(&ast.Location{File: name, Row: 1 + strings.Count(text[:at[0]], "\n"), Col: 1}, "%s", otherPackage(text[at[2]:at[3]]))
		return
	}
	if row, bracket := unclosed(text); row > 0 && strings.Contains(err.Error(), "unexpected eof") {
		d.add(&ast.Location{File: name, Row: row, Col: 1}, "the %c of this line is never closed", bracket)
		return
	}
	d.addErrors(name, err)
}

// otherPackage is the message for a package that no decision reads.
func otherPackage(name string) string {
	var packages []string
	for _, p := range promises {
		packages = append(packages, "corral."+p.decision)
	}
	return fmt.Sprintf("package %s is read by no decision: write package %s", name, strings.Join(slices.Compact(packages), " or "))
}

// unclosed returns the last bracket that is still open at the end of a module, and its line. The line is 0 if there is
// no such bracket.
func unclosed(text string) (row int, bracket rune) {
	text = withoutBraces.ReplaceAllStringFunc(text, func(found string) string { return strings.Repeat("\n", strings.Count(found, "\n")) })
	var open []int
	for i, char := range text {
		switch {
		case strings.ContainsRune("{[(", char):
			open = append(open, i)
		case strings.ContainsRune("}])", char) && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return 0, 0
	}
	last := open[len(open)-1]
	return 1 + strings.Count(text[:last], "\n"), rune(text[last])
}

// sorted returns the diagnostics in the order of their positions, without duplicates, and at most maxDiagnostics of
// them.
func (d diagnostics) sorted() []v1alpha1.Diagnostic {
	slices.SortFunc(d, func(a, b v1alpha1.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	all := slices.Compact(d)
	return all[:min(len(all), maxDiagnostics)]
}

// explain returns OPA's message with a hint.
func explain(e *ast.Error) string {
	message := e.Message
	switch detail := e.Details.(type) {
	case *ast.RefErrInvalidDetail:
		if detail.Pos < len(detail.Ref) {
			return fmt.Sprintf("%s: %s", message, missing(detail))
		}
	case *ast.UnificationErrDetail:
		return fmt.Sprintf("%s: the two sides can never be equal, %s and %s; compare values of one type", message, typeName(detail.Left), typeName(detail.Right))
	}
	switch {
	case strings.HasPrefix(message, "undefined function "):
		return message + ": " + undefinedFunction(strings.TrimPrefix(message, "undefined function "))
	case strings.Contains(message, "may be recursive"), e.Code == ast.RecursionErr && strings.Contains(message, answers):
		return "the rule may read itself by a computed name: begin the reference with names, as in data.teams[input.pool.name]"
	case e.Code == ast.ParseErr:
		return explainSyntax(e)
	default:
		return message + hint(message, "")
	}
}

// explainSyntax returns the message of OPA's parser, with the source line and a hint.
func explainSyntax(e *ast.Error) string {
	message := e.Message
	line, otherwise := "", ""
	if e.Details != nil {
		line = e.Details.Lines()[0]
	}
	if line != "" && strings.Contains(message, "unexpected") {
		message = fmt.Sprintf("%s at %q", message, strings.TrimSpace(line))
	}
	switch {
	case ofOldRego.MatchString(line):
		otherwise = "; rules are written in Rego v1"
	case strings.Contains(message, "illegal token") && strings.Contains(line, "'"):
		otherwise = "; put strings in double quotes"
	}
	return message + hint(message, otherwise)
}

// missing lists the names that exist at the position where a reference uses an unknown name.
func missing(detail *ast.RefErrInvalidDetail) string {
	var known []string
	for _, v := range detail.OneOf {
		if name, ok := v.(ast.String); ok {
			known = append(known, string(name))
		}
	}
	have, isName := detail.Ref[detail.Pos].Value.(ast.String)
	parent := detail.Ref[:detail.Pos].String()
	switch {
	case isName && len(known) > 0:
		return fmt.Sprintf("%s has no %s; %s", parent, have, oneOf(string(have), known))
	case len(known) > 0:
		return fmt.Sprintf("%s has %s only", parent, strings.Join(known, ", "))
	default:
		return fmt.Sprintf("there is nothing of that name or type below %s", parent)
	}
}

// oneOf suggests one of the known names for an unknown one.
func oneOf(name string, known []string) string {
	return didYouMean(name, known, "there are "+strings.Join(known, ", "))
}

// didYouMean suggests the most similar of the known names. It returns otherwise if none is similar.
func didYouMean(name string, known []string, otherwise string) string {
	if close := closest(name, known); close != "" {
		return fmt.Sprintf("did you mean %s?", close)
	}
	return otherwise
}

// closest returns the known name that is most similar, or "" if none is.
func closest(name string, known []string) string { return wording.Closest(name, known, 1+len(name)/4) }

func undefinedFunction(name string) string {
	switch {
	case name == "time.now_ns":
		return "policies have no clock: use input.now"
	case isForbidden(name):
		return "policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data"
	case strings.HasPrefix(name, "data."):
		return "define it in a module of this policy"
	}
	var known []string
	for _, b := range sandbox().Builtins {
		known = append(known, b.Name)
	}
	return didYouMean(name, known, "OPA has no such function; define it, or correct its name")
}

// hints maps a part of OPA's message to a hint.
var hints = []struct{ part, hint string }{
	{"is unsafe", ": it has no value; bind it in the body, outside of a negation, as in x := input.pool.name"},
	{"assigned var", ": remove it, or use _ for what isn't read"},
	{"declared var", ": remove it, or use _ for what isn't read"},
	{"rego_recursion_error", ": rules can't read themselves; break the circle"},
	{"is recursive", ": rules can't read themselves; break the circle"},
	{"conflicting rule for data path", ": spec.data has a value there; rename the key or the package"},
	{"import data.", ": remove it"},
	{"arity", ": give it as many arguments as it takes"},
	{"var cannot be used for rule name", ": a file holds rules only, as in deny contains msg if { … }"},
	{"`if` keyword is required", ": write RULE if { … }"},
	{"`contains` keyword is required", ": write deny contains msg if { … }"},
	{"conflicting rules", ": rules of one name must be all sets, all functions or all values"},
	{"must not shadow", ": choose another name"},
	{"package expected", ": begin the file with its package, as in package corral.template"},
	{"empty module", ": begin the file with its package, as in package corral.template"},
	{"no package", ": begin the file with its package, as in package corral.template"},
	{"max parsing recursion depth", ": nest it less deeply"},
}

func hint(message, otherwise string) string {
	for _, h := range hints {
		if strings.Contains(message, h.part) {
			return h.hint
		}
	}
	return otherwise
}

// typeName returns the name of a type without its element and property types, because there may be very many of them.
func typeName(t types.Type) string {
	name := fmt.Sprintf("%T", t)
	return strings.ToLower(name[strings.LastIndex(name, ".")+1:])
}
