// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// kindOrder holds the kinds that a tree may declare, in the order in which they are applied.
var kindOrder = map[string]int{"GitHubConnection": 1, policyKind: 2, "RunnerPool": 3}

// applyOrder holds the kinds of all objects in the order in which they are applied, including generated kinds.
var applyOrder = map[string]int{"GitHubConnection": 1, policyKind: 2, accountKind: 3, roleKind: 4, bindingKind: 5, "RunnerPool": 6}

// refusals explain why certain other kinds are not allowed.
var refusals = map[string]string{
	"PoolSource": "a PoolSource is not applied from a source, because anyone who can write to one repository could then have " +
		"another team's credentials sent to any server: apply it with kubectl or your GitOps tool",
	"ClusterRunnerPolicy": "it would apply to pools of other teams: the cluster administrator applies it, with kubectl or a GitOps tool",
	"Secret":              "secrets don't belong in Git: create the Secret in the cluster and name it in spec.secretRef",
	"Runner":              "Corral creates Runners itself, from a RunnerPool",
	"RunnerScaleSet":      "Corral creates RunnerScaleSets itself, from a RunnerPool",
	accountKind:           writtenForPools,
	roleKind:              writtenForPools,
	bindingKind:           writtenForPools,
	"List":                "write the items as fields",
}

const writtenForPools = "it is written for pools whose containerMode needs it; apply others with kubectl or your GitOps tool, and name " +
	"the ServiceAccount in the template"

// collect finds the objects in the regular fields and list elements of v, and compiles them. An object is a struct with
// apiVersion and kind.
func (c *compilation) collect(p *pkg, v cue.Value) {
	switch v.IncompleteKind() {
	case cue.StructKind:
		if isObject(v) {
			c.compileObject(p, v)
			return
		}
		if has(v, "spec") {
			where := "unify what is around it with `schema.#Pools`"
			if len(v.Path().Selectors()) == 1 {
				where = "put it in pools: { }"
			}
			c.reportAt(p, v, "has a spec, but is no object; "+where+", or begin the name of a building block with _ or #")
			return
		}
		fields, err := v.Fields(cue.Optional(true))
		for err == nil && fields.Next() {
			switch {
			case !fields.IsOptional():
				c.collect(p, fields.Value())
			case has(fields.Value(), "spec"):
				c.reportAt(p, fields.Value(), "is optional, so it declares nothing; leave out the ?, or the field")
			}
		}
	case cue.ListKind:
		elements, err := v.List()
		for err == nil && elements.Next() {
			c.collect(p, elements.Value())
		}
	}
}

func isObject(v cue.Value) bool {
	return has(v, "apiVersion") && has(v, "kind")
}

func has(v cue.Value, field string) bool { return v.LookupPath(cue.MakePath(cue.Str(field))).Exists() }

// compileObject checks one object against the schema and adds it to the package's objects, unless it contains a known error.
func (c *compilation) compileObject(p *pkg, v cue.Value) {
	if p.faulty[strings.Join(selectors(v.Path()), "\x00")] {
		return
	}
	kind, ok := c.checkKind(p, v)
	if !ok || c.reportParameters(p, v) {
		return
	}
	data, err := c.checkObject(p, v, kind)
	if err != nil {
		c.reportError(p, err, v)
		return
	}
	if !c.fits(len(c.objects)+len(p.objects), len(data)) {
		return
	}
	o := Object{Path: v.Path().String()}
	if err := o.Manifest.UnmarshalJSON(data); err != nil {
		c.reportError(p, err, v)
		return
	}
	at := p.position(selectors(v.Path()), v.Pos())
	o.File, o.Line, o.Column = at.Filename, at.Line, at.Column
	p.objects, p.values = append(p.objects, o), append(p.values, v)
}

// keep keeps the package's objects that the check accepts.
func (c *compilation) keep(p *pkg) {
	refusals := c.checkAll(p.objects)
	for i, o := range p.objects {
		if len(refusals[i]) > 0 {
			c.reportRefusals(p, p.values[i], refusals[i])
			continue
		}
		o.Positions = c.positionsOf(p, p.values[i], o.Manifest.Object)
		c.objects = append(c.objects, o)
	}
}

// checkAll returns the errors that the check finds in each object. It runs the check for several objects at once.
func (c *compilation) checkAll(objects []Object) []field.ErrorList {
	refusals := make([]field.ErrorList, len(objects))
	if c.check == nil {
		return refusals
	}
	panics := make([]any, len(objects))
	var checks errgroup.Group
	checks.SetLimit(runtime.GOMAXPROCS(0))
	for i := range objects {
		checks.Go(func() error {
			defer func() { panics[i] = recover() }()
			refusals[i] = c.check(objects[i].Manifest.Object)
			return nil
		})
	}
	_ = checks.Wait()
	for _, value := range panics {
		if value != nil {
			panic(value) // Compile reports it
		}
	}
	return refusals
}

// reportParameters reports required fields that are not set in the parameters of an object, such as the row of a table. CUE
// checks only values that are part of the result. It returns whether there are any.
func (c *compilation) reportParameters(p *pkg, v cue.Value) bool {
	before := len(c.problems)
	fields, err := v.Fields(cue.Hidden(true))
	for err == nil && fields.Next() {
		required, err := fields.Value().Fields(cue.Optional(true))
		for err == nil && isBlock(fields.Selector().String()) && required.Next() {
			if required.Selector().ConstraintType() == cue.RequiredConstraint && p.isParameter(fields.Value()) {
				c.reportFinding(p, finding{path: selectors(v.Path()), message: required.Selector().Unquoted() + " must be set", shared: required.Value().Pos().Position()})
			}
		}
	}
	return len(c.problems) > before
}

// isParameter reports whether a hidden value is a parameter: at least two fields declare it, in the template that uses it
// and in an object that sets it. A type has only one declaration.
func (p *pkg) isParameter(v cue.Value) bool {
	declared := map[*ast.Field]bool{}
	for _, pos := range userPositions(operands(v)) {
		declared[p.written().around(pos)] = true
	}
	return len(declared) > 1
}

// reportRefusals reports the errors that the check found in an object, each at its field.
func (c *compilation) reportRefusals(p *pkg, v cue.Value, refusals field.ErrorList) {
	var findings []finding
	for _, r := range refusals {
		labels := labelsOf(r.Field)
		at := v
		for _, label := range labels {
			if next := descend(at, label); next.Exists() {
				at = next
			}
		}
		findings = append(findings, finding{
			path: slices.Concat(selectors(v.Path()), labels), format: string(r.Type), args: []any{fmt.Sprintf("%q", r.BadValue)},
			message: wording.Refusal(r), positions: []token.Pos{at.Pos()},
		})
	}
	c.reportFindings(p, findings)
}

// labelsOf returns the labels of a field's path in Kubernetes' notation, for example
// spec.template.metadata.labels[a.b/c].
func labelsOf(path string) []string {
	var labels []string
	for path != "" {
		if rest, inBrackets := strings.CutPrefix(path, "["); inBrackets {
			label, after, _ := strings.Cut(rest, "]")
			labels, path = append(labels, label), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(labels, path)
		}
		labels, path = append(labels, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return labels
}

// checkObject checks an object against the schema's rules, unless its definition has done so already (_checked), and returns
// its JSON with defaults. It checks only the object's JSON, because a closed definition around the object must not forbid
// the defaults.
func (c *compilation) checkObject(p *pkg, v cue.Value, kind string) ([]byte, error) {
	data, err := v.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if by, err := v.LookupPath(cue.MakePath(cue.Hid("_checked", schema.Module))).String(); err == nil && by == kind {
		return data, nil
	}
	checked := p.definitions.LookupPath(cue.MakePath(cue.Def(kind))).Unify(c.cue.CompileBytes(data))
	if err := checked.Validate(cue.Concrete(true), cue.Final()); err != nil {
		return nil, err
	}
	return checked.MarshalJSON()
}

// fits counts another object with size bytes of JSON, after count others, and reports whether it is within the limits.
func (c *compilation) fits(count, size int) bool {
	c.outputBytes += size
	var message string
	switch {
	case count >= MaxObjects:
		message = fmt.Sprintf("more than %d objects, the most that a tree may declare", MaxObjects)
	case c.outputBytes > MaxOutputBytes:
		message = fmt.Sprintf("the objects take more than %d bytes of JSON, the most that a tree may declare", MaxOutputBytes)
	default:
		return true
	}
	c.report(v1alpha1.Diagnostic{Message: message})
	return false
}

// checkKind returns the kind of an object if a tree may declare it.
func (c *compilation) checkKind(p *pkg, v cue.Value) (string, bool) {
	var text [2]string
	for i, field := range []string{"apiVersion", "kind"} {
		value, err := v.LookupPath(cue.MakePath(cue.Str(field))).String()
		if err != nil {
			c.reportAt(p, v, fmt.Sprintf("%s has no value yet; begin the name of a building block with _ or #", field))
			return "", false
		}
		text[i] = value
	}
	apiVersion, kind := text[0], text[1]
	_, known := kindOrder[kind]
	if known && apiVersion == v1alpha1.GroupVersion.String() {
		return kind, true
	}
	if known {
		c.reportAt(p, v, fmt.Sprintf("%s %s is not known, %s is", kind, apiVersion, v1alpha1.GroupVersion))
		return "", false
	}
	why, ok := refusals[kind]
	if !ok {
		kinds := slices.Sorted(maps.Keys(kindOrder))
		last := len(kinds) - 1
		why = fmt.Sprintf("only %s and %s are declared here; begin the name of a building block with _ or #",
			strings.Join(kinds[:last], ", "), kinds[last])
	}
	c.reportAt(p, v, fmt.Sprintf("%s %s is not applied from here: %s", apiVersion, kind, why))
	return "", false
}

// sameDeclaration reports whether two objects have the same position and the same content.
func sameDeclaration(a, b Object) bool {
	return a.File == b.File && a.Line == b.Line && a.Column == b.Column && a.Path == b.Path &&
		equality.Semantic.DeepEqual(a.Manifest.Object, b.Manifest.Object)
}
