// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cueformat "cuelang.org/go/cue/format"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/test/golden"
)

const top = "../.."

func TestExamplesCompileToTheirObjects(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(top, "examples", "*", "README.md"))
	if err != nil || len(folders) < 5 {
		t.Fatalf("got %d examples, %v", len(folders), err)
	}
	for _, readme := range folders {
		folder, err := filepath.Abs(filepath.Dir(readme))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(folder), func(t *testing.T) {
			got := corral(t, folder, "build")
			if got.code != exitOK {
				t.Fatal(got.stderr)
			}
			golden.Compare(t, filepath.Join(folder, "objects.yaml"), got.stdout)
			if pods := filepath.Join(folder, "pods.yaml"); fileExists(pods) {
				golden.Compare(t, pods, corral(t, folder, "build", "--pods").stdout)
			}
			checkTypes(t, got.stdout)
			for _, command := range []string{"vet", "test"} {
				if got := corral(t, folder, command); got.code != exitOK {
					t.Errorf("%s: %s%s", command, got.stdout, got.stderr)
				}
			}
		})
	}
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// checkTypes decodes objects into the Go types strictly, so that unknown fields are errors.
func checkTypes(t *testing.T, documents string) {
	t.Helper()
	for document := range strings.SplitSeq(strings.TrimPrefix(documents, "---\n"), "---\n") {
		var into any = &v1alpha1.GitHubConnection{}
		var pool v1alpha1.RunnerPool
		switch {
		case strings.Contains(document, "\nkind: RunnerPool\n"):
			into = &pool
		case strings.Contains(document, "\nkind: RunnerPolicy\n"):
			into = &v1alpha1.RunnerPolicy{}
		case strings.Contains(document, "\nkind: ServiceAccount\n"):
			into = &corev1.ServiceAccount{}
		case strings.Contains(document, "\nkind: Role\n"):
			into = &rbacv1.Role{}
		case strings.Contains(document, "\nkind: RoleBinding\n"):
			into = &rbacv1.RoleBinding{}
		}
		if err := yaml.UnmarshalStrict([]byte(document), v1alpha1.Strict(into)); err != nil {
			t.Error(err)
		}
		if into == &pool {
			if err := yaml.UnmarshalStrict(pool.Spec.Template.Raw, &corev1.PodTemplateSpec{}); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheDemoTakesItsValuesFromTags(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join(top, "examples", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	if got := corral(t, folder, "build", "--tag", "url=http://127.0.0.1:1/acme,image=simulated"); got.code != exitOK {
		t.Error(got.stderr)
	}
}

func TestDefinitionsAreFormatted(t *testing.T) {
	for _, folder := range []string{"schema", "examples", "internal/cli/new"} {
		err := filepath.WalkDir(filepath.Join(top, folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".cue" {
				return err
			}
			text := readFile(t, name)
			formatted, err := cueformat.Source([]byte(text))
			if err != nil {
				return err
			}
			if diff := cmp.Diff(string(formatted), text); diff != "" {
				t.Errorf("%s: cue fmt would change it:\n%s", name, diff)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
