// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]Target{
		"https://github.com/acme":                  {Scope: Organization, Owner: "acme", API: "https://api.github.com/"},
		"https://www.github.com/acme/":             {Scope: Organization, Owner: "acme", API: "https://api.github.com/"},
		"https://GitHub.com/acme/app.js":           {Scope: Repository, Owner: "acme", Name: "app.js", API: "https://api.github.com/"},
		"https://github.com/enterprises/big":       {Scope: Enterprise, Name: "big", API: "https://api.github.com/"},
		"https://octo.ghe.com/acme":                {Scope: Organization, Owner: "acme", API: "https://api.octo.ghe.com/"},
		"https://github.com:443/acme":              {Scope: Organization, Owner: "acme", API: "https://api.github.com/"},
		"https://GIT.example.com:443/acme":         {Scope: Organization, Owner: "acme", API: "https://git.example.com/api/v3/", Server: true},
		"https://git.example.com/acme/app":         {Scope: Repository, Owner: "acme", Name: "app", API: "https://git.example.com/api/v3/", Server: true},
		"http://127.0.0.1:8080/enterprises/big_co": {Scope: Enterprise, Name: "big_co", API: "http://127.0.0.1:8080/api/v3/", Server: true},
	} {
		got, err := ParseURL(raw)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v; -want +got:\n%s", raw, err, diff)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "github.com/acme", "ftp://github.com/acme", "https:///acme", "https://github.com", "https://github.com/",
		"https://github.com/a/b/c", "https://github.com/a//b", "https://github.com/..", "https://github.com/a/.",
		"https://github.com/a%2Fb", "https://user:word@github.com/acme", "https://github.com/acme?x=1", "https://github.com/acme#x",
		"https://github.com/ac me", "https://%zz/acme",
	} {
		if got, err := ParseURL(raw); err == nil {
			t.Errorf("%q: taken as %+v", raw, got)
		}
	}
}
