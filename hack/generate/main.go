// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command generate writes all that is generated but deep copies, CRDs and RBAC, which come before: maxima of CRDs, what is made of the chart, the CUE
// schema, the schemas of policies' inputs, pages of docs, and the list of layers. One program, so that only one is linked. Run it from
// the root of the repository, as `make generate` does.
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
		{"CRDs", crdgen.Generate},
		{"chart", chartgen.Generate},
		{"CUE schema", schemagen.Generate},
		{"policies' inputs", policyschema.Generate},
		{"docs", docgen.Generate}, // builds the command, which has the schema in it
		{"layers", writeLayers},
	} {
		if err := step.generate(); err != nil {
			log.Fatalf("generating: %s: %v", step.what, err)
		}
	}
}
