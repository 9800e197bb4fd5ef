// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a bare Git repository and a clone that pushes to it.
type repository struct {
	t          *testing.T
	bare, tree string
}

// newRepository makes a repository whose module file lets it use the schema.
func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, bare: filepath.Join(t.TempDir(), "bare.git"), tree: filepath.Join(t.TempDir(), "tree")}
	r.git("", "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.git("", "clone", "--quiet", r.bare, r.tree)
	r.write("cue.mod/module.cue", "module: \"acme.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n")
	return r
}

// url is what a PoolSource names.
func (r *repository) url() string { return "file://" + r.bare }

func (r *repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.tree, name)
	must(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(r.t, os.WriteFile(path, []byte(text), 0o600))
}

// push commits everything and pushes it; it returns the commit.
func (r *repository) push(message string) string {
	r.t.Helper()
	r.git(r.tree, "add", "--all")
	r.git(r.tree, "-c", "user.name=Platform", "-c", "user.email=platform@acme.example", "commit", "--quiet", "--allow-empty", "-m", message)
	r.git(r.tree, "push", "--quiet", "origin", "HEAD:main")
	return r.git(r.tree, "rev-parse", "HEAD")
}

func (r *repository) git(dir string, args ...string) string {
	r.t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
