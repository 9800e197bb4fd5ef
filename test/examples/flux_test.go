// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package examples validates the manifests next to the examples against the types and tools that read them.
package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/hack/helmchart"
)

const flux = "../../examples/flux"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(flux, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// known maps kinds to the Go types that validate them. The types of kustomize-controller and
// notification-controller are missing, because Corral does not depend on their modules.
var known = map[string]func() any{
	"GitRepository": func() any { return &sourcev1.GitRepository{} }, "OCIRepository": func() any { return &sourcev1.OCIRepository{} },
	"PoolSource": func() any { return &v1alpha1.PoolSource{} }, "NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
	"ClusterRole": func() any { return &rbacv1.ClusterRole{} }, "ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
}

func TestFluxManifestsAreWhatTheirKindsTake(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(flux, "cluster", "*.yaml"))
	if err != nil || len(names) < 5 {
		t.Fatalf("got %v, %v", names, err)
	}
	seen := map[string]int{}
	for _, name := range append(names, filepath.Join(flux, "notifications", "rbac.yaml")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			meta := metav1.PartialObjectMetadata{}
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil || meta.Name == "" || meta.APIVersion == "" {
				t.Errorf("%s: %v, %+v", name, err, meta)
			}
			seen[meta.Kind]++
			if made, ok := known[meta.Kind]; ok {
				if err := yaml.UnmarshalStrict([]byte(document), v1alpha1.Strict(made())); err != nil {
					t.Errorf("%s: %s: %v", name, meta.Kind, err)
				}
			}
		}
	}
	for kind := range known {
		if seen[kind] == 0 {
			t.Errorf("there is no %s", kind)
		}
	}
}

func TestTheChartTakesWhatTheHelmReleaseSets(t *testing.T) {
	_, document, _ := strings.Cut(read(t, "cluster/corral.yaml"), "\n---\n")
	var release struct {
		Spec struct {
			ReleaseName, TargetNamespace string
			Chart                        struct{ Spec struct{ Chart string } }
			Values                       map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(document), &release); err != nil {
		t.Fatal(err)
	}
	chart, err := helmchart.Load(os.DirFS(filepath.Join("../..", release.Spec.Chart.Spec.Chart)))
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := helmchart.Render(t.Context(), chart, release.Spec.ReleaseName, release.Spec.TargetNamespace, release.Spec.Values)
	if err != nil || !strings.Contains(rendered.Manifest(), `image: "registry.example.com/corral:dev"`) {
		t.Errorf("rendered: %v", err)
	}
}

// definition returns the part of a Flux CRD that the component patches.
func definition(plural, version, list string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.notification.toolkit.fluxcd.io}
spec:
  versions:
    - name: %s
      schema: {openAPIV3Schema: {properties: {spec: {properties: {%s: {items: {properties: {kind: {enum: [GitRepository, Kustomization]}}}}}}}}}
`, plural, version, list)
}

// build runs kustomize as Flux's bootstrap does. The CRDs contain the given version of Alert.
func build(t *testing.T, alerts string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	disk := filesys.MakeFsInMemory()
	for name, text := range map[string]string{
		"/flux-system/alerts.yaml":          definition("alerts", alerts, "eventSources"),
		"/flux-system/receivers.yaml":       definition("receivers", "v1", "resources"),
		"/flux-system/kustomization.yaml":   "resources: [alerts.yaml, receivers.yaml]\ncomponents: [../notifications]\n",
		"/notifications/kustomization.yaml": read(t, "notifications/kustomization.yaml"),
		"/notifications/rbac.yaml":          read(t, "notifications/rbac.yaml"),
	} {
		if err := disk.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/flux-system")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, resource := range made.Resources() {
		content, err := resource.Map()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}

func TestTheComponentLetsAlertsAndReceiversNameOurKinds(t *testing.T) {
	objects, err := build(t, "v1beta3")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetName()
		got[name] = ""
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, version := range versions {
			for _, list := range []string{"eventSources", "resources"} {
				enum, found, err := unstructured.NestedStringSlice(version.(map[string]any),
					"schema", "openAPIV3Schema", "properties", "spec", "properties", list, "items", "properties", "kind", "enum")
				if err != nil {
					t.Fatal(err)
				}
				if found {
					got[name] = strings.Join(enum, " ")
				}
			}
		}
	}
	want := map[string]string{
		"CustomResourceDefinition alerts.notification.toolkit.fluxcd.io":    "GitRepository Kustomization PoolSource RunnerPool GitHubConnection RunnerPolicy",
		"CustomResourceDefinition receivers.notification.toolkit.fluxcd.io": "GitRepository Kustomization PoolSource",
		"ClusterRole notification-controller-corral":                        "",
		"ClusterRoleBinding notification-controller-corral":                 "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheComponentChangesNoOtherVersion(t *testing.T) {
	if _, err := build(t, "v1beta2"); err == nil {
		t.Error("the patch applies to a CRD of another version")
	}
}
