// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/localcluster"
)

// narrow is the name of a second release, which is limited to one namespace and sets every value.
const narrow = "narrow"

func TestInstalledControllerHasItsRightsAndNoMore(t *testing.T) {
	cluster := start(t)
	values := everything(t)
	values["watchNamespaces"] = []any{"team-a"}
	values["crds"] = map[string]any{"install": false}
	set(values, "metrics.serviceMonitor.enabled", false) // the CRDs of these kinds are not installed
	set(values, "metrics.prometheusRule.enabled", false)
	install(t, cluster, release, namespace, nil)
	install(t, cluster, narrow, narrow, values)

	t.Run("everywhere", func(t *testing.T) {
		c := as(t, cluster, namespace, "corral")
		for _, in := range []string{"team-a", "team-b", ""} {
			wants(t, c, true, append(work(in), access{"get", "", "secrets", in, "any"}, access{"create", "events.k8s.io", "events", in, ""}))
			wants(t, c, false, never(in))
		}
		wants(t, c, true, leading(namespace))
		wants(t, c, false, leading("team-a"))
		wants(t, c, true, []access{{"get", "", "namespaces", "", "kube-system"}})
	})
	t.Run("in watched namespaces only", func(t *testing.T) {
		c := as(t, cluster, narrow, "robot")
		wants(t, c, true, append(work("team-a"), access{"get", "", "secrets", "team-a", "any"}))
		wants(t, c, false, slices.DeleteFunc(never("team-a"), func(a access) bool { return a.verb == "impersonate" }))
		for _, in := range []string{"team-b", "kube-system", "default", ""} {
			wants(t, c, false, append(work(in), access{"get", "", "secrets", in, "any"}))
		}
		// Events about cluster-scoped objects, such as ClusterRunnerPolicies, are written to the namespace
		// default.
		wants(t, c, true, []access{{"create", "events.k8s.io", "events", "default", ""}, {"patch", "events.k8s.io", "events", "default", "e"}})
		wants(t, c, true, leading(narrow))
		wants(t, c, true, []access{{"impersonate", "", "serviceaccounts", "team-a", "any"}})
		wants(t, c, false, []access{{"impersonate", "", "serviceaccounts", "team-b", "any"}, {"impersonate", "", "users", "", "any"}, {"impersonate", "", "groups", "", "system:masters"}})
		wants(t, c, false, []access{{"get", "", "namespaces", "", "kube-system"}}) // not needed, because clusterID is set
	})
	t.Run("in real calls", func(t *testing.T) { callsAreAnswered(t, cluster) })
}

// start starts a cluster with the namespaces of two teams. One namespace contains a Secret.
func start(t *testing.T) *localcluster.Cluster {
	t.Helper()
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"team-a", "team-b"} {
		if err := cluster.CreateNamespace(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	secret := `{apiVersion: v1, kind: Secret, metadata: {name: github, namespace: team-a}, stringData: {github_token: t}}`
	if err := cluster.Apply(t.Context(), []byte(secret)); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// install applies the rendered chart, as Helm would.
func install(t *testing.T, cluster *localcluster.Cluster, release, namespace string, values map[string]any) {
	t.Helper()
	if err := cluster.CreateNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	rendered, err := tryRender(t, release, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(t.Context(), []byte(rendered.Manifest())); err != nil {
		t.Fatal(err)
	}
}

// as returns a client that acts as a ServiceAccount.
func as(t *testing.T, cluster *localcluster.Cluster, namespace, account string) client.Client {
	t.Helper()
	config, err := cluster.ServiceAccountConfig(t.Context(), namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// access is a permission to check with the API server. An empty namespace means all namespaces.
type access struct{ verb, group, resource, namespace, name string }

// work returns permissions that the controllers need.
func work(namespace string) []access {
	return []access{
		{"list", v1alpha1.GroupVersion.Group, "runnerpools", namespace, ""},
		{"watch", v1alpha1.GroupVersion.Group, "poolsources", namespace, ""},
		{"create", v1alpha1.GroupVersion.Group, "runners", namespace, ""},
		{"patch", v1alpha1.GroupVersion.Group, "runnerpools/status", namespace, "p"},
		{"create", "", "pods", namespace, ""},
		{"create", "", "secrets", namespace, ""},
	}
}

// never returns permissions that no controller may have.
func never(namespace string) []access {
	return []access{
		{"list", "", "secrets", namespace, ""},
		{"watch", "", "secrets", namespace, ""},
		{"delete", "", "secrets", namespace, "any"},
		{"patch", v1alpha1.GroupVersion.Group, "poolsources", namespace, "s"},
		{"get", "apps", "deployments", namespace, "corral"},
		{"patch", "apps", "deployments", namespace, "corral"},
		{"get", "coordination.k8s.io", "leases", namespace, "another"},
		{"create", "rbac.authorization.k8s.io", "rolebindings", namespace, ""},
		{"create", "", "serviceaccounts/token", namespace, "default"},
		{"create", "", "pods/exec", namespace, "p"},
		{"impersonate", "", "serviceaccounts", namespace, "default"},
	}
}

// leading returns the permissions that leader election needs.
func leading(namespace string) []access {
	return []access{
		{"create", "coordination.k8s.io", "leases", namespace, ""},
		{"get", "coordination.k8s.io", "leases", namespace, "corral.corral.dev"},
		{"update", "coordination.k8s.io", "leases", namespace, "corral.corral.dev"},
	}
}

func wants(t *testing.T, c client.Client, want bool, questions []access) {
	t.Helper()
	for _, q := range questions {
		resource, sub, _ := strings.Cut(q.resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: q.verb, Group: q.group, Resource: resource, Subresource: sub, Namespace: q.namespace, Name: q.name,
			},
		}}
		if err := c.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("%+v: allowed %t, want %t", q, review.Status.Allowed, want)
		}
	}
}

func callsAreAnswered(t *testing.T, cluster *localcluster.Cluster) {
	c, ctx := as(t, cluster, namespace, "corral"), t.Context()
	if err := c.List(ctx, &v1alpha1.RunnerPoolList{}); err != nil {
		t.Errorf("listing pools: %v", err)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: "github"}, secret); err != nil {
		t.Errorf("reading a Secret by name: %v", err)
	}
	if err := c.List(ctx, &corev1.SecretList{}, client.InNamespace("team-a")); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets: %v, want forbidden", err)
	}
	own := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "corral"}}
	if err := c.Delete(ctx, own); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the own Deployment: %v, want forbidden", err)
	}
}
