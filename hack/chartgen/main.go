// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command chartgen writes what is made of the chart: the kustomize base, from the chart's
// default, and the page of its values, from their comments. Run it from the root of the repository.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal("chartgen: ", err)
	}
}

func run(ctx context.Context) error {
	base, err := kustomizeBase(ctx, os.DirFS("charts/corral"))
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
