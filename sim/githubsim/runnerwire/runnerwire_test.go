// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runnerwire_test

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestConfigSurvivesTheWire(t *testing.T) {
	want := runnerwire.Config{
		Settings:    runnerwire.Settings{AgentID: "7", AgentName: "r1", ServerURLV2: "http://127.0.0.1"},
		Credentials: runnerwire.Credentials{Scheme: "OAuth", Data: map[string]string{"clientId": "x"}},
		Key:         runnerwire.Key{D: "d"},
	}
	encoded, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := runnerwire.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUnreadableConfigIsRefused(t *testing.T) {
	for name, in := range map[string]string{
		"empty":          "",
		"not base64":     "?",
		"not JSON":       base64.StdEncoding.EncodeToString([]byte("x")),
		"a file missing": base64.StdEncoding.EncodeToString([]byte(`{".runner":"e30="}`)),
	} {
		if config, err := runnerwire.Decode(in); err == nil {
			t.Errorf("%s: got %+v", name, config)
		}
	}
}
