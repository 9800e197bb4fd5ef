// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain reports the problems of an installation, the most severe first and each cause once. It also explains why a
// pool has its numbers, what a runner waits for, and why a job waits: which rule applies, since when, and what would change
// it. It reads and writes the decision history. The package is pure.
package explain
