// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm chart, so that what tests and the demo install is
// what users install.
package charts

import "embed"

// Default is the chart as it renders with its default values, for release corral in
// namespace corral-system, without the CRDs and the generated role: test/chart keeps
// it current.
//
//go:embed default.yaml
var Default []byte

// Corral is the chart, below corral/.
//
//go:embed all:corral
var Corral embed.FS

// CRDs are the CustomResourceDefinitions of the chart, below corral/files/crds/.
//
//go:embed corral/files/crds/*.yaml
var CRDs embed.FS
