// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"fmt"
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

// highest returns the tag with the highest version in a range. It ignores tags that are not a version (with or without
// a leading v), and ignores pre-releases unless the range names one. If two tags have the same version, such as v1.0.0
// and 1.0.0, it chooses the tag that sorts last, so that the choice is stable.
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

// compare returns a positive number if best is nil.
func compare(version, best *semver.Version) int {
	if best == nil {
		return 1
	}
	return version.Compare(best)
}
