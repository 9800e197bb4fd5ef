// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"

	"github.com/corral-dev/corral/schema"
)

// cueCommand is the first argument of the process that does with CUE's own library what is compared.
const cueCommand = "cue"

// runCompile measures `corral build` of so many objects from one table, and CUE's own library with the same tree: load, evaluate, validate
// and write it as JSON, as `cue export` does. Both are processes of their own.
func runCompile(objects int) func(context.Context, *options, time.Duration) (figures, error) {
	return func(ctx context.Context, o *options, _ time.Duration) (figures, error) {
		folder, err := os.MkdirTemp("", "corral-bench-compile-")
		if err != nil {
			return nil, fmt.Errorf("making a folder: %w", err)
		}
		defer os.RemoveAll(folder)
		if err := writeTable(folder, objects-1); err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this program: %w", err)
		}
		own, err := measure(exec.CommandContext(ctx, self, cueCommand, folder))
		if err != nil {
			return nil, fmt.Errorf("CUE's own library: %w", err)
		}
		ours, err := measure(exec.CommandContext(ctx, o.corral, "build", folder, "-o", "json"))
		if err != nil {
			return nil, fmt.Errorf("building: %w", err)
		}
		var built struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(ours.output), &built); err != nil || len(built.Items) != objects {
			return nil, errors.Join(fmt.Errorf("%d objects were built", len(built.Items)), err)
		}
		return figures{
			"compiled": float64(objects), "compile_s": ours.wall.Seconds(), "compile_cpu_s": ours.cpu.Seconds(), "compile_mib": ours.mib,
			"compile_to_cue": ours.cpu.Seconds() / own.cpu.Seconds(),
		}, nil
	}
}

// process is what a process and its children took.
type process struct {
	output    string
	wall, cpu time.Duration
	// mib is the most memory that one of them had.
	mib float64
}

func measure(c *exec.Cmd) (process, error) {
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	if err := c.Run(); err != nil {
		return process{}, fmt.Errorf("%w: %s", err, stderr.String())
	}
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return process{}, errors.New("what it took isn't known here")
	}
	return process{stdout.String(), time.Since(began), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), float64(usage.Maxrss) / 1024}, nil
}

// exportWithCUE is what the other process does.
func exportWithCUE(folder string) error {
	instances := load.Instances([]string{"."}, &load.Config{Dir: folder})
	value := cuecontext.New().BuildInstance(instances[0])
	if err := value.Validate(cue.Concrete(true)); err != nil {
		return fmt.Errorf("validating: %w", err)
	}
	_, err := value.MarshalJSON()
	return err
}

// writeTable writes a repository of so many pools, one row of a table each, and a connection. It has a copy of the schema, for CUE's own
// library.
func writeTable(folder string, pools int) error {
	var rows strings.Builder
	for i := range pools {
		fmt.Fprintf(&rows, "\t\"linux-%d\": {team: \"team-%d\", class: %q, max: %d, memory: \"%dGi\"}\n", i, i%40, []string{"small", "large"}[i%2], 1+i%50, 4+4*(i%3))
	}
	files := map[string]string{
		"cue.mod/module.cue": "module: \"acme.test/pools@v0\"\nlanguage: version: \"v0.16.0\"\n",
		"rows.cue":           "package pools\n\n_rows: {\n" + rows.String() + "}\n",
		"pools.cue": `package pools

import "corral.dev/schema"

connections: schema.#Connections & {acme: spec: {url: "https://github.com/acme", secretRef: name: "github"}}

_classes: {small: {cpu: "2", image: "runner:1"}, large: {cpu: "8", image: "runner:2"}}

_rows: [string]: {team: string, class: string, max: int, memory: string, idle?: int}

pools: schema.#Pools & {
	for name, row in _rows {
		(name): {
			metadata: labels: team: row.team
			spec: {
				connectionRef: name: "acme"
				runnerLabels: ["linux", row.class]
				scale: {
					max: row.max
					if row.idle != _|_ {idle: row.idle}
				}
				template: spec: containers: [{
					name:  "runner"
					image: _classes[row.class].image
					resources: limits: {cpu: _classes[row.class].cpu, memory: row.memory}
				}]
			}
		}
	}
}
`,
	}
	err := fs.WalkDir(schema.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "cue.mod") {
			return err
		}
		text, err := schema.FS.ReadFile(name)
		files["cue.mod/pkg/"+schema.ImportPath+"/"+name] = string(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	return writeFiles(folder, files)
}

func writeFiles(folder string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("writing definitions: %w", err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing definitions: %w", err)
		}
	}
	return nil
}
