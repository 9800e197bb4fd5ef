// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// A doubt is a warning about a rule that loads, but probably does not do what its author means.

// anyElement stands for each element of an array, or each value of an object, in the path of a field.
const anyElement = "[_]"

// reading describes which fields of the input one rule reads.
type reading struct {
	schema string // name of the input's schema: a decision, or "any"
	rule   *ast.Rule
	// promised is true if the rule adds to a set that a decision reads.
	promised bool
	// holds contains, for each local variable with a field of the input, the path of the field.
	holds map[ast.Var][]string
}

// doubts returns warnings about the policy's own rules, in their compiled form. own contains the policy's own modules.
func (p *program) doubts(own map[string]*ast.Module) []v1alpha1.Diagnostic {
	all := map[*ast.Rule]*reading{}
	p.rules(func(file string, module *ast.Module, rule *ast.Rule) {
		if own[file] != nil && !isAnswers(rule) {
			r := &reading{schema: schemaName(packageName(module)), rule: rule, promised: promised(module, rule) != nil, holds: map[ast.Var][]string{}}
			r.bind()
			all[rule] = r
		}
	})
	var d diagnostics
	handled := map[string]bool{}
	for _, r := range all {
		r.noteHandled(handled)
	}
	for _, r := range all {
		r.doubtComparisons(handled, &d)
	}
	p.doubtContainers(all, &d)
	return d.sorted()
}

// bind fills holds. One pass over the rule is enough, because a compiled rule binds each variable before it uses it.
func (r *reading) bind() {
	eachCall(r.rule, func(operator string, _ *ast.Expr, _ *ast.Location, operands []*ast.Term) {
		if len(operands) != 2 || operator != "eq" && operator != "assign" {
			return
		}
		for i, operand := range operands {
			if name, isVar := operand.Value.(ast.Var); isVar && r.holds[name] == nil {
				if field := r.field(operands[1-i]); field != nil {
					r.holds[name] = field
				}
			}
		}
	})
}

// field returns the path of the field of the input that a term refers to; nil if it refers to none.
func (r *reading) field(t *ast.Term) []string {
	switch v := t.Value.(type) {
	case ast.Var:
		return r.holds[v]
	case ast.Ref:
		path, rest := []string{}, v[1:]
		switch head, _ := v[0].Value.(ast.Var); {
		case head.Equal(ast.InputRootDocument.Value):
		case len(v) > len(podContainers) && v.HasPrefix(podContainers):
			path, rest = []string{"pod", "spec", containerLists[0], anyElement}, v[len(podContainers)+1:]
		case r.holds[head] != nil:
			path = r.holds[head]
		default:
			return nil
		}
		path = slices.Clone(path)
		for _, key := range rest {
			path = append(path, cmp.Or(textOf(key), anyElement))
		}
		return path
	}
	return nil
}

// podContainers refers to the library's helper rule that contains all containers of a pod.
var podContainers = ast.MustParseRef("data.corral.pod.containers")

// named returns a path in Rego syntax, such as input.pool.name.
func named(path []string) string {
	text := "input"
	for _, step := range path {
		switch {
		case step == anyElement:
			text += step
		case ast.IsVarCompatibleString(step):
			text += "." + step
		default:
			text += `["` + step + `"]`
		}
	}
	return text
}

// eachCall calls visit for each function or operator call in a rule, in order. e is nil for a call that is a part of
// another expression.
func eachCall(rule *ast.Rule, visit func(operator string, e *ast.Expr, at *ast.Location, operands []*ast.Term)) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if x.IsCall() {
				visit(x.Operator().String(), x, x.Location, x.Operands())
			}
		case *ast.Term:
			if call, ok := x.Value.(ast.Call); ok {
				visit(call[0].String(), nil, x.Location, call[1:])
			}
		}
		return false
	}).Walk(rule)
}

// noteHandled records in handled each field that is an expression of its own, which tests that the field is present,
// and each rule that an expression negates with not.
func (r *reading) noteHandled(handled map[string]bool) {
	ast.WalkExprs(r.rule, func(e *ast.Expr) bool {
		if term, isTerm := e.Terms.(*ast.Term); isTerm {
			if field := r.field(term); field != nil {
				handled[named(field)] = true
			} else if e.Negated {
				handled[term.String()] = true
			}
		}
		return false
	})
}

// ordering contains the operators that compare the order of values. Rego compares strings character by character, and
// orders every number before every string.
var ordering = map[string]bool{"lt": true, "lte": true, "gt": true, "gte": true}

// doubtComparisons reports two mistakes in comparisons. An order operator compares Kubernetes quantities as text, so
// that 16Gi is less than 2Gi. The operator != is undefined if the field is missing, so the rule then does not hold.
func (r *reading) doubtComparisons(handled map[string]bool, d *diagnostics) {
	isNegated := handled[r.rule.Ref().GroundPrefix().String()]
	eachCall(r.rule, func(operator string, e *ast.Expr, at *ast.Location, operands []*ast.Term) {
		for i, operand := range operands {
			field := r.field(operand)
			switch {
			case field == nil || len(operands) != 2:
			case ordering[operator] && isQuantity(field):
				d.add(at, "%s is a quantity such as 16Gi, which is compared as text here; compare corral.quantity(…) of it with corral.quantity(…)", named(field))
			case operator == "neq" && e != nil && !e.Negated && !isNegated && !isUnset(operands[1-i]) && !handled[named(field)] && mayLack(r.schema, field):
				d.add(at, "%s may be missing, and != then never holds; write not … == …, or compare object.get(…) with a default", named(field))
			}
		}
	})
}

// isQuantity reports whether a field of a pod holds a quantity.
func isQuantity(field []string) bool {
	if len(field) < 2 {
		return false
	}
	last, above := field[len(field)-1], field[len(field)-2]
	return last == "sizeLimit" || above == "limits" || above == "requests" || above == "overhead"
}

// isUnset reports whether a term is null, "" or false. A missing field means the same, so a rule need not hold if the
// field is missing.
func isUnset(t *ast.Term) bool {
	return t.Equal(ast.InternedNullTerm) || t.Equal(ast.InternedEmptyString) || t.Equal(ast.InternedTerm(false))
}

// alwaysSet lists the fields that every pod has, although the schema of pods does not require them.
var alwaysSet = []string{"name", "namespace", "image"}

// mayLack reports whether a field may be missing in an input. It ignores the steps of the path before the last
// anyElement: if they are missing, the rule iterates over nothing and is not meant to hold.
func mayLack(schema string, path []string) (lacks bool) {
	node := schemaOf(schema)
	for _, step := range path {
		below, known := node.field(step)
		required, _ := node.schema["required"].([]any)
		switch {
		case step == anyElement:
			lacks = false
		case node.properties()[step] == nil:
			lacks = true
		case !slices.Contains(required, any(step)) && !slices.Contains(alwaysSet, step):
			lacks = true
		}
		if !known {
			return false
		}
		node = below
	}
	return lacks
}

// doubtContainers reports template rules that check containers but not init containers, although sidecars are init
// containers. It reports nothing if another rule of the policy checks only init containers, and it ignores rules that
// select a container by name.
func (p *program) doubtContainers(all map[*ast.Rule]*reading, d *diagnostics) {
	var onlyMain []*reading
	for _, r := range all {
		if !r.promised || r.schema != DecisionTemplate {
			continue
		}
		lists := p.listsOf(r, all)
		main, early := lists[containerLists[0]], lists[containerLists[1]]
		if early && !main {
			return // this rule checks the containers that the others leave out
		}
		if main && !early && !lists[byName] {
			onlyMain = append(onlyMain, r)
		}
	}
	for _, r := range onlyMain {
		d.add(r.rule.Location, "the rule looks at containers and not at initContainers, where sidecars are; iterate over data.corral.pod.containers, which has all by path")
	}
}

// byName is a key among the lists of containers. It means that a rule selects a container by its name.
const byName = "name"

// listsOf returns the lists of containers that a rule reads, directly or through other rules.
func (p *program) listsOf(r *reading, all map[*ast.Rule]*reading) map[string]bool {
	lists := map[string]bool{}
	for rule := range p.reach(r.rule) {
		if own := all[rule]; own != nil {
			own.noteLists(lists)
		} else if rule.Ref().HasPrefix(podContainers) {
			lists[containerLists[1]] = true
		}
	}
	for _, list := range containerLists {
		lists[list] = lists[list] || lists[anyElement]
	}
	return lists
}

// noteLists records which lists of containers a rule reads: it reads a field of a container other than its name, or
// passes a container to a function.
func (r *reading) noteLists(lists map[string]bool) {
	ast.WalkTerms(r.rule, func(t *ast.Term) bool {
		if list, field := r.container(t); list != "" && field != "" && field != "name" {
			lists[list] = true
		}
		return false
	})
	eachCall(r.rule, func(operator string, _ *ast.Expr, _ *ast.Location, operands []*ast.Term) {
		isEqual := operator == "eq" || operator == "equal"
		for i, operand := range operands {
			list, field := r.container(operand)
			_, isText := operands[len(operands)-1-i].Value.(ast.String)
			if isEqual && field == "name" && isText {
				lists[byName] = true
			}
			if !isEqual && list != "" && field == "" {
				lists[list] = true
			}
		}
	})
}

// container returns the list of the container that a term refers to, and the field of that container. The field is
// empty if the term is the container itself; both are empty if the term refers to no container.
func (r *reading) container(t *ast.Term) (list, field string) {
	path := r.field(t)
	if len(path) < 4 || path[0] != "pod" || path[1] != "spec" || path[3] != anyElement {
		return "", ""
	}
	if len(path) > 4 {
		field = path[4]
	}
	return path[2], field
}
