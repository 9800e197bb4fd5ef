// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command image writes a container image from folders, one layer each, as a tar file in the OCI image layout, which
// `ctr images import` can read. It needs no daemon, no registry and no root.
//
//	image [-user USER] [-workdir FOLDER] [-entrypoint PROGRAM] [-volume FOLDER] NAME FOLDER... > FILE.tar
//
// Format: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

const (
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	configType   = "application/vnd.oci.image.config.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
)

// descriptor points to a blob of the layout.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// config configures containers of the image.
type config struct {
	User       string              `json:"User,omitempty"`
	WorkingDir string              `json:"WorkingDir,omitempty"`
	Entrypoint []string            `json:"Entrypoint,omitempty"`
	Volumes    map[string]struct{} `json:"Volumes,omitempty"`
}

func main() {
	var c config
	flag.StringVar(&c.User, "user", "", "user of its containers, USER or USER:GROUP")
	flag.StringVar(&c.WorkingDir, "workdir", "", "their working folder")
	flag.Func("entrypoint", "the program that they start", func(program string) error {
		c.Entrypoint = []string{program}
		return nil
	})
	flag.Func("volume", "a folder that is a volume in each of them", func(folder string) error {
		c.Volumes = map[string]struct{}{folder: {}}
		return nil
	})
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(os.Stdout, flag.Arg(0), c, flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the blobs from the inside out, because each one contains the digests of earlier ones.
func write(w io.Writer, name string, c config, folders []string) error {
	out := tar.NewWriter(w)
	var layers []descriptor
	var digests []string
	for _, folder := range folders {
		layer, err := addLayer(out, folder)
		if err != nil {
			return fmt.Errorf("packing %s: %w", folder, err)
		}
		layers, digests = append(layers, layer), append(digests, layer.Digest)
	}
	image, err := addDocument(out, configType, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": digests},
	})
	if err != nil {
		return err
	}
	manifest, err := addDocument(out, manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": image, "layers": layers,
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	for file, content := range map[string][]byte{"index.json": index, "oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)} {
		if err := addFile(out, file, int64(len(content)), bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return out.Close()
}

func addDocument(out *tar.Writer, mediaType string, content any) (descriptor, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return descriptor{}, fmt.Errorf("encoding %s: %w", mediaType, err)
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(text))
	size := int64(len(text))
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: size}, addFile(out, "blobs/sha256/"+digest, size, bytes.NewReader(text))
}

// addLayer packs a folder into a temporary file first, because a blob's name is its digest, and its size precedes its
// content.
func addLayer(out *tar.Writer, folder string) (descriptor, error) {
	packed, err := os.CreateTemp("", "layer-")
	if err != nil {
		return descriptor{}, err
	}
	defer func() {
		_ = packed.Close() // it was read to its end
		_ = os.Remove(packed.Name())
	}()
	sum := sha256.New()
	if err := pack(io.MultiWriter(packed, sum), folder); err != nil {
		return descriptor{}, err
	}
	size, err := packed.Seek(0, io.SeekCurrent)
	if err != nil {
		return descriptor{}, err
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return descriptor{}, err
	}
	digest := fmt.Sprintf("%x", sum.Sum(nil))
	return descriptor{MediaType: layerType, Digest: "sha256:" + digest, Size: size}, addFile(out, "blobs/sha256/"+digest, size, packed)
}

// pack writes a folder's files with their owners and modes.
func pack(w io.Writer, folder string) error {
	layer := tar.NewWriter(w)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		return packEntry(layer, folder, path, entry)
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

func packEntry(layer *tar.Writer, folder, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(folder, path); err != nil {
		return err
	}
	header.Uname, header.Gname = "", "" // numbers only: the image has other names
	if err := layer.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	_, err = io.Copy(layer, file)
	return err
}

func addFile(out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := io.Copy(out, content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
