// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// licenceFile matches the names by which licences lie beside a module's sources.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([.-].*)?$`)

// mostly is how much of a file must be of known licences for it to count as one, in percent.
const mostly = 75

// licencesIn returns the SPDX identifiers of the licences in a module's folder; none if it isn't known or none is recognised.
func licencesIn(folder string) ([]string, error) {
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("looking for licences: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading a licence: %w", err)
		}
		coverage := licensecheck.Scan(text)
		if coverage.Percent < mostly {
			continue
		}
		for _, match := range coverage.Match {
			ids = append(ids, match.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func licences(ids ...string) *cyclonedx.Licenses {
	var all cyclonedx.Licenses
	for _, id := range ids {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return &all
}
