// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"context"
	"strings"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// published is what a server has of the runner's releases: a list, or none of its own.
type published struct {
	Releases []poolstatus.Release
	Missing  error
}

// Releases lists the last releases of the runner program, as of the last ten minutes. A server without a copy of the repository, or
// credentials that don't show it: KindNotFound or KindForbidden.
func (c *Client) Releases(ctx context.Context) ([]poolstatus.Release, error) {
	last, err := c.releases.get(ctx, c.options.Now, "", sharedLife, func(ctx context.Context) (published, error) {
		found, err := ask(ctx, c, kindReleases, "listing the releases of the runner", func(ctx context.Context, gh *gogithub.Client) ([]*gogithub.RepositoryRelease, *gogithub.Response, error) {
			return listed(gh.Repositories.ListReleases(ctx, "actions", "runner", &gogithub.ListOptions{PerPage: releasesRead}))
		})
		if github.IsNotFound(err) {
			return published{Missing: err}, nil // it is asked for by each pool, and none gets another answer
		}
		if err != nil {
			return published{}, err
		}
		releases := make([]poolstatus.Release, 0, len(found))
		for _, r := range found {
			if !r.GetDraft() && !r.GetPrerelease() {
				releases = append(releases, poolstatus.Release{Version: strings.TrimPrefix(r.GetTagName(), "v"), At: r.GetPublishedAt().Time})
			}
		}
		releases, err = fitting("listing the releases of the runner", releases, &room{})
		return published{Releases: releases}, err
	})
	return last.Releases, cmp.Or(err, last.Missing)
}

// releasesRead is how many are read: more than there are in the months that a runner's version may be old.
const releasesRead = 30
