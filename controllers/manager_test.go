// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import "testing"

func TestProfilesAreOffUnlessAPortOfLocalhostIsGiven(t *testing.T) {
	for port, want := range map[uint16]string{0: "", 6060: "127.0.0.1:6060"} {
		if got := (ManagerOptions{ProfilesPort: port}).profilesAddress(); got != want {
			t.Errorf("port %d: %q", port, got)
		}
	}
}
