// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package multicall

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// init asks the kernel to end this process with the one that started it, so that a test which is killed leaves no control
// plane behind. It is done here because the setting belongs to one thread, and init always runs on the main thread, which
// lives as long as the process.
func init() {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "localkube: may outlive its parent:", err)
	}
}
