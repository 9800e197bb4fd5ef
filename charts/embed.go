// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm chart, so that what tests and the demo install is
// what users install.
package charts

import "embed"

// Corral is the chart, below corral/.
//
//go:embed all:corral
var Corral embed.FS
