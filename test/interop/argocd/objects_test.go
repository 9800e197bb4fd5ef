// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package argocd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/lua"
	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// customizations is the folder with the health scripts, laid out like Argo CD's own resource_customizations.
var customizations = filepath.Join(top, "examples", "argocd", "resource_customizations")

// same fails the test unless Argo CD received exactly the given YAML documents.
func same(t *testing.T, documents string, got []string) {
	t.Helper()
	want, err := kube.SplitYAMLToString([]byte(documents))
	if err != nil || len(want) == 0 {
		t.Fatalf("%d documents, %v", len(want), err)
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
}

// object reads an object from a YAML file. Going through JSON gives its numbers the types that a client produces.
func object(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		data, err = yaml.YAMLToJSON(data)
	}
	o := &unstructured.Unstructured{}
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	return o
}

// overrides returns the health scripts in the patch of argocd-cm, parsed as Argo CD's settings store them.
func overrides(t *testing.T) map[string]v1alpha1.ResourceOverride {
	t.Helper()
	var config struct{ Data map[string]string }
	read(t, filepath.Join(top, "examples", "argocd", "install", "argocd-cm.yaml"), &config)
	all := map[string]v1alpha1.ResourceOverride{}
	for key, script := range config.Data {
		const prefix = "resource.customizations.health.corral.dev_"
		if len(key) <= len(prefix) || key[:len(prefix)] != prefix {
			t.Errorf("argocd-cm.yaml sets the unexpected key %s", key)
			continue
		}
		all["corral.dev/"+key[len(prefix):]] = v1alpha1.ResourceOverride{HealthLua: script}
	}
	return all
}

// Each health script returns the status that its test data expects. The test runs every script twice: as a
// built-in customization, and as an override from argocd-cm through Argo CD's full health assessment.
func TestHealthScriptsInArgosOwnMachine(t *testing.T) {
	set := overrides(t)
	scripts, err := filepath.Glob(filepath.Join(customizations, "*", "*", "health.lua"))
	if err != nil || len(scripts) != 7 || len(set) != 7 {
		t.Fatalf("%d scripts, %d in argocd-cm.yaml, %v", len(scripts), len(set), err)
	}
	seen := map[health.HealthStatusCode]int{}
	for _, file := range scripts {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tests struct {
			Tests []struct {
				InputPath    string              `json:"inputPath"`
				HealthStatus health.HealthStatus `json:"healthStatus"`
			} `json:"tests"`
		}
		read(t, filepath.Join(filepath.Dir(file), "health_test.yaml"), &tests)
		if len(tests.Tests) == 0 {
			t.Errorf("%s has no tests", file)
		}
		for _, tc := range tests.Tests {
			t.Run(filepath.Join(filepath.Base(filepath.Dir(file)), tc.InputPath), func(t *testing.T) {
				o := object(t, filepath.Join(filepath.Dir(file), tc.InputPath))
				alone, err := lua.VM{UseOpenLibs: true}.ExecuteHealthLua(o, string(script))
				if err != nil {
					t.Fatal(err)
				}
				set, err := health.GetResourceHealth(o, lua.ResourceHealthOverrides(set))
				if err != nil {
					t.Fatal(err)
				}
				for _, got := range []*health.HealthStatus{alone, set} {
					if d := gocmp.Diff(&tc.HealthStatus, got); d != "" {
						t.Error(d)
					}
				}
				seen[tc.HealthStatus.Status]++
			})
		}
	}
	for _, status := range []health.HealthStatusCode{health.HealthStatusHealthy, health.HealthStatusProgressing, health.HealthStatusDegraded, health.HealthStatusSuspended} {
		if seen[status] == 0 {
			t.Errorf("no recorded object has the status %s", status)
		}
	}
}

// Argo CD reports no difference for live objects, although Corral and the API server added fields to them. No
// ignoreDifferences setting is needed.
func TestNothingIsToBeIgnored(t *testing.T) {
	live, err := filepath.Glob(filepath.Join("testdata", "live", "*.yaml"))
	if err != nil || len(live) < 4 {
		t.Fatalf("%d recorded objects, %v", len(live), err)
	}
	for _, file := range live {
		t.Run(filepath.Base(file), func(t *testing.T) {
			o := object(t, file)
			target := object(t, filepath.Join("testdata", "target", filepath.Base(file)))
			none, err := normalizers.NewIgnoreNormalizer(nil, map[string]v1alpha1.ResourceOverride{}, normalizers.IgnoreNormalizerOpts{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := diff.Diff(target, o, diff.WithNormalizer(none))
			if err != nil {
				t.Fatal(err)
			}
			if result.Modified {
				t.Errorf("%s\n%s", result.NormalizedLive, result.PredictedLive)
			}
		})
	}
}
