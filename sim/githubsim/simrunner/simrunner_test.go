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
	for _, code := range []int{0, simrunner.ExitTerminated, simrunner.ExitSessionConflict, simrunner.ExitOutdated, 101, 134, simrunner.ExitKilled} {
		if got := simrunner.ContainerExitCode(code, false); got != 0 {
			t.Errorf("exit code %d became %d", code, got)
		}
	}
	if got := simrunner.ContainerExitCode(simrunner.ExitOutdated, true); got != simrunner.ExitOutdated {
		t.Errorf("the refused version became %d", got)
	}
}
