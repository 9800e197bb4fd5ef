// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest tests what linters cannot: indirect imports and other rules about the whole code. It also defines
// the layers of the packages.
package archtest

// Layer is a group of packages with common rules for their behavior and imports.
type Layer struct {
	Name string
	// Packages are paths in the module; subpackages are included. Each pure package may import the packages before it
	// in the list.
	Packages []string
	// May is a Markdown text for docs/architecture.md: the purpose and the restrictions of the layer.
	May string
}

// Layers assigns each package of internal to a layer. The tests of this package enforce it. `make generate` derives the
// linter's settings in .golangci.yml and the table in docs/architecture.md from it.
var Layers = []Layer{Shared, Pure, Review, Adapters, Commands, Tests}

// The layers. Each may import the layers before it.
var (
	Shared = Layer{"shared", []string{"internal/clientgates", "internal/memfs", "internal/meter", "internal/share", "internal/wording", "internal/yamldoc"},
		"small; no I/O, no clock; import nothing of this module"}
	Pure = Layer{"pure", []string{
		"apis/v1alpha1", "internal/admission", "internal/catalog", "internal/claims", "internal/compile", "internal/demand", "internal/jobmatch", "internal/podspec",
		"internal/poolstatus", "internal/quota", "internal/reservation", "internal/rollout", "internal/scaling", "internal/schedule", "internal/policy", "internal/explain",
	}, "no I/O, no clock, no goroutine; `now` is an argument; a package may import the ones before it in this list"}
	Review   = Layer{"review", []string{"internal/review"}, "pure as well; here, as in controllers, all pure packages meet"}
	Adapters = Layer{"adapters", []string{
		"internal/clock", "internal/fluxsource", "internal/github", "internal/gitsource", "internal/kube", "internal/metricsource",
		"internal/neterr", "internal/notify", "internal/turns", "internal/webhook", "internal/worker",
	}, "talk to one thing each, or order who does next; no decisions"}
	Commands = Layer{"command line", []string{"internal/cli", "internal/conformance", "internal/report"}, "flags and output; `cmd/corral` wires them"}
	Tests    = Layer{"tests", []string{"internal/archtest"}, "only tests and generators import them"}
)
