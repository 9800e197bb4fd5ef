// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Needs lists the inputs that scaling rules read, where the inputs change often or are costly.
type Needs struct {
	// Ceilings are the library's ceilings. What they need of input.usage is not included in the other fields, which
	// cover user-written rules.
	Ceilings []v1alpha1.Ceiling
	// Fields are the top-level input fields that a rule reads, sorted, without the pool, the clock, its zone and usage.
	// AnyField is true if they cannot be determined.
	Fields   []string
	AnyField bool
	// Granted is true if a rule reads the grant of the pool itself.
	Granted bool
	// All, Namespace and Connection are true if a rule reads that group of input.usage.
	All, Namespace, Connection bool
	// Labels are the labels whose groups a rule reads, sorted. AnyLabel is true if they cannot be determined.
	Labels   []string
	AnyLabel bool
	// Members is true if a rule reads the members of a group, or what they claim.
	Members bool
	// Clock is true if a user-written rule reads the time.
	Clock bool
}

// everything is used if the inputs of a rule cannot be determined.
var everything = Needs{AnyField: true, Granted: true, All: true, Namespace: true, Connection: true, AnyLabel: true, Members: true, Clock: true}

// Usage reports whether a rule reads input.usage at all.
func (n Needs) Usage() bool {
	return len(n.Ceilings) > 0 || n.Granted || n.All || n.Namespace || n.Connection || n.AnyLabel || len(n.Labels) > 0
}

// OfRules returns the needs of user-written rules.
func (n Needs) OfRules() Needs {
	n.Ceilings = nil
	return n
}

// and combines two needs.
func (n Needs) and(o Needs) Needs {
	return Needs{
		Ceilings: slices.Concat(n.Ceilings, o.Ceilings),
		Fields:   slices.Concat(n.Fields, o.Fields), AnyField: n.AnyField || o.AnyField,
		Granted: n.Granted || o.Granted, All: n.All || o.All, Namespace: n.Namespace || o.Namespace,
		Connection: n.Connection || o.Connection, AnyLabel: n.AnyLabel || o.AnyLabel, Members: n.Members || o.Members,
		Labels: slices.Concat(n.Labels, o.Labels), Clock: n.Clock || o.Clock,
	}.normal()
}

// normal sorts fields and labels, and clears them if any field or label may be read.
func (n Needs) normal() Needs {
	if n.AnyField {
		n.Fields = nil
	}
	if n.AnyLabel {
		n.Labels = nil
	}
	slices.Sort(n.Fields)
	slices.Sort(n.Labels)
	n.Fields, n.Labels = slices.Compact(n.Fields), slices.Compact(n.Labels)
	return n
}

// of clears the inputs that no rule reads, and the clock. Usage across the fleet is left out before it is computed.
func (n Needs) of(in ScalingInput) ScalingInput {
	in.Now = 0
	if !n.Granted {
		in.Usage.Granted = 0
	}
	fields := reflect.ValueOf(&in).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("json")
		if !n.AnyField && !slices.Contains(alwaysRead, name) && !slices.Contains(n.Fields, name) {
			fields.Field(i).SetZero()
		}
	}
	return in
}

// addReference adds what a reference to the input reads. A reference that ends before a number may continue elsewhere,
// in a rule that receives its value.
func (n *Needs) addReference(ref ast.Ref) {
	if len(ref) > 1 && isName(ref[1]) && !ref[1].Equal(usageKey) {
		name := string(ref[1].Value.(ast.String))
		n.Clock = n.Clock || name == "now"
		if !slices.Contains(alwaysRead, name) {
			n.Fields = append(n.Fields, name)
		}
		return
	}
	if len(ref) < 3 || !isName(ref[1]) || !isName(ref[2]) {
		*n = everything
		return
	}
	n.addUsage(ref)
}

// addUsage adds what a reference to a part of input.usage reads.
func (n *Needs) addUsage(ref ast.Ref) {
	rest := ref[3:]
	switch string(ref[2].Value.(ast.String)) {
	case "granted":
		n.Granted = true
		return
	case "all":
		n.All = true
	case "namespace":
		n.Namespace = true
	case "connection":
		n.Connection = true
	case "labels":
		rest = n.addLabel(rest)
	}
	n.Members = n.Members || !isSum(rest)
}

// isSum reports whether the rest of a reference to a group is one of its sums.
func isSum(rest ast.Ref) bool { return len(rest) > 0 && slices.ContainsFunc(sums, rest[0].Equal) }

// addLabel adds the label at the beginning of the rest of a reference, and returns what follows.
func (n *Needs) addLabel(rest ast.Ref) ast.Ref {
	if len(rest) == 0 || !isName(rest[0]) {
		n.AnyLabel = true
	} else {
		n.Labels = append(n.Labels, string(rest[0].Value.(ast.String)))
	}
	return rest[min(1, len(rest)):]
}

var usageKey = ast.StringTerm("usage")

// alwaysRead are fields that the library reads, or that hardly ever change. Needs covers the parts of usage separately.
var alwaysRead = []string{"pool", "usage", "now", "zone"}

// sums of a group are available without its members.
var sums = []*ast.Term{ast.StringTerm("granted"), ast.StringTerm("pools")}

func isName(t *ast.Term) bool {
	_, ok := t.Value.(ast.String)
	return ok
}
