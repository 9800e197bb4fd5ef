// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/podspec"
)

// A runner chooses among the claims of its own pool, however many claims other pools have.
func TestAClaimIsChosenAmongThePoolsOwn(t *testing.T) {
	pool := func(namespace, name string) *v1alpha1.RunnerPool {
		p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		p.Spec.Cache = &v1alpha1.CacheSpec{MaxClaims: 1000}
		return p
	}
	first := 0.0
	for _, n := range []int{10, 100, 1000} {
		notes, now := claimNotes{}, time.Now()
		for i := range n {
			for _, name := range []string{"linux", fmt.Sprint("linux-", i)} {
				uid := types.UID(fmt.Sprint(name, i))
				c := notes.choose(pool("greedy", name), nil, uid, now)
				notes.forget(types.NamespacedName{Namespace: "greedy", Name: podspec.ClaimName(name, c.Make)}, uid, true)
				notes.choose(pool("greedy", name), nil, uid, now)
			}
		}
		notes.choose(pool("quiet", "linux"), nil, "u0", now)
		work := testing.AllocsPerRun(10, func() {
			if c := notes.choose(pool("quiet", "linux"), nil, "u1", now); c.Make != 1 && c.Use != podspec.ClaimName("linux", 1) {
				t.Fatalf("it chose %+v", c)
			}
			notes.release(types.NamespacedName{Namespace: "quiet", Name: podspec.ClaimName("linux", 1)}, "u1")
		})
		if first == 0 {
			first = work
		}
		if known := len(notes.taken.ofPool(types.NamespacedName{Namespace: "greedy", Name: "linux"})); known != n || work > first {
			t.Errorf("%d claims of others: %d of a pool are known, a choice allocates %v times, with 10 claims %v", 2*n, known, work, first)
		}
	}
}

// Users may create any number of claims with a pool's label. Choosing among the pool's own does not take longer.
func TestClaimsThatNoPoolCanHaveAreNotLookedThrough(t *testing.T) {
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: "linux"}}
	pool.Spec.Cache = &v1alpha1.CacheSpec{MaxClaims: 1000}
	first := 0.0
	for _, n := range []int{10, 1000, 20_000} {
		notes, all := claimNotes{}, []PoolClaim{}
		for i := range n {
			for _, number := range []int{-1, maxClaims + i} {
				all = append(all, PoolClaim{Claim: claims.Claim{Name: fmt.Sprint("data-", number, "-", i), Number: number}})
			}
		}
		work := testing.AllocsPerRun(10, func() {
			if c := notes.choose(pool, all, "u", time.Now()); c.Make != 0 {
				t.Fatalf("it chose %+v", c)
			}
			notes.release(types.NamespacedName{Namespace: "greedy", Name: podspec.ClaimName("linux", 0)}, "u")
		})
		if first == 0 {
			first = work
		}
		if work > first {
			t.Errorf("with %d claims, a choice allocates %v times, with 10 claims %v", 2*n, work, first)
		}
	}
}

// A namespace with many records to write leaves other namespaces their turn, also while runners are starting.
func TestRecordsOfNamespacesTakeTurns(t *testing.T) {
	for _, most := range []int{recordParallel, recordWhileStarting} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory()
			if most == recordWhileStarting {
				m.beginStart(&runnerMemory{}, "greedy")
				m.beginStart(&runnerMemory{}, "quiet")
			}
			m.beginStart(&runnerMemory{}, "elsewhere") // limits no other namespace
			var order []string
			var releases []func()
			record := func(namespace string) {
				go func() {
					release, err := m.acquireRecord(t.Context(), namespace)
					if err != nil {
						t.Error(err)
						return
					}
					order, releases = append(order, namespace), append(releases, release)
				}()
				synctest.Wait()
			}
			for range 3 * most {
				record("greedy")
			}
			if record("quiet"); len(order) != most {
				t.Errorf("%d records at once, want %d", len(order), most)
			}
			end := func() { // ends the first record
				release := releases[0]
				releases = releases[1:]
				release()
				synctest.Wait()
			}
			for range 2 {
				end()
			}
			if diff := cmp.Diff([]string{"greedy", "quiet"}, order[most:]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for len(releases) > 0 {
				end()
			}
		})
	}
}

func TestOnlyClaimsOfThePoolCount(t *testing.T) {
	for name, want := range map[string]string{
		podspec.ClaimName("linux", 3): podspec.ClaimName("linux", 3), "": "", "linux": "", "other-cache-1": "", strings.Repeat("x", 100_000) + "-1": "",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.CacheClaimAnnotation: name}}}
		if got := claimOf(pod, "linux"); got != want {
			t.Errorf("the claim is %.20q, want %q", got, want)
		}
	}
}
