// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// A source that names no account any more can't delete what it applied as one, and says so.
func TestWhatGaveRightsIsToldWhereNobodyMayDeleteIt(t *testing.T) {
	role, pool := id{roleKind, "a-hooks"}, id{poolKind, "a"}
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "us"}}
	source.Status.Inventory = inventory("ci", sets.New(role, pool, id{accountKind, "a-hooks"}))
	for name, tc := range map[string]struct {
		account string
		events  int
	}{"as the controller": {"", 2}, "as an account": {"deployer", 0}} {
		recorder := events.NewFakeRecorder(10)
		p := &pass{
			Reconciler: &Reconciler{Reporter: kube.Reporter{Events: recorder}}, source: source,
			actor: actor{account: types.NamespacedName{Namespace: "ci", Name: tc.account}},
		}
		p.tellRightsLeft(revision{})
		if len(recorder.Events) != tc.events {
			t.Errorf("%s: %d events", name, len(recorder.Events))
		}
		for len(recorder.Events) > 0 {
			if told := <-recorder.Events; !strings.Contains(told, "RightsLeft") || !strings.Contains(told, "a-hooks stays as it is") {
				t.Errorf("%s: told is %s", name, told)
			}
		}
	}
}

func TestInventoryHasTheGroupsOfItsKinds(t *testing.T) {
	ids := sets.New(id{roleKind, "a-hooks"}, id{accountKind, "a-hooks"}, id{poolKind, "a"})
	source := &v1alpha1.PoolSource{}
	source.Status.Inventory = inventory("ci", ids)
	var got []string
	for _, entry := range source.Status.Inventory.Entries {
		got = append(got, entry.ID+" "+entry.Version)
	}
	want := []string{"ci_a-hooks__ServiceAccount v1", "ci_a-hooks_rbac.authorization.k8s.io_Role v1", "ci_a_corral.dev_RunnerPool v1alpha1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if read := readInventory(source); !read.Equal(ids) {
		t.Errorf("read back is %v", read)
	}
}
