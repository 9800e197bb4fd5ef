// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package chartgen generates files from the chart: the kustomize base from the chart's defaults, and the page of its
// values from their comments.
package chartgen

import (
	"context"
	"fmt"
	"os"
)

// Generate writes both. Run it in the root of the repository.
func Generate() error {
	base, err := kustomizeBase(context.Background(), os.DirFS("charts/corral"))
	if err != nil {
		return err
	}
	values, err := os.ReadFile("charts/corral/values.yaml")
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}
	page, err := valuesPage(values)
	if err != nil {
		return err
	}
	for file, text := range map[string]string{"charts/kustomize/corral.yaml": base, "docs/install/values.md": page} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing what was generated: %w", err)
		}
	}
	return nil
}
