// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/golden"
)

// UPDATE_GOLDEN=1 rewrites the file. The generated CRDs and RBAC rules are left out, because they change with the
// Go types.
func TestDefaultRender(t *testing.T) {
	rendered := render(t, nil)
	notes := rendered["NOTES.txt"]
	delete(rendered, "crds.yaml")
	delete(rendered, "role.yaml")
	got := rendered.Manifest() + "# NOTES.txt\n#\n# " + strings.ReplaceAll(strings.TrimSpace(notes), "\n", "\n# ") + "\n"
	golden.Compare(t, filepath.Join("..", "..", "charts", "default.yaml"), got)
}

func TestDefinitionsAreKeptOnUninstall(t *testing.T) {
	for name, keep := range map[string]bool{"by default": true, "unless told otherwise": false} {
		t.Run(name, func(t *testing.T) {
			count := 0
			for key, object := range objects(t, render(t, map[string]any{"crds": map[string]any{"keep": keep}})) {
				if object.GetKind() != "CustomResourceDefinition" {
					continue
				}
				count++
				if kept := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"; kept != keep {
					t.Errorf("%s: kept %t, want %t", key, kept, keep)
				}
			}
			if files := generated(t, "crds"); count != len(files) {
				t.Errorf("rendered %d of %d CRDs", count, len(files))
			}
		})
	}
}

func TestDefinitionsAreThoseGenerated(t *testing.T) {
	all := objects(t, render(t, nil))
	for file, want := range generated(t, "crds") {
		got := all["CustomResourceDefinition /"+want.GetName()]
		if got == nil {
			t.Errorf("%s isn't rendered", file)
			continue
		}
		if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	}
}

func TestRulesAreThoseGenerated(t *testing.T) {
	features := map[string]any{}
	for path := range rulesOf {
		set(features, path, true)
	}
	got := objects(t, render(t, features))["ClusterRole /corral"]
	if diff := cmp.Diff(rules(generated(t, "rbac")["role.yaml"]), rules(got)); diff != "" {
		t.Error(diff)
	}
}

// rulesOf maps each value that grants permissions to a substring that all of its rules share.
var rulesOf = map[string]string{
	"flux.enabled":            "[source.toolkit.fluxcd.io]/",
	"impersonation.enabled":   ": [impersonate]",
	"externalMetrics.enabled": "[external.metrics.k8s.io]/",
}

func TestAFeatureThatIsOffIsGrantedNothingAndTakesNothingElseAlong(t *testing.T) {
	all := rules(generated(t, "rbac")["role.yaml"])
	for off, part := range rulesOf {
		t.Run(off, func(t *testing.T) {
			features := map[string]any{}
			for path := range rulesOf {
				set(features, path, path != off)
			}
			got := rules(objects(t, render(t, features))["ClusterRole /corral"])
			want := slices.DeleteFunc(slices.Clone(all), func(rule string) bool { return strings.Contains(rule, part) })
			if diff := cmp.Diff(want, got); diff != "" || len(want) == len(all) {
				t.Errorf("%d rules are of the feature:\n%s", len(all)-len(want), diff)
			}
		})
	}
}

func TestKubernetesOwnRolesMayWorkWithCorralsKinds(t *testing.T) {
	all := objects(t, render(t, nil))
	for role, want := range map[string][]string{
		"view":  {"[corral.dev]/* <nil>: [get list watch]"},
		"edit":  {"[corral.dev]/runnerpolicies <nil>: [create update patch delete deletecollection]", "[corral.dev]/runnerpools <nil>: [create update patch delete deletecollection]", "[corral.dev]/runnerpools/scale <nil>: [create update patch delete deletecollection]"},
		"admin": {"[corral.dev]/githubconnections <nil>: [create update patch delete deletecollection]", "[corral.dev]/poolsources <nil>: [create update patch delete deletecollection]"},
	} {
		object := all["ClusterRole /corral-"+role]
		if diff := cmp.Diff(want, rules(object)); diff != "" {
			t.Errorf("%s: %s", role, diff)
		}
	}
	for name := range objects(t, render(t, map[string]any{"aggregatedRoles": false})) {
		if strings.HasPrefix(name, "ClusterRole /corral-") {
			t.Errorf("%s is rendered without aggregatedRoles", name)
		}
	}
}

func TestWatchedNamespacesGetRolesOfTheirOwn(t *testing.T) {
	all := objects(t, render(t, map[string]any{"watchNamespaces": []any{"team-a", "team-b"}, "crds": map[string]any{"install": false}, "admission": map[string]any{"install": false}}))
	want := []string{
		"ClusterRole /corral", "ClusterRole /corral-admin", "ClusterRole /corral-edit", "ClusterRole /corral-view", "ClusterRoleBinding /corral",
		"Deployment corral-system/corral",
		"Role corral-system/corral-leader", "Role default/corral-events", "Role team-a/corral", "Role team-b/corral",
		"RoleBinding corral-system/corral-leader", "RoleBinding default/corral-events", "RoleBinding team-a/corral", "RoleBinding team-b/corral",
		"Service corral-system/corral-metrics", "ServiceAccount corral-system/corral",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
		t.Fatal(diff)
	}
	remaining := []string{
		"[]/namespaces [kube-system]: [get]",
		"[]/nodes <nil>: [get]",
		"[corral.dev]/clusterrunnerpolicies <nil>: [list watch]",
		"[corral.dev]/clusterrunnerpolicies/status <nil>: [patch]",
	}
	if diff := cmp.Diff(remaining, rules(all["ClusterRole /corral"])); diff != "" {
		t.Errorf("remaining cluster-wide permissions:\n%s", diff)
	}
	for _, role := range []string{"Role team-a/corral", "Role team-b/corral"} {
		together := slices.Sorted(slices.Values(append(rules(all[role]), remaining...)))
		if diff := cmp.Diff(rules(objects(t, render(t, nil))["ClusterRole /corral"]), together); diff != "" {
			t.Errorf("permissions of %s and the ClusterRole, compared with the permissions without a list of namespaces:\n%s", role, diff)
		}
	}
	events := []string{"[events.k8s.io]/events <nil>: [create patch]"}
	if diff := cmp.Diff(events, rules(all["Role default/corral-events"])); diff != "" {
		t.Errorf("permissions in the namespace for events about ClusterRunnerPolicies:\n%s", diff)
	}
	for key, object := range all {
		if !strings.Contains(object.GetKind(), "Binding") {
			continue
		}
		subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
		account := []any{map[string]any{"kind": "ServiceAccount", "name": "corral", "namespace": namespace}}
		if diff := cmp.Diff(account, subjects); err != nil || diff != "" {
			t.Errorf("subjects of %s (%v):\n%s", key, err, diff)
		}
	}
}

func TestEventsHaveNoRoleOfTheirOwnWhereTheyAreGrantedAnyway(t *testing.T) {
	for name, watched := range map[string][]any{"everywhere": {}, "watched": {"default", "team-a"}} {
		t.Run(name, func(t *testing.T) {
			for key := range objects(t, render(t, map[string]any{"watchNamespaces": watched})) {
				if strings.HasSuffix(key, " default/corral-events") {
					t.Errorf("%s grants no additional permission", key)
				}
			}
		})
	}
}

func TestNothingHooksIntoHelmOrHoldsBackDeletion(t *testing.T) {
	for _, template := range load(t).Templates {
		if strings.Contains(string(template.Data), "lookup") {
			t.Errorf("%s queries the cluster, so it renders differently with GitOps tools", template.Name)
		}
	}
	for key, object := range objects(t, render(t, everything(t))) {
		if len(object.GetFinalizers()) > 0 {
			t.Errorf("%s has finalizers", key)
		}
		for annotation := range object.GetAnnotations() {
			if strings.HasPrefix(annotation, "helm.sh/hook") {
				t.Errorf("%s has %s", key, annotation)
			}
		}
	}
}

func TestPodLabelsDoNotReplaceThoseOfTheSelector(t *testing.T) {
	rendered := render(t, map[string]any{"podLabels": map[string]any{"app.kubernetes.io/name": "other"}})
	if strings.Contains(rendered.Manifest(), "app.kubernetes.io/name: other") {
		t.Error("the Deployment would not select its own pods")
	}
}

func TestControllerTakesTheArguments(t *testing.T) {
	corral, err := harness.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		values     map[string]any
		deployment string
	}{
		"default":        {deployment: "corral"},
		"everything set": {values: everything(t), deployment: "runners"},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := objects(t, render(t, tc.values))["Deployment "+namespace+"/"+tc.deployment]
			if deployment == nil {
				t.Fatalf("there is no Deployment %s", tc.deployment)
			}
			// With --help, corral parses its flags and exits.
			args := append(containerArgs(t, deployment), "--help")
			if out, err := exec.CommandContext(t.Context(), corral, args...).CombinedOutput(); err != nil {
				t.Errorf("corral %q: %v\n%s", args, err, out)
			}
		})
	}
}

// flagsWithoutValue lists the controller's flags that no chart value sets.
var flagsWithoutValue = []string{
	"allow-file-sources",   // for development only
	"help",                 // prints the usage
	"kubeconfig",           // the pod's ServiceAccount is used
	"remote-log-level",     // localhost is enough: kubectl port-forward
	"webhook-advertise-ip", // the pod's address is in POD_IP
}

func TestEachFlagOfTheControllerHasAValue(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../docs/reference/cli/corral_controller.md"))
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+)`).FindAllStringSubmatch(string(text), -1) {
		flags[m[1]] = true
	}
	if len(flags) < len(flagsWithoutValue) {
		t.Fatalf("flags are %v", flags)
	}
	for _, arg := range containerArgs(t, objects(t, render(t, everything(t)))["Deployment "+namespace+"/runners"]) {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		delete(flags, name)
	}
	delete(flags, "no-cross-namespace-refs") // everything() leaves this value at its default
	if diff := cmp.Diff(flagsWithoutValue, slices.Sorted(maps.Keys(flags))); diff != "" {
		t.Errorf("flags without a value:\n%s", diff)
	}
}

func containerArgs(t *testing.T, deployment *unstructured.Unstructured) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers (%v), want 1", len(containers), err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil || len(args) == 0 {
		t.Fatalf("no arguments (%v)", err)
	}
	return args
}

// generated returns the objects in a folder of generated files, by file name.
func generated(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	dir := "corral/files/" + folder
	files, err := charts.Corral.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".yaml" {
			continue
		}
		text, err := charts.Corral.ReadFile(dir + "/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		all[file.Name()] = object
	}
	return all
}

// rules lists what a role allows, one entry per resource, so that the grouping of rules does not matter.
func rules(role *unstructured.Unstructured) []string {
	list, _, err := unstructured.NestedSlice(role.Object, "rules")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, rule := range list {
		r := rule.(map[string]any)
		resources, _ := r["resources"].([]any)
		for _, resource := range resources {
			out = append(out, fmt.Sprintf("%v/%v %v: %v", r["apiGroups"], resource, r["resourceNames"], r["verbs"]))
		}
	}
	slices.Sort(out)
	return out
}
