// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"testing"
	"time"
)

func TestProcFilesAreRead(t *testing.T) {
	cpu, err := parseCPUTime("42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 12 0 1 2 3")
	if want := 2 * time.Second; err != nil || cpu != want {
		t.Errorf("the CPU time is %s, %v", cpu, err)
	}
	if _, err := parseCPUTime("42 (x) S 1"); err == nil {
		t.Error("half a line is no error")
	}
	if parent := parentOf("42 (a (b) c) S 7 42 42 0"); parent != 7 {
		t.Errorf("the parent is %d", parent)
	}
	if parent := parentOf("42 (c) Z 7 42 42 0"); parent != 0 {
		t.Errorf("a process that has ended has the parent %d", parent)
	}
	const status = "Name:\tcorral\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n"
	if mib, err := parseMemory(status, "VmHWM"); err != nil || mib != 2 {
		t.Errorf("the peak is %v MiB, %v", mib, err)
	}
	if _, err := parseMemory(status, "VmSwap"); err == nil {
		t.Error("a field that isn't there is no error")
	}
}
