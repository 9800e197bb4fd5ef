// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command generate runs all generators except those for deep copies, CRDs and RBAC, which must run first: maxima of
// CRDs, files from the chart, the CUE schema, the schemas of policies' inputs, pages of docs, the list of layers, and the format of policies.
// It is one program, so that only one has to be linked. Run it in the root of the repository, as `make generate` does.
package main

import (
	"log"

	"github.com/corral-dev/corral/hack/chartgen"
	"github.com/corral-dev/corral/hack/crdgen"
	"github.com/corral-dev/corral/hack/docgen"
	"github.com/corral-dev/corral/hack/policyschema"
	"github.com/corral-dev/corral/hack/schemagen"
)

func main() {
	log.SetFlags(0)
	for _, step := range []struct {
		what     string
		generate func() error
	}{
		{"Rego", formatRego},
		{"CRDs", crdgen.Generate},
		{"chart", chartgen.Generate},
		{"CUE schema", schemagen.Generate},
		{"policies' inputs", policyschema.Generate},
		{"docs", docgen.Generate}, // builds the command, which embeds the schema
		{"layers", writeLayers},
	} {
		if err := step.generate(); err != nil {
			log.Fatalf("generating: %s: %v", step.what, err)
		}
	}
}
