// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

// refuseObjects adds diagnostics for objects of the head that a PoolSource would refuse because of their namespace or a
// duplicate name, and for pools that may not use their connection. If the namespace of the source is unknown, all objects
// must be in the first namespace that the base, or else the head, names. No object is refused for its namespace if the base
// already uses several namespaces, because something other than one PoolSource then applies them, or if several PoolSources
// apply the tree, because the command has already checked each object against its own source.
func (c *comparison) refuseObjects() {
	before := c.base.namespaces()
	anywhere := c.in.Namespace == "" && (len(before) > 1 || c.in.ManySources)
	own := compile.IntoNamespace(cmp.Or(c.in.Namespace, slices.Concat(before, c.head.namespaces(), []string{""})[0]))
	for i := range c.head.Objects {
		o := &c.head.Objects[i]
		if why := own.Refusal(o); why != "" && !anywhere {
			c.refuse(o, "", why)
		} else if p := c.head.pools[wording.Qualified(o.Manifest.GetNamespace(), o.Manifest.GetName())]; p != nil && p.object == o {
			c.refuseConnection(p)
		}
	}
}

// namespaces returns the namespaces of the side's objects, in the order in which they first occur.
func (s *side) namespaces() (named []string) {
	for i := range s.Objects {
		if namespace := s.Objects[i].Manifest.GetNamespace(); namespace != "" && !slices.Contains(named, namespace) {
			named = append(named, namespace)
		}
	}
	return named
}

// refuseConnection adds a diagnostic if a pool of the head may not use its connection, or if the connection does not exist.
// A connection without a declaration may exist in the cluster. refuseConnection assumes this if the connection is in
// another namespace, if the side declares no connections, if pools of the base used it without a declaration, or if the
// base cannot be compared.
func (c *comparison) refuseConnection(p *pool) {
	const path = ".spec.connectionRef"
	name := p.connectionName()
	switch used := cmp.Or(c.head.connections[name], c.head.connections[p.Spec.ConnectionRef.Name]); {
	case used != nil && used.Namespace != "" && !used.Allows(p.Namespace):
		c.refuse(p.object, path, v1alpha1.NoConsent(name, p.Namespace))
	case used != nil:
	case c.base.connections[name] != nil,
		c.result.Comparable() && len(c.head.connections) > 0 && p.Spec.ConnectionRef.From(p.Namespace).Namespace == p.Namespace && len(c.base.poolsOn(name)) == 0:
		c.refuse(p.object, path, fmt.Sprintf("there is no GitHubConnection %s: declare it, or name another", name))
	}
}

// compareConnections reports which connections change, and how this affects pools.
func (c *comparison) compareConnections() {
	for _, name := range names(c.base.connections, c.head.connections) {
		before, after := c.base.connections[name], c.head.connections[name]
		either := cmp.Or(after, before)
		shown := Connection{Namespace: either.Namespace, Name: either.Name, Change: changeOf(before, after), Class: Settings, Pools: c.head.poolsOn(name)}
		if before != nil {
			shown.BaseAt = new(fieldPlace(before.object, ""))
		}
		if after != nil {
			shown.HeadAt = new(fieldPlace(after.object, ""))
		}
		if shown.Change == Changed {
			fields := diff(before.object, after.object, connectionClasses.of)
			shown.Fields, shown.MoreFields = fields.fields()
			if all := classesOf(Changed, fields.classes); len(all) > 0 {
				shown.Class = all[0]
			}
		}
		if shown.Change != Changed || len(shown.Fields) > 0 {
			c.describeConnection(&shown, before, after)
			c.result.Connections = append(c.result.Connections, shown)
		}
	}
}

// poolsOn returns the names of the pools that use a connection.
func (s *side) poolsOn(name string) []string {
	return s.named(func(p *pool) bool { return p.connectionName() == name })
}

// describeConnection adds the effects of a change of a connection. before or after is nil if that side does not have the
// connection.
func (c *comparison) describeConnection(s *Connection, before, after *connection) {
	f := struct {
		Change             Change
		Before, After      *connection
		Refused            string
		Pools              int
		IsReachedOtherwise bool
		Lost, Gained       []string
	}{Change: s.Change, Before: before, After: after, Pools: len(s.Pools)}
	switch s.Change {
	case Changed:
		f.IsReachedOtherwise = !reflect.DeepEqual(before.Spec.Proxy, after.Spec.Proxy) || !reflect.DeepEqual(before.Spec.CA, after.Spec.CA)
		f.Lost, f.Gained = beyond(before.Spec.AllowedNamespaces, after.Spec.AllowedNamespaces), beyond(after.Spec.AllowedNamespaces, before.Spec.AllowedNamespaces)
		if before.Spec.URL != after.Spec.URL {
			f.Refused = c.refuseChange(after.object, ".spec.url", "url is immutable: create another GitHubConnection and point the pools at it")
		}
	case Deleted:
		if len(s.Pools) > 0 {
			s.Class = Replaced
		}
		s.Pools = sets.List(sets.New(s.Pools...).Insert(c.base.poolsOn(wording.Qualified(s.Namespace, s.Name))...))
	}
	s.Effects = effects.Sentences("connection", f)
}

// beyond returns the namespace patterns of a list that no pattern of the other list covers.
func beyond(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(namespace string) bool {
		return slices.ContainsFunc(other, func(pattern string) bool { return v1alpha1.MatchesNamespace(pattern, namespace) })
	})
}

func namespaces(names []string) string {
	if slices.Contains(names, v1alpha1.AllNamespaces) {
		return "that it doesn't name"
	}
	return strings.Join(names, ", ")
}
