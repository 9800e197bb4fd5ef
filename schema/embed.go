// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package schema embeds the CUE module that pool definitions import.
package schema

import "embed"

// Module is the path of the CUE module, and of its only package.
const Module = "corral.dev/schema@v0"

// ImportPath is Module without its major version: the path of a vendored copy in cue.mod/pkg.
const ImportPath = "corral.dev/schema"

// Version is the version of the embedded module. This build provides no other version.
const Version = "v0.1.0"

// FS contains the module: cue.mod/module.cue and the files of the package.
//
//go:embed *.cue cue.mod/module.cue
var FS embed.FS

// Inputs contains the JSON Schemas of the policies' inputs, for OPA's own tools.
//
//go:embed policy/*.json
var Inputs embed.FS
