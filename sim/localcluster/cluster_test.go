// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const definition = `
apiVersion: example.test/v1
kind: Widget
metadata: {name: w, namespace: widgets}
spec: {size: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: widgets}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.test}
spec:
  group: example.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const reader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAMESPACE}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: NAMESPACE}
`

// cluster is shared by all tests of the package; each test uses its own namespace.
var cluster *Cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	cluster, err = Start(context.Background(), Options{ControllerManager: true, Manifests: [][]byte{[]byte(definition)}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// newNamespace creates a namespace that no other test uses.
func newNamespace(t *testing.T) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:10])
	if err := cluster.CreateNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServiceAccountHasItsRightsAndNoMore(t *testing.T) {
	ctx, namespace := t.Context(), newNamespace(t)
	if err := cluster.Apply(ctx, []byte(strings.ReplaceAll(reader, "NAMESPACE", namespace))); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.ServiceAccountConfig(ctx, namespace, "reader")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	fromFile, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"in memory": config, "from a kubeconfig file": fromFile} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, config)
			if err := c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace)); err != nil {
				t.Errorf("listing what the role allows: %v", err)
			}
			if err := c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)); !apierrors.IsForbidden(err) {
				t.Errorf("listing what no role allows: %v, want forbidden", err)
			}
			if err := c.List(t.Context(), &corev1.ConfigMapList{}); !apierrors.IsForbidden(err) {
				t.Errorf("listing all namespaces: %v, want forbidden", err)
			}
		})
	}
}

func TestUnknownServiceAccountIsRefused(t *testing.T) {
	if _, err := cluster.ServiceAccountConfig(t.Context(), "default", "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestAdminKubeconfigReachesTheCluster(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, config).List(t.Context(), &corev1.SecretList{}); err != nil {
		t.Error(err)
	}
}

func TestAnonymousIsRefused(t *testing.T) {
	c := newClient(t, rest.AnonymousClientConfig(cluster.Config))
	if err := c.List(t.Context(), &corev1.ConfigMapList{}); err == nil {
		t.Error("listing succeeded without credentials")
	}
}

func TestApplyIsIdempotentAndReportsTheObject(t *testing.T) {
	namespace := newNamespace(t)
	tests := map[string]struct {
		manifest string
		want     string
	}{
		"first":        {manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {k: v}}"},
		"again":        {manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {k: v}}"},
		"empty":        {manifest: "---\n# nothing\n---\n"},
		"unknown kind": {manifest: "{apiVersion: v1, kind: Gadget, metadata: {name: a, namespace: NAMESPACE}}", want: "applying Gadget NAMESPACE/a"},
		"not YAML":     {manifest: "{", want: "decoding a manifest"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("NAMESPACE", namespace)
			err := cluster.Apply(t.Context(), []byte(fill.Replace(tc.manifest)))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), fill.Replace(tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNamespaceDeletionRemovesWhatItHolds(t *testing.T) {
	ctx, namespace := t.Context(), newNamespace(t)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := cluster.client.Delete(ctx, object); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, object)
}

func TestGarbageCollectionKnowsKindsAppliedAtStart(t *testing.T) {
	ctx := t.Context()
	owner := &unstructured.Unstructured{}
	owner.SetAPIVersion("example.test/v1")
	owner.SetKind("Widget")
	if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "widgets", Name: "w"}, owner); err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "widgets", Name: "owned",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
	}}
	if err := cluster.client.Create(ctx, owned); err != nil {
		t.Fatal(err)
	}
	if err := cluster.client.Delete(ctx, owner); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, owned)
}

func waitUntilGone(t *testing.T, object client.Object) {
	t.Helper()
	err := poll(t.Context(), func(ctx context.Context) (bool, error) {
		err := cluster.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Errorf("%s is still there: %v", client.ObjectKeyFromObject(object), err)
	}
}

func TestRestoreUndoesWhatHappenedSinceTheBackup(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx, Options{Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	before, after := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	before.Namespace, before.Name = "default", "before"
	after.Namespace, after.Name = "default", "after"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.client.Create(ctx, before))
	backup, err := c.Backup()
	must(err)
	uid := before.UID
	must(c.client.Delete(ctx, before))
	must(c.client.Create(ctx, after))
	must(c.Restore(backup))
	must(c.client.Get(ctx, client.ObjectKeyFromObject(before), before))
	if before.UID != uid {
		t.Errorf("the UID was %s and is %s", uid, before.UID)
	}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(after), after); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}
