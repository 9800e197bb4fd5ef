// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// certificateModule holds Mozilla's roots; it is a module of this command, not of the binary.
const certificateModule = "golang.org/x/crypto/x509roots/fallback"

// describe writes the bill of materials: the modules that the linker says are in the binary, at which checksums, Go's standard
// library, and the root certificates, with the licences found beside their sources and who requires whom.
func (p *product) describe(ctx context.Context, o *options) error {
	found, err := p.sources(ctx, o.root)
	if err != nil {
		return err
	}
	modules := slices.Clone(p.info.Deps)
	if own, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range own.Deps {
			if dep.Path == certificateModule {
				modules = append(modules, dep)
			}
		}
	}
	components := []cyclonedx.Component{standardLibrary(p.info.GoVersion)}
	for _, module := range modules {
		component, err := component(module, found[module.Path])
		if err != nil {
			return err
		}
		components = append(components, component)
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	main := p.mainComponent(o.version)
	dependencies, err := p.dependencies(ctx, o.root, main, components)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: o.created.Format(time.RFC3339),
		Component: &main,
		Tools: &cyclonedx.ToolsChoice{Components: &[]cyclonedx.Component{
			{Type: cyclonedx.ComponentTypeApplication, Name: "github.com/corral-dev/corral/hack/image"},
		}},
		Supplier: &cyclonedx.OrganizationalEntity{Name: "The Corral Authors"},
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	if err := seal(bom); err != nil {
		return err
	}
	p.sbom, err = encode(bom)
	return err
}

// seal gives the document a number that follows from what is in it, as a version 8 UUID of RFC 9562.
func seal(bom *cyclonedx.BOM) error {
	text, err := encode(bom)
	if err != nil {
		return err
	}
	sum, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("numbering the bill of materials: %w", err)
	}
	id, err := hex.DecodeString(sum.Hex[:32])
	if err != nil {
		return fmt.Errorf("numbering the bill of materials: %w", err)
	}
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	return nil
}

func encode(bom *cyclonedx.BOM) ([]byte, error) {
	var text bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	return text.Bytes(), nil
}

func (p *product) mainComponent(version string) cyclonedx.Component {
	url := packageURL(p.info.Main.Path, version) + "?type=module#cmd/corral"
	return cyclonedx.Component{
		BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeApplication,
		Name: "corral", Version: version, Licenses: licences("Apache-2.0"),
		Properties: &[]cyclonedx.Property{
			{Name: "corral:build:GOOS", Value: p.platform.OS},
			{Name: "corral:build:GOARCH", Value: p.platform.Architecture},
			{Name: "corral:build:CGO_ENABLED", Value: "0"},
		},
	}
}

func standardLibrary(version string) cyclonedx.Component {
	version = strings.TrimPrefix(version, "go")
	url := "pkg:golang/std@" + version
	return cyclonedx.Component{
		BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeLibrary,
		Name: "std", Version: version, Licenses: licences("BSD-3-Clause"),
	}
}

// component describes a module by what go.sum says of it: h1 is a SHA-256 over the hashes of its files,
// https://go.dev/ref/mod#go-sum-files.
func component(module *debug.Module, source string) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	url := packageURL(module.Path, module.Version) + "?type=module"
	c := cyclonedx.Component{
		BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeLibrary,
		Name: module.Path, Version: module.Version, Scope: cyclonedx.ScopeRequired,
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	if err != nil || len(sum) != 32 {
		return c, fmt.Errorf("describing module %s: it has no checksum (%q)", module.Path, module.Sum)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	ids, err := licencesIn(source)
	if err != nil {
		return c, fmt.Errorf("describing module %s: %w", module.Path, err)
	}
	if len(ids) > 0 {
		c.Licenses = licences(ids...)
	}
	return c, nil
}

// packageURL names a Go module: https://github.com/package-url/purl-spec.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// sources are the folders of the modules that the binary is made of, and of the certificates'.
func (p *product) sources(ctx context.Context, root string) (map[string]string, error) {
	folders := map[string]string{}
	list := func(c *exec.Cmd) error {
		c.Env = p.env()
		out, err := c.Output()
		if err != nil {
			return fmt.Errorf("listing the modules' folders: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			if module, folder, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				folders[module] = folder
			}
		}
		return nil
	}
	deps := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", "./cmd/corral")
	deps.Dir = root
	return folders, errors.Join(list(deps), list(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", certificateModule)))
}

// dependencies says who requires whom, among the components. All that the binary links is required by it, for go.mod lists
// what is required indirectly, too.
func (p *product) dependencies(ctx context.Context, root string, main cyclonedx.Component, components []cyclonedx.Component) ([]cyclonedx.Dependency, error) {
	c := exec.CommandContext(ctx, "go", "mod", "graph")
	c.Dir, c.Env = root, p.env()
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("reading who requires whom: %w", err)
	}
	references := map[string]string{} // of those that are in the binary, by module
	for _, c := range components {
		references[c.Name] = c.BOMRef
	}
	requires := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		from, version, _ := strings.Cut(from, "@")
		to, _, _ = strings.Cut(to, "@")
		// Only what the version that was chosen requires.
		if reference := references[from]; reference == packageURL(from, version)+"?type=module" && references[to] != "" {
			add(requires, reference, references[to])
		}
	}
	for _, c := range components {
		add(requires, main.BOMRef, c.BOMRef)
		requires[c.BOMRef] = orNew(requires[c.BOMRef])
	}
	var all []cyclonedx.Dependency
	for _, from := range slices.Sorted(maps.Keys(requires)) {
		to := slices.Sorted(maps.Keys(requires[from]))
		all = append(all, cyclonedx.Dependency{Ref: from, Dependencies: &to})
	}
	return all, nil
}

func add(to map[string]map[string]bool, from, required string) {
	to[from] = orNew(to[from])
	to[from][required] = true
}

func orNew(set map[string]bool) map[string]bool {
	if set == nil {
		return map[string]bool{}
	}
	return set
}
