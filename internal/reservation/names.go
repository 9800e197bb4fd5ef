// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package reservation

import "strings"

// names keeps each name once, ignoring case. Index 0 stands for no name, and for names without room; jobs of these
// repositories are only tracked by events.
type names struct {
	list []string
	of   map[string]uint16
}

func newNames() names { return names{list: []string{""}, of: map[string]uint16{"": 0}} }

func (n *names) find(name string) uint16 { return n.of[strings.ToLower(name)] }

func (n *names) index(name string) uint16 {
	if len(name) > maxName {
		return 0
	}
	key := strings.ToLower(name)
	i, ok := n.of[key]
	if !ok && len(n.list) < maxRepositories {
		i = uint16(len(n.list)) //nolint:gosec // it is below maxRepositories
		n.list, n.of[key] = append(n.list, name), i
	}
	return i
}
