// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
)

// The sources of the example of many teams apply its pools, each with the permissions of its team's account.
func TestTheExampleOfTeamsIsApplied(t *testing.T) {
	example := os.DirFS(filepath.Join("..", "..", "examples", "teams"))
	teams, err := fs.ReadDir(example, "teams")
	must(t, err)
	namespaces := []string{"platform"} // other tests have a namespace runners
	for _, team := range teams {
		namespaces = append(namespaces, "ci-"+team.Name())
	}
	w := newStory(t, namespaces...)
	repository := harness.NewRepository(t)
	repository.Write("cue.mod/module.cue", "module: \"corral.dev/examples/teams@v0\"\nlanguage: version: \"v0.16.0\"\n")
	cluster := t.TempDir()
	here := strings.NewReplacer("https://github.com/acme/runners", repository.URL(), `namespace: "runners"`, `namespace: "platform"`,
		"namespace: runners", "namespace: platform", "{name: runners}", "{name: platform}")
	must(t, fs.WalkDir(example, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(example, name)
		if filepath.Ext(name) == ".cue" {
			repository.Write(name, here.Replace(string(text)))
		}
		if filepath.Dir(name) == "cluster" {
			return os.WriteFile(filepath.Join(cluster, filepath.Base(name)), []byte(here.Replace(string(text))), 0o600)
		}
		return err
	}))
	repository.Push("Twelve teams")
	w.controller(t)
	if out, err := kubectl(t, "", "apply", "--server-side", "-f", cluster); err != nil {
		t.Fatal(out)
	}
	for _, namespace := range namespaces {
		ends(t, namespace)
	}
	want := exampleObjects(t, example)
	eventually(t, func(ctx context.Context) error {
		var got []string
		for _, namespace := range namespaces {
			pools := &v1alpha1.RunnerPoolList{}
			if err := w.Client.List(ctx, pools, client.InNamespace(namespace)); err != nil {
				return err
			}
			for _, p := range pools.Items {
				if p.Namespace != "ci-"+strings.Split(p.Name, "-")[0] {
					return fmt.Errorf("pool %s is in %s", p.Name, p.Namespace)
				}
				got = append(got, p.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("got pools %v, want %v", got, want)
		}
		return w.Client.Get(ctx, key("platform", "acme"), &v1alpha1.GitHubConnection{})
	})
}

// exampleObjects returns the sorted names of an example's pools.
func exampleObjects(t *testing.T, example fs.FS) []string {
	t.Helper()
	text, err := fs.ReadFile(example, "objects.yaml")
	must(t, err)
	var names []string
	for _, document := range strings.Split(string(text), "---\n") {
		p := &v1alpha1.RunnerPool{}
		must(t, yaml.Unmarshal([]byte(document), p))
		if p.Kind == "RunnerPool" {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
