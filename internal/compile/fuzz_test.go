// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"
)

// FuzzCompile feeds any bytes as a definition and as a module file: whatever they are,
// there is a result, and objects only without the evaluator's own crash.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		onePool, pool("scale: idel: 3"), "", "package pools", "package pools\nx: y: z: [1, {a: 2}] & [...]",
		"package pools\n@embed(file=x)\nx: _ @embed(file=\"../x\")", "package pools\nx: {apiVersion: 1, kind: {}}",
		"package pools\n#a: b: #a\nx: #a", "package pools\nimport \"corral.dev/schema\"\nx: schema", "\xff\x00", "package pools\n\"\\(x)\": x: 1",
		"package pools\nx: [for i in x {i}]", "module: 3", withDeps,
	} {
		f.Add([]byte(seed), []byte(seed))
		f.Add([]byte(seed), []byte(withDeps))
	}
	f.Fuzz(func(t *testing.T, definition, moduleFile []byte) {
		result := Compile(Files{"cue.mod/module.cue": moduleFile, "a/a.cue": definition}, Options{})
		for _, text := range texts(result) {
			if strings.Contains(text, "goroutine") {
				t.Error(text)
			}
		}
	})
}
