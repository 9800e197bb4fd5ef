// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// examples is the folder, relative to the root of the checkout, that the repository is created from.
const examples = "examples/demo"

// gitTimeout bounds each call of git.
const gitTimeout = 30 * time.Second

// reviewTimeout bounds a review.
const reviewTimeout = time.Minute

// repository is a bare Git repository and a clone that pushes to it.
type repository struct {
	bare, tree string
}

// newRepository creates a repository from the examples in dir.
func newRepository(ctx context.Context, dir string) (*repository, error) {
	source, err := findExamples()
	if err != nil {
		return nil, err
	}
	r := &repository{bare: filepath.Join(dir, "pools.git"), tree: filepath.Join(dir, "pools")}
	if err := os.CopyFS(r.tree, os.DirFS(source)); err != nil {
		return nil, fmt.Errorf("copying %s: %w", examples, err)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", "--initial-branch=main", r.bare},
		{"init", "--quiet", "--initial-branch=main", "."},
		{"remote", "add", "origin", r.bare},
		// With --stay, the user commits as well, perhaps without a name in the configuration of git.
		{"config", "user.name", "Platform Team"},
		{"config", "user.email", "platform@acme.example"},
	} {
		if _, err := r.git(ctx, args...); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// findExamples searches the working directory and its parents for the checkout.
func findExamples() (string, error) {
	working, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", examples, err)
	}
	for dir := working; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, examples)
		if _, err := os.Stat(filepath.Join(path, poolsFile)); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding %s: neither %s nor a folder above holds it; run this in a checkout of Corral", examples, working)
		}
	}
}

// url is the URL for the PoolSource.
func (r *repository) url() string { return "file://" + r.bare }

// replace replaces text that occurs exactly once in the pools' file.
func (r *repository) replace(old, new string) error {
	path := filepath.Join(r.tree, poolsFile)
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("editing a file: %w", err)
	}
	if n := strings.Count(string(content), old); n != 1 {
		return fmt.Errorf("editing %s: %q occurs %d times instead of once", poolsFile, old, n)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(content), old, new, 1)), 0o600); err != nil {
		return fmt.Errorf("editing a file: %w", err)
	}
	return nil
}

// commit commits everything.
func (r *repository) commit(ctx context.Context, message string) error {
	if _, err := r.git(ctx, "add", "--all"); err != nil {
		return err
	}
	_, err := r.git(ctx, "commit", "--quiet", "--message", message)
	return err
}

// push pushes the commits and returns the last one.
func (r *repository) push(ctx context.Context) (string, error) {
	if _, err := r.git(ctx, "push", "--quiet", "origin", "main"); err != nil {
		return "", err
	}
	return r.git(ctx, "rev-parse", "HEAD")
}

// review runs `corral review` to compare the last commit with base, as in a pull request, and returns the report
// without the details of each pool.
func (r *repository) review(ctx context.Context, corral, base string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, corral, "review", "--base", base, "--head", "HEAD")
	c.Dir = r.tree
	out, err := c.Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || len(out) == 0) { // exit codes 1 and 2 can come with a report
		return "", fmt.Errorf("reviewing the commit: %w", err)
	}
	text, _, _ := strings.Cut(string(out), "\npool ")
	return strings.TrimSpace(text), nil
}

// git runs git in the clone, independently of the user's configuration and environment.
func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = r.tree
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.tree, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
	out, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("the demo needs git: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
