// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRemoteEndsHoldAPartOfTheWorkers(t *testing.T) {
	for name, tc := range map[string]struct {
		workers, remotes, want int // all remote endpoints belong to one namespace
	}{
		"one":                           {64, 1, 12},
		"two":                           {64, 2, 16},
		"many":                          {64, 40, 16},
		"many of few":                   {8, 40, 2},
		"of few, the other has a place": {8, 2, 2},
		"a namespace":                   {64, 0, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				classify := func(r reconcile.Request) (string, string) {
					remote, _, _ := strings.Cut(r.Name, "/")
					if tc.remotes == 0 {
						return "team", "pool"
					}
					return "team/" + remote, "team/pool"
				}
				q := Fair(tc.workers, classify).NewQueue("test", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
				held := make(chan reconcile.Request, tc.workers)
				for range tc.workers {
					go func() {
						if r, shutdown := q.Get(); !shutdown {
							held <- r
						}
					}()
				}
				for i := range max(1, tc.remotes) * tc.workers {
					q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("%d/%d", i%max(1, tc.remotes), i)}})
				}
				synctest.Wait()
				if len(held) != tc.want {
					t.Errorf("%d of %d workers are held, want %d", len(held), tc.workers, tc.want)
				}
				for ; len(held) > 0; synctest.Wait() {
					q.Done(<-held)
				}
				q.ShutDown()
			})
		})
	}
}
