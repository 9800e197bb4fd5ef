// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// Environment variables that Argo CD sets for a config management plugin:
// https://argo-cd.readthedocs.io/en/stable/operator-manual/config-management-plugins/
const (
	// argoParameters holds spec.source.plugin.parameters of the Application as JSON.
	argoParameters = "ARGOCD_APP_PARAMETERS"
	// argoPath is the Application's folder in its repository.
	argoPath = "ARGOCD_APP_SOURCE_PATH"
	// argoTags and argoNamespace hold the values of CORRAL_TAGS and CORRAL_NAMESPACE in spec.source.plugin.env of the
	// Application. Argo CD adds a prefix to these names, so that an Application cannot set variables such as PATH.
	argoVariable  = "ARGOCD_ENV_"
	argoTags      = argoVariable + "CORRAL_TAGS"
	argoNamespace = argoVariable + "CORRAL_NAMESPACE"
)

// maxArgoBytes limits the size of the diagnostics that are printed for Argo CD, because Argo CD copies them into the
// Application's status.
const maxArgoBytes = 16 << 10

// argocd holds the flags that run build as an Argo CD config management plugin.
type argocd struct {
	enabled, discover bool
}

func bindArgoCD(c *cobra.Command) *argocd {
	a := &argocd{}
	c.Flags().BoolVar(&a.enabled, "argocd", a.enabled, "run as an Argo CD config management plugin, with parameters from the environment")
	c.Flags().BoolVar(&a.discover, "discover", a.discover, "with --argocd: print the name of a file if there are definitions in DIR, and nothing otherwise")
	return a
}

// apply adds the tags and namespace of the Application to the flags of the command line. The Application can only add values, not replace
// them, because its author may have fewer rights than the author of the plugin's command.
func (a *argocd) apply(d *definitions, namespace *string) error {
	if !a.enabled {
		return nil
	}
	parameters, err := readParameters()
	if err != nil {
		return err
	}
	set, pinned := tags{}, *namespace
	for _, p := range parameters {
		if err := p.set(set, namespace); err != nil {
			return fmt.Errorf("parameter %q of the Application: %w", p.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, pinned := d.tags[name]; pinned {
			return fmt.Errorf("tag %q is set by the plugin's command, so the Application cannot set it", name)
		}
	}
	if pinned != "" && pinned != *namespace {
		return errors.New("the namespace is set by the plugin's command, so the Application cannot set it")
	}
	maps.Copy(d.tags, set)
	return nil
}

// parameter is a plugin parameter of an Application. Its value is a string, an array or a map.
type parameter struct {
	Name   string            `json:"name"`
	String *string           `json:"string"`
	Array  []string          `json:"array"`
	Map    map[string]string `json:"map"`
}

// readParameters returns the settings from plugin.env, followed by plugin.parameters, which take precedence.
func readParameters() (all []parameter, err error) {
	tagPairs := os.Getenv(argoTags)
	if tagPairs != "" {
		pairs, err := csv.NewReader(strings.NewReader(tagPairs)).Read()
		if err != nil {
			return nil, fmt.Errorf("reading CORRAL_TAGS of the Application's plugin.env: %w", err)
		}
		all = append(all, parameter{Name: "tags", Array: pairs})
	}
	namespace := os.Getenv(argoNamespace)
	if namespace != "" {
		all = append(all, parameter{Name: "namespace", String: &namespace})
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, argoVariable+"CORRAL_") && name != argoTags && name != argoNamespace {
			return nil, fmt.Errorf("%s in the Application's plugin.env: unknown variable: only CORRAL_TAGS and CORRAL_NAMESPACE are supported",
				strings.TrimPrefix(name, argoVariable))
		}
	}
	var parameters []parameter
	err = json.Unmarshal([]byte(cmp.Or(os.Getenv(argoParameters), "null")), &parameters)
	return append(all, parameters...), wrap("reading "+argoParameters, err)
}

func (p *parameter) set(to tags, namespace *string) error {
	switch {
	case p.Name == "tags" && p.String != nil:
		return errors.New("must be a map, or an array of NAME=VALUE; found a string")
	case p.Name == "tags":
		maps.Copy(to, p.Map)
		return cmp.Or(converted(p.Array, to.Set)...)
	case p.Name != "namespace":
		return errors.New(`unknown parameter: the supported ones are "tags" and "namespace"`)
	case p.String == nil:
		return errors.New("must be a string")
	}
	*namespace = *p.String
	return checkNamespace(*namespace)
}

// printDiagnostics writes the first diagnostics, up to maxArgoBytes, and the number of the others. It names files relative
// to the top of the repository, because Argo CD's users do not see the plugin's working directory. Without --argocd, it
// writes all diagnostics.
func (a *argocd) printDiagnostics(w io.Writer, diagnostics []v1alpha1.Diagnostic) {
	if !a.enabled {
		printDiagnostics(w, diagnostics)
		return
	}
	left := maxArgoBytes
	for i, d := range diagnostics {
		if d.File != "" {
			d.File = path.Join(os.Getenv(argoPath), d.File)
		}
		line := compile.Format(d)
		left -= len(line)
		if left < 0 {
			fmt.Fprintf(w, "… and %d more: run corral vet\n", len(diagnostics)-i)
			return
		}
		fmt.Fprintln(w, line)
	}
}

// printDiscovered prints the name of a CUE file at or below the folder if any CUE file of the module mentions Corral. It
// evaluates nothing, so that it also discovers repositories that do not compile or that cannot be read completely. The build
// then reports the errors.
func (a *argocd) printDiscovered(w io.Writer, args []string) error {
	if !a.enabled {
		return errors.New("--discover needs --argocd")
	}
	t, err := openTree(folderOf(args))
	if err != nil {
		return err
	}
	files, diagnostics := compile.Gather(t.fsys, t.path)
	file := discovered(files, t.path)
	if file == "" && len(diagnostics) > 0 {
		// Other files may mention Corral. If discovery does not claim the repository, another tool may build it and produce no objects.
		// Argo CD would then prune the running pools.
		file = cmp.Or(diagnostics[0].File, t.path)
	}
	if file != "" {
		_, err = fmt.Fprintln(w, displayPath(t.root, file))
	}
	return err
}

// discovered returns the first CUE file at or below folder, if any of the CUE files mentions Corral's module or API.
// Otherwise it returns "".
func discovered(files compile.Files, folder string) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool {
		return path.Ext(name) != ".cue" || strings.Contains("/"+name, "/cue.mod/")
	})
	first := slices.IndexFunc(names, func(name string) bool { return folder == "." || strings.HasPrefix(name, folder+"/") })
	if first < 0 || !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(string(files[name]), v1alpha1.GroupVersion.Group+"/") }) {
		return ""
	}
	return names[first]
}
