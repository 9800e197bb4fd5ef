// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// reviewedPools is the maximum that one repository can declare, in reviewedFiles files.
const (
	reviewedPools = 200
	reviewedFiles = 10
)

// runReview measures `corral review` of a change that affects every pool: another image and another max.
func runReview(ctx context.Context, o *options, _ time.Duration) (figures, error) {
	folder, err := os.MkdirTemp("", "corral-bench-review-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(folder)
	for side, change := range map[string]reviewChange{"base": {"2.329.0", 50}, "head": {"2.330.0", 80}} {
		if err := change.write(filepath.Join(folder, side)); err != nil {
			return nil, err
		}
	}
	c := exec.CommandContext(ctx, o.corral, "review", "base", "head", "--at", "2026-07-07T10:00:00Z", "-o", "json",
		"--write", "markdown=review.md", "--write", "sarif=review.sarif", "--write", "text=review.txt")
	c.Dir = folder
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	err = c.Run()
	took := time.Since(began)
	if err != nil {
		return nil, fmt.Errorf("reviewing: %w: %s", err, stderr.String())
	}
	var result struct {
		Pools []struct{ Classes []string }
	}
	if err := json.Unmarshal([]byte(stdout.String()), &result); err != nil {
		return nil, fmt.Errorf("reading the review: %w", err)
	}
	if len(result.Pools) != reviewedPools {
		return nil, errors.New("not every pool is in the review")
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return figures{"reviewed_pools": reviewedPools, "review_s": took.Seconds(), "review_cpu_s": cpu.Seconds()}, nil
}

// reviewChange contains the values that differ between base and head.
type reviewChange struct {
	image string
	max   int
}

// write writes a repository with pools, policies and prices.
func (r reviewChange) write(folder string) error {
	files := map[string]string{
		"connections.cue": "package pools\n\nimport \"corral.dev/schema@v0\"\n\n" +
			"connections: schema.#Connections & {acme: spec: {url: \"https://github.com/acme\", secretRef: name: \"github\"}}\n",
		"runner.cue": fmt.Sprintf("package pools\n\nimport \"corral.dev/schema@v0\"\n\n#Runner: schema.#Container & {\n"+
			"\tname: \"runner\"\n\timage: \"ghcr.io/actions/actions-runner:%s\"\n\tcommand: [\"/home/runner/run.sh\"]\n\tresources: requests: {cpu: \"2\", memory: \"4Gi\"}\n}\n", r.image),
		"prices.yaml": "currency: EUR\nperVCPUHour: 0.031\nperGiBHour: 0.004\n",
		"policies/limits.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 60, \"reason\": \"a team has 60 runners a pool\"} if {\n" +
			"\tinput.pool.labels.team\n}\n",
		"policies/pods.rego": "package corral.template\n\ndeny contains {\"msg\": sprintf(\"%s is privileged\", [c.name])} if {\n" +
			"\tsome c in input.pod.spec.containers\n\tc.securityContext.privileged\n}\n",
	}
	for i := range reviewedFiles {
		var b strings.Builder
		b.WriteString("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n")
		for j := range reviewedPools / reviewedFiles {
			fmt.Fprintf(&b, "\t\"team-%d-%d\": {\n\t\tmetadata: labels: team: \"team-%[1]d\"\n\t\tspec: {\n\t\t\tconnectionRef: name: \"acme\"\n"+
				"\t\t\trunnerLabels: [\"linux\", \"size-%[2]d\", \"team-%[1]d\"]\n\t\t\tscale: {max: %[3]d, idle: 2}\n\t\t\ttemplate: spec: containers: [#Runner]\n\t\t}\n\t}\n", i, j, r.max)
		}
		b.WriteString("}\n")
		files[fmt.Sprintf("team-%d.cue", i)] = b.String()
	}
	return writeFiles(folder, files)
}
