// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain says in plain words why a pool's numbers are what they are, what a runner
// is about, and why a job waits: by which rule, since when, and what would change it. It keeps
// the form of the decision history. It is pure.
package explain
