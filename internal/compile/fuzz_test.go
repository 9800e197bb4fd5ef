// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// maxFuzzed is the maximum size of the fuzzer's input in bytes.
const maxFuzzed = 4 << 10

// fuzzed creates a tree of several packages and modules from an input. Packages with the same name share the files of
// the folders above them.
func fuzzed(root, child, nested, embedded, moduleFile []byte) Files {
	return Files{
		"cue.mod/module.cue": moduleFile, "root.cue": root,
		"team/team.cue": child, "team/deep/deep.cue": nested, "team/data.txt": embedded,
		"other/cue.mod/module.cue": moduleFile, "other/other.cue": child, "other/root.cue": root,
		"cue.mod/pkg/example.com/vendored/v.cue": nested,
	}
}

// isExplosive skips inputs that may take gigabytes or never end, because this process cannot stop them. The fuzzer of
// internal/worker, which compiles in limited child processes, accepts them.
func isExplosive(files Files) bool {
	var all strings.Builder
	for _, name := range files.sortedNames() {
		all.Write(files[name])
	}
	text := all.String()
	if len(text) > 3*maxFuzzed {
		return true
	}
	for sign, most := range map[string]int{
		"for": 6, "&": 24, "|": 24, "+": 12, "*": 12, "\\(": 12, "list": 0, "math": 0, "Repeat": 0, "regexp": 0, "text/template": 0,
	} {
		if strings.Count(text, sign) > most {
			return true
		}
	}
	return false
}

// FuzzCompile compiles arbitrary bytes as definitions in several packages and modules, as an embedded file, a module
// file, a path and a tag. There must always be one result that can be shown and applied.
func FuzzCompile(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, root, child, nested, embedded, moduleFile []byte, path, tag string) {
		files := fuzzed(root, child, nested, embedded, moduleFile)
		if isExplosive(files) {
			t.Skip()
		}
		options := Options{Path: path, Tags: map[string]string{"x": tag}}
		result := Compile(files, options)
		checkResult(t, result)
		gathered, diagnostics := Gather(files, path)
		if len(diagnostics) > 0 {
			return
		}
		if diff := cmp.Diff(result, Compile(gathered, options)); diff != "" {
			t.Errorf("what was gathered compiles to something else: %s", diff)
		}
	})
}

func addSeeds(f *testing.F) {
	f.Helper()
	const same = "package pools\n"
	for _, seed := range []string{
		onePool, pool("scale: idel: 3"), "", same, same + "x: y: z: [1, {a: 2}] & [...]",
		same + "@embed(file=x)\nx: _ @embed(file=\"../x\")", same + "x: {apiVersion: 1, kind: {}}",
		same + "#a: b: #a\nx: #a", same + "import \"corral.dev/schema\"\nx: schema", "\xff\x00", same + "\"\\(x)\": x: 1",
		same + "x: [for i in x {i}]", "module: 3", withDeps,
		same + "x: string @embed(file=data.txt,type=text)", same + "x: _ @embed(glob=*.txt,type=text)", same + "x: string @tag(x)",
		same + "import \"example.com/vendored\"\nx: vendored.x", same + "import \"acme.example/pools/team/deep\"\nx: deep", "package team\n\nx: y: x",
		same + "c: schema.#Connections & {a: spec: {url: \"https://github.com/a\", secretRef: name: \"\"}}",
		same + "x: {apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPool\", metadata: name: \"\"}", same + "@ignore()\n", same + "@if(x)\n", "#!\n",
	} {
		data := []byte(seed)
		f.Add(data, data, data, data, data, ".", "")
		f.Add([]byte(onePool), data, []byte(same), []byte("text"), []byte(withDeps), "team", "1")
		f.Add([]byte(same), []byte(same), data, data, []byte(withDeps), "", "x")
		f.Add([]byte(onePool), []byte("package other\n"), data, []byte(nil), []byte(withDeps), "team/deep", "\n")
	}
	f.Add([]byte(onePool), []byte(nil), []byte(nil), []byte(nil), []byte(withDeps), "../..", "")
	f.Add([]byte(onePool), []byte(nil), []byte(nil), []byte(nil), []byte(withDeps), "team/team.cue", "\x00")
	f.Add([]byte(onePool), []byte(nil), []byte(nil), []byte(nil), []byte(withDeps), "\xd4", "\xd4")
}

// checkResult checks the properties that every result has.
func checkResult(t *testing.T, r Result) {
	t.Helper()
	if len(r.Diagnostics) > MaxDiagnostics+1 {
		t.Errorf("%d diagnostics", len(r.Diagnostics))
	}
	for _, d := range r.Diagnostics {
		text := Format(d)
		if d.Message == "" || d.Line < 0 || d.Column < 0 || d.File == "" && d.Line > 0 {
			t.Errorf("an odd diagnostic: %+v", d)
		}
		if len(text) > 4<<10 || !utf8.ValidString(text) || strings.Contains(text, "goroutine") {
			t.Errorf("not fit to be shown: %q", text)
		}
	}
	pools := 0
	for _, o := range r.Objects {
		if o.Manifest.GetKind() == "RunnerPool" {
			pools++
		}
		if _, known := kindOrder[o.Manifest.GetKind()]; !known || len(r.Diagnostics) == 0 && o.Manifest.GetName() == "" {
			t.Errorf("not an object of ours: %v", o.Manifest.Object)
		}
		if _, err := json.Marshal(o); err != nil {
			t.Error(err)
		}
	}
	if len(r.Diagnostics) == 0 && pools == 0 {
		t.Error("neither a pool nor a complaint")
	}
}
