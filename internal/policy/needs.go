// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Needs lists those inputs of scaling rules that change often or are costly to compute.
type Needs struct {
	// Ceilings are the ceilings in spec.library. Reads does not include the parts of input.usage that they need.
	Ceilings []v1alpha1.Ceiling
	// Reads are the parts of the input that user-written rules read, sorted: names of fields, and for input.usage the
	// values that the constants below describe.
	Reads []string
}

const (
	// ReadsAnything stands for rules whose inputs cannot be determined.
	ReadsAnything = "*"
	// ReadsUsage is the prefix of the parts of input.usage. It is followed by "granted" or by the name of a group. The
	// group of the pools with the same value of a label is labels.KEY, or labels if the key cannot be determined.
	ReadsUsage = "usage."
	// ReadsMembers stands for the members of groups, and for the numbers in a group that are computed from its members.
	ReadsMembers = ReadsUsage + "members"
	readsLabel   = ReadsUsage + byLabel + "."
)

// reads reports whether a rule reads a part of the input.
func (n Needs) reads(part string) bool { return n.names(part) || n.names(ReadsAnything) }

// maxUsageLabels is the maximum number of labels whose usage the rules of a policy may read by name. It limits the
// memory of the controller, which keeps these names for each pool that the policy binds.
const maxUsageLabels = 16

// names reports whether Reads contains a part. It uses a binary search, because Reads may contain many labels, and the
// ledger calls names for each group of a pool.
func (n Needs) names(part string) bool {
	_, found := slices.BinarySearch(n.Reads, part)
	return found
}

// labels returns the number of labels whose usage rules read by name.
func (n Needs) labels() (count int) {
	for _, part := range n.Reads {
		if strings.HasPrefix(part, readsLabel) {
			count++
		}
	}
	return count
}

// Clock reports whether a user-written rule reads the time.
func (n Needs) Clock() bool { return n.reads("now") }

// Usage reports whether any rule reads input.usage.
func (n Needs) Usage() bool {
	return len(n.Ceilings) > 0 || slices.ContainsFunc(n.Reads, func(part string) bool {
		return part == ReadsAnything || strings.HasPrefix(part, ReadsUsage)
	})
}

// OfRules returns the needs of user-written rules.
func (n Needs) OfRules() Needs { return Needs{Reads: n.Reads} }

// and combines two needs.
func (n Needs) and(o Needs) Needs {
	both := Needs{Ceilings: slices.Concat(n.Ceilings, o.Ceilings), Reads: sortedSet(slices.Concat(n.Reads, o.Reads))}
	if slices.Contains(both.Reads, ReadsAnything) {
		both.Reads = []string{ReadsAnything}
	}
	return both
}

// sortedSet sorts a list and removes duplicates.
func sortedSet[T cmp.Ordered](all []T) []T {
	slices.Sort(all)
	return slices.Compact(all)
}

// of returns the input without the fields that no rule reads, and without the time. It does not clear the usage of
// other pools: its caller has already omitted the groups that no rule reads.
func (n Needs) of(in ScalingInput) ScalingInput {
	in.Now = 0
	if !n.reads(ReadsUsage + "granted") {
		in.Usage.Granted = 0
	}
	for field, value := range reflect.ValueOf(&in).Elem().Fields() {
		name := field.Tag.Get("json")
		if !slices.Contains(alwaysRead, name) && !n.reads(name) {
			value.SetZero()
		}
	}
	return in
}

// add adds the part of the input that a reference reads. If a reference ends before a number, for example at a group,
// another rule may receive the value and read any part of it. So add then assumes that rules read all of it.
func (n *Needs) add(ref ast.Ref) {
	field, group := nameAt(ref, 1), nameAt(ref, 2)
	switch {
	case field == "" || field == "usage" && group == "":
		n.Reads = append(n.Reads, ReadsAnything)
		return
	case field != "usage":
		if !slices.Contains(alwaysRead, field) {
			n.Reads = append(n.Reads, field)
		}
		return
	}
	part, rest := ReadsUsage+group, 3
	if group == byLabel {
		rest = 4
		if label := nameAt(ref, 3); label != "" {
			part = readsLabel + label
		}
	}
	n.Reads = append(n.Reads, part)
	if sum := nameAt(ref, rest); group != "granted" && sum != "granted" && sum != "pools" { // known without the members
		n.Reads = append(n.Reads, ReadsMembers)
	}
}

// nameAt returns the name at an index of a reference; "" if there is none, or if it is only known when the rule runs.
func nameAt(ref ast.Ref, i int) string {
	if i >= len(ref) {
		return ""
	}
	return textOf(ref[i])
}

// alwaysRead lists the fields that the library reads or that rarely change. The parts of usage are listed separately in
// Needs.
var alwaysRead = []string{"pool", "usage", "zone"}
