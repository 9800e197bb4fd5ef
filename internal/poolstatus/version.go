// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"time"

	"github.com/Masterminds/semver/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// UpdateWithin is the time within which GitHub requires an update after a newer runner was released:
	// https://docs.github.com/en/actions/reference/runners/self-hosted-runners#runner-software-updates-on-self-hosted-runners
	UpdateWithin = 30 * 24 * time.Hour
	// UpdateNotice is how long before that time the pool's condition RunnerVersion becomes False.
	UpdateNotice = 14 * 24 * time.Hour
)

// Release is a release of the runner program.
type Release struct {
	// Version is for example 2.331.0.
	Version string
	// At is the publication time.
	At time.Time
}

// UpdateBy returns the latest release, and the time from which GitHub may refuse the given version; nil if no release is
// newer. It ignores pre-releases and releases with unreadable versions. ok is false if no release is left, or if the given
// version is unreadable.
func UpdateBy(version string, releases []Release) (latest string, by *metav1.Time, ok bool) {
	runs, err := semver.StrictNewVersion(version)
	if err != nil {
		return "", nil, false
	}
	var newest *semver.Version
	for _, r := range releases {
		v, err := semver.StrictNewVersion(r.Version)
		if err != nil || v.Prerelease() != "" {
			continue
		}
		if newest == nil || v.GreaterThan(newest) {
			newest = v
		}
		if end := r.At.Add(UpdateWithin); v.GreaterThan(runs) && (by == nil || end.Before(by.Time)) {
			by = &metav1.Time{Time: end.UTC()}
		}
	}
	if newest == nil {
		return "", nil, false
	}
	return newest.String(), by, true
}
