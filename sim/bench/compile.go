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

// cueCommand is the first argument of the child process that exports with CUE's own library, for comparison.
const cueCommand = "cue"

// runCompile measures `corral build` of a table with the given number of objects, and CUE's own library on the same
// tree: load, evaluate, validate and write as JSON, as `cue export` does. Each runs in a process of its own.
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
		corral, err := measure(exec.CommandContext(ctx, o.corral, "build", folder, "-o", "json"))
		if err != nil {
			return nil, fmt.Errorf("building: %w", err)
		}
		var built struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(corral.output), &built); err != nil || len(built.Items) != objects {
			return nil, errors.Join(fmt.Errorf("%d objects were built", len(built.Items)), err)
		}
		return figures{
			"compiled": float64(objects), "compile_s": corral.wall.Seconds(), "compile_cpu_s": corral.cpu.Seconds(), "compile_mib": corral.mib,
			"compile_to_cue": corral.cpu.Seconds() / own.cpu.Seconds(),
		}, nil
	}
}

// process is the resource use of a process and its children.
type process struct {
	output    string
	wall, cpu time.Duration
	// mib is the peak memory of the largest of them.
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
		return process{}, errors.New("its resource use is unknown on this system")
	}
	return process{stdout.String(), time.Since(began), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), float64(usage.Maxrss) / 1024}, nil
}

// exportWithCUE is what the child process for the comparison runs.
func exportWithCUE(folder string) error {
	instances := load.Instances([]string{"."}, &load.Config{Dir: folder})
	value := cuecontext.New().BuildInstance(instances[0])
	if err := value.Validate(cue.Concrete(true)); err != nil {
		return fmt.Errorf("validating: %w", err)
	}
	_, err := value.MarshalJSON()
	return err
}

// writeTable writes a repository with a connection and the given number of pools, one table row each. It includes a
// copy of the schema, for CUE's own library.
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
