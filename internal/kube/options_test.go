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
		workers, remotes, want int // remote ends are of one namespace
	}{
		"one":                          {64, 1, 16},
		"two":                          {64, 2, 24},
		"many":                         {64, 40, 24},
		"many of few":                  {8, 40, 3},
		"of two the other has a place": {4, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				classify := func(r reconcile.Request) (string, string) {
					remote, _, _ := strings.Cut(r.Name, "/")
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
				for i := range tc.remotes * tc.workers {
					q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("%d/%d", i%tc.remotes, i)}})
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
