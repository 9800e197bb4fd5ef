// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/internal/wallclock"
)

// A deadline ends a rule between calls of builtins, not within one. So one call must not do
// much with little: what its operands can make of it is worked out before.
const (
	// maxResult bounds what a builtin may make, in bytes.
	maxResult = 1 << 20
	// maxPattern and maxMatched bound a regular expression and what it is held against, in bytes;
	// maxOnce bounds their product, maxAll that of the pattern and the text's square where all
	// matches are looked for: each may look at the rest of the text.
	maxPattern, maxMatched = 4 << 10, 16 << 10
	maxOnce, maxAll        = 256 << 10, 16 << 20
	// maxParsed and maxYAML bound what is parsed or split into values, in bytes.
	maxParsed, maxYAML = 64 << 10, 8 << 10
	// maxFactors bounds how many numbers are multiplied, maxCut what is trimmed off a text, in bytes,
	// and maxPairs how many elements of arrays are compared with each other.
	maxFactors, maxCut, maxPairs = 1000, 256, 1 << 20
	// maxShown is what a format can make of a number, in bytes.
	maxShown = 1 << 20
)

// limited are the builtins that need it; each function says why a call is too much, or nothing.
// OPA has one table of builtins for the whole process, and this package alone uses OPA.
var limited = map[string]func(operands []*ast.Term) string{
	ast.Concat.Name:                     limitConcat,
	ast.Sprintf.Name:                    limitSprintf,
	ast.Product.Name:                    limitProduct,
	ast.RegexMatch.Name:                 func(o []*ast.Term) string { return limitRegex(o[0], o[1]) },
	ast.RegexFindAllStringSubmatch.Name: func(o []*ast.Term) string { return limitRegexAll(o[0], o[1]) },
	ast.RegexFind.Name:                  func(o []*ast.Term) string { return limitRegexAll(o[0], o[1]) },
	ast.RegexSplit.Name:                 func(o []*ast.Term) string { return limitRegexAll(o[0], o[1]) },
	ast.RegexTemplateMatch.Name:         func(o []*ast.Term) string { return limitRegex(o[0], o[1]) },
	ast.RegexIsValid.Name:               func(o []*ast.Term) string { return limitRegex(o[0], o[0]) },
	ast.RegexReplace.Name:               limitRegexReplace,
	ast.GlobMatch.Name:                  func(o []*ast.Term) string { return limitRegex(o[0], o[2]) },
	ast.JSONUnmarshal.Name:              func(o []*ast.Term) string { return limitParsed(o[0], maxParsed) },
	ast.JSONIsValid.Name:                func(o []*ast.Term) string { return limitParsed(o[0], maxParsed) },
	ast.YAMLUnmarshal.Name:              func(o []*ast.Term) string { return limitParsed(o[0], maxYAML) },
	ast.YAMLIsValid.Name:                func(o []*ast.Term) string { return limitParsed(o[0], maxYAML) },
	ast.URLQueryDecodeObject.Name:       func(o []*ast.Term) string { return limitParsed(o[0], maxParsed) },
	ast.Split.Name:                      func(o []*ast.Term) string { return limitParsed(o[0], maxParsed) },
	ast.SplitN.Name:                     func(o []*ast.Term) string { return limitParsed(o[0], maxParsed) },
	ast.JSONMarshal.Name:                func(o []*ast.Term) string { return limitShown(o[0], maxResult) },
	ast.YAMLMarshal.Name:                func(o []*ast.Term) string { return limitShown(o[0], maxParsed) },
	ast.URLQueryEncodeObject.Name:       func(o []*ast.Term) string { return limitShown(o[0], maxResult) },
	ast.Trim.Name:                       limitTrim,
	ast.TrimLeft.Name:                   limitTrim,
	ast.TrimRight.Name:                  limitTrim,
	ast.ObjectSubset.Name:               limitSubset,
}

// zoned are the builtins that take a time as [ns, zone].
var zoned = []string{ast.Date.Name, ast.Clock.Name, ast.Weekday.Name, ast.AddDate.Name, ast.Diff.Name, ast.Format.Name}

func init() {
	for name, limit := range limited {
		check(name, func(operands []*ast.Term) error {
			if why := limit(operands); why != "" {
				return fmt.Errorf("it would take too much: %s", why)
			}
			return nil
		})
	}
	for _, name := range zoned {
		check(name, refuseLocal)
	}
}

// check has a builtin called only with operands that are fine.
func check(name string, operandsOf func([]*ast.Term) error) {
	original := topdown.GetBuiltin(name)
	topdown.RegisterBuiltinFunc(name, func(ctx topdown.BuiltinContext, operands []*ast.Term, result func(*ast.Term) error) error {
		if err := operandsOf(operands); err != nil {
			return err
		}
		return original(ctx, operands, result)
	})
}

func refuseLocal(operands []*ast.Term) error {
	for _, operand := range operands {
		if at, ok := operand.Value.(*ast.Array); ok && at.Len() > 1 && at.Elem(1).Equal(localZone) {
			return wallclock.ErrLocal
		}
	}
	return nil
}

var localZone = ast.StringTerm("Local")

// length is that of a string, or 0.
func length(t *ast.Term) int { return len(textOf(t)) }

// textOf is a string, or nothing.
func textOf(t *ast.Term) string {
	text, _ := t.Value.(ast.String)
	return string(text)
}

// each calls f for the elements of an array or set.
func each(t *ast.Term, f func(*ast.Term)) {
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(f)
	case ast.Set:
		v.Foreach(f)
	}
}

func limitConcat(operands []*ast.Term) string {
	size := 0
	each(operands[1], func(t *ast.Term) { size += length(operands[0]) + length(t) })
	return tooLong(size)
}

// limitSprintf reckons with each verb showing the longest of the arguments.
func limitSprintf(operands []*ast.Term) string {
	format, ok := operands[0].Value.(ast.String)
	if !ok {
		return ""
	}
	verbs := strings.Count(string(format), "%")
	longest, rest := 0, maxResult
	each(operands[1], func(t *ast.Term) {
		before := rest
		rest = weigh(t.Value, 1, rest)
		longest = max(longest, before-rest)
	})
	if rest < 0 {
		return tooLong(maxResult + 1)
	}
	if longDigits(string(format)) {
		longest += maxShown
	}
	return tooLong(len(format) + verbs*longest)
}

// longDigits tells whether a format has a width or precision that may be a large one.
func longDigits(format string) bool {
	digits := 0
	for _, c := range format {
		switch {
		case c == '*':
			return true
		case c < '0' || c > '9':
			digits = 0
		default:
			if digits++; digits > 3 {
				return true
			}
		}
	}
	return false
}

func limitProduct(operands []*ast.Term) string {
	n := 0
	each(operands[0], func(*ast.Term) { n++ })
	if n > maxFactors {
		return fmt.Sprintf("more than %d factors", maxFactors)
	}
	return ""
}

func limitShown(t *ast.Term, most int) string {
	if weigh(t.Value, 1, most) < 0 {
		return fmt.Sprintf("more than %d bytes at once", most)
	}
	return ""
}

func limitTrim(operands []*ast.Term) string {
	if length(operands[1]) > maxCut {
		return fmt.Sprintf("more than %d bytes to trim off", maxCut)
	}
	return ""
}

func limitSubset(operands []*ast.Term) string {
	super, ok := operands[0].Value.(*ast.Array)
	sub, isArray := operands[1].Value.(*ast.Array)
	if ok && isArray && super.Len()*sub.Len() > maxPairs {
		return fmt.Sprintf("more than %d pairs of elements", maxPairs)
	}
	return ""
}

// programSize is what a regular expression is made of: a count such as {1,100} multiplies what it repeats.
func programSize(pattern string) int {
	if !strings.Contains(pattern, "{") {
		return len(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return len(pattern) // OPA tells what is wrong with it
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return len(pattern)
	}
	return max(len(pattern), len(program.Inst))
}

func limitRegex(pattern, text *ast.Term) string {
	if length(pattern) > maxPattern || length(text) > maxMatched {
		return fmt.Sprintf("a pattern has at most %d bytes, what it is held against %d", maxPattern, maxMatched)
	}
	if programSize(textOf(pattern))*length(text) > maxOnce {
		return fmt.Sprintf("the steps of a pattern times the bytes it is held against are at most %d", maxOnce)
	}
	return ""
}

func limitRegexAll(pattern, text *ast.Term) string {
	if why := limitRegex(pattern, text); why != "" {
		return why
	}
	if programSize(textOf(pattern))*length(text)*length(text) > maxAll {
		return fmt.Sprintf("where all matches are looked for, the steps of a pattern times the square of the bytes it is held against are at most %d", maxAll)
	}
	return ""
}

func limitParsed(text *ast.Term, most int) string {
	if length(text) > most {
		return fmt.Sprintf("at most %d bytes are taken apart at once", most)
	}
	return ""
}

// limitRegexReplace reckons with a match at each place, and with all of the text for each group.
func limitRegexReplace(operands []*ast.Term) string {
	text, value := length(operands[0]), operands[2]
	if why := limitRegexAll(operands[1], operands[0]); why != "" {
		return why
	}
	with, _ := value.Value.(ast.String)
	return tooLong((text+1)*(len(with)+1) + strings.Count(string(with), "$")*text)
}

func tooLong(size int) string {
	if size > maxResult {
		return fmt.Sprintf("more than %d bytes at once", maxResult)
	}
	return ""
}
