// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/compile"
)

// A repository cannot replace the embedded schema, or a file next to its modules, by listing a vendored module.
func TestVendoredModulesReplaceNoSchema(t *testing.T) {
	for _, listed := range [][2]string{
		{"corral.dev/schema@v0", "v0.1.0"}, {"corral.dev/schema@v0", "v0.0.1"},
		{"acme.example/a@v0", "v0/../../../schema"}, {"../schema@v0", "v0.1.0"},
	} {
		files := compile.Files{
			"cue.mod/module.cue":         []byte("module: \"acme.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\n"),
			"cue.mod/vendor/modules.cue": fmt.Appendf(nil, "modules: %q: {v: %q, digest: \"sha256:0\"}\n", listed[0], listed[1]),
			"pools.cue":                  []byte("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\n"),
		}
		result := compile.Compile(files, compile.Options{AllowEmpty: true})
		if len(result.Diagnostics) != 1 || !strings.Contains(result.Diagnostics[0].Message, "cannot be vendored") {
			t.Errorf("%v: %+v", listed, result.Diagnostics)
		}
	}
}
