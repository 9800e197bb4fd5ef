// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command mutants shows that tests notice faults: it applies each patch of this folder to a
// copy of the repository's last commit, one at a time, and runs the tests that the patch
// names. One whose tests pass survives, and fails the command.
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
	if out, err := command(ctx, dir, "go", append([]string{"vet"}, m.tests...)...); err != nil {
		return false, fmt.Errorf("it doesn't build: %w\n%s", err, out)
	}
	out, err := command(ctx, dir, "go", append([]string{"test", "-count=1", "-failfast"}, m.tests...)...)
	if err != nil && !bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic:")) {
		return false, fmt.Errorf("its tests could not be run: %w\n%s", err, out)
	}
	return err != nil, nil
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c.CombinedOutput()
}
