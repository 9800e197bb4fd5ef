// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package reservation

import "strings"

// names assigns an index to each repository name, ignoring case. Index 0 stands for an empty name, and for names that
// are too long or for which there is no room. Jobs of such repositories are tracked by events only, and are never
// compared with GitHub's lists.
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
