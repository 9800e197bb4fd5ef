// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Source returns the source folder of a Go module, such as k8s.io/kubernetes, in the version that the local control
// plane is built from, or in the version after an @ in the path. The go command downloads the module if necessary.
func Source(ctx context.Context, module string) (string, error) {
	c := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	c.Dir, c.Env = os.TempDir(), append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if !strings.Contains(module, "@") {
		root, err := repositoryRoot()
		if err != nil {
			return "", err
		}
		c.Dir = filepath.Join(root, modulePath)
	}
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w\n%s", module, err, out)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil || got.Dir == "" {
		return "", fmt.Errorf("downloading %s: %w\n%s", module, err, out)
	}
	return got.Dir, nil
}
