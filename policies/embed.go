// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the built-in Rego library.
package policies

import "embed"

// FS contains the library's files as FOLDER/FILE.rego, and their tests as FOLDER/FILE_test.rego. Policies do not load
// the tests.
//
//go:embed */*.rego
var FS embed.FS
