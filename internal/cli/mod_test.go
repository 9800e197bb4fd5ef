// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/zip"
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelabs.dev/go/oci/ociregistry/ociserver"
	"cuelang.org/go/mod/modregistry"
	cuemodule "cuelang.org/go/mod/module"

	"github.com/corral-dev/corral/schema"
)

// publish starts a registry with the given modules, keyed by path and version, and points the environment to it.
func publish(t *testing.T, modules map[string]map[string]string) {
	t.Helper()
	store := ocimem.New()
	server := httptest.NewServer(ociserver.New(store, nil))
	t.Cleanup(server.Close)
	t.Setenv("CUE_REGISTRY", strings.TrimPrefix(server.URL, "http://")+"+insecure")
	t.Setenv("CUE_CACHE_DIR", filepath.Join(t.TempDir(), "cue"))
	t.Cleanup(func() { makeWritable(t, os.Getenv("CUE_CACHE_DIR")) })
	client := modregistry.NewClient(store)
	for _, name := range []string{"corral.dev/schema@" + schema.Version, "acme.example/base@v1.0.0", "acme.example/ci@v0.1.0", "acme.example/ci@v0.2.0"} {
		files, found := modules[name]
		if !found {
			continue
		}
		modulePath, version, _ := strings.Cut(name, "@")
		m, err := cuemodule.NewVersion(modulePath+"@"+version[:2], version)
		if err != nil {
			t.Fatal(err)
		}
		var buffer bytes.Buffer
		w := zip.NewWriter(&buffer)
		for file, text := range files {
			f, err := w.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := client.PutModule(t.Context(), m, bytes.NewReader(buffer.Bytes()), int64(buffer.Len())); err != nil {
			t.Fatal(err)
		}
	}
}

// makeWritable makes CUE's cache writable, so that the test can remove it.
func makeWritable(t *testing.T, folder string) {
	err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(name, 0o700)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

const language = "language: version: \"v0.16.0\"\nsource: kind: \"self\"\n"

// ci returns the files of one version of a library, which depends on another module and on the schema.
func ci(size string) map[string]string {
	return map[string]string{
		"cue.mod/module.cue": "module: \"acme.example/ci@v0\"\n" + language +
			"deps: \"acme.example/base@v1\": v: \"v1.0.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n",
		"pool.cue": `package ci

import (
	"acme.example/base@v1"
	"corral.dev/schema@v0"
)

#Pool: schema.#RunnerPool & {spec: {
	connectionRef: name: "acme"
	scale: max:          ` + size + `
	template: spec: containers: [{name: "runner", image: base.image}]
}}
`,
	}
}

// cueVet runs the cue command on a folder.
func cueVet(t *testing.T, folder string) {
	t.Helper()
	command := filepath.Join(t.TempDir(), "cue")
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=hack/tools/go.mod", "-o", command, "cuelang.org/go/cmd/cue")
	build.Dir = checkout
	vet := exec.CommandContext(t.Context(), command, "vet", "-c", "./...")
	vet.Dir = folder
	for _, c := range []*exec.Cmd{build, vet} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
}

// schemaModule returns the files of Corral's schema module as published.
func schemaModule(t *testing.T) map[string]string {
	t.Helper()
	files := map[string][]byte{}
	if err := addFiles(files, schema.FS, ".", "", func(text string) string { return text }); err != nil {
		t.Fatal(err)
	}
	module := map[string]string{}
	for name, data := range files {
		module[name] = string(data)
	}
	return module
}

var publishedModules = map[string]map[string]string{
	"acme.example/base@v1.0.0": {
		"cue.mod/module.cue": "module: \"acme.example/base@v1\"\n" + language,
		"base.cue":           "package base\n\nimage: \"ghcr.io/acme/runner:1\"\n",
		"base_test.cue":      "package base\n\nimage: \"not copied\"\n",
	},
	"acme.example/ci@v0.1.0": ci("20"),
	"acme.example/ci@v0.2.0": ci("30"),
}

func moduleRequiring(version string) string {
	return "module: \"acme.example/pools@v0\"\n" + language + `deps: {
	"acme.example/base@v1": v: "v1.0.0"
	"acme.example/ci@v0": v: "` + version + `"
	"corral.dev/schema@v0": v: "v0.1.0"
}
`
}

func TestModVendorCopiesWhatDefinitionsRequire(t *testing.T) {
	publishedModules["corral.dev/schema@"+schema.Version] = schemaModule(t)
	publish(t, publishedModules)
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		writeFile(t, filepath.Join(folder, name), text)
	}
	write("cue.mod/module.cue", moduleRequiring("v0.1.0"))
	write("pools/pools.cue", "package pools\n\nimport (\n\t\"acme.example/ci@v0\"\n\t\"corral.dev/schema@v0\"\n)\n\n"+
		"pools: schema.#Pools\npools: linux: ci.#Pool\nconnections: schema.#Connections\n")

	expect := func(code int, text string, args ...string) {
		t.Helper()
		got := corral(t, folder, args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, text) {
			t.Fatalf("corral %s: got %+v, want code %d and %q", strings.Join(args, " "), got, code, text)
		}
	}
	expect(exitError, "cue.mod/module.cue:5:2: module acme.example/base@v1 v1.0.0 is not in the repository", "vet")
	expect(exitOK, "wrote 2 modules", "mod", "vendor")
	expect(exitOK, "1 pool", "vet")
	expect(exitOK, "max: 20", "build")
	expect(exitOK, "wrote 2 modules", "mod", "vendor", "pools") // from a folder inside the module
	cueVet(t, folder)
	if _, err := os.Stat(filepath.Join(folder, "cue.mod/vendor/acme.example/base@v1.0.0/base_test.cue")); !os.IsNotExist(err) {
		t.Errorf("a file that is not compiled was copied: %v", err)
	}

	write("cue.mod/module.cue", moduleRequiring("v0.2.0"))
	expect(exitError, "requires v0.2.0 of module acme.example/ci@v0, and cue.mod/vendor has v0.1.0", "vet")
	expect(exitOK, "wrote 2 modules", "mod", "vendor")
	expect(exitOK, "max: 30", "build")
	if _, err := os.Stat(filepath.Join(folder, "cue.mod/vendor/acme.example/ci@v0.1.0")); !os.IsNotExist(err) {
		t.Errorf("the previous version is still there: %v", err)
	}

	write("cue.mod/vendor/acme.example/base@v1.0.0/base.cue", "package base\n\nimage: \"evil\"\n")
	expect(exitError, "run corral mod vendor", "vet")
	expect(exitOK, "wrote 2 modules", "mod", "vendor")

	write("cue.mod/module.cue", moduleRequiring("v0.9.0"))
	expect(exitError, "acme.example/ci@v0.9.0", "mod", "vendor")
	write("cue.mod/module.cue", moduleRequiring("v0.2.0"))
	expect(exitOK, "1 pool", "vet") // the failed run removed nothing
}

func TestInitCanRequireTheSchemaFromARegistry(t *testing.T) {
	publish(t, map[string]map[string]string{"corral.dev/schema@" + schema.Version: schemaModule(t)})
	folder := t.TempDir()
	for _, args := range []string{"init . --url https://github.com/acme --schema-from-registry", "vet"} {
		if got := corral(t, folder, strings.Fields(args)...); got.code != exitOK {
			t.Fatalf("corral %s: %+v", args, got)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, schemaCopy)); !os.IsNotExist(err) {
		t.Errorf("the schema was copied as well: %v", err)
	}
	cueVet(t, folder)
}
