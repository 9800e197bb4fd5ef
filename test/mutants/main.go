// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutants shows that tests notice faults: it applies each patch of this folder to a
// copy of the repository's last commit, one at a time, and runs the tests that the patch
// names, without those that need an API server or that a busy machine can fail. One whose tests
// pass survives, and fails the command.
//
// A patch begins with lines that git ignores: what it breaks, and the packages to test.
//
//	Breaks: a namespaced atLeast raises a limit
//	Tests: ./internal/policy
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const folder = "test/mutants"

// mutant is one patch.
type mutant struct {
	name, breaks string
	tests        []string
	patch        []byte
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
	mutants, err := read(wanted)
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
			return fmt.Errorf("%s: %w", m.name, err)
		}
		verdict := "killed"
		if !killed {
			verdict = "SURVIVES"
			survivors++
		}
		fmt.Fprintf(os.Stdout, "%-9s %-40s %s\n", verdict, m.name, m.breaks)
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants survive", survivors, len(mutants))
	}
	fmt.Fprintf(os.Stdout, "all %d mutants are killed\n", len(mutants))
	return nil
}

// read reads the patches whose names match.
func read(wanted string) ([]mutant, error) {
	match, err := regexp.Compile(wanted)
	if err != nil {
		return nil, fmt.Errorf("reading the expression: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("no patches found: run this at the root of the repository"))
	}
	var mutants []mutant
	for _, file := range files {
		m := mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch")}
		if !match.MatchString(m.name) {
			continue
		}
		if m.patch, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("reading a patch: %w", err)
		}
		m.parse()
		if m.breaks == "" || len(m.tests) == 0 {
			return nil, fmt.Errorf("%s: it must begin with a line `Breaks: …` and a line `Tests: PACKAGES`", file)
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// parse reads the lines before the patch.
func (m *mutant) parse() {
	for line := range strings.Lines(string(m.patch)) {
		if text, ok := strings.CutPrefix(line, "Breaks:"); ok {
			m.breaks = strings.TrimSpace(text)
		}
		if text, ok := strings.CutPrefix(line, "Tests:"); ok {
			m.tests = strings.Fields(text)
		}
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "diff ") {
			return
		}
	}
}

// isKilled says whether a test fails with the patch. One that doesn't apply, or doesn't build,
// is an error: it shows nothing.
func (m *mutant) isKilled(ctx context.Context, dir string) (bool, error) {
	defer command(context.WithoutCancel(ctx), dir, "git", "checkout", "--quiet", ".") //nolint:errcheck // the next patch would not apply
	apply := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", "-")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(m.patch)
	if out, err := apply.CombinedOutput(); err != nil {
		return false, fmt.Errorf("the patch doesn't apply to the last commit: %w\n%s", err, out)
	}
	out, err := test(ctx, dir, m.tests)
	switch {
	case err == nil:
		return false, nil
	case !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic:")), bytes.Contains(out, []byte(" failed]\n")):
		return false, fmt.Errorf("it doesn't build, or its tests could not be run: %w\n%s", err, out)
	case unloadable.Match(out) && !bytes.Contains(m.patch, []byte(".go\n")):
		return false, fmt.Errorf("its rules don't load, so that any test fails:\n%s", out)
	}
	return true, nil
}

// unloadable is what OPA says of rules that it can't compile.
var unloadable = regexp.MustCompile(`rego_(parse|compile|type|unsafe_var|recursion)_error`)

// soundness runs the tests without a patch: where they fail, every mutant would seem killed.
func soundness(ctx context.Context, dir string, mutants []mutant) error {
	var packages []string
	for _, m := range mutants {
		packages = append(packages, m.tests...)
	}
	slices.Sort(packages)
	if out, err := test(ctx, dir, slices.Compact(packages)); err != nil {
		return fmt.Errorf("the tests fail without a patch: %w\n%s", err, out)
	}
	return nil
}

// skipped are tests that need an API server, which the copy would build first, or that hold
// something against the clock.
const skipped = "OnAnAPIServer|TestValuesStayLight"

func test(ctx context.Context, dir string, packages []string) ([]byte, error) {
	return command(ctx, dir, "go", append([]string{"test", "-vet=off", "-failfast", "-skip=" + skipped}, packages...)...)
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c.CombinedOutput()
}
