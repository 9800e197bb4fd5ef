// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAChildComesAfterItsParent(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := start(executable)
	if err != nil {
		t.Fatal(err)
	}
	defer child.kill()
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	its, err := unix.Getpriority(unix.PRIO_PROCESS, child.pid())
	if err != nil || its >= own {
		t.Errorf("the child has priority %d, its parent %d (more comes first): %v", its, own, err)
	}
}
