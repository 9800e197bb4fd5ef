// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/schema"
)

// build is the output of version.
type build struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	APIVersion string `json:"apiVersion"`
	Schema     string `json:"schema"`
}

// Text implements texter.
func (b build) Text() string {
	return fmt.Sprintf("corral %s (%s, %s)\napi %s\nschema %s\n", b.Version, b.Go, b.Platform, b.APIVersion, b.Schema)
}

func newVersion(version string) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of corral, of its API and of its schema",
		Args:  cobra.NoArgs,
	}
	f := bindFormat(c, "text", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.write(c.OutOrStdout(), build{
			Version:    version,
			Go:         runtime.Version(),
			Platform:   runtime.GOOS + "/" + runtime.GOARCH,
			APIVersion: v1alpha1.GroupVersion.String(),
			Schema:     schema.Module + " " + schema.Version,
		})
	}
	return c
}
