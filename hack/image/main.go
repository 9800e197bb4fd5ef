// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command image builds the controller's image, with its bill of materials, without a container engine. The image
// contains one static binary and the root certificates of browsers. The same commit gives the same image. Run it in the
// root of the repository.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"flag"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

var (
	out       = flag.String("out", "dist", "folder to write to")
	version   = flag.String("version", "dev", "version of corral")
	tag       = flag.String("tag", "corral:dev", "name of the image in corral.tar")
	push      = flag.String("push", "", "reference to push the image to, such as registry.example/corral:v1")
	platforms = flag.String("platforms", "linux/"+runtime.GOARCH, "platforms, separated by commas; the first one is in corral.tar")
)

func main() {
	flag.Parse()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var images, boms []v1.Image
	for text := range strings.SplitSeq(*platforms, ",") {
		platform := must(v1.ParsePlatform(text))
		binary := filepath.Join(*out, "corral-"+platform.OS+"-"+platform.Architecture)
		log.Printf("compiling Corral for %s", platform)
		goCommand([]string{"CGO_ENABLED=0", "GOOS=" + platform.OS, "GOARCH=" + platform.Architecture},
			"build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w -X main.version="+*version, "-o", binary, "./cmd/corral")
		log.Print("writing the bill of materials; warnings about the modules corral and std are normal, as neither is downloaded")
		goCommand([]string{"GOPRIVATE=github.com/corral-dev", "GOVCS=*:off"}, // do not look up this module itself
			"tool", "-modfile=hack/tools/go.mod", "cyclonedx-gomod", "bin", "-json", "-licenses", "-std", "-noserial", "-version", *version, "-output", binary+".cdx.json", binary)
		image := pack(platform, binary)
		images = append(images, image)
		boms = append(boms, bom(image, binary+".cdx.json"))
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	publish(index, images, boms)
}

// pack returns the image of a binary.
func pack(platform *v1.Platform, binary string) v1.Image {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image = must(mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant, Created: created(), RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/usr/local/bin/corral"}, Env: []string{"PATH=/usr/local/bin"}, Labels: map[string]string{
			"org.opencontainers.image.title": "Corral", "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.version": *version,
			"org.opencontainers.image.description": "Self-hosted GitHub Actions runners on Kubernetes, declared in CUE and kept in Git",
		}},
	}))
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			check(pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return must(mutate.Append(image, layer("etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()), layer("usr/local/bin/corral", 0o755, must(os.ReadFile(binary)))))
}

// created returns the time in the image: SOURCE_DATE_EPOCH, or the last commit's time, or 1970 outside of a checkout.
func created() v1.Time {
	commit, _ := exec.Command("git", "log", "-1", "--format=%ct").Output()
	text := cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), strings.TrimSpace(string(commit)), "0")
	return v1.Time{Time: time.Unix(must(strconv.ParseInt(text, 10, 64)), 0).UTC()}
}

// layer returns a layer with one file and the folders above it.
func layer(file string, mode int64, content []byte) mutate.Addendum {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i, c := range file {
		if c == '/' {
			check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: file[:i+1], Mode: 0o755, ModTime: time.Unix(0, 0)}))
		}
	}
	check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}))
	must(w.Write(content))
	check(w.Close())
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	made := must(tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching))
	return mutate.Addendum{Layer: made, MediaType: types.OCILayer, History: v1.History{Created: created(), CreatedBy: "hack/image /" + file}}
}

// bom returns a bill of materials as an artifact that refers to an image.
func bom(image v1.Image, file string) v1.Image {
	const kind = types.MediaType("application/vnd.cyclonedx+json")
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind)
	artifact = must(mutate.AppendLayers(artifact, static.NewLayer(must(os.ReadFile(file)), kind)))
	return mutate.Subject(artifact, *must(partial.Descriptor(image))).(v1.Image)
}

// publish writes corral.tar for the first platform and an OCI layout for all, and pushes them if the flag push is set.
func publish(index v1.ImageIndex, images, boms []v1.Image) {
	check(tarball.WriteToFile(filepath.Join(*out, "corral.tar"), must(name.NewTag(*tag)), images[0]))
	check(os.RemoveAll(filepath.Join(*out, "image")))
	folder := must(layout.Write(filepath.Join(*out, "image"), empty.Index))
	check(folder.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": *tag})))
	to := must(name.ParseReference(cmp.Or(*push, *tag)))
	if *push != "" {
		check(remote.WriteIndex(to, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)))
	}
	for _, b := range boms {
		check(folder.AppendImage(b))
		if *push != "" {
			check(remote.Write(to.Context().Digest(must(b.Digest()).String()), b, remote.WithAuthFromKeychain(authn.DefaultKeychain)))
		}
	}
	log.Printf("wrote %s: %s@%s", *out, to, must(index.Digest()))
}

func goCommand(env []string, args ...string) {
	c := exec.Command("go", args...)
	c.Env, c.Stderr = append(os.Environ(), env...), os.Stderr
	check(c.Run())
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
