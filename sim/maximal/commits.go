// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definitions declares the pools of a commit from a few models. The models are written as JSON, which CUE reads.
const definitions = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	for i, name in _names {
		(name): spec: _models[rem(i, len(_models))]
	}
}
`

const module = "module: \"maximal.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n"

// gitRepository is a Git repository whose commits declare the pools of a tenant.
type gitRepository struct {
	folder string
	names  []string
	models []map[string]any // specs of pools
}

// newRepository creates a repository for pools, of which the first ones are the models of all others. It has no commit.
func newRepository(ctx context.Context, folder string, pools []*unstructured.Unstructured) (*gitRepository, error) {
	r := &gitRepository{folder: folder}
	for i, pool := range pools {
		r.names = append(r.names, pool.GetName())
		if i < len(poolKinds) {
			spec, _, err := unstructured.NestedMap(pool.Object, "spec")
			if err != nil {
				return nil, fmt.Errorf("reading a model: %w", err)
			}
			r.models = append(r.models, spec)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "cue.mod"), 0o755); err != nil {
		return nil, fmt.Errorf("creating the repository: %w", err)
	}
	_, err := r.git(ctx, "init", "--quiet", "--initial-branch=main", ".")
	return r, err
}

func (r *gitRepository) url() string { return "file://" + r.folder }

// commit changes every pool, commits and returns the commit's id. Each commit gives all pools another runner label.
func (r *gitRepository) commit(ctx context.Context, n int) (string, error) {
	for _, spec := range r.models {
		spec["runnerLabels"] = []any{Shared, fmt.Sprint("commit-", n)}
	}
	data := map[string]any{"_names": r.names, "_models": r.models}
	files := map[string]string{"cue.mod/module.cue": module, "pools.cue": definitions}
	for name, value := range data {
		text, err := json.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
		files[strings.TrimPrefix(name, "_")+".cue"] = fmt.Sprintf("package pools\n\n%s: %s\n", name, text)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing definitions: %w", err)
		}
	}
	if _, err := r.git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, "commit", "--quiet", "--message", fmt.Sprint("Commit ", n)); err != nil {
		return "", err
	}
	return r.git(ctx, "rev-parse", "HEAD")
}

// git runs git in the repository, independent of the user's configuration and environment.
func (r *gitRepository) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = r.folder
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.folder, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Tenant", "GIT_AUTHOR_EMAIL=tenant@maximal.example", "GIT_COMMITTER_NAME=Tenant", "GIT_COMMITTER_EMAIL=tenant@maximal.example",
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
