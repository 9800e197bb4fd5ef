// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Repository is a repository with jobs.
type Repository struct {
	// FullName is "owner/name".
	FullName string `json:"fullName"`
	// Public excludes the repository's jobs from groups that do not allow public repositories.
	Public bool `json:"public,omitempty"`
}

// Group is a runner group of an organization or an enterprise. Each has a group 1 named "Default" from the start,
// visible to all repositories except public ones.
type Group struct {
	Name string `json:"name"`
	// Visibility is "all" (also if empty), "private" or "selected".
	Visibility string `json:"visibility,omitempty"`
	// Repositories ("owner/name") that can use a group with the visibility "selected".
	Repositories []string `json:"repositories,omitempty"`
	// Organizations that can use an enterprise's group with the visibility "selected".
	Organizations []string `json:"organizations,omitempty"`
	// AllowsPublic allows jobs of public repositories.
	AllowsPublic bool `json:"allowsPublic,omitempty"`
}

type group struct {
	Group
	id int
}

type scopeKind string

const (
	enterpriseScope scopeKind = "enterprises"
	orgScope        scopeKind = "orgs"
	repoScope       scopeKind = "repos"
)

// scope is where a scale set is registered. It is a tenant of the Actions service.
type scope struct {
	kind   scopeKind
	name   string // as first written: "acme", "acme/app"
	tenant int
	groups []*group
}

func (sc *scope) key() string { return scopeKey(sc.kind, sc.name) }

func scopeKey(kind scopeKind, name string) string { return string(kind) + "/" + strings.ToLower(name) }

// owner is the account on which an App must be installed to access the scope.
func (sc *scope) owner() string {
	owner, _, _ := strings.Cut(sc.name, "/")
	return owner
}

func (sc *scope) group(id int) *group {
	for _, g := range sc.groups {
		if g.id == id {
			return g
		}
	}
	return nil
}

func (g *group) sees(repo *repository) bool {
	if repo.Public && !g.AllowsPublic {
		return false
	}
	switch g.Visibility {
	case "private":
		return !repo.Public
	case "selected":
		return g.seesOrg(repo.owner) || slices.ContainsFunc(g.Repositories, func(name string) bool {
			return strings.EqualFold(name, repo.FullName)
		})
	default:
		return true
	}
}

// seesOrg reports whether all repositories of an organization can use an enterprise's group.
func (g *group) seesOrg(org string) bool {
	return g.Visibility != "selected" || slices.ContainsFunc(g.Organizations, func(name string) bool {
		return strings.EqualFold(name, org)
	})
}

type repository struct {
	Repository
	id    int
	owner string
	name  string
}

// world holds the existing enterprises, organizations, repositories and groups.
type world struct {
	scopes      map[string]*scope
	byTenant    []*scope
	repos       map[string]*repository
	enterprises map[string]string // lower-case organization → enterprise
	lastGroup   int
}

func newWorld() world {
	return world{
		scopes: map[string]*scope{}, repos: map[string]*repository{},
		enterprises: map[string]string{}, lastGroup: 1,
	}
}

func (w *world) addScope(kind scopeKind, name string) *scope {
	if sc := w.scopes[scopeKey(kind, name)]; sc != nil {
		return sc
	}
	sc := &scope{kind: kind, name: name, tenant: len(w.byTenant) + 1}
	sc.groups = []*group{{Group: Group{Name: "Default", Visibility: "all"}, id: 1}}
	w.scopes[sc.key()] = sc
	w.byTenant = append(w.byTenant, sc)
	return sc
}

func (w *world) addRepository(r Repository) (*repository, error) {
	owner, name, found := strings.Cut(r.FullName, "/")
	if !found || owner == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("repository %q is not owner/name", r.FullName)
	}
	key := strings.ToLower(r.FullName)
	if known := w.repos[key]; known != nil {
		known.Public = r.Public
		return known, nil
	}
	w.addScope(orgScope, owner)
	w.addScope(repoScope, r.FullName)
	repo := &repository{Repository: r, id: 1000 + len(w.repos), owner: owner, name: name}
	w.repos[key] = repo
	return repo, nil
}

// scopeOfURL returns the scope of a config URL.
func (w *world) scopeOfURL(raw string) *scope {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(parts) == 1:
		return w.scopes[scopeKey(orgScope, parts[0])]
	case len(parts) == 2 && strings.EqualFold(parts[0], "enterprises"):
		return w.scopes[scopeKey(enterpriseScope, parts[1])]
	case len(parts) == 2:
		return w.scopes[scopeKey(repoScope, parts[0]+"/"+parts[1])]
	default:
		return nil
	}
}

// AddOrg creates an organization, unless it exists.
func (s *Server) AddOrg(name string) {
	s.lock()
	defer s.unlock()
	s.world.addScope(orgScope, name)
}

// AddEnterprise creates an enterprise that owns the organizations.
func (s *Server) AddEnterprise(name string, orgs ...string) {
	s.lock()
	defer s.unlock()
	s.world.addScope(enterpriseScope, name)
	for _, org := range orgs {
		s.world.addScope(orgScope, org)
		s.world.enterprises[strings.ToLower(org)] = name
	}
}

// AddRepository creates a repository and its organization, or changes whether the repository is public. It returns an
// error if the name is not "owner/name".
func (s *Server) AddRepository(r Repository) error {
	s.lock()
	defer s.unlock()
	if _, err := s.world.addRepository(r); err != nil {
		return err
	}
	s.dispatchAll()
	return nil
}

// AddRunnerGroup creates a runner group in an organization ("acme") or an enterprise ("enterprises/acme") and returns
// its id. If the group exists, it is changed. A missing organization or enterprise is created.
func (s *Server) AddRunnerGroup(owner string, g Group) int {
	s.lock()
	defer s.unlock()
	kind, name := orgScope, owner
	if rest, found := strings.CutPrefix(owner, "enterprises/"); found {
		kind, name = enterpriseScope, rest
	}
	if g.Visibility == "" {
		g.Visibility = "all"
	}
	sc := s.world.addScope(kind, name)
	defer s.dispatchAll()
	for _, known := range sc.groups {
		if strings.EqualFold(known.Name, g.Name) {
			known.Group = g
			return known.id
		}
	}
	s.world.lastGroup++
	sc.groups = append(sc.groups, &group{Group: g, id: s.world.lastGroup})
	return s.world.lastGroup
}

// RemoveRunnerGroup removes a runner group, as its owner might. Its scale sets move to the default group, as on GitHub.
func (s *Server) RemoveRunnerGroup(id int) {
	s.lock()
	defer s.unlock()
	if id == 1 {
		return
	}
	for _, sc := range s.world.byTenant {
		sc.groups = slices.DeleteFunc(sc.groups, func(g *group) bool { return g.id == id })
	}
	for _, ss := range s.scaleSets.byID {
		if ss.group.id == id {
			ss.group = ss.scope.group(1)
		}
	}
	for _, ss := range s.runners.solos {
		if ss.group.id == id {
			ss.group = ss.scope.group(1)
		}
	}
}
