// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

// A source with more objects than a short pass applies waits in line while as many others as may are at it.
func TestALongPassWaitsForItsTurn(t *testing.T) {
	w, applied := newWorld(t, us()), 0
	w.applying = func(string) { applied++ }
	var many []compile.Object
	for i := range shortPass + 10 {
		many = append(many, pool(fmt.Sprint("pool-", i)))
	}
	w.push("main@sha1:1", many...)
	other, err := w.reconciler.hosts.enter(types.NamespacedName{Namespace: "other", Name: "pools"}, longPasses)
	if err != nil {
		t.Fatal(err)
	}
	if after := w.reconcile().RequeueAfter; applied != shortPass || after != busyRetry {
		t.Errorf("%d objects were applied, and the next attempt is in %s", applied, after)
	}
	if ready := conditions.Get(w.source(), v1alpha1.ReadyCondition); ready == nil || ready.Status != metav1.ConditionUnknown {
		t.Errorf("a source that waits for its turn is %v", ready)
	}
	if w.reconcile(); applied != shortPass {
		t.Errorf("%d objects were applied by a source that waits in line", applied)
	}
	other.leave(nil)
	if w.reconcile(); applied != 2*shortPass+10 || w.source().Status.LastAppliedRevision != "main@sha1:1" {
		t.Errorf("%d objects were applied", applied)
	}
	w.expectReady("True Succeeded")
	w.push("main@sha1:2", many[:shortPass-20]...)
	w.change(func(s *v1alpha1.PoolSource) {
		s.Annotations = map[string]string{v1alpha1.AllowPruneAnnotation: "main@sha1:2"}
	})
	other, err = w.reconciler.hosts.enter(types.NamespacedName{Namespace: "other", Name: "pools"}, longPasses)
	if err != nil {
		t.Fatalf("a pass that has ended has a turn: %v", err)
	}
	if w.reconcile(); len(w.objects()) != shortPass+10-20 {
		t.Errorf("a short pass deleted all but %d pools", len(w.objects()))
	}
	other.leave(nil)
	if w.reconcile(); len(w.objects()) != shortPass-20 {
		t.Errorf("%d pools are left", len(w.objects()))
	}
}

// A pass holds a worker while it waits for another source of its namespace.
func TestNoWorkerWaitsForALongPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reconciler{hosts: newHosts(8)}
		long, other := &pass{Reconciler: r, source: us()}, &pass{Reconciler: r, source: us()}
		long.source.Name = "long"
		release, err := long.claim()
		if err != nil {
			t.Fatal(err)
		}
		for range shortPass + 1 {
			if err := long.request(); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := other.claim(); !errors.Is(err, errBusy) || time.Since(began) != claimWait {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := other.resume(); !errors.Is(err, errBusy) || time.Since(began) != claimWait {
			t.Errorf("a source whose namespace has a long pass holds a worker for %s: %v", time.Since(began), err)
		}
		time.AfterFunc(claimWait/2, func() {
			release()
			long.leaveLong()
		})
		if _, err := other.claim(); err != nil {
			t.Error(err)
		}
	})
}

// The line is searched with a lock held.
func TestALineHasFewSourcesOfANamespace(t *testing.T) {
	const host = "git.example.com:443"
	h := newHosts(1)
	if _, err := h.enter(types.NamespacedName{Namespace: "other", Name: "pools"}, host); err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		if _, err := h.enter(types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("source-", i)}, host); !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
	}
	if n := len(h.servers[host].waiting["greedy"]); n > maxInLine {
		t.Errorf("%d sources of one namespace are searched", n)
	}
}
