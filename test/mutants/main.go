// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutants shows that the tests notice faults. It applies each fault of mutants.yaml, one at a time, to a
// copy of the last commit, and runs the tests of the package. It skips tests that need an API server or depend on
// the speed of the machine. The command fails if the tests pass despite a fault.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"
)

const list = "test/mutants/mutants.yaml"

// mutant replaces Old, which must occur exactly once in File, with New.
type mutant struct {
	Breaks string `json:"breaks"`
	File   string `json:"file"`
	Old    string `json:"old"`
	New    string `json:"new"`
	// Test is the package whose tests must fail. The default is the package of File.
	Test string `json:"test"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	wanted := "."
	if len(os.Args) > 1 {
		wanted = os.Args[1]
	}
	if err := run(ctx, wanted); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, wanted string) error {
	mutants, err := read(".", wanted)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "corral-mutants-")
	if err != nil {
		return fmt.Errorf("making a folder for the copy: %w", err)
	}
	defer os.RemoveAll(dir)
	if out, err := command(ctx, ".", "git", "clone", "--quiet", "--no-hardlinks", ".", dir); err != nil {
		return fmt.Errorf("copying the repository: %w\n%s", err, out)
	}
	if err := soundness(ctx, dir, mutants); err != nil {
		return err
	}
	survivors := 0
	for _, m := range mutants {
		killed, err := m.isKilled(ctx, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Breaks, err)
		}
		verdict := "killed"
		if !killed {
			verdict = "SURVIVES"
			survivors++
		}
		fmt.Fprintf(os.Stdout, "%-9s %-36s %s\n", verdict, m.File, m.Breaks)
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants survive", survivors, len(mutants))
	}
	fmt.Fprintf(os.Stdout, "all %d mutants are killed\n", len(mutants))
	return nil
}

// read returns the mutants whose file or description matches the regular expression.
func read(root, wanted string) ([]mutant, error) {
	match, err := regexp.Compile(wanted)
	if err != nil {
		return nil, fmt.Errorf("reading the expression: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(root, list))
	if err != nil {
		return nil, fmt.Errorf("reading the mutants: %w", err)
	}
	var all []mutant
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", list, err)
	}
	for i := range all {
		if all[i].Test == "" {
			all[i].Test = "./" + filepath.Dir(all[i].File)
		}
	}
	return slices.DeleteFunc(all, func(m mutant) bool { return !match.MatchString(m.File + ": " + m.Breaks) }), nil
}

// apply returns the content of the file in dir, before and after the change.
func (m *mutant) apply(dir string) (before, after []byte, err error) {
	before, err = os.ReadFile(filepath.Join(dir, m.File))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the file to break: %w", err)
	}
	if n := bytes.Count(before, []byte(m.Old)); n != 1 {
		return nil, nil, fmt.Errorf("%s has %q %d times, want once", m.File, m.Old, n)
	}
	return before, bytes.Replace(before, []byte(m.Old), []byte(m.New), 1), nil
}

// isKilled reports whether a test fails with the fault. A fault that does not compile is an error, because it
// proves nothing about the tests.
func (m *mutant) isKilled(ctx context.Context, dir string) (bool, error) {
	before, after, err := m.apply(dir)
	if err != nil {
		return false, err
	}
	file := filepath.Join(dir, m.File)
	if err := os.WriteFile(file, after, 0o600); err != nil {
		return false, fmt.Errorf("breaking the copy: %w", err)
	}
	out, failure := test(ctx, dir, m.Test)
	if err := os.WriteFile(file, before, 0o600); err != nil {
		return false, fmt.Errorf("restoring the copy: %w", err)
	}
	switch {
	case failure == nil:
		return false, nil
	case !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic:")), bytes.Contains(out, []byte(" failed]\n")):
		return false, fmt.Errorf("it doesn't build, or its tests could not be run: %w\n%s", failure, out)
	case unloadable.Match(out) && filepath.Ext(m.File) == ".rego":
		return false, fmt.Errorf("its rules do not load, so every test fails:\n%s", out)
	}
	return true, nil
}

// unloadable matches OPA's errors about rules that do not compile.
var unloadable = regexp.MustCompile(`rego_(parse|compile|type|unsafe_var|recursion)_error`)

// soundness runs the tests without any fault. If they failed, every mutant would appear to be killed.
func soundness(ctx context.Context, dir string, mutants []mutant) error {
	var packages []string
	for _, m := range mutants {
		packages = append(packages, m.Test)
	}
	slices.Sort(packages)
	if out, err := test(ctx, dir, slices.Compact(packages)...); err != nil {
		return fmt.Errorf("the tests fail even without a fault: %w\n%s", err, out)
	}
	return nil
}

// skipped matches tests that need an API server, which the copy would have to build first, and tests that measure
// time.
const skipped = "OnAnAPIServer|TestValuesStayLight"

func test(ctx context.Context, dir string, packages ...string) ([]byte, error) {
	return command(ctx, dir, "go", append([]string{"test", "-vet=off", "-failfast", "-skip=" + skipped}, packages...)...)
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c.CombinedOutput()
}
