// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package policy

import (
	"syscall"
	"time"
)

// cpuUsed is the CPU time that this process has used.
func cpuUsed() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // the limit by the clock holds
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
