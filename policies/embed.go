// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the built-in Rego library.
package policies

import "embed"

// FS holds the library: FOLDER/FILE.rego, and beside each file its tests, FOLDER/FILE_test.rego,
// which aren't part of what is loaded.
//
//go:embed */*.rego
var FS embed.FS
