// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
)

func pool(name string) compile.Object       { return declared(poolKind, name) }
func connection(name string) compile.Object { return declared(connectionKind, name) }

func declared(kind, name string) compile.Object {
	o := compile.Object{File: name + ".cue", Line: 3, Column: 5}
	o.Manifest.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.Manifest.SetKind(kind)
	o.Manifest.SetName(name)
	return o
}

// giving returns an object that grants rights to the hooks of pool a.
func giving(kind string) compile.Object {
	o := declared(kind, "a-hooks")
	o.Manifest.SetAPIVersion(rightsGroups[kind].String())
	o.Manifest.SetLabels(map[string]string{v1alpha1.PoolLabel: "a"})
	return o
}

// standing returns existing objects by ID, each with the source that holds it.
func standing(holders map[id]string, sources ...string) existing {
	s := existing{live: map[id]*metav1.PartialObjectMetadata{}, sources: sets.New(sources...)}
	for i, holder := range holders {
		s.live[i] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: i.name}}
		if holder != "" {
			s.live[i].Labels = map[string]string{v1alpha1.SourceLabel: holder}
		}
	}
	return s
}

func TestMakePlan(t *testing.T) {
	elsewhere, inOwn, foreign, old := pool("a"), pool("a"), pool("a"), pool("a")
	elsewhere.Manifest.SetNamespace("kube-system")
	inOwn.Manifest.SetNamespace("ci")
	foreign.Manifest.SetKind("Secret")
	old.Manifest.SetAPIVersion("corral.dev/v1")
	poolA, poolB, main := id{poolKind, "a"}, id{poolKind, "b"}, id{connectionKind, "main"}

	type want struct{ Apply, Refused, Adopted, Remove, Withheld []string }
	cases := map[string]struct {
		declared []compile.Object
		now      existing
		applied  sets.Set[id]
		want     want
	}{
		"connections come first, and go last": {
			declared: []compile.Object{pool("c"), connection("next")},
			now:      standing(map[id]string{poolA: "us", poolB: "us", main: "us"}, "us"),
			want: want{
				Apply:  []string{"GitHubConnection next", "RunnerPool c"},
				Remove: []string{"RunnerPool a", "RunnerPool b", "GitHubConnection main"},
			},
		},
		"what others hold is not ours to remove": {
			declared: []compile.Object{pool("c")},
			now:      standing(map[id]string{poolA: "them", poolB: ""}, "us", "them"),
			want:     want{Apply: []string{"RunnerPool c"}},
		},
		"what another source holds is refused, the rest is applied": {
			declared: []compile.Object{pool("a"), pool("b")},
			now:      standing(map[id]string{poolA: "them"}, "us", "them"),
			want: want{
				Apply:   []string{"RunnerPool b"},
				Refused: []string{"a.cue:3:5: RunnerPool a: PoolSource \"them\" holds it; remove it there first"},
			},
		},
		"what a source held that is gone is taken over": {
			declared: []compile.Object{pool("a")},
			now:      standing(map[id]string{poolA: "them"}, "us"),
			want:     want{Apply: []string{"RunnerPool a"}, Adopted: []string{"RunnerPool a"}},
		},
		"what was made by hand is taken over": {
			declared: []compile.Object{pool("a")},
			now:      standing(map[id]string{poolA: ""}, "us"),
			want:     want{Apply: []string{"RunnerPool a"}, Adopted: []string{"RunnerPool a"}},
		},
		"a connection made by hand is not taken over": {
			declared: []compile.Object{connection("main")},
			now:      standing(map[id]string{main: ""}, "us"),
			want: want{Refused: []string{
				"main.cue:3:5: GitHubConnection main: it already exists, and no source owns it: its credentials may belong to another team. To hand it over: kubectl label githubconnection -n ci main corral.dev/source=us"}},
		},
		"what lost its label is ours all the same": {
			declared: []compile.Object{pool("a")},
			now:      standing(map[id]string{poolA: ""}, "us"),
			applied:  sets.New(poolA),
			want:     want{Apply: []string{"RunnerPool a"}},
		},
		"another namespace is refused": {
			declared: []compile.Object{elsewhere},
			want: want{Refused: []string{
				"a.cue:3:5: RunnerPool a: it names namespace kube-system, and a PoolSource applies only into its own, ci; leave metadata.namespace out"}},
		},
		"a name that is taken twice is refused": {
			declared: []compile.Object{pool("a"), inOwn},
			want:     want{Apply: []string{"RunnerPool a"}, Refused: []string{"a.cue:3:5: RunnerPool a: RunnerPool a is declared twice, here and at a.cue:3"}},
		},
		"the own namespace may be named": {
			declared: []compile.Object{inOwn},
			want:     want{Apply: []string{"RunnerPool a"}},
		},
		"rights are given as an account": {
			declared: []compile.Object{pool("a"), giving(bindingKind), giving(roleKind), giving(accountKind)},
			now:      existing{live: standing(map[id]string{{roleKind, "old"}: "us", {accountKind, "old"}: "us"}).live, byAccount: true},
			want: want{
				Apply:  []string{"ServiceAccount a-hooks", "Role a-hooks", "RoleBinding a-hooks", "RunnerPool a"},
				Remove: []string{"Role old", "ServiceAccount old"},
			},
		},
		"rights are not given as the controller": {
			declared: []compile.Object{giving(accountKind), giving(roleKind), giving(bindingKind), pool("a")},
			want: want{Withheld: []string{"a"}, Apply: []string{"RunnerPool a"}, Refused: []string{
				"a-hooks.cue:3:5: ServiceAccount a-hooks: with its Role and RoleBinding it is applied only as the ServiceAccount that spec.serviceAccountName of the PoolSource names, by whose rights it is: " +
					"name one, or name a ServiceAccount of your own in spec.template.spec.serviceAccountName of the pool"}},
		},
		"what gives rights and was made by hand is not taken over": {
			declared: []compile.Object{giving(accountKind), giving(roleKind), pool("a")},
			now: existing{
				live:      standing(map[id]string{{accountKind, "a-hooks"}: "", {roleKind, "a-hooks"}: "gone"}).live,
				byAccount: true,
			},
			want: want{
				Withheld: []string{"a"}, Adopted: []string{"Role a-hooks"}, Apply: []string{"Role a-hooks", "RunnerPool a"},
				Refused: []string{"a-hooks.cue:3:5: ServiceAccount a-hooks: it already exists, and no source owns it: another workload may need its permissions. " +
					"Set spec.template.spec.serviceAccountName of the pool to another ServiceAccount, or hand it over: " +
					"kubectl label serviceaccount -n ci a-hooks corral.dev/source=us"},
			},
		},
		"another kind is refused": {
			declared: []compile.Object{foreign},
			want: want{Refused: []string{
				"a.cue:3:5: Secret a: a PoolSource applies only GitHubConnection, RunnerPolicy and RunnerPool of corral.dev/v1alpha1, not Secret of corral.dev/v1alpha1"}},
		},
		"another version is refused": {
			declared: []compile.Object{old},
			want: want{Refused: []string{
				"a.cue:3:5: RunnerPool a: a PoolSource applies only GitHubConnection, RunnerPolicy and RunnerPool of corral.dev/v1alpha1, not RunnerPool of corral.dev/v1"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := makePlan(types.NamespacedName{Namespace: "ci", Name: "us"}, tc.declared, tc.now, tc.applied)
			got := want{Refused: p.refused, Adopted: names(p.adopted), Remove: names(p.remove), Withheld: slices.Sorted(maps.Keys(p.withheld))}
			for _, o := range p.apply {
				got.Apply = append(got.Apply, idOf(o).String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func names(ids []id) []string {
	var texts []string
	for _, i := range ids {
		texts = append(texts, i.String())
	}
	return texts
}

func TestWhatIsBeingDeletedIsNotHeld(t *testing.T) {
	now := standing(map[id]string{{poolKind, "a"}: "us"})
	now.live[id{poolKind, "a"}].DeletionTimestamp = &metav1.Time{}
	if got := now.heldBy("us"); len(got) != 1 {
		t.Errorf("a zero time is no deletion: %v", got)
	}
	deleted := metav1.Unix(1, 0)
	now.live[id{poolKind, "a"}].DeletionTimestamp = &deleted
	if got := now.heldBy("us"); len(got) != 0 {
		t.Errorf("held: %v", got)
	}
}

func TestOnlyPoolsCountAsTooMuch(t *testing.T) {
	one, two, main := id{poolKind, "p0"}, id{poolKind, "p1"}, id{connectionKind, "a"}
	for name, tc := range map[string]struct {
		p    plan
		want string
	}{
		"one of two":   {plan{pools: 1, held: []id{main, one, two}, remove: []id{two, main}}, ""},
		"the only one": {plan{held: []id{main, one}, remove: []id{one}}, "It would remove the only pool, p0"},
	} {
		if got := tc.p.tooMuch(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestAllows(t *testing.T) {
	commit := strings.Repeat("a", 40)
	cases := map[string]struct {
		annotation string
		want       bool
	}{
		"no annotation":    {"", false},
		"the revision":     {"main@sha1:" + commit, true},
		"its commit":       {commit, true},
		"part of it":       {commit[:7], false},
		"another revision": {"main@sha1:" + strings.Repeat("b", 40), false},
		"a word":           {"true", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := allows(tc.annotation, "main@sha1:"+commit); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if allows("", "") {
		t.Error("nothing allows nothing")
	}
}

func TestAnAnnotationThatAllowsAnotherRevisionIsTold(t *testing.T) {
	w := newWorld(t, us(func(s *v1alpha1.PoolSource) {
		s.Annotations = map[string]string{v1alpha1.AllowPruneAnnotation: "eeff3d1"}
	}))
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.push("main@sha1:eeff3d1c", pool("b"))
	w.reconcile()
	w.expectReady("False PruneRefused Stalled", "more than half: a; corral.dev/allow-prune is set to eeff3d1, which is not this revision\n")
}

func TestInventoryIsReadAsItIsWritten(t *testing.T) {
	holds := sets.New(id{poolKind, "b.x"}, id{connectionKind, "a"})
	source := &v1alpha1.PoolSource{Status: v1alpha1.PoolSourceStatus{Inventory: inventory("ci", holds)}}
	want := []v1alpha1.InventoryEntry{
		{ID: "ci_a_corral.dev_GitHubConnection", Version: "v1alpha1"},
		{ID: "ci_b.x_corral.dev_RunnerPool", Version: "v1alpha1"},
	}
	if diff := cmp.Diff(want, source.Status.Inventory.Entries); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(holds, readInventory(source), cmp.AllowUnexported(id{})); diff != "" {
		t.Error(diff)
	}
}
