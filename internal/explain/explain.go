// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain reports what is wrong with an installation, the worst first and each cause once, and explains why a pool has its
// numbers, what a runner waits for, and why a job waits: by which rule, since when, and what would change it. It also reads and writes the
// decision history. It is pure.
package explain
