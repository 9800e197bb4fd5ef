// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import "fmt"

// OneNamespace checks objects that a PoolSource applies into its own namespace.
type OneNamespace struct {
	name  string
	first map[[2]string]*Object
}

// IntoNamespace returns a checker for a PoolSource's namespace.
func IntoNamespace(name string) *OneNamespace {
	return &OneNamespace{name, map[[2]string]*Object{}}
}

// Refusal returns the reason why an object is refused, or "". It must be called once for each object of a revision,
// because it also refuses an object that was declared before.
func (n *OneNamespace) Refusal(o *Object) string {
	if named := o.Manifest.GetNamespace(); named != "" && named != n.name {
		return fmt.Sprintf("it names namespace %s, and a PoolSource applies only into its own, %s; leave metadata.namespace out", named, n.name)
	}
	key := [2]string{o.Manifest.GetKind(), o.Manifest.GetName()}
	if other := n.first[key]; other != nil {
		return twice(o, other)
	}
	n.first[key] = o
	return ""
}

func twice(o, other *Object) string {
	at := fmt.Sprintf("%s:%d", other.File, other.Line)
	if other.Path != "" {
		at += " (" + other.Path + ")"
	}
	return fmt.Sprintf("%s %s is declared twice, here and at %s", o.Manifest.GetKind(), o.Manifest.GetName(), at)
}
