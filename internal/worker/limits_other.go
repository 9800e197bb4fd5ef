// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package worker

import (
	"os/exec"
	"time"
)

// limit does nothing: the parent limits wall time and output.
func limit(Limits) error { return nil }

// isolate does nothing: exec kills the child at its timeout.
func isolate(*exec.Cmd) {}

// The parent only limits wall time, so these report no usage.
func cpuOf(int) (time.Duration, error) { return 0, nil }

func memoryOf(int) (uint64, error) { return 0, nil }

func goFirst() error { return nil }

func comeSecond() error { return nil }

func comeLast(int) bool { return false }

func killAll(cmd *exec.Cmd) error { return cmd.Process.Kill() }
