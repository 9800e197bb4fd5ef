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

// poolsOfFolder is how many pools a folder declares. One compilation of large pools may take about twice as much CPU time.
const poolsOfFolder = 500

// definitions declares the pools of a folder from a few models. The models are written as JSON, which CUE reads.
const definitions = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	for i, name in _data[0] {
		(name): spec: _data[1][rem(i, len(_data[1]))]
	}
}
`

const module = "module: \"maximal.example/pools@v0\"\nlanguage: version: \"v0.16.0\"\ndeps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n"

// gitRepository is a Git repository whose commits declare the pools of a tenant, in folders that are compiled separately.
type gitRepository struct {
	folder string
	names  []string
	models []map[string]any // specs of pools
}

// newRepository creates a repository without a commit for pools. The first pools are the models of all others.
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

// folders returns the folders that declare pools.
func (r *gitRepository) folders() (all []string) {
	for i := 0; i < len(r.names); i += poolsOfFolder {
		all = append(all, fmt.Sprint("part-", i/poolsOfFolder))
	}
	return all
}

// commit changes every pool, commits and returns the commit's id. Each commit gives all pools another runner label.
func (r *gitRepository) commit(ctx context.Context, n int) (string, error) {
	for _, spec := range r.models {
		spec["runnerLabels"] = []any{Shared, fmt.Sprint("commit-", n)}
	}
	files := map[string]string{"cue.mod/module.cue": module}
	for i, folder := range r.folders() {
		names := r.names[i*poolsOfFolder : min(len(r.names), (i+1)*poolsOfFolder)]
		text, err := json.Marshal([]any{names, r.models})
		if err != nil {
			return "", fmt.Errorf("encoding definitions: %w", err)
		}
		files[folder+"/pools.cue"], files[folder+"/data.cue"] = definitions, fmt.Sprintf("package pools\n\n_data: %s\n", text)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.folder, name)), 0o755); err != nil {
			return "", fmt.Errorf("writing definitions: %w", err)
		}
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
