// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Whatever the number of another tenant's pools, and whatever their connections, IDs and names, a pass after a restart and
// a change of a connection visit the same objects.
func TestAPassVisitsTheSameHoweverManyPoolsOthersHave(t *testing.T) {
	const n = 40
	b := sharing(t)
	key := b.tenant("team", time.Hour)
	b.until(key, v1alpha1.SucceededReason)
	id := int64(b.remote()[0].ID)
	must(t, b.Client.Create(t.Context(), &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: "own"}, Spec: v1alpha1.GitHubConnectionSpec{URL: b.github.ConfigURL("umbrella")},
	}))
	for i := range n {
		name := fmt.Sprint("p", i)
		must(t, b.Client.Create(t.Context(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: name, UID: types.UID(name)}}))
		s := &v1alpha1.RunnerScaleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: name, UID: types.UID("set-" + name)}}
		s.Spec = v1alpha1.RunnerScaleSetSpec{PoolUID: name, ConnectionRef: v1alpha1.ConnectionReference{Name: "own"}, Name: "shared", RunnerGroup: "default"}
		if i%2 > 0 {
			s.Spec.Name, s.Spec.ConnectionRef = name, v1alpha1.ConnectionReference{Name: "acme", Namespace: "platform"}
		}
		must(t, b.Client.Create(t.Context(), s))
		if i%4 == 0 {
			s.Status.ID = id
			must(t, b.Client.Status().Update(t.Context(), s))
		}
	}
	visited := 0
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			_ = meta.EachListItem(list, func(o runtime.Object) error {
				if o.(client.Object).GetNamespace() == "greedy" {
					visited++
				}
				return nil
			})
			return err
		},
	})
	b.Sessions.Stop(t.Context(), key)
	b.clock.Step(verifyInterval)
	b.until(key, v1alpha1.SucceededReason)
	if visited > 0 {
		t.Errorf("a pass visited %d objects of another tenant", visited)
	}
	b.elsewhere(t.Context(), &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"}})
	if visited > 0 {
		t.Errorf("a change of a connection visited %d objects of another tenant", visited)
	}
}
