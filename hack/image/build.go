// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// product is what is made for one platform.
type product struct {
	platform v1.Platform
	binary   string // path of the built command
	info     *buildinfo.BuildInfo
	sbom     []byte
	image    v1.Image
	referrer v1.Image // holds sbom
}

// build makes the binary as `make build` does, whose GOFLAGS are here too: so both share what the build cache has, and the binary is the same
// without make.
func (p *product) build(ctx context.Context, o *options) (err error) {
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
		"-ldflags", "-s -w -X main.version="+o.version, "-o", p.binary, "./cmd/corral")
	c.Dir = o.root
	c.Env = p.env()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building corral for %s: %w\n%s", p.platform, err, out)
	}
	if p.info, err = buildinfo.ReadFile(p.binary); err != nil {
		return fmt.Errorf("reading what the binary was built from: %w", err)
	}
	return nil
}

// env is the environment of a go command that is about the platform.
func (p *product) env() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.platform.OS, "GOARCH="+p.platform.Architecture, "GOWORK=off")
}
