// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// kubeconfigOf starts a simulated API server that answers each path with answer, and returns a kubeconfig for it.
func kubeconfigOf(t *testing.T, answer func(path string) (code int, body any)) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("%s %s would change the cluster", r.Method, r.URL)
		}
		code, body := answer(r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "mine"}}], "users": [{"name": "c", "user": {}}]}`
	writeFile(t, kubeconfig, text)
	return kubeconfig
}

// refusal is an error response of an API server.
func refusal(code int, reason metav1.StatusReason, message string) (int, any) {
	return code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Message: message, Code: int32(code)} //nolint:gosec // a status
}

// clusterOf starts a simulated API server that returns the pools of two namespaces and refuses access to a third.
func clusterOf(t *testing.T) (kubeconfig string) {
	t.Helper()
	return kubeconfigOf(t, func(path string) (int, any) {
		namespace, ok := strings.CutPrefix(path, "/apis/corral.dev/v1alpha1/namespaces/")
		namespace, _, _ = strings.Cut(namespace, "/")
		switch {
		case !ok && strings.HasSuffix(path, "/v1alpha1"): // discovery
			return http.StatusOK, metav1.APIResourceList{GroupVersion: "corral.dev/v1alpha1", APIResources: []metav1.APIResource{
				{Name: "runnerpools", SingularName: "runnerpool", Namespaced: true, Kind: "RunnerPool", Verbs: metav1.Verbs{"list"}}}}
		case !ok && strings.HasSuffix(path, "/apis"):
			version := metav1.GroupVersionForDiscovery{GroupVersion: "corral.dev/v1alpha1", Version: "v1alpha1"}
			return http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "corral.dev", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}}
		case namespace == "secret":
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "runnerpools is forbidden: you may not")
		}
		pool := v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "linux"}}
		pool.Status.Jobs = new(int32(len(namespace))) //nolint:gosec // differs between the namespaces
		return http.StatusOK, v1alpha1.RunnerPoolList{Items: []v1alpha1.RunnerPool{pool}}
	})
}

func TestAReviewAsksTheClusterWithTheCallersRights(t *testing.T) {
	flags := pflag.NewFlagSet("review", pflag.ContinueOnError)
	o := bindCluster(flags, "test", "with --live: ")
	if err := flags.Parse([]string{"--kubeconfig", clusterOf(t)}); err != nil {
		t.Fatal(err)
	}
	c, own, err := o.connect()
	if err != nil {
		t.Fatal(err)
	}
	pools, err := livePools(t.Context(), c, own, []string{"", "ci"})
	if err != nil || own != "mine" {
		t.Fatalf("namespace %q, %v", own, err)
	}
	got := map[string]int32{}
	for name, p := range pools {
		got[name] = p.Status.GetJobs()
	}
	if diff := cmp.Diff(map[string]int32{"linux": 4, "ci/linux": 2}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := livePools(t.Context(), c, own, []string{"secret"}); err == nil || !strings.Contains(err.Error(), "reading pools of the cluster: runnerpools is forbidden") {
		t.Error(err)
	}
}

func TestAKubeconfigThatIsNotThereIsNamed(t *testing.T) {
	o := &clusterOptions{kubeconfig: filepath.Join(t.TempDir(), "absent")}
	if _, _, err := o.connect(); err == nil || !strings.Contains(err.Error(), "reading the kubeconfig: ") || !strings.Contains(err.Error(), "absent") {
		t.Error(err)
	}
}
