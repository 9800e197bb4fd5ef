// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the built-in Rego library.
package policies

import "embed"

// FS contains the library: FOLDER/FILE.rego, and the tests of each file as FOLDER/FILE_test.rego, which are not loaded as
// part of the library.
//
//go:embed */*.rego
var FS embed.FS
