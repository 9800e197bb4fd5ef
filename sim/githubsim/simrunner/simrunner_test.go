// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package simrunner_test

import (
	"testing"

	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

func TestUnreadableConfigurationTerminates(t *testing.T) {
	code, err := simrunner.Run(t.Context(), "nothing")
	if code != simrunner.ExitTerminated || err == nil {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestWrapperHidesWhyTheListenerEnded(t *testing.T) {
	for code, want := range map[int]int{
		simrunner.ExitOK: 0, simrunner.ExitTerminated: 0, simrunner.ExitSessionConflict: 0, 7: 7,
	} {
		if got := simrunner.ContainerExitCode(code); got != want {
			t.Errorf("exit code %d became %d, want %d", code, got, want)
		}
	}
}
