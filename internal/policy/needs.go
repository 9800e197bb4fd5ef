// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Needs are the parts of an input that scaling rules read, of those that change often or are costly.
type Needs struct {
	// Ceilings of the library. What they need of input.usage is not part of the others, which are what rules that somebody wrote read.
	Ceilings []v1alpha1.Ceiling
	// Fields are those of the input that a rule reads, but for the pool, the clock and its zone, and usage, sorted; AnyField is true
	// when that isn't known.
	Fields   []string
	AnyField bool
	// Granted is true when a rule reads what is granted to the pool itself.
	Granted bool
	// All, Namespace and Connection are true when a rule reads that group of input.usage.
	All, Namespace, Connection bool
	// Labels are the labels whose groups a rule reads, sorted; AnyLabel is true when that isn't known.
	Labels   []string
	AnyLabel bool
	// Members is true when a rule reads the members of a group, or what they claim.
	Members bool
	// Clock is true when a rule that somebody wrote reads the time.
	Clock bool
}

// everything is what is needed when it isn't known what a rule reads.
var everything = Needs{AnyField: true, Granted: true, All: true, Namespace: true, Connection: true, AnyLabel: true, Members: true, Clock: true}

// Usage is true when a rule reads input.usage at all.
func (n Needs) Usage() bool {
	return len(n.Ceilings) > 0 || n.Granted || n.All || n.Namespace || n.Connection || n.AnyLabel || len(n.Labels) > 0
}

// OfRules are the needs of rules that somebody wrote.
func (n Needs) OfRules() Needs {
	n.Ceilings = nil
	return n
}

// and joins two needs.
func (n Needs) and(o Needs) Needs {
	return Needs{
		Ceilings: slices.Concat(n.Ceilings, o.Ceilings),
		Fields:   slices.Concat(n.Fields, o.Fields), AnyField: n.AnyField || o.AnyField,
		Granted: n.Granted || o.Granted, All: n.All || o.All, Namespace: n.Namespace || o.Namespace,
		Connection: n.Connection || o.Connection, AnyLabel: n.AnyLabel || o.AnyLabel, Members: n.Members || o.Members,
		Labels: slices.Concat(n.Labels, o.Labels), Clock: n.Clock || o.Clock,
	}.normal()
}

// normal sorts fields and labels, and leaves them out when any may be read.
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

// of leaves out of an input what no rule reads, and the clock. What is counted across the fleet is left out before it is counted.
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

// addReference adds what a reference to the input reads. One that ends before a number may go on
// elsewhere, in a rule that is given its value.
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

// isSum tells whether the rest of a reference to a group names a sum of it.
func isSum(rest ast.Ref) bool { return len(rest) > 0 && slices.ContainsFunc(sums, rest[0].Equal) }

// addLabel adds the label that the rest of a reference begins with, and returns what follows.
func (n *Needs) addLabel(rest ast.Ref) ast.Ref {
	if len(rest) == 0 || !isName(rest[0]) {
		n.AnyLabel = true
	} else {
		n.Labels = append(n.Labels, string(rest[0].Value.(ast.String)))
	}
	return rest[min(1, len(rest)):]
}

var usageKey = ast.StringTerm("usage")

// alwaysRead are fields that the library reads, or that hardly ever change; of usage, needs are told one by one.
var alwaysRead = []string{"pool", "usage", "now", "zone"}

// sums of a group are at hand without a look at its members.
var sums = []*ast.Term{ast.StringTerm("granted"), ast.StringTerm("pools")}

func isName(t *ast.Term) bool {
	_, ok := t.Value.(ast.String)
	return ok
}
