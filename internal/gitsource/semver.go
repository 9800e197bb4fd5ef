// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// checkRange refuses a range of versions that can't be read.
func checkRange(text string) error {
	if _, err := semver.NewConstraint(text); err != nil {
		return fmt.Errorf("%w: semver %q is no range of versions: %w; write one as >=1.2.0 <2.0.0, ~1.4 or 1.x", ErrNotAllowed, text, err)
	}
	return nil
}

// highest returns the tag with the highest version in a range. Tags that are no version, with or
// without a v in front, are passed over, and so are those of a pre-release unless the range names
// one. Of two tags with the same version, as v1.0.0 and 1.0.0, it is the one that sorts last: what
// is chosen must not change from one look to the next.
func highest(text string, tags []string) (string, error) {
	wanted, err := semver.NewConstraint(text)
	if err != nil {
		return "", checkRange(text)
	}
	var best *semver.Version
	name, versions := "", 0
	for _, tag := range tags {
		version, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
		if err != nil {
			continue
		}
		versions++
		if !wanted.Check(version) {
			continue
		}
		if order := compare(version, best); order > 0 || order == 0 && tag > name {
			best, name = version, tag
		}
	}
	if best == nil {
		return "", fmt.Errorf("%w: none of the repository's %d tags is a version in %s (%d are versions)", ErrRefNotFound, len(tags), text, versions)
	}
	return name, nil
}

// compare is above 0 where there is nothing to compare with.
func compare(version, best *semver.Version) int {
	if best == nil {
		return 1
	}
	return version.Compare(best)
}
