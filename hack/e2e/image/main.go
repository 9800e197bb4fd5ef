// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command image writes a container image that holds one static binary, as a tar file in the OCI image layout that
// `ctr images import` reads. It needs no daemon, no registry and no root.
//
//	image NAME USER BINARY > FILE.tar
//
// Format: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// descriptor points to a blob of the layout.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: image NAME USER BINARY > FILE.tar")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write makes the layers from the inside out: each blob names the digests of those before it.
func write(w io.Writer, name, user, binary string) error {
	layer, err := layerOf(binary)
	if err != nil {
		return err
	}
	out := &layout{tar: tar.NewWriter(w)}
	filesystem := out.blob("application/vnd.oci.image.layer.v1.tar", layer)
	config := out.document("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/" + filepath.Base(binary)}, "User": user, "WorkingDir": "/tmp"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{filesystem.Digest}},
	})
	manifest := out.document("application/vnd.oci.image.manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []descriptor{filesystem},
	})
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	out.file("index.json", encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}}))
	out.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return out.close()
}

// layerOf is a root filesystem with the binary and a /tmp that all may write to.
func layerOf(binary string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the binary: %w", err)
	}
	var buffer bytes.Buffer
	layer := &layout{tar: tar.NewWriter(&buffer)}
	layer.entry(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	layer.entry(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(binary), Mode: 0o755, Size: int64(len(content))}, content)
	return buffer.Bytes(), layer.close()
}

// layout writes tar entries and keeps the first error for close.
type layout struct {
	tar *tar.Writer
	err error
}

func (l *layout) document(mediaType string, content any) descriptor {
	return l.blob(mediaType, encode(content))
}

func (l *layout) blob(mediaType string, content []byte) descriptor {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	l.file("blobs/sha256/"+digest, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (l *layout) file(name string, content []byte) {
	l.entry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content)
}

func (l *layout) entry(header *tar.Header, content []byte) {
	if l.err == nil {
		l.err = l.tar.WriteHeader(header)
	}
	if l.err == nil {
		_, l.err = l.tar.Write(content)
	}
}

func (l *layout) close() error {
	if l.err == nil {
		l.err = l.tar.Close()
	}
	if l.err != nil {
		return fmt.Errorf("writing the image: %w", l.err)
	}
	return nil
}

// encode cannot fail: it is given maps, slices and strings only.
func encode(content any) []byte {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return text
}
