// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
)

// groupsAge is how long a listing of runner groups is cached.
const groupsAge = 5 * time.Minute

// Group is a runner group.
type Group struct {
	ID   int64
	Name string
	// Default is true for the group that always exists.
	Default bool
	// AllowsPublic is true if the group accepts jobs of public repositories.
	AllowsPublic bool
}

// defaultGroup is the group of a repository's runners. Repositories have no runner groups.
var defaultGroup = Group{ID: github.DefaultRunnerGroupID, Name: "Default", Default: true}

// is reports whether the group has this name.
func (g Group) is(name string) bool {
	return strings.EqualFold(g.Name, name) || g.Default && isDefaultGroup(name)
}

// Groups lists the runner groups. The list can be up to five minutes old.
func (c *Client) Groups(ctx context.Context) ([]Group, error) { return c.groupsSince(ctx, groupsAge) }

func (c *Client) groupsSince(ctx context.Context, maxAge time.Duration) ([]Group, error) {
	if c.target.Scope == github.Repository {
		return []Group{defaultGroup}, nil
	}
	return c.groups.get(ctx, c.options.Now, "", maxAge, func(ctx context.Context) ([]Group, error) {
		return c.listGroups(ctx, "listing runner groups", "")
	})
}

// GroupID returns the id of a runner group. The names "" and "default", in any case, are the default group and need no
// request. If the cached list does not have the group, GroupID reads the list again, unless it is less than 15 s old.
// If there is no such group, it returns KindRunnerGroupNotFound.
func (c *Client) GroupID(ctx context.Context, name string) (int64, error) {
	if isDefaultGroup(name) {
		return github.DefaultRunnerGroupID, nil
	}
	for _, maxAge := range []time.Duration{groupsAge, leastAge} {
		groups, err := c.groupsSince(ctx, maxAge)
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(groups, func(g Group) bool { return g.is(name) }); i >= 0 {
			return groups[i].ID, nil
		}
	}
	return 0, github.NewError(github.KindRunnerGroupNotFound, fmt.Sprintf("looking up runner group %q", name), 0, 0,
		"there is no such group, or this connection can't see it", nil)
}

// AllowsPublic reports whether a runner group accepts jobs of public repositories.
func (c *Client) AllowsPublic(ctx context.Context, name string) (bool, error) {
	id, err := c.GroupID(ctx, name)
	if err != nil {
		return false, err
	}
	groups, err := c.Groups(ctx)
	return slices.ContainsFunc(groups, func(g Group) bool { return g.ID == id && g.AllowsPublic }), err
}

// Visible reports whether jobs of a repository, OWNER/NAME, can run in a runner group. The answer can be up to five
// minutes old. One call per repository covers all groups. For an enterprise, the group must be visible to the
// repository's organization.
func (c *Client) Visible(ctx context.Context, group, repository string) (bool, error) {
	owner, name, err := splitRepository(repository)
	if err != nil {
		return false, err
	}
	subject := name
	switch c.target.Scope {
	case github.Repository:
		return strings.EqualFold(repository, c.target.Owner+"/"+c.target.Name), nil
	case github.Organization:
		if !strings.EqualFold(owner, c.target.Owner) {
			return false, nil
		}
	case github.Enterprise:
		subject = owner
	}
	groups, err := c.visible.get(ctx, c.options.Now, strings.ToLower(subject), groupsAge, func(ctx context.Context) ([]Group, error) {
		return c.listGroups(ctx, fmt.Sprintf("looking for runner groups that %s sees", subject), subject)
	})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(groups, func(g Group) bool { return g.is(group) }), nil
}

// listGroups lists the groups that are visible to a repository or, in an enterprise, to an organization. With an empty
// name it lists all groups.
func (c *Client) listGroups(ctx context.Context, doing, visibleTo string) ([]Group, error) {
	all := elements(ctx, c, kindGroups, doing, &room{}, slices.Clone[[]Group], func(g Group) Group { return g }, func(ctx context.Context, gh *gogithub.Client, page gogithub.ListOptions) ([]Group, *gogithub.Response, error) {
		if c.target.Scope == github.Enterprise {
			list, resp, err := something(gh.Enterprise.ListRunnerGroups(ctx, c.target.Name, &gogithub.ListEnterpriseRunnerGroupOptions{ListOptions: page, VisibleToOrganization: visibleTo}))
			if err != nil {
				return nil, resp, err
			}
			return groupsOf(list.RunnerGroups), resp, nil
		}
		list, resp, err := something(gh.Actions.ListOrganizationRunnerGroups(ctx, c.target.Owner, &gogithub.ListOrgRunnerGroupOptions{ListOptions: page, VisibleToRepository: visibleTo}))
		if err != nil {
			return nil, resp, err
		}
		return groupsOf(list.RunnerGroups), resp, nil
	})
	var groups []Group
	for g, err := range all {
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func groupsOf[G interface {
	GetID() int64
	GetName() string
	GetDefault() bool
	GetAllowsPublicRepositories() bool
}](list []G) []Group {
	groups := make([]Group, 0, len(list))
	for _, g := range list {
		groups = append(groups, Group{ID: g.GetID(), Name: g.GetName(), Default: g.GetDefault(), AllowsPublic: g.GetAllowsPublicRepositories()})
	}
	return groups
}
