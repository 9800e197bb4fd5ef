// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package compileworker

import "os/exec"

// limit does nothing: wall time and output are bounded by the parent.
func limit(Limits) error { return nil }

// isolate leaves the child as it is: exec kills it at the end of its time.
func isolate(*exec.Cmd) {}
