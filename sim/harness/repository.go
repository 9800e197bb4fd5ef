// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repository is a bare Git repository and a clone that pushes to it.
type Repository struct {
	// T is the test that fails if a git command fails.
	T *testing.T

	bare, tree string
}

// NewRepository creates a repository with a module file that imports the schema.
func NewRepository(t *testing.T) *Repository {
	t.Helper()
	r := &Repository{T: t, bare: filepath.Join(t.TempDir(), "bare.git"), tree: filepath.Join(t.TempDir(), "tree")}
	r.Git("", "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.Git("", "clone", "--quiet", r.bare, r.tree)
	r.Write("cue.mod/module.cue", "module: \"acme.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n")
	return r
}

// URL returns the URL for a PoolSource.
func (r *Repository) URL() string { return "file://" + r.bare }

// Write writes a file of the clone. The name is relative to its root.
func (r *Repository) Write(name, text string) {
	r.T.Helper()
	path := r.Path(name)
	Must(r.T, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(r.T, os.WriteFile(path, []byte(text), 0o600))
}

// Push commits all changes, pushes them and returns the commit.
func (r *Repository) Push(message string) string {
	r.T.Helper()
	r.Git(r.tree, "add", "--all")
	r.Git(r.tree, "-c", "user.name=Platform", "-c", "user.email=platform@acme.example", "commit", "--quiet", "--allow-empty", "-m", message)
	r.Git(r.tree, "push", "--quiet", "origin", "HEAD:main")
	return r.Git(r.tree, "rev-parse", "HEAD")
}

// Remove removes a file or folder of the clone.
func (r *Repository) Remove(name string) {
	r.T.Helper()
	Must(r.T, os.RemoveAll(r.Path(name)))
}

// Path returns the path of a file of the clone.
func (r *Repository) Path(name string) string { return filepath.Join(r.tree, name) }

// Git runs git in a folder and returns its output.
func (r *Repository) Git(dir string, args ...string) string {
	r.T.Helper()
	return r.GitIn(dir, "", args...)
}

// GitIn is Git with standard input.
func (r *Repository) GitIn(dir, input string, args ...string) string {
	r.T.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Stdin = strings.NewReader(input)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		r.T.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
