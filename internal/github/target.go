// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Scope is the level at which runners are registered.
type Scope string

// Scopes.
const (
	Organization Scope = "organization"
	Repository   Scope = "repository"
	Enterprise   Scope = "enterprise"
)

// Target is what a connection's URL points to.
type Target struct {
	Scope Scope
	// Owner is the organization or the repository's owner; empty for an enterprise.
	Owner string
	// Name is the name of the repository or enterprise; empty for an organization.
	Name string
	// API is the base URL of the REST API, with a trailing slash.
	API string
	// Server is true for GitHub Enterprise Server.
	Server bool
}

// Is reports whether two targets are the same organization, repository or enterprise of the same server.
func (t Target) Is(other Target) bool { return t.Place() == other.Place() }

// Place returns a key that is equal for targets for which Is returns true. GitHub ignores the case of names.
func (t Target) Place() string {
	return strings.Join([]string{string(t.Scope), t.API, strings.ToLower(t.Owner), strings.ToLower(t.Name)}, " ")
}

// String returns the target's name for messages.
func (t Target) String() string {
	switch t.Scope {
	case Organization:
		return "organization " + t.Owner
	case Repository:
		return "repository " + t.Owner + "/" + t.Name
	}
	return "enterprise " + t.Name
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// IsName reports whether GitHub allows this name for an owner or a repository.
func IsName(name string) bool { return namePattern.MatchString(name) && strings.Trim(name, ".") != "" }

// ParseURL parses https://HOST/ORG, https://HOST/OWNER/REPO or https://HOST/enterprises/NAME. It derives the base URL
// of the REST API as the scale-set client does: api.HOST for github.com and *.ghe.com, and HOST/api/v3 with the URL's
// scheme and port for all others.
func ParseURL(raw string) (Target, error) {
	u, err := url.Parse(strings.TrimRight(raw, "/"))
	if err != nil {
		return Target{}, fmt.Errorf("parsing the URL: %w", err)
	}
	if (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Target{}, errors.New("the URL must be https://HOST/PATH without user, query and fragment")
	}
	t, err := parsePath(strings.Split(strings.Trim(u.EscapedPath(), "/"), "/"))
	if err != nil {
		return Target{}, err
	}
	t.API, t.Server = apiBase(u)
	return t, nil
}

func parsePath(parts []string) (Target, error) {
	for _, part := range parts {
		if !IsName(part) {
			return Target{}, fmt.Errorf("the URL's path has %q, which is not a valid name on GitHub", part)
		}
	}
	switch {
	case len(parts) == 1:
		return Target{Scope: Organization, Owner: parts[0]}, nil
	case len(parts) == 2 && strings.EqualFold(parts[0], "enterprises"):
		return Target{Scope: Enterprise, Name: parts[1]}, nil
	case len(parts) == 2:
		return Target{Scope: Repository, Owner: parts[0], Name: parts[1]}, nil
	}
	return Target{}, errors.New("the URL must point to an organization, a repository or an enterprise")
}

func apiBase(u *url.URL) (base string, server bool) {
	host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
	switch {
	case host == "github.com", host == "www.github.com":
		return u.Scheme + "://api.github.com/", false
	case host == "github.localhost", strings.HasSuffix(host, ".ghe.com"):
		return u.Scheme + "://api." + host + "/", false
	}
	return u.Scheme + "://" + host + "/api/v3/", true
}
