// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/memfs"
)

// specOf returns the spec of a pool in one line, with an expression for the image.
func specOf(image string) string {
	return `spec: {connectionRef: name: "acme", template: spec: containers: [{name: "runner", image: ` + image + `}]}`
}

func TestNothingVanishes(t *testing.T) {
	const ok = head + "pools: schema.#Pools & {ok: "
	plain := specOf(`"i"`)
	for name, tc := range map[string]struct {
		cue  string
		want []string
	}{
		"a row without the field that its pool is looked up by": {
			ok + plain + "}\n_rows: [string]: class: string\n_rows: {a: {}}\n_classes: x: {" + plain + "}\npools: {\n\tfor n, v in _rows {(n): _classes[v.class]}\n}\n", []string{
				"pools.cue:7:9: pools.a: class has no value, only string"}},
		"a misspelt definition of the schema": {
			ok + plain + "}\nmore: schema.#Pool & {a: " + plain + "}\n", []string{
				`pools.cue:6:14: undefined field: #Pool; did you mean #Pools?`}},
		"a comprehension over a misspelt field": {
			ok + plain + "}\n_data: rows: a: class: \"x\"\npools: {\n\tfor n, v in _data.rowz {(n): " + plain + "}\n}\n", []string{
				"pools.cue:8:20: pools: undefined field: rowz; did you mean rows?"}},
		"a condition on a tag that is not set": {
			ok + plain + "}\n_env: string @tag(env)\nif _env == \"prod\" {pools: a: " + plain + "}\n", []string{
				"pools.cue:6:1: _env has no value, only string; set the tag: --tag env=VALUE, or spec.tags of the PoolSource"}},
		"several alternatives": {
			ok + plain + "}\nmore: schema.#Pools & ({a: " + plain + "} | {b: " + plain + "})\n", []string{
				"pools.cue:6:1: more: several alternatives hold; say which one counts, or mark it with *"}},
		"a misspelt field around": {
			ok + plain + "}\npoools: \"linux-big\": " + plain + "\n", []string{
				"pools.cue:6:9: poools.\"linux-big\": has a spec, but is no object; unify what is around it with `schema.#Pools`, or begin the name of a building block with _ or #"}},
		"a building block that is a regular field": {
			ok + plain + "}\nbase: {x: string}\n", []string{
				"pools.cue:6:11: base.x: incomplete value string; begin the name of a building block with _ or #"}},
		"an optional field": {
			ok + plain + "}\npools: a?: " + plain + "\n", []string{
				"pools.cue:6:8: pools.a: is optional, so it declares nothing; leave out the ?, or the field"}},
		"a misspelt field behind a presence test": {
			ok + plain + "}\n_env: \"prd\"\n_classes: prod: small: \"i\"\n_rows: a: class: _classes[_env].small\npools: {for n, v in _rows if v.class != _|_ {(n): " + plain + "}}\n", []string{
				"pools.cue:8:27: undefined field: prd; the comparison of v.class with _|_ at pools.cue:9 takes it for absent"}},
		"a tag that is not set behind a presence test": {
			ok + plain + "}\n_env: string @tag(env)\n_rows: a: class: prod: \"i\"\n_some: {for n, v in _rows if v.class[_env] != _|_ {(n): v}}\npools: {for n, v in _some {(n): " + plain + "}}\n", []string{
				"pools.cue:6:7: invalid non-ground value string (must be concrete string); the comparison of v.class[_env] with _|_ at pools.cue:8 takes it for absent"}},
		"a presence test in a definition": {
			ok + plain + "}\n_rows: a: class: {prod: 1}.prd\n#T: {rows: _, out: {for n, v in rows let has = v.class != _|_ if has {(n): " + plain + "}}}\npools: (#T & {rows: _rows}).out\n", []string{
				"pools.cue:6:28: undefined field: prd; the comparison of v.class with _|_ at pools.cue:7 takes it for absent"}},
		"presence tests of what may be absent": {
			ok + plain + "}\n_rows: {a: class: \"x\", b: {}}\n#C: {x?: int}\n_c: #C\npools: {for n, v in _rows if v.class != _|_ {(n): {" + plain + "\n\tif v.idle != _|_ {spec: scale: idle: v.idle}\n\tif _c.x != _|_ {spec: scale: max: _c.x}\n}}}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(Compile(repository(tc.cue), Options{}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFilesOfAFolderAreOfOnePackage(t *testing.T) {
	files := repository(onePool)
	files["team/a.cue"], files["team/b.cue"] = []byte("package team\n"), []byte("package taem\np: "+rawPool)
	want := []string{"team/b.cue:1:1: the file is of package taem, and a.cue of package team: name one package in all files of a folder, or move one of them to a folder of its own"}
	if diff := cmp.Diff(want, texts(Compile(files, Options{}))); diff != "" {
		t.Error(diff)
	}
}

// A folder behind a link is not read, neither on a disk nor in a commit, which only lists links.
func TestALinkToAFolderIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		link, target string
		refused      bool
	}{
		"to a folder":                       {"pools/team", "../shared", true},
		"to a link to a folder":             {"pools/team.d", "../hop", true},
		"to a folder, hidden":               {"pools/.team", "../shared", false},
		"to a folder, beside what is built": {"team", "shared", false},
		"to a file":                         {"pools/README", "../shared/x.txt", false},
		"to nothing":                        {"pools/README", "nothing", false},
		"to itself":                         {"pools/team", "team", false},
		"out of the tree":                   {"pools/team", "../../other", true},
		"out of the tree, to a file":        {"pools/README.md", "../../README.md", false},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk, committed := t.TempDir(), memfs.FS{}
			for file, text := range map[string]string{"pools/a.cue": onePool, "shared/x.txt": "", "cue.mod/module.cue": withDeps} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(onDisk, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(onDisk, file), text)
				add(t, committed, file, &fstest.MapFile{Data: []byte(text)})
			}
			for link, target := range map[string]string{"hop": "shared", tc.link: tc.target} {
				if err := os.Symlink(target, filepath.Join(onDisk, link)); err != nil {
					t.Fatal(err)
				}
				add(t, committed, link, memfs.Link(target))
			}
			root, err := os.OpenRoot(onDisk)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			var want []string
			if tc.refused {
				want = []string{tc.link + ": a link to a folder, which is not followed; commit the folder itself, or make its name begin with a dot"}
			}
			_, there := Gather(root.FS(), "pools")
			_, listed := Gather(committed, "pools")
			if diff := cmp.Diff(want, texts(Result{Diagnostics: there})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(want, texts(Result{Diagnostics: listed})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func add(t *testing.T, files memfs.FS, name string, file *fstest.MapFile) {
	t.Helper()
	if _, err := files.Add(name, file); err != nil {
		t.Fatal(err)
	}
}

// mutations is how many trees TestMutatedTreesLoseNoPool mutates. CORRAL_MUTATIONS sets another number, and adds the
// large table.
const mutations = 120

// A mistake in a tree leads to a diagnostic, or removes no pool. The test makes no change that removes pools on
// purpose.
func TestMutatedTreesLoseNoPool(t *testing.T) {
	n := mutations
	if asked := os.Getenv("CORRAL_MUTATIONS"); asked != "" {
		n, _ = strconv.Atoi(asked)
		mutateAll(t, 40, func(*rand.Rand) (Files, int) { return tableTree(300), 300 })
	}
	mutateAll(t, n, func(r *rand.Rand) (Files, int) {
		pools := 1 + r.IntN(8)
		return smallTrees[r.IntN(len(smallTrees))](pools), pools
	})
}

func mutateAll(t *testing.T, n int, tree func(*rand.Rand) (Files, int)) {
	t.Helper()
	told, tried := 0, 0
	for seed := range uint64(n) {
		tried++
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
		files, pools := tree(r)
		options := Options{}
		if strings.Contains(string(files["pools.cue"]), "@tag(env)") {
			options.Tags = map[string]string{"env": "prod"}
		}
		if seed < 20 { // unchanged
			if result := Compile(files, options); len(result.Diagnostics) > 0 || count(result) != pools {
				t.Fatalf("seed %d: a tree of %d pools gives %d, %v\n%s", seed, pools, count(result), texts(result), files["pools.cue"])
			}
		}
		what := mutate(r, files, &options)
		result := Compile(files, options)
		if len(result.Diagnostics) > 0 {
			told++
		} else if got := count(result); got < pools {
			t.Errorf("seed %d: %s: %d of %d pools, without a word", seed, what, got, pools)
		}
	}
	if told < tried/3 {
		t.Errorf("only %d of %d changes were mistakes", told, tried)
	}
}

// count returns the number of pools.
func count(r Result) (n int) {
	for _, o := range r.Objects {
		if o.Manifest.GetKind() == "RunnerPool" {
			n++
		}
	}
	return n
}

// smallTrees are different ways to declare some pools.
var smallTrees = []func(pools int) Files{
	tableTree,
	func(pools int) Files { // one by one, with shared values
		var b strings.Builder
		b.WriteString(head + "pools: schema.#Pools\npools: [string]: spec: {connectionRef: name: \"acme\", template: spec: containers: [{name: \"runner\", image: _image}]}\n_image: \"runner:1\"\n")
		for i := range pools {
			fmt.Fprintf(&b, "pools: \"linux-%d\": spec: scale: max: %d\n", i, i+1)
		}
		return repository(b.String())
	},
	func(pools int) Files { // a list of names, objects one by one
		names := make([]string, pools)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprint("p", i))
		}
		return repository(head + "_names: [" + strings.Join(names, ", ") + "]\nall: [for n in _names {schema.#RunnerPool & {metadata: name: n, " + specOf(`"i"`) + "}}]\n")
	},
	func(pools int) Files { // by environment, behind presence tests and conditions
		var b strings.Builder
		b.WriteString(head + "_env: \"prod\" | \"dev\" @tag(env)\n_sizes: {prod: {small: 4, large: 8}, dev: {small: 1, large: 2}}\n_rows: {\n")
		for i := range pools {
			fmt.Fprintf(&b, "\tp%d: {size: _sizes[_env].small, image: \"i\"}\n", i)
		}
		b.WriteString("}\nif _env == \"prod\" {\n\tpools: schema.#Pools & {for n, v in _rows if v.size != _|_ {(n): " + specOf("v.image") + "}}\n}\n")
		return repository(b.String())
	},
	func(pools int) Files { // one folder per pool, with a template from a package
		files := Files{"cue.mod/module.cue": []byte(withDeps), "lib/lib.cue": []byte("package lib\n\nimport \"corral.dev/schema@v0\"\n\n#Team: {\n\tname: string\n\timg: string\n\tpools: schema.#Pools & {(name): " + specOf("img") + "}\n}\n")}
		for i := range pools {
			files[fmt.Sprintf("teams/t%d/pools.cue", i)] = fmt.Appendf(nil, "package pools\n\nimport \"acme.test/pools/lib\"\n\n_team: lib.#Team & {name: \"p%d\", img: \"i\"}\npools: _team.pools\n", i)
		}
		return files
	},
}

// tableTree declares pools as table rows, each with a class.
func tableTree(pools int) Files {
	var b strings.Builder
	b.WriteString(head + "_classes: {\n\tsmall: {cpu: \"2\", image: \"runner:1\"}\n\tlarge: {cpu: \"8\", image: \"runner:2\"}\n}\n_rows: [string]: {class: string, max: *5 | int}\n_rows: {\n")
	for i := range pools {
		fmt.Fprintf(&b, "\t\"p%d\": {class: %q, max: %d}\n", i, []string{"small", "large"}[i%2], i+1)
	}
	b.WriteString("}\npools: schema.#Pools & {\n\tfor n, r in _rows {\n\t\tlet c = _classes[r.class]\n\t\t(n): spec: {connectionRef: name: \"acme\", scale: max: r.max, template: spec: containers: [{\n\t\t\tname: \"runner\"\n\t\t\timage: c.image\n\t\t\tresources: limits: cpu: c.cpu\n\t\t}]}\n\t}\n}\n")
	return repository(b.String())
}

// mutate makes one mistake in one of the files or options, and describes it. It makes none that removes pools on
// purpose: ending a row, hiding a field (_name, name?, #name), changing the operand of a condition, or removing the
// field that a presence test looks for.
func mutate(r *rand.Rand, files Files, options *Options) string {
	if r.IntN(20) == 0 {
		options.Tags = nil
		return "no tags"
	}
	names := slices.DeleteFunc(files.sortedNames(), func(name string) bool { return strings.HasPrefix(name, "cue.mod/") })
	name := names[r.IntN(len(names))]
	source := string(files[name])
	places := placesOf(name, source)
	at := slices.Sorted(maps.Keys(places))[r.IntN(len(places))]
	p := places[at]
	was := source[at:p.end]
	becomes := ""
	if !p.removable || r.IntN(3) > 0 {
		becomes = misspelt(r, was)
	}
	files[name] = []byte(source[:at] + becomes + source[p.end:])
	return fmt.Sprintf("%s: %q at %d becomes %q", name, was, at, becomes)
}

// place is a position at which to make a mistake.
type place struct {
	end int
	// removable is true for a field in a row.
	removable bool
}

// placesOf finds identifiers, strings, operators and fields, by their offset.
func placesOf(name, source string) map[int]place {
	file, err := parser.ParseFile(name, source)
	if err != nil {
		panic(err)
	}
	places := map[int]place{}
	note := func(node ast.Node, removable bool) {
		places[node.Pos().Offset()] = place{node.End().Offset(), removable}
	}
	depth, asked := 0, map[ast.Node]bool{} // the fields that presence tests look for
	ast.Walk(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ImportDecl, *ast.Attribute:
			return false
		case *ast.BinaryExpr:
			if n.Op == token.EQL {
				return false // a condition
			}
			if n.Op == token.AND {
				places[n.OpPos.Offset()] = place{n.OpPos.Offset() + 1, false}
			}
		case *ast.Field:
			depth++
			if present := label(n.Label) == "size"; present {
				asked[n.Label] = true
			} else if depth > 2 {
				note(n, true)
			}
		case *ast.Ident:
			if !asked[n] {
				note(n, false)
			}
		case *ast.BasicLit:
			note(n, false)
		}
		return true
	}, func(node ast.Node) {
		if _, ok := node.(*ast.Field); ok {
			depth--
		}
	})
	return places
}

// misspelt drops, doubles or swaps a letter, but changes neither quotes nor markers that hide a field.
func misspelt(r *rand.Rand, text string) string {
	if text == "&" {
		return "|"
	}
	first, last := 0, len(text)
	for first < last && strings.ContainsRune("_#\"", rune(text[first])) {
		first++
	}
	for last > first && text[last-1] == '"' {
		last--
	}
	if first == last {
		return text
	}
	at := first + r.IntN(last-first)
	switch {
	case r.IntN(3) == 0:
		return text[:at] + text[at:at+1] + text[at:]
	case r.IntN(2) == 0 && at+1 < last:
		return text[:at] + text[at+1:at+2] + text[at:at+1] + text[at+2:]
	case last-first > 1:
		return text[:at] + text[at+1:]
	}
	return text + "x"
}
