// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/compile"
)

const aboutBuild = `Compile the definitions in DIR (default: the current folder) and below, and print the objects
with their defaults: first connections, then pools, by namespace and name. The same
definitions always give the same bytes. If a pool's containerMode runs jobs as pods and its
template names no ServiceAccount, the output includes a ServiceAccount, a Role and a
RoleBinding.

If there is a problem, or no pool, the command prints nothing on standard output and exits
with code 1, so that a tool that prunes objects never sees an incomplete list.

The command warns on standard error about files that Git ignores and about files in
submodules, because a PoolSource reads neither.

With --argocd, the command acts as an Argo CD config management plugin. In addition to its flags,
it reads the parameters of the Application, "tags" (a map, or an array of NAME=VALUE) and
"namespace" (a string), and the variables CORRAL_TAGS (NAME=VALUE,...) and CORRAL_NAMESPACE
of its plugin.env. An Application cannot change values that the command line sets. File names
are relative to the top of the repository. With --discover, the command only reports whether
there are definitions: it prints the first CUE file in DIR if the module mentions corral.dev,
and nothing otherwise.`

func newBuild() *cobra.Command {
	c := &cobra.Command{
		Use:     "build [DIR]",
		Short:   "Print the objects that definitions compile to",
		Long:    aboutBuild,
		Example: "  corral build | kubectl apply --server-side -f -\n  corral build pools --namespace runners -o json\n  corral build --argocd .",
	}
	d := bindDefinitions(c)
	f := bindFormat(c, "yaml", "json")
	var namespace string
	bindNamespace(c, &namespace)
	plugin := bindArgoCD(c)
	pods := c.Flags().Bool("pods", false, "print the pods of the pools' runners instead, with placeholders for values that differ between runners")
	c.RunE = func(c *cobra.Command, args []string) error {
		if plugin.discover {
			return plugin.printDiscovered(c.OutOrStdout(), args)
		}
		if err := plugin.apply(d, &namespace); err != nil {
			return err
		}
		result, err := d.compile(c.Context(), args)
		if err != nil {
			return err
		}
		if len(result.Diagnostics) > 0 {
			plugin.printDiagnostics(c.ErrOrStderr(), result.Diagnostics)
			return problems(result.Diagnostics)
		}
		w, err := newWorkspace(result, &policyOptions{namespace: namespace})
		if err != nil {
			return err
		}
		objects := w.Objects
		if *pods {
			if objects, err = w.pods(); err != nil {
				return err
			}
		}
		for _, d := range slices.Concat(w.uncommitted, w.unreadable, w.unread, w.foreignObjects(), w.consentProblems(), w.Diagnostics) {
			d.Message = "warning: " + d.Message
			fmt.Fprintln(c.ErrOrStderr(), compile.Format(d))
		}
		if f.value == "json" {
			return f.write(c.OutOrStdout(), list(objects))
		}
		for _, o := range objects {
			fmt.Fprintln(c.OutOrStdout(), "---")
			if err := writeYAML(c.OutOrStdout(), o.Manifest.Object); err != nil {
				return fmt.Errorf("writing %s: %w", o.Path, err)
			}
		}
		return nil
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

// list wraps objects in a List, as kubectl does.
func list(objects []compile.Object) map[string]any {
	items := converted(objects, func(o compile.Object) map[string]any { return o.Manifest.Object })
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}
