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

// published holds a server's copy of the runner releases, or the error if it has none.
type published struct {
	Releases []poolstatus.Release
	Missing  error
}

// Releases lists the latest releases of the runner program. The list is cached for ten minutes. It returns KindNotFound
// or KindForbidden if the server has no copy of the repository or the credentials cannot read it.
func (c *Client) Releases(ctx context.Context) ([]poolstatus.Release, error) {
	last, err := c.releases.get(ctx, c.options.Now, "", sharedLife, func(ctx context.Context) (published, error) {
		found, err := ask(ctx, c, kindReleases, "listing the releases of the runner", func(ctx context.Context, gh *gogithub.Client) ([]*gogithub.RepositoryRelease, *gogithub.Response, error) {
			return listed(gh.Repositories.ListReleases(ctx, "actions", "runner", &gogithub.ListOptions{PerPage: releasesRead}))
		})
		if github.IsNotFound(err) {
			return published{Missing: err}, nil // cached like a list, because every pool would get the same answer
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

// releasesRead is the number of releases to read. It covers more than the months for which GitHub accepts an old runner
// version.
const releasesRead = 30
