// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain says why a pool has its numbers, what a runner waits for, and why a job waits: by
// which rule, since when, and what would change it. It also reads and writes the decision history.
// It is pure.
package explain
