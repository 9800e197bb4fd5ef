// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestAConnectionWithoutAClientIsWaitedFor(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	named := func(name string) *v1alpha1.GitHubConnection {
		return &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}}
	}
	ready, refused := named("ready"), named("refused")
	conditions.MarkTrue(ready, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "connected")
	conditions.MarkFalse(refused, v1alpha1.ReadyCondition, v1alpha1.CredentialsRefusedReason, "401")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ready, refused, named("new")).Build()
	for name, want := range map[string]string{
		"ready":   `the controller just started and has not verified GitHubConnection "ready" yet`,
		"refused": `GitHubConnection "refused" is not ready: CredentialsRefused`,
		"new":     `GitHubConnection "new" is being verified`,
		"gone":    `GitHubConnection "gone" not found`,
	} {
		if err := NotReady(t.Context(), c, client.ObjectKey{Namespace: "ci", Name: name}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
