// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/compile"
)

// taggedPool takes two values from tags.
const taggedPool = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	tagged: spec: {
		connectionRef: name: "acme"
		scale: max: *1 | int @tag(max,type=int)
		template: spec: containers: [{name: "runner", image: _image}]
	}
}
_image: *"runner:1" | string @tag(image)
`

// taggedFolder returns a folder with definitions that take values from tags.
func taggedFolder(t *testing.T) string {
	t.Helper()
	return folderWith(t, map[string]string{"pools.cue": taggedPool})
}

func TestArgoCDTakesParametersOfTheApplication(t *testing.T) {
	folder := taggedFolder(t)
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want []string
		err  string
	}{
		"none":              {want: []string{"max: 1\n", "image: runner:1\n"}},
		"tags as a map":     {env: map[string]string{argoParameters: `[{"name":"tags","map":{"max":"7","image":"a=b"}}]`}, want: []string{"max: 7\n", "image: a=b\n"}},
		"tags as an array":  {env: map[string]string{argoParameters: `[{"name":"tags","array":["max=7","image=a=b,c"]}]`}, want: []string{"max: 7\n", "image: a=b,c\n"}},
		"an empty list":     {env: map[string]string{argoParameters: `[]`}, want: []string{"max: 1\n"}},
		"null":              {env: map[string]string{argoParameters: `null`}, want: []string{"max: 1\n"}},
		"variables":         {env: map[string]string{argoTags: `max=7,"image=a,b"`}, want: []string{"max: 7\n", "image: a,b\n"}},
		"parameter wins":    {env: map[string]string{argoTags: "max=7,image=x", argoParameters: `[{"name":"tags","map":{"max":"8"}}]`}, want: []string{"max: 8\n", "image: x\n"}},
		"beside the flags":  {env: map[string]string{argoTags: "max=7"}, args: []string{"--tag", "image=x"}, want: []string{"max: 7\n", "image: x\n"}},
		"a pinned tag":      {env: map[string]string{argoTags: "max=7"}, args: []string{"--tag", "max=1"}, err: `tag "max" is set by the plugin's command, so the Application cannot set it`},
		"a pinned name":     {env: map[string]string{argoNamespace: "mine"}, args: []string{"--namespace", "theirs"}, err: "the namespace is set by the plugin's command"},
		"no such parameter": {env: map[string]string{argoParameters: `[{"name":"tag","map":{"max":"7"}}]`}, err: `parameter "tag" of the Application: unknown parameter: the supported ones are "tags" and "namespace"`},
		"tags as a string":  {env: map[string]string{argoParameters: `[{"name":"tags","string":"max=7"}]`}, err: `parameter "tags" of the Application: must be a map, or an array of NAME=VALUE`},
		"a namespace's map": {env: map[string]string{argoParameters: `[{"name":"namespace","map":{}}]`}, err: `parameter "namespace" of the Application: must be a string`},
		"no such variable":  {env: map[string]string{"ARGOCD_ENV_CORRAL_TAG": "max=7"}, err: "CORRAL_TAG in the Application's plugin.env: unknown variable: only CORRAL_TAGS and CORRAL_NAMESPACE are supported"},
		"no namespace":      {env: map[string]string{argoNamespace: "Bad NS"}, err: `parameter "namespace" of the Application: "Bad NS" is not a valid namespace`},
		"nor as parameter":  {env: map[string]string{argoParameters: `[{"name":"namespace","string":"Bad NS"}]`}, err: `parameter "namespace" of the Application: "Bad NS" is not a valid namespace`},
		"not a pair":        {env: map[string]string{argoParameters: `[{"name":"tags","array":["=x"]}]`}, err: `parameter "tags" of the Application: must be NAME=VALUE or NAME`},
		"a bad variable":    {env: map[string]string{argoTags: `"max`}, err: "reading CORRAL_TAGS of the Application's plugin.env"},
		"not JSON":          {env: map[string]string{argoParameters: `{`}, err: "reading " + argoParameters},
		"an unknown tag":    {env: map[string]string{argoTags: "min=1"}, err: `tag "min" is set, but no field is marked @tag(min)`},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			got := corral(t, folder, append([]string{"build", "--argocd"}, tc.args...)...)
			if tc.err != "" {
				if got.code != exitError || got.stdout != "" || !strings.Contains(got.stderr, tc.err) {
					t.Errorf("got %+v, want %s", got, tc.err)
				}
				return
			}
			for _, want := range tc.want {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("got %s%s, want %q in it", got.stdout, got.stderr, want)
				}
			}
		})
	}
}

func TestWithoutArgoCDItsEnvironmentIsNotRead(t *testing.T) {
	folder := taggedFolder(t)
	before := corral(t, folder, "build")
	t.Setenv(argoTags, "max=7")
	t.Setenv(argoParameters, "{")
	t.Setenv(argoNamespace, "other")
	if diff := cmp.Diff(before, corral(t, folder, "build"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestArgoCDFillsInTheNamespaceOnlyWhenTold(t *testing.T) {
	folder := repositoryOf(t, nil)
	plain := corral(t, folder, "build")
	// Argo CD applies objects without a namespace to the Application's own.
	t.Setenv("ARGOCD_APP_NAMESPACE", "destination")
	if diff := cmp.Diff(plain, corral(t, folder, "build", "--argocd"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	explicit := corral(t, folder, "build", "--namespace", "runners")
	t.Setenv(argoParameters, `[{"name":"namespace","string":"runners"}]`)
	if diff := cmp.Diff(explicit, corral(t, folder, "build", "--argocd"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestArgoCDIsToldWhatIsWrong(t *testing.T) {
	repository := repositoryOf(t, map[string]string{"pools/broken.cue": brokenPool})
	t.Setenv(argoPath, "pools")
	got := corral(t, filepath.Join(repository, "pools"), "build", "--argocd", ".")
	want := outcome{stderr: "pools/broken.cue:5:18: pools.broken.spec.scale.min: min 2 is above max 1\nError: 1 problem\n", code: exitError}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestArgoCDIsNotToldTooMuch(t *testing.T) {
	var text strings.Builder
	text.WriteString("package pools\n")
	for i := range 90 {
		fmt.Fprintf(&text, "pools: p%02d: spec: {connectionRef: name: \"acme\", %s: 1, template: spec: containers: [{name: \"runner\"}]}\n", i, strings.Repeat("x", 900))
	}
	got := corral(t, repositoryOf(t, map[string]string{"pools/broken.cue": text.String()}), "build", "--argocd")
	if got.code != exitError || got.stdout != "" || len(got.stderr) > maxArgoBytes+1000 || !strings.Contains(got.stderr, " more: run corral vet\nError: ") {
		t.Errorf("code %d, %d bytes: %.2000s", got.code, len(got.stderr), got.stderr)
	}
}

func TestArgoCDDiscovers(t *testing.T) {
	const chart, helper = "name: web\n", "package helper\n\n#max: 3\n"
	repository := folderWith(t, map[string]string{
		"cue.mod/module.cue":      "module: \"acme.example/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"runners/linux/pools.cue": taggedPool,
		"runners/team/more.cue":   "package pools\n\npools: {", // broken, but does not mention Corral
		"web/Chart.yaml":          chart,
		"other/cue.mod/module.cue": "module: \"acme.example/other@v0\"\nlanguage: version: \"v0.17.0\"\n" +
			"deps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n",
		"other/helper.cue": helper,
	})
	for folder, want := range map[string]string{
		".":             "other/helper.cue\n",
		"runners":       "linux/pools.cue\n",
		"runners/linux": "pools.cue\n",
		"runners/team":  "more.cue\n",
		"web":           "",
		"other":         "",
	} {
		t.Run(folder, func(t *testing.T) {
			got := corral(t, filepath.Join(repository, folder), "build", "--argocd", "--discover")
			if diff := cmp.Diff(outcome{stdout: want}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := corral(t, repository, "build", "--discover"); got.code != exitError || got.stdout != "" {
		t.Errorf("got %+v", got)
	}
}

// If discovery does not claim a repository of Corral, Argo CD builds it with another tool. That tool produces no
// objects, and Argo CD prunes the running ones.
func TestArgoCDDiscoversWhatCantBeRead(t *testing.T) {
	for name, breakFolder := range map[string]func(folder string) error{
		"too large a file": func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "a.cue"), bytes.Repeat([]byte("/"), compile.MaxFileBytes+1), 0o600)
		},
		"a link out of the tree": func(folder string) error { return os.Symlink("/etc/hostname", filepath.Join(folder, "a.cue")) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := taggedFolder(t)
			if err := breakFolder(folder); err != nil {
				t.Fatal(err)
			}
			got := corral(t, folder, "build", "--argocd", "--discover")
			if diff := cmp.Diff(outcome{stdout: "a.cue\n"}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
			if got := corral(t, folder, "build", "--argocd"); got.code != exitError || !strings.HasPrefix(got.stderr, "a.cue: ") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The commands and parameters in the example's plugin.yaml exist.
func TestThePluginOfTheExampleRuns(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join(top, "examples", "argocd"))
	if err != nil {
		t.Fatal(err)
	}
	type command struct{ Command []string }
	var config struct {
		Spec struct {
			Discover   struct{ Find command }
			Generate   command
			Parameters struct {
				Static []struct{ Name, CollectionType string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(folder, "install", "plugin.yaml"))), &config); err != nil {
		t.Fatal(err)
	}
	if got := corral(t, folder, config.Spec.Discover.Find.Command[1:]...); got.code != exitOK || got.stdout != "pools.cue\n" {
		t.Errorf("got %+v", got)
	}
	if got, want := corral(t, folder, config.Spec.Generate.Command[1:]...), corral(t, folder, "build"); got != want || got.code != exitOK {
		t.Errorf("got %+v", got)
	}
	for _, p := range config.Spec.Parameters.Static {
		value := map[string]string{"map": `"map":{}`, "array": `"array":[]`, "string": `"string":"x"`}[p.CollectionType]
		t.Setenv(argoParameters, fmt.Sprintf(`[{"name":%q,%s}]`, p.Name, value))
		if got := corral(t, folder, config.Spec.Generate.Command[1:]...); got.code != exitOK {
			t.Errorf("parameter %s: %+v", p.Name, got)
		}
	}
}
