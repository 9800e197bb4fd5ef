// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCredentialsHash(t *testing.T) {
	app := func(id string, installation int64, key string) Credentials {
		return Credentials{ConfigURL: "https://github.com/acme", App: &App{ID: id, InstallationID: installation, PrivateKey: []byte(key)}}
	}
	all := map[string]Credentials{
		"token":              {ConfigURL: "https://github.com/acme", Token: "secret"},
		"other token":        {ConfigURL: "https://github.com/acme", Token: "secret2"},
		"other url":          {ConfigURL: "https://github.com/acm", Token: "esecret"},
		"app":                app("1", 23, "key"),
		"other installation": app("12", 3, "key"),
		"other key":          app("1", 23, "yek"),
	}
	seen := map[string]string{}
	for name, creds := range all {
		hash := creds.Hash()
		if other, taken := seen[hash]; taken {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[hash] = name
		if diff := cmp.Diff(hash, creds.Hash()); diff != "" {
			t.Errorf("%s: not stable", name)
		}
	}
}
