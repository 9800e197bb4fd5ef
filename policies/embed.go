// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the built-in library of Rego rules.
package policies

import "embed"

// FS holds the library: a folder for each decision, with the rules in *.rego and their
// tests in *_test.rego.
//
//go:embed *
var FS embed.FS
