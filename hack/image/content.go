// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// entrypoint is the one executable of the image.
	entrypoint = "/usr/local/bin/corral"
	// certificates is where crypto/x509 looks for the roots that it trusts, on Linux.
	certificates = "/etc/ssl/certs/ca-certificates.crt"
	// user and group that the image runs as: "nonroot" by the custom of distroless images.
	user = "65532:65532"
)

// roots are Mozilla's root certificates as this module's go.sum pins them. One that Mozilla trusts for older certificates only
// is left out: PEM can't say so.
func roots() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return text.Bytes()
}

// layer is a tar archive of one file and the folders that lead to it, all of root and of no date: it changes only with the file.
func layer(name string, content []byte, mode int64) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	var folders []string
	for folder := path.Dir(name); folder != "/"; folder = path.Dir(folder) {
		folders = append([]string{folder}, folders...)
	}
	for _, folder := range folders {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing a layer: %w", err)
		}
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	return archive.Bytes(), nil
}

// writeFolder writes the image's files to a folder, for the Dockerfile to copy.
func writeFolder(folder, binary string) error {
	executable, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the binary: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{{certificates, roots(), 0o644}, {entrypoint, executable, 0o755}} {
		name := filepath.Join(folder, file.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("making a folder of the image: %w", err)
		}
		if err := os.WriteFile(name, file.content, file.mode); err != nil {
			return fmt.Errorf("writing a file of the image: %w", err)
		}
	}
	return nil
}
