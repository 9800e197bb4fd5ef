// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
)

// refName annotates an image of a layout with its tag.
// https://github.com/opencontainers/image-spec/blob/main/annotations.md
const refName = "org.opencontainers.image.ref.name"

// sbomType is the media type of a CycloneDX document in JSON: https://cyclonedx.org/specification/overview/
const sbomType = types.MediaType("application/vnd.cyclonedx+json")

// assemble makes the image, and the artifact that refers to it with its bill of materials.
func (p *product) assemble(o *options) error {
	executable, err := os.ReadFile(p.binary)
	if err != nil {
		return fmt.Errorf("reading the binary: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, o.config(p.platform))
	if err != nil {
		return fmt.Errorf("configuring the image: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
		mode    int64
	}{{certificates, roots(), 0o644}, {entrypoint, executable, 0o755}} {
		if image, err = o.add(image, file.name, file.content, file.mode); err != nil {
			return err
		}
	}
	p.image = image
	return p.refer()
}

// config says how to run the image.
func (o *options) config(platform v1.Platform) *v1.ConfigFile {
	return &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: o.created},
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, WorkingDir: "/", Entrypoint: []string{entrypoint},
			Env: []string{"PATH=/usr/local/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "Corral",
				"org.opencontainers.image.description": "Self-hosted GitHub Actions runners on Kubernetes, declared in CUE and kept in Git",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.version":     o.version,
			},
		},
	}
}

// add puts a layer with one file on the image.
func (o *options) add(image v1.Image, file string, content []byte, mode int64) (v1.Image, error) {
	archive, err := layer(file, content, mode)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	made, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: made, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "hack/image " + file},
	})
	if err != nil {
		return nil, fmt.Errorf("adding a layer: %w", err)
	}
	return image, nil
}

// refer makes an artifact of the bill of materials whose subject is the image, so that registries list it as its referrer.
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers
func (p *product) refer() error {
	subject, err := partial.Descriptor(p.image)
	if err != nil {
		return fmt.Errorf("describing the image: %w", err)
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType)
	artifact, err = mutate.AppendLayers(artifact, static.NewLayer(p.sbom, sbomType))
	if err != nil {
		return fmt.Errorf("packing the bill of materials: %w", err)
	}
	p.referrer = mutate.Subject(artifact, *subject).(v1.Image)
	return nil
}

// publish writes the layout and the archive, and pushes to a registry if so told.
func (o *options) publish(ctx context.Context, built []*product) error {
	tag, err := name.NewTag(o.tag)
	if err != nil {
		return fmt.Errorf("reading -tag: %w", err)
	}
	archive := filepath.Join(o.out, "corral.tar")
	if err := tarball.WriteToFile(archive, tag, built[0].image); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	fmt.Fprintf(o.log, "wrote %s: %s\n", archive, o.tag)
	digest, err := o.writeLayout(filepath.Join(o.out, "image"), built)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.log, "wrote %s: %s\n", filepath.Join(o.out, "image"), digest)
	if o.push == "" {
		return nil
	}
	return o.pushTo(ctx, built)
}

// writeLayout writes an OCI image layout in the place of one that is there, and returns the image's digest.
func (o *options) writeLayout(folder string, built []*product) (v1.Hash, error) {
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, fmt.Errorf("removing the former layout: %w", err)
	}
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	tagged := layout.WithAnnotations(map[string]string{refName: o.tag})
	top := together(built)
	if err := l.AppendIndex(top, tagged); err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	for _, p := range built {
		if err := l.AppendImage(p.referrer); err != nil {
			return v1.Hash{}, fmt.Errorf("writing the bill of materials: %w", err)
		}
	}
	return top.Digest()
}

// together is an index of the images of all platforms.
func together(built []*product) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range built {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{Platform: &p.platform}})
	}
	return index
}

func (o *options) pushTo(ctx context.Context, built []*product) error {
	reference, err := name.ParseReference(o.push)
	if err != nil {
		return fmt.Errorf("reading -push: %w", err)
	}
	with := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	index := together(built)
	if err := remote.WriteIndex(reference, index, with...); err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	for _, p := range built {
		digest, err := p.referrer.Digest()
		if err != nil {
			return fmt.Errorf("pushing the bill of materials: %w", err)
		}
		if err := remote.Write(reference.Context().Digest(digest.String()), p.referrer, with...); err != nil {
			return fmt.Errorf("pushing the bill of materials: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	fmt.Fprintf(o.log, "pushed %s@%s\n", reference.Context(), digest)
	return nil
}
