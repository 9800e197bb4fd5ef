// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// checkRange refuses an invalid range of versions.
func checkRange(text string) error {
	if _, err := semver.NewConstraint(text); err != nil {
		return fmt.Errorf("%w: semver %q is no range of versions: %w; write one as >=1.2.0 <2.0.0, ~1.4 or 1.x", ErrNotAllowed, text, err)
	}
	return nil
}

// maxVersions is the maximum number of versions that are compared with a range, which takes long if the range has many
// alternatives. They are the highest versions of a repository.
const maxVersions = 10_000

// version is a tag that is a version.
type version struct {
	*semver.Version
	tag string
}

// highest returns the tag with the highest version in a range. It ignores tags that are not a version (with or without
// a leading v), and ignores pre-releases unless the range names one. If two tags have the same version, such as v1.0.0
// and 1.0.0, it chooses the tag that sorts last, so that the choice is stable.
func highest(text string, tags []string) (string, error) {
	wanted, err := semver.NewConstraint(text)
	if err != nil {
		return "", checkRange(text)
	}
	total, versions := 0, make([]version, 0, min(len(tags), 2*maxVersions))
	for _, tag := range tags {
		v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
		if err != nil {
			continue
		}
		if total++; len(versions) == 2*maxVersions {
			versions = highestFirst(versions)
		}
		versions = append(versions, version{v, tag})
	}
	for _, v := range highestFirst(versions) {
		if wanted.Check(v.Version) {
			return v.tag, nil
		}
	}
	some := ""
	if total > maxVersions {
		some = fmt.Sprintf(", but only the %d highest were compared", maxVersions)
	}
	return "", fmt.Errorf("%w: none of the repository's %d tags is a version in %s (%d are versions%s)", ErrRefNotFound, len(tags), text, total, some)
}

// highestFirst returns the highest versions, at most maxVersions.
func highestFirst(versions []version) []version {
	slices.SortFunc(versions, func(a, b version) int {
		return cmp.Or(b.Compare(a.Version), strings.Compare(b.tag, a.tag))
	})
	return versions[:min(len(versions), maxVersions)]
}
