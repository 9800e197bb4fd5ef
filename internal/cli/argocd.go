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

// What Argo CD sets for a config management plugin:
// https://argo-cd.readthedocs.io/en/stable/operator-manual/config-management-plugins/
const (
	// argoParameters holds spec.source.plugin.parameters of the Application as JSON.
	argoParameters = "ARGOCD_APP_PARAMETERS"
	// argoPath is the Application's folder in its repository.
	argoPath = "ARGOCD_APP_SOURCE_PATH"
	// argoTags and argoNamespace are CORRAL_TAGS and CORRAL_NAMESPACE in spec.source.plugin.env: Argo CD
	// puts a prefix before each name, so that an Application can't set PATH.
	argoVariable  = "ARGOCD_ENV_"
	argoTags      = argoVariable + "CORRAL_TAGS"
	argoNamespace = argoVariable + "CORRAL_NAMESPACE"
)

// maxArgoBytes bounds the diagnostics that are printed for Argo CD: it copies them into the
// Application's status.
const maxArgoBytes = 16 << 10

// argocd makes build the command of a config management plugin.
type argocd struct {
	enabled, discover bool
}

func bindArgoCD(c *cobra.Command) *argocd {
	a := &argocd{}
	c.Flags().BoolVar(&a.enabled, "argocd", false, "run as an Argo CD config management plugin: take parameters from its environment")
	c.Flags().BoolVar(&a.discover, "discover", false, "with --argocd: print a file if there are definitions in DIR, else nothing")
	return a
}

// apply adds what the Application sets to what the command line says. Whoever writes the plugin's
// command runs the cluster, whoever writes the Application need not: the latter adds, and
// changes nothing.
func (a *argocd) apply(d *definitions, namespace *string) error {
	if !a.enabled {
		return nil
	}
	set, err := readArgoSettings()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(set.tags)) {
		if _, pinned := d.tags[name]; pinned {
			return fmt.Errorf("tag %q is set by the plugin's own command, the Application can't set it", name)
		}
	}
	if set.namespace != "" && *namespace != "" {
		return errors.New("the namespace is set by the plugin's own command, the Application can't set it")
	}
	if d.tags == nil {
		d.tags = tags{}
	}
	maps.Copy(d.tags, set.tags)
	*namespace += set.namespace
	return nil
}

// argoSettings are what an Application sets.
type argoSettings struct {
	tags      map[string]string
	namespace string
}

// parameter is one of an Application's: a string, an array or a map.
type parameter struct {
	Name   string            `json:"name"`
	String *string           `json:"string"`
	Array  []string          `json:"array"`
	Map    map[string]string `json:"map"`
}

// readArgoSettings reads plugin.env, and plugin.parameters over it.
func readArgoSettings() (argoSettings, error) {
	s := argoSettings{tags: map[string]string{}, namespace: os.Getenv(argoNamespace)}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, argoVariable+"CORRAL_") && name != argoTags && name != argoNamespace {
			return s, fmt.Errorf("%s in the Application's plugin.env: there is no such variable; there are CORRAL_TAGS and CORRAL_NAMESPACE",
				strings.TrimPrefix(name, argoVariable))
		}
	}
	if err := checkNamespace(s.namespace); err != nil {
		return s, fmt.Errorf("CORRAL_NAMESPACE of the Application's plugin.env: %w", err)
	}
	if text := os.Getenv(argoTags); text != "" {
		pairs, err := csv.NewReader(strings.NewReader(text)).Read()
		if err == nil {
			err = s.addTags(pairs)
		}
		if err != nil {
			return s, fmt.Errorf("reading CORRAL_TAGS of the Application's plugin.env: %w", err)
		}
	}
	text := os.Getenv(argoParameters)
	if text == "" {
		return s, nil
	}
	var all []parameter
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return s, fmt.Errorf("reading %s: %w", argoParameters, err)
	}
	for _, p := range all {
		if err := s.set(p); err != nil {
			return s, fmt.Errorf("parameter %q of the Application: %w", p.Name, err)
		}
	}
	return s, nil
}

func (s *argoSettings) set(p parameter) error {
	switch p.Name {
	case "tags":
		if p.String != nil {
			return errors.New("must be a map, or an array of NAME=VALUE; found a string")
		}
		maps.Copy(s.tags, p.Map)
		return s.addTags(p.Array)
	case "namespace":
		if p.String == nil {
			return errors.New("must be a string")
		}
		s.namespace = *p.String
		return checkNamespace(s.namespace)
	}
	return errors.New(`there is no such parameter; there are "tags" and "namespace"`)
}

func (s *argoSettings) addTags(pairs []string) error {
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE", pair)
		}
		s.tags[name] = value
	}
	return nil
}

// printDiagnostics writes diagnostics for people, as many as Argo CD can show, their files named as
// seen from the top of the repository: that is where they will be looked for.
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
		if left -= len(line); left < 0 {
			fmt.Fprintf(w, "… and %d more: run corral vet\n", len(diagnostics)-i)
			return
		}
		fmt.Fprintln(w, line)
	}
}

// printDiscovered prints a file of CUE at or below the folder, if the module around it speaks of
// Corral. Nothing is evaluated: a broken repository is one with definitions too, and its
// errors are shown when it is built. So is one that can't be read through.
func (a *argocd) printDiscovered(w io.Writer, args []string) error {
	if !a.enabled {
		return errors.New("--discover needs --argocd")
	}
	rootPath, folder, err := locate(strings.Join(append(args, "."), "/"))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return fmt.Errorf("opening the definitions: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written
	files, diagnostics := compile.Gather(root.FS(), folder)
	file := discovered(files, folder)
	if file == "" && len(diagnostics) > 0 {
		// Nobody knows what the rest holds. What is wrong is said when it is built, while a repository that is passed over may be
		// built by a tool that makes nothing of it, and what runs is pruned.
		file = cmp.Or(diagnostics[0].File, folder)
	}
	if file != "" {
		_, err = fmt.Fprintln(w, shown(rootPath, file))
	}
	return err
}

// discovered returns the first file of CUE at or below folder, if one of all files mentions Corral's
// module or API; else "".
func discovered(files compile.Files, folder string) string {
	first, ours := "", false
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".cue" || strings.Contains("/"+name, "/cue.mod/") {
			continue
		}
		ours = ours || strings.Contains(string(files[name]), v1alpha1.GroupVersion.Group+"/")
		if first == "" && (folder == "." || strings.HasPrefix(name, folder+"/")) {
			first = name
		}
	}
	if !ours {
		return ""
	}
	return first
}
