// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"net/url"
	"strings"
)

// ScopeOf parses the URL of a GitHubConnection: https://HOST/ORG, https://HOST/OWNER/REPO or
// https://HOST/enterprises/NAME. It returns false for any other URL.
func ScopeOf(raw string) (Scope, bool) {
	u, err := url.Parse(strings.TrimRight(raw, "/"))
	if err != nil || u.Host == "" {
		return Scope{}, false
	}
	host := strings.TrimPrefix(strings.ToLower(u.Host), "www.")
	parts := strings.Split(strings.ToLower(strings.Trim(u.Path, "/")), "/")
	switch {
	case parts[0] == "":
	case len(parts) == 1:
		return Scope{Host: host, Kind: Organization, Path: parts[0]}, true
	case len(parts) == 2 && parts[0] == "enterprises":
		return Scope{Host: host, Kind: Enterprise, Path: parts[1]}, true
	case len(parts) == 2 && parts[1] != "":
		return Scope{Host: host, Kind: Repository, Path: parts[0] + "/" + parts[1]}, true
	}
	return Scope{}, false
}
