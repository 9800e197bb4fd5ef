// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	root    = "../.."
	version = "v1.2.3-test"
)

// made is where the tests' image is, and pushed where in a registry on the loopback interface.
var made, pushed string

func TestMain(m *testing.M) {
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// setUp makes one image for all tests.
func setUp(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "corral-image-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	made, pushed = dir, strings.TrimPrefix(server.URL, "http://")+"/acme/corral:"+version
	out, err := exec.Command("go", "run", ".", "-root", root, "-out", dir, "-version", version, "-tag", "corral:dev", "-push", pushed).CombinedOutput()
	if err != nil {
		return 1, fmt.Errorf("making the image: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// image is the one of the layout's index.
func image(t *testing.T) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(made, "image"))
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	if tag := manifest.Manifests[0].Annotations[refName]; tag != "corral:dev" {
		t.Fatalf("the layout's first entry is tagged %q", tag)
	}
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	of, err := platforms.IndexManifest()
	must(t, err)
	if len(of.Manifests) != 1 {
		t.Fatalf("%d platforms, want this one", len(of.Manifests))
	}
	found, err := platforms.Image(of.Manifests[0].Digest)
	must(t, err)
	return found
}

// files are the entries of all layers: "755 0:0 /usr/local/bin/corral" and their contents.
func files(t *testing.T, image v1.Image) (entries []string, contents map[string][]byte) {
	t.Helper()
	layers, err := image.Layers()
	must(t, err)
	contents = map[string][]byte{}
	for _, layer := range layers {
		archive, err := layer.Uncompressed()
		must(t, err)
		for r := tar.NewReader(archive); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			entries = append(entries, fmt.Sprintf("%c %o %d:%d /%s", header.Typeflag, header.Mode, header.Uid, header.Gid, header.Name))
			if header.Typeflag == tar.TypeReg {
				contents["/"+header.Name], err = io.ReadAll(r)
				must(t, err)
			}
		}
		must(t, archive.Close())
	}
	return entries, contents
}

func TestImageHoldsOneBinaryAndRootCertificates(t *testing.T) {
	found := image(t)
	must(t, validate.Image(found))
	entries, contents := files(t, found)
	want := []string{
		"5 755 0:0 /etc/", "5 755 0:0 /etc/ssl/", "5 755 0:0 /etc/ssl/certs/", "0 644 0:0 " + certificates,
		"5 755 0:0 /usr/", "5 755 0:0 /usr/local/", "5 755 0:0 /usr/local/bin/", "0 755 0:0 " + entrypoint,
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Error(diff)
	}
	if n := bytes.Count(contents[certificates], []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d root certificates, want those of a browser", n)
	}
	isStatic(t, contents[entrypoint])
}

// isStatic holds that a program needs no loader and no library.
func isStatic(t *testing.T, program []byte) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(program))
	must(t, err)
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a segment %s: it isn't static", segment.Type)
		}
	}
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("the binary needs %v", libraries)
	}
}

func TestImageRunsAsNobodyInParticular(t *testing.T) {
	config, err := image(t).ConfigFile()
	must(t, err)
	if config.Config.User != "65532:65532" || config.Config.WorkingDir != "/" || len(config.Config.Volumes) > 0 {
		t.Errorf("user %q in %q with volumes %v", config.Config.User, config.Config.WorkingDir, config.Config.Volumes)
	}
	if diff := cmp.Diff([]string{entrypoint}, config.Config.Entrypoint); diff != "" || len(config.Config.Cmd) > 0 {
		t.Errorf("command %v, entrypoint:\n%s", config.Config.Cmd, diff)
	}
	_, contents := files(t, image(t))
	binary := filepath.Join(t.TempDir(), "corral")
	must(t, os.WriteFile(binary, contents[entrypoint], 0o755))
	c := exec.CommandContext(t.Context(), binary, "version")
	c.Env, c.Dir = []string{"PATH=/usr/local/bin"}, "/"
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "corral "+version+" ") {
		t.Errorf("corral version: %v\n%s", err, out)
	}
}

func TestArchiveIsTheImageUnderItsTag(t *testing.T) {
	tag, err := name.NewTag("corral:dev")
	must(t, err)
	loaded, err := tarball.ImageFromPath(filepath.Join(made, "corral.tar"), &tag)
	must(t, err)
	got, err := loaded.ConfigName()
	must(t, err)
	want, err := image(t).ConfigName()
	must(t, err)
	if got != want {
		t.Errorf("the archive has image %s, the layout %s", got, want)
	}
}

func TestRegistryHasTheImageAndItsBillOfMaterials(t *testing.T) {
	reference, err := name.ParseReference(pushed)
	must(t, err)
	got, err := remote.Image(reference)
	must(t, err)
	digest, err := got.Digest()
	must(t, err)
	want, err := image(t).Digest()
	must(t, err)
	if digest != want {
		t.Fatalf("the registry has %s, want %s", digest, want)
	}
	referrers, err := remote.Referrers(reference.Context().Digest(digest.String()))
	must(t, err)
	manifest, err := referrers.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(sbomType) {
		t.Fatalf("referrers: %+v", manifest.Manifests)
	}
	artifact, err := remote.Image(reference.Context().Digest(manifest.Manifests[0].Digest.String()))
	must(t, err)
	layers, err := artifact.Layers()
	must(t, err)
	r, err := layers[0].Compressed()
	must(t, err)
	text, err := io.ReadAll(r)
	must(t, err)
	if !bytes.Equal(text, sbom(t)) {
		t.Error("the registry has another bill of materials than the folder")
	}
}

func sbom(t *testing.T) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(made, "corral-linux-*.cdx.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("bills of materials: %v, %v", names, err)
	}
	text, err := os.ReadFile(names[0])
	must(t, err)
	return text
}

// The schema is that of the specification, as CycloneDX's own module has it.
func TestBillOfMaterialsIsValid(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	must(t, err)
	folder := filepath.Join(strings.TrimSpace(string(out)), "schema")
	compiler := jsonschema.NewCompiler()
	for file, as := range map[string]string{"bom-1.6.schema.json": "bom", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schemax.json": "jsf-0.82.schema.json"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		must(t, err)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must(t, err)
		must(t, compiler.AddResource("http://cyclonedx.org/schema/"+as, document))
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom")
	must(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(sbom(t)))
	must(t, err)
	if err := schema.Validate(document); err != nil {
		t.Error(err)
	}
}

func TestBillOfMaterialsNamesEachModuleWithChecksumAndLicence(t *testing.T) {
	bom := &cyclonedx.BOM{}
	must(t, cyclonedx.NewBOMDecoder(bytes.NewReader(sbom(t)), cyclonedx.BOMFileFormatJSON).Decode(bom))
	known := map[string]bool{bom.Metadata.Component.BOMRef: true}
	for _, c := range *bom.Components {
		known[c.BOMRef] = true
		if c.Licenses == nil || c.Name != "std" && c.Hashes == nil {
			t.Errorf("%s: licences %v, hashes %v", c.Name, c.Licenses, c.Hashes)
		}
	}
	_, contents := files(t, image(t))
	binary := filepath.Join(t.TempDir(), "corral")
	must(t, os.WriteFile(binary, contents[entrypoint], 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	must(t, err)
	linked := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(out), -1)
	for _, m := range linked {
		if !known[packageURL(m[1], m[2])+"?type=module"] {
			t.Errorf("%s %s is in the binary and not in the bill of materials", m[1], m[2])
		}
	}
	// Beside them: the command itself, the standard library, the certificates.
	if len(known) != len(linked)+3 {
		t.Errorf("%d components for %d modules", len(known), len(linked))
	}
	required := map[string]bool{}
	for _, d := range *bom.Dependencies {
		if d.Dependencies == nil {
			continue // requires nothing that is in the binary
		}
		for _, to := range *d.Dependencies {
			required[to] = true
			if !known[d.Ref] || !known[to] {
				t.Errorf("%s requires %s, one of which is unknown", d.Ref, to)
			}
		}
	}
	if len(required) != len(known)-1 {
		t.Errorf("%d components are required, want each but the command", len(required))
	}
}

// The Dockerfile is not run, for that takes a daemon. What it would do is: its files are copied to a folder, the command that
// fills the image is run there, and the files that come of it must be those of the image, byte for byte. So they don't depend
// on the folder either.
func TestDockerfilePacksTheSameFiles(t *testing.T) {
	stages := parseDockerfile(t)
	if len(stages) != 2 || !strings.HasSuffix(stages[0][0], "golang:"+goVersion(t)+" AS build") || stages[1][0] != "FROM scratch" {
		t.Fatalf("want a stage of Go %s and one from scratch, found %q", goVersion(t), stages)
	}
	dir := t.TempDir()
	src, rootfs := filepath.Join(dir, "src"), filepath.Join(dir, "rootfs")
	for _, line := range stages[0] {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "COPY":
			for _, from := range fields[1 : len(fields)-1] {
				copyTree(t, filepath.Join(root, from), filepath.Join(src, from))
			}
		case fields[0] == "RUN" && strings.Contains(line, "-rootfs"):
			script := strings.ReplaceAll(strings.TrimPrefix(line, "RUN "), "/rootfs", rootfs)
			c := exec.CommandContext(t.Context(), "sh", "-euc", script)
			c.Dir, c.Env = src, append(os.Environ(), "VERSION="+version, "TARGETARCH=", "GOFLAGS=") // make's flags aren't there
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
	_, want := files(t, image(t))
	got := map[string][]byte{}
	must(t, filepath.WalkDir(rootfs, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, rootfs)] = text
		return err
	}))
	for file := range want {
		if !bytes.Equal(want[file], got[file]) {
			t.Errorf("%s: %d bytes by the Dockerfile, %d without it, or others", file, len(got[file]), len(want[file]))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files by the Dockerfile, want %d", len(got), len(want))
	}
}

func TestDockerfileSaysTheSameOfTheImage(t *testing.T) {
	config, err := image(t).ConfigFile()
	must(t, err)
	entry, err := json.Marshal(config.Config.Entrypoint)
	must(t, err)
	want := []string{"FROM scratch", "ARG VERSION=dev", "COPY --from=build /rootfs/ /", "USER " + config.Config.User, "WORKDIR " + config.Config.WorkingDir, "ENTRYPOINT " + string(entry)}
	for _, env := range config.Config.Env {
		want = append(want, "ENV "+env)
	}
	var labels []string
	for key, value := range config.Config.Labels {
		labels = append(labels, fmt.Sprintf("%s=%q", key, strings.ReplaceAll(value, version, "${VERSION}")))
	}
	slices.Sort(labels)
	var got []string
	for _, line := range parseDockerfile(t)[1] {
		if list, found := strings.CutPrefix(line, "LABEL "); found {
			found := regexp.MustCompile(`\S+="[^"]*"`).FindAllString(list, -1)
			slices.Sort(found)
			if diff := cmp.Diff(labels, found); diff != "" {
				t.Errorf("labels:\n%s", diff)
			}
			continue
		}
		got = append(got, line)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// parseDockerfile returns the instructions of each stage, one a line, without comments.
func parseDockerfile(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	must(t, err)
	var stages [][]string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "FROM ") {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], line)
	}
	return stages
}

// goVersion is the minor version of Go that go.mod asks for, such as 1.26.
func goVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatal("go.mod names no version of Go")
	}
	return string(m[1])
}

// copyTree copies what .dockerignore lets into a build: no tests and no test data.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata":
			return filepath.SkipDir
		case entry.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
