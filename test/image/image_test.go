// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package image tests the container image that hack/image builds and pushes. It also checks that the Dockerfile
// builds the same image.
package image

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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/corral-dev/corral/test/sources"
)

const (
	root         = "../.."
	version      = "v1.2.3-test"
	entrypoint   = "/usr/local/bin/corral"
	certificates = "/etc/ssl/certs/ca-certificates.crt"
)

// made is the folder that hack/image wrote. pushed is the reference that it pushed to.
var made, pushed string

func TestImage(t *testing.T) {
	sources.Open(t, root, "Dockerfile", "hack/image", "hack/tools/go.mod")
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	made = t.TempDir()
	pushed = strings.TrimPrefix(server.URL, "http://") + "/acme/corral:" + version
	c := exec.CommandContext(t.Context(), "go", "run", "./hack/image", "-out", made, "-version", version, "-tag", "corral:dev", "-push", pushed)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the image: %v\n%s", err, out)
	}
	t.Run("files", holdsOneBinaryAndRootCertificates)
	t.Run("config", runsAsNonRoot)
	t.Run("archive", archiveIsTheImageUnderItsTag)
	t.Run("registry", registryHasTheImageAndItsBillOfMaterials)
	t.Run("bill of materials", billOfMaterialsNamesEachModule)
	t.Run("Dockerfile", dockerfileDescribesTheSameImage)
}

// image returns the only image in the layout's index.
func image(t *testing.T) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(made, "image"))
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	if tag := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != "corral:dev" {
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

// files returns the entries of all layers, such as "755 0:0 /usr/local/bin/corral", and their contents.
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

func holdsOneBinaryAndRootCertificates(t *testing.T) {
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
		t.Errorf("%d root certificates, want as many as a browser trusts", n)
	}
	isStatic(t, contents[entrypoint])
}

// isStatic fails the test unless a program runs without a dynamic loader and shared libraries.
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

func runsAsNonRoot(t *testing.T) {
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

func archiveIsTheImageUnderItsTag(t *testing.T) {
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

func registryHasTheImageAndItsBillOfMaterials(t *testing.T) {
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
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != "application/vnd.cyclonedx+json" {
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
		t.Error("the bill of materials in the registry differs from the one in the folder")
	}
}

// sbomFile returns the path of the software bill of materials.
func sbomFile(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(made, "corral-linux-*.cdx.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("bills of materials: %v, %v", names, err)
	}
	return names[0]
}

func sbom(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(sbomFile(t))
	must(t, err)
	return text
}

// The software bill of materials contains the version and license of every module in the binary.
func billOfMaterialsNamesEachModule(t *testing.T) {
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name     string `json:"name"`
			Version  string `json:"version"`
			Evidence struct {
				Licenses []any `json:"licenses"`
			} `json:"evidence"`
		} `json:"components"`
	}
	must(t, json.Unmarshal(sbom(t), &bom))
	known, unlicensed := map[string]bool{}, 0
	for _, c := range bom.Components {
		known[c.Name+" "+c.Version] = true
		if len(c.Evidence.Licenses) == 0 {
			unlicensed++
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", strings.TrimSuffix(sbomFile(t), ".cdx.json")).Output()
	must(t, err)
	linked := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+).*(?:\n\t=>\t\S+\t(\S+))?`).FindAllStringSubmatch(string(out), -1)
	for _, m := range linked {
		version := m[2]
		if m[3] != "" { // the version that replaces it
			version = m[3]
		}
		if !known[m[1]+" "+version] {
			t.Errorf("%s %s is in the binary and not in the bill of materials", m[1], version)
		}
	}
	if bom.BOMFormat != "CycloneDX" || len(linked) == 0 || unlicensed > len(linked)/20 {
		t.Errorf("a bill of materials of format %q has %d components, %d of them without a license", bom.BOMFormat, len(known), unlicensed)
	}
}

func dockerfileDescribesTheSameImage(t *testing.T) {
	config, err := image(t).ConfigFile()
	must(t, err)
	entry, err := json.Marshal(config.Config.Entrypoint)
	must(t, err)
	want := []string{"FROM scratch", "ARG VERSION=dev", "COPY --from=build " + certificates + " /etc/ssl/certs/", "COPY --from=build /corral /usr/local/bin/", "USER " + config.Config.User, "WORKDIR " + config.Config.WorkingDir, "ENTRYPOINT " + string(entry)}
	for _, env := range config.Config.Env {
		want = append(want, "ENV "+env)
	}
	stages := parseDockerfile(t)
	build := strings.Join(stages[0], "\n")
	if !strings.Contains(build, "golang:"+goVersion(t)+" AS build") || !strings.Contains(build, "go build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags") {
		t.Errorf("the binary was built with changed settings or another version of Go:\n%s", build)
	}
	var labels []string
	for key, value := range config.Config.Labels {
		labels = append(labels, fmt.Sprintf("%s=%q", key, strings.ReplaceAll(value, version, "${VERSION}")))
	}
	slices.Sort(labels)
	var got []string
	for _, line := range stages[1] {
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

// parseDockerfile returns the instructions of each stage, one per line, without comments.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goVersion returns the minor version of Go in go.mod, such as 1.26.
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
