// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package worker

import (
	"os/exec"
	"time"
)

// limit does nothing: wall time and output are bounded by the parent.
func limit(Limits) error { return nil }

// isolate leaves the child as it is: exec kills it at the end of its time.
func isolate(*exec.Cmd) {}

// cpuOf and memoryOf know nothing: wall time is bounded by the parent.
func cpuOf(int) (time.Duration, error) { return 0, nil }

func memoryOf(int) (uint64, error) { return 0, nil }

func goFirst() error { return nil }

func comeSecond() error { return nil }

func comeLast(int) bool { return false }

func killAll(cmd *exec.Cmd) error { return cmd.Process.Kill() }
