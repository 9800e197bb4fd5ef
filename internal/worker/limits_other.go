// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package worker

import (
	"os/exec"
	"time"
)

// limit does nothing, because these limits need Linux. The parent limits wall time and output.
func limit(Limits) error { return nil }

// isolate does nothing. Package exec kills a child when the context of its command ends.
func isolate(*exec.Cmd) {}

// cpuOf and memoryOf report no usage, so the parent limits only the wall time.
func cpuOf(int) (time.Duration, error) { return 0, nil }

func memoryOf(int) (uint64, error) { return 0, nil }

func goFirst() error { return nil }

func comeSecond() error { return nil }

func comeLast(int) bool { return false }

func killAll(cmd *exec.Cmd) error { return cmd.Process.Kill() }
