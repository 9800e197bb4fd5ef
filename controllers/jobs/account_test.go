// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestForeignConfigMapsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpu-jobs"}, Data: map[string]string{"a": "b"}}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), theirs)
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.want("gpu", 1) // it counts anyway
		wait(time.Minute)
		if n := len(x.written("gpu-jobs")); n != 0 {
			t.Errorf("%d writes", n)
		}
		if err := x.api.Delete(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if n := len(x.written("gpu-jobs")); n != 1 {
			t.Errorf("%d writes after it was deleted, want 1", n)
		}
	})
}

func TestAChangedConfigMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		wait(2 * time.Second)
		config := &corev1.ConfigMap{}
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{partLabel: "jobs", v1alpha1.PoolLabel: "gpu"}, config.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		config.Annotations = map[string]string{"touched": "yes"}
		if err := x.api.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		x.accept(job(2, "queued", "gpu"))
		wait(5 * time.Second)
		x.end()
		x.lead()
		x.want("gpu", 2)
		if err := x.api.Delete(t.Context(), config); err != nil { // and if a user deletes it, it is created again
			t.Fatal(err)
		}
		x.accept(job(3, "queued", "gpu"))
		wait(5 * time.Second)
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Error(err)
		}
		x.want("gpu", 3)
	})
}

// Damaged bytes are treated like a missing record and block nothing.
func TestADamagedAccountBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf("gpu")
		damaged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpu-jobs", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("RunnerPool"))}}, BinaryData: map[string][]byte{jobsKey: []byte("x"), boostsKey: []byte("y")}}
		x := newPlace(t, connOf("acme", "acme"), p, damaged)
		x.lead()
		defer x.end()
		x.want("gpu", 0)
		x.accept(job(1, "queued", "gpu"))
		x.want("gpu", 1)
	})
}

func TestIrrelevantEventsCostNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(2 * time.Minute)
		for i := range int64(200_000) {
			d := job(i, "queued", "ubuntu-latest")
			x.accept(d)
		}
		wait(10 * time.Minute)
		x.mu.Lock()
		if len(x.writes) != 0 {
			t.Errorf("%d writes: %v", len(x.writes), x.writes[0])
		}
		x.mu.Unlock()
		c := x.connection()
		if len(c.seen.guids[0])+len(c.seen.guids[1]) > 2*maxSeen || len(x.space().held) != 0 {
			t.Errorf("%d and %d deliveries are remembered, and %d jobs", len(c.seen.guids[0]), len(c.seen.guids[1]), len(x.space().held))
		}
		x.end()
	})
}

// Until the stored jobs are read, the number of jobs is unknown. The first jobs that arrive are then added to them.
func TestNothingIsSaidBeforeTheAccountIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		x.accept(job(1, "queued", "gpu"))
		x.end()
		x.edit(func() { x.unread = apierrors.NewServiceUnavailable("away") })
		x.lead()
		defer x.end()
		x.accept(job(2, "queued", "gpu"))
		wait(3 * time.Second)
		if r := x.tracker.Reading(keyOf("gpu")); r.Known {
			t.Errorf("it says %+v", r)
		}
		x.edit(func() { x.unread = nil })
		wait(time.Minute)
		x.want("gpu", 2)
	})
}

func TestFailedWritesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.edit(func() { x.broken = apierrors.NewServiceUnavailable("away") })
		x.accept(job(1, "queued", "gpu"))
		wait(time.Minute)
		n := len(x.written("gpu-jobs"))
		if n < 3 || n > 10 {
			t.Errorf("%d attempts in a minute", n)
		}
		x.edit(func() { x.broken = nil })
		wait(time.Minute)
		config := &corev1.ConfigMap{}
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(string(config.BinaryData[jobsKey]), "\x1f\x8b") {
			t.Error("it isn't gzip")
		}
	})
}
