// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/compile"
)

func newBuild() *cobra.Command {
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Print the objects that definitions compile to",
		Long: `Print the objects that the definitions in DIR (default: the current folder) and below
compile to, with defaults filled in: connections first, then pools, by namespace and
name. The same definitions give the same bytes.

With any problem, or without a pool, nothing is printed on standard output and the exit
code is 1, so that a tool that prunes never sees a part of the objects.`,
		Example: "  corral build | kubectl apply --server-side -f -\n  corral build pools --namespace runners -o json",
	}
	d := bindDefinitions(c)
	f := bindFormat(c, "yaml", "json")
	namespace := c.Flags().StringP("namespace", "n", "", "namespace for the objects that name none")
	c.RunE = func(c *cobra.Command, args []string) error {
		result, err := d.compile(c.Context(), args)
		if err != nil {
			return err
		}
		if len(result.Diagnostics) > 0 {
			printDiagnostics(c.ErrOrStderr(), result.Diagnostics)
			return problems(result.Diagnostics)
		}
		fillNamespace(result.Objects, *namespace)
		if f.value == "json" {
			return f.write(c.OutOrStdout(), list(result.Objects))
		}
		text, err := documents(result.Objects)
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	return c
}

func fillNamespace(objects []compile.Object, namespace string) {
	for _, o := range objects {
		if namespace != "" && o.Manifest.GetNamespace() == "" {
			o.Manifest.SetNamespace(namespace)
		}
	}
}

// list wraps objects as kubectl does.
func list(objects []compile.Object) map[string]any {
	items := make([]any, len(objects))
	for i, o := range objects {
		items[i] = o.Manifest.Object
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}

// documents returns objects as YAML documents with sorted fields.
func documents(objects []compile.Object) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		data, err := yaml.Marshal(o.Manifest.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", o.Path, err)
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	return b.Bytes(), nil
}
