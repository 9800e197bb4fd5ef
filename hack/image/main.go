// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command image makes the controller's container image and its bill of materials from source, with Go alone: no daemon, no
// base image, no shell. The same source gives the same digest.
//
//	go -C hack/image run . -version v1.2.3 -tag corral:dev
//
// It writes below dist: image, an OCI image layout; corral.tar, an archive for `kind load image-archive`, `docker load` or `ctr
// images import`; and corral-OS-ARCH.cdx.json, a CycloneDX bill of materials, which the layout holds too. With -push it writes
// the same to a registry, with the credentials of ~/.docker/config.json. With -rootfs it writes the image's files only.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// options are the flags.
type options struct {
	root, out, rootfs  string
	version, tag, push string
	platforms, only    string
	created            time.Time
	log                io.Writer
}

func main() {
	o := options{log: os.Stderr}
	flag.StringVar(&o.root, "root", filepath.Join("..", ".."), "folder of the module to build")
	flag.StringVar(&o.out, "out", "dist", "folder to write to, below root unless absolute")
	flag.StringVar(&o.rootfs, "rootfs", "", "write the files of the image to this folder, and nothing else")
	flag.StringVar(&o.version, "version", "dev", "version of corral")
	flag.StringVar(&o.tag, "tag", "corral:dev", "name of the image in corral.tar")
	flag.StringVar(&o.push, "push", "", "reference to push the image to, such as registry.example/corral:v1")
	flag.StringVar(&o.platforms, "platforms", "linux/"+runtime.GOARCH, "platforms, separated by commas; the first one is in corral.tar")
	flag.StringVar(&o.only, "only", "", "sbom: write the bill of materials only")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) (err error) {
	if o.root, err = filepath.Abs(o.root); err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	if !filepath.IsAbs(o.out) {
		o.out = filepath.Join(o.root, o.out)
	}
	if o.created, err = created(ctx, o.root); err != nil {
		return err
	}
	platforms, err := parsePlatforms(o.platforms)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "corral-image-")
	if err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(work)
	var built []*product
	for _, platform := range platforms {
		p := &product{platform: platform, binary: filepath.Join(work, platform.OS+"-"+platform.Architecture)}
		if err := p.build(ctx, o); err != nil {
			return err
		}
		built = append(built, p)
	}
	if o.rootfs != "" {
		return writeFolder(o.rootfs, built[0].binary)
	}
	return o.write(ctx, built)
}

func (o *options) write(ctx context.Context, built []*product) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", o.out, err)
	}
	for _, p := range built {
		if err := p.describe(ctx, o); err != nil {
			return err
		}
		name := filepath.Join(o.out, fmt.Sprintf("corral-%s-%s.cdx.json", p.platform.OS, p.platform.Architecture))
		if err := os.WriteFile(name, p.sbom, 0o644); err != nil {
			return fmt.Errorf("writing the bill of materials: %w", err)
		}
		fmt.Fprintln(o.log, "wrote", name)
	}
	if o.only == "sbom" {
		return nil
	}
	for _, p := range built {
		if err := p.assemble(o); err != nil {
			return err
		}
	}
	return o.publish(ctx, built)
}

// created is the time that the image bears: SOURCE_DATE_EPOCH, or the last commit's time, or none.
// https://reproducible-builds.org/specs/source-date-epoch/
func created(ctx context.Context, root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Unix(0, 0).UTC(), nil // not a checkout
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" {
			return nil, fmt.Errorf("reading -platforms: %q is not of the form linux/ARCH", text)
		}
		platforms = append(platforms, *platform)
	}
	return platforms, nil
}
