// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// crampedCluster starts a simulated API server whose quotas allow ten pods per namespace. It refuses access to the
// namespace secret, and has no namespace gone.
func crampedCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	return kubeconfigOf(t, func(path string) (int, any) {
		namespace, _, isList := strings.Cut(strings.TrimPrefix(path, "/api/v1/namespaces/"), "/")
		switch {
		case path == "/api":
			return http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}}
		case path == "/apis":
			return http.StatusOK, metav1.APIGroupList{}
		case path == "/api/v1":
			return http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "namespaces", Kind: "Namespace"}, {Name: "resourcequotas", Namespaced: true, Kind: "ResourceQuota"}, {Name: "limitranges", Namespaced: true, Kind: "LimitRange"}}}
		case namespace == "gone" && !isList:
			return refusal(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "gone" not found`)
		case !isList, namespace == "secret" && strings.HasSuffix(path, "/limitranges"):
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")
		case strings.HasSuffix(path, "/limitranges"):
			return http.StatusOK, corev1.LimitRangeList{}
		}
		return http.StatusOK, corev1.ResourceQuotaList{Items: []corev1.ResourceQuota{{
			ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}},
		}}}
	})
}

func TestWhatANamespaceLeavesToPodsIsReadAsFarAsOneMay(t *testing.T) {
	pools := "package pools\n"
	add := func(namespace, name, more string) {
		pools += fmt.Sprintf("%s: {apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPool\", metadata: {name: %[1]q, namespace: %q}, "+
			"spec: {connectionRef: name: \"acme\", %s, template: spec: containers: [{name: \"runner\", image: \"x\"}]}}\n", name, namespace, more)
	}
	add("secret", "s", "scale: max: 99")
	add("gone", "g", "scale: max: 99")
	add("alone", "a", "scale: {max: 8, schedules: [{name: \"n\", cron: {schedule: \"0 0 * * *\", duration: \"1h\"}, scale: max: 4}, {name: \"m\", cron: {schedule: \"0 6 * * *\", duration: \"1h\"}, scale: max: 11}]}")
	add("update", "u", "scale: max: 9")
	add("recreate", "r", "scale: max: 9, update: strategy: \"Recreate\"")
	add("shared", "x", "scale: max: 6, update: maxSurge: 0")
	add("shared", "y", "scale: max: 6, update: maxSurge: 0")
	add("watched", "o", "mode: \"Observe\", scale: max: 99")
	add("free", "f", "scale: idle: 1")
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "pools.cue"), pools)
	got := corral(t, folder, "vet", "--live", "--kubeconfig", crampedCluster(t))
	var warnings []string
	for line := range strings.Lines(got.stderr) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ": ")
		warnings = append(warnings, line)
	}
	want := []string{
		"f: warning: a PoolSource would refuse it: it names namespace free, and a PoolSource applies only into its own, alone; leave metadata.namespace out (and 7 more objects)",
		"a.spec.scale.schedules[1].scale.max: warning: namespace alone: 11 runners need 11 of pods, and ResourceQuota pods has 10: at most 10 fit",
		`g.metadata.namespace: warning: the quotas of namespace gone can't be read: namespaces "gone" not found`,
		"s.metadata.namespace: warning: the quotas of namespace secret can't be read: you may not",
		"s.spec.scale.max: warning: namespace secret: 99 runners need 99 of pods, and ResourceQuota pods has 10: at most 10 fit", // from the list of quotas, which may be read
		"y.spec.scale.max: warning: namespace shared: 6 runners, with those of other pools here, need 12 of pods, and ResourceQuota pods has 10",
		"u.spec.update.maxSurge: warning: namespace update: 9 runners, and 3 more during an update, need 12 of pods, and ResourceQuota pods has 10: at most 10 fit",
	}
	if got.code != 0 || strings.Join(warnings, "\n") != strings.Join(want, "\n") {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, strings.Join(warnings, "\n"))
	}
}

func TestACacheForPublicRepositoriesIsTold(t *testing.T) {
	sim, err := githubsim.Start(githubsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddToken("t")
	sim.AddOrg("acme")
	sim.AddRunnerGroup("acme", githubsim.Group{Name: "open", AllowsPublic: true})
	sim.AddRunnerGroup("acme", githubsim.Group{Name: "closed"})
	kubeconfig := kubeconfigOf(t, func(path string) (int, any) {
		switch {
		case path == "/api":
			return http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}}
		case path == "/apis":
			return http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{
				Name: "corral.dev", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "corral.dev/v1alpha1", Version: "v1alpha1"}},
			}}}
		case path == "/api/v1":
			return http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "namespaces", Kind: "Namespace"}, {Name: "secrets", Namespaced: true, Kind: "Secret"},
				{Name: "resourcequotas", Namespaced: true, Kind: "ResourceQuota"}, {Name: "limitranges", Namespaced: true, Kind: "LimitRange"}}}
		case path == "/apis/corral.dev/v1alpha1":
			return http.StatusOK, metav1.APIResourceList{GroupVersion: "corral.dev/v1alpha1", APIResources: []metav1.APIResource{
				{Name: "githubconnections", Namespaced: true, Kind: "GitHubConnection"}}}
		case path == "/api/v1/namespaces/ci/secrets/github":
			return http.StatusOK, corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"github_token": []byte("t")}}
		case path == "/apis/corral.dev/v1alpha1/namespaces/ci/githubconnections/acme":
			return http.StatusOK, v1alpha1.GitHubConnection{
				TypeMeta: metav1.TypeMeta{APIVersion: "corral.dev/v1alpha1", Kind: "GitHubConnection"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"},
				Spec: v1alpha1.GitHubConnectionSpec{URL: sim.ConfigURL("acme"), SecretRef: &v1alpha1.LocalObjectReference{Name: "github"}},
			}
		case strings.HasSuffix(path, "/limitranges"):
			return http.StatusOK, corev1.LimitRangeList{}
		case strings.HasSuffix(path, "/resourcequotas"):
			return http.StatusOK, corev1.ResourceQuotaList{}
		case strings.HasPrefix(path, "/api/v1/namespaces/"):
			return http.StatusOK, corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		}
		return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not read "+path)
	})
	pools := "package pools\n"
	for name, more := range map[string]string{"a": `runnerGroup: "open"`, "b": `runnerGroup: "closed"`, "c": `runnerGroup: "none"`} {
		pools += fmt.Sprintf("%s: {apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPool\", metadata: {name: %[1]q, namespace: \"ci\"}, spec: {connectionRef: name: \"acme\", %s, "+
			"cache: {size: \"1Gi\", mountPath: \"/cache\", maxClaims: 1}, template: spec: containers: [{name: \"runner\", image: \"x\"}]}}\n", name, more)
	}
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "pools.cue"), pools)
	got := corral(t, folder, "vet", "--live", "--kubeconfig", kubeconfig)
	for _, want := range []string{
		`a.spec.cache: warning: runner group "open" takes jobs of public repositories: the author of any pull request there can change what later jobs read; use a runner group without public repositories`,
		`c.spec.cache: warning: cannot determine whether runner group "none" takes jobs of public repositories`,
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if got.code != 0 || strings.Contains(got.stderr, "b.spec.cache") {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
}
