// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"time"

	"github.com/Masterminds/semver/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// UpdateWithin is the time in which GitHub wants a runner updated after a newer one was released:
	// https://docs.github.com/en/actions/reference/runners/self-hosted-runners#runner-software-updates-on-self-hosted-runners
	UpdateWithin = 30 * 24 * time.Hour
	// UpdateNotice is how long before that a pool says so.
	UpdateNotice = 14 * 24 * time.Hour
)

// Release of the runner program.
type Release struct {
	// Version as 2.331.0.
	Version string
	// At is when it was published.
	At time.Time
}

// UpdateBy returns the latest release, and when GitHub may refuse a version; nil while it is the latest. Pre-releases and versions that can't be read
// don't count; ok is false if nothing can be said for want of others.
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
