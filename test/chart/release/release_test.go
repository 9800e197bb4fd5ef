// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package release installs Corral on a real API server. It covers Helm's install, upgrade and uninstall, and the
// commands of the quick start. The controller runs as a separate process with the Deployment's arguments.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/hack/helmchart"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/sources"
)

var (
	w          *harness.World
	must       = harness.Must
	eventually = harness.Eventually
)

func TestMain(m *testing.M) {
	if asHelm() {
		if err := playHelm(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	options := world.Options{Bare: true, GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}}
	os.Exit(harness.Run(m, options, func(made *harness.World) (func() error, error) {
		w = made
		return nil, nil
	}))
}

const team = "team"

// Both subtests need a cluster without Corral. The quick start runs last because it does not uninstall Corral.
func TestInstallations(t *testing.T) {
	sources.Open(t, "../../..")
	t.Run("a release is installed, upgraded and removed", release)
	t.Run("the quick start holds what it promises", quickStart)
}

// release installs the previous version and runs jobs with it. It upgrades while jobs arrive, then uninstalls and
// reinstalls the release while a runner waits. Finally it removes everything in the documented order.
func release(t *testing.T) {
	old, now := former(t), present(t)
	install(t, old, nil)
	must(t, apiextensionsv1.AddToScheme(w.Client.Scheme()))
	first := deployed(t, old)
	must(t, w.Connect(t.Context(), team, "acme", "release-org"))
	idle := int32(2)
	makePool(t, "waiting", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = &idle })
	makePool(t, "burst", nil)
	waiting := settled(t, "waiting", 2)

	second := upgradedInABurst(t, first, now, waiting)
	removedAndBack(t, second, now, waiting)
	removedForGood(t)
}

// upgradedInABurst upgrades while jobs arrive, as a Deployment's rolling update does: the new controller starts
// and waits for the lease before the old one is stopped.
func upgradedInABurst(t *testing.T, first *world.Controller, now version, waiting []string) *world.Controller {
	t.Helper()
	before := written(t)
	jobs := harness.AddJobs(t, w.GitHub, "release-org", "burst", 20, time.Second)
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Jobs[githubsim.JobCompleted] >= 3 }))
	upgrade(t, now, nil)
	second := deployed(t, now)
	jobs = append(jobs, harness.AddJobs(t, w.GitHub, "release-org", "burst", 10, time.Second)...)
	must(t, first.Stop())
	jobs = append(jobs, harness.AddJobs(t, w.GitHub, "release-org", "burst", 10, 100*time.Millisecond)...)
	harness.AllDone(t, w.GitHub, jobs)

	for _, job := range w.GitHub.Jobs() {
		if job.Attempts > 1 {
			t.Errorf("job %s was run %d times", job.ID, job.Attempts)
		}
	}
	if broken := w.GitHub.Report().Broken; len(broken) > 0 {
		t.Errorf("broken: %s", strings.Join(broken, "\n"))
	}
	if diff := cmp.Diff(waiting, settled(t, "waiting", 2)); diff != "" {
		t.Errorf("the upgrade changed idle runners:\n%s", diff)
	}
	if diff := cmp.Diff(before, written(t)); diff != "" {
		t.Errorf("the upgrade changed objects of users:\n%s", diff)
	}
	if sets := len(w.GitHub.Report().ScaleSets); sets != 2 {
		t.Errorf("%d scale sets on GitHub, want 2", sets)
	}
	return second
}

// removedAndBack uninstalls the release while pools exist. The pools and their runners stay, and the next release
// continues with them.
func removedAndBack(t *testing.T, running *world.Controller, now version, waiting []string) {
	t.Helper()
	before := written(t)
	uninstall(t)
	must(t, running.Stop())
	onlyDefinitionsAreLeft(t)
	definitionsAreOfOneName(t, now)
	if diff := cmp.Diff(waiting, settled(t, "waiting", 2)); diff != "" {
		t.Errorf("uninstalling the release changed runners:\n%s", diff)
	}
	install(t, now, nil)
	deployed(t, now)
	harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, "release-org", "burst", 3, 100*time.Millisecond))
	if diff := cmp.Diff(waiting, settled(t, "waiting", 2)); diff != "" {
		t.Errorf("reinstalling the release changed runners:\n%s", diff)
	}
	if diff := cmp.Diff(before, written(t)); diff != "" {
		t.Errorf("uninstalling and reinstalling the release changed objects of users:\n%s", diff)
	}
}

// definitionsAreOfOneName checks the statements in docs/install.md about a second release with another name.
func definitionsAreOfOneName(t *testing.T, v version) {
	t.Helper()
	if err := refusal(t, v, nil, false); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("a release of another name got the error %v", err)
	}
	if err := refusal(t, v, nil, true); err != nil {
		t.Errorf("with --take-ownership: %v", err)
	}
	if err := refusal(t, v, map[string]any{"crds": map[string]any{"install": false}}, false); err != nil {
		t.Errorf("without the definitions: %v", err)
	}
}

// removedForGood removes everything in the order of docs/install.md: pools, release, CRDs, namespace.
func removedForGood(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must(t, w.Client.DeleteAllOf(ctx, &v1alpha1.RunnerPool{}, client.InNamespace(team)))
	eventually(t, func(ctx context.Context) error { return w.Left(ctx, team) })
	if r := w.GitHub.Report(); len(r.ScaleSets) > 0 || len(r.Runners) > 0 {
		t.Errorf("left on GitHub: %d scale sets, %d runners", len(r.ScaleSets), len(r.Runners))
	}
	always := []string{"ConfigMap kube-root-ca.crt", "ServiceAccount default"} // Kubernetes creates these in each namespace
	eventually(t, func(context.Context) error {
		want := []string{always[0], "GitHubConnection acme", "Secret acme", always[1]} // created by the team
		if diff := cmp.Diff(want, list(t, team, "")); diff != "" {
			return fmt.Errorf("left in namespace %s:\n%s", team, diff)
		}
		return nil
	})
	uninstall(t)
	onlyDefinitionsAreLeft(t)

	definitions := &apiextensionsv1.CustomResourceDefinition{}
	must(t, w.Client.DeleteAllOf(ctx, definitions, client.MatchingLabels{"app.kubernetes.io/name": "corral"}))
	eventually(t, func(ctx context.Context) error {
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := w.Client.List(ctx, list); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d definitions are left", len(list.Items))
		}
		return nil
	})
	want := []string{always[0], "Lease corral.corral.dev", always[1]}
	if diff := cmp.Diff(want, list(t, helmchart.Namespace, "")); diff != "" {
		t.Errorf("left in namespace %s:\n%s", helmchart.Namespace, diff)
	}
}

// onlyDefinitionsAreLeft checks that only the CRDs remain of the release's objects, in all namespaces.
func onlyDefinitionsAreLeft(t *testing.T) {
	t.Helper()
	for _, object := range list(t, "", "app.kubernetes.io/instance="+helmchart.Release) {
		if !strings.HasPrefix(object, "CustomResourceDefinition ") {
			t.Errorf("%s was left behind", object)
		}
	}
	for _, object := range list(t, helmchart.Namespace, "owner=helm") {
		t.Errorf("Helm left %s behind", object)
	}
}

// list returns the names of all objects except events, in one namespace or in all.
func list(t *testing.T, namespace, selector string) []string {
	t.Helper()
	ask, err := discovery.NewDiscoveryClientForConfig(w.Cluster.Config)
	must(t, err)
	kinds, err := ask.ServerPreferredResources()
	must(t, err)
	get, err := metadata.NewForConfig(w.Cluster.Config)
	must(t, err)
	found := map[string]bool{}
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, kinds) {
		for _, kind := range group.APIResources {
			if kind.Kind == "Event" || namespace != "" && !kind.Namespaced {
				continue
			}
			gv, err := schema.ParseGroupVersion(group.GroupVersion)
			must(t, err)
			items, err := get.Resource(gv.WithResource(kind.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
			if apierrors.IsNotFound(err) {
				continue // a CRD deleted in the meantime
			}
			must(t, err)
			for _, item := range items.Items {
				found[kind.Kind+" "+item.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// makePool creates a pool in the team's namespace.
func makePool(t *testing.T, name string, change func(*v1alpha1.RunnerPool)) {
	t.Helper()
	pool := harness.NewPool(team, name, "acme")
	if change != nil {
		change(pool)
	}
	must(t, w.Client.Create(t.Context(), pool))
}

// settled waits until the pool has the wanted number of idle runners, and returns the names of the runners and
// their pods.
func settled(t *testing.T, pool string, want int) (names []string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		runners := &v1alpha1.RunnerList{}
		if err := w.Client.List(ctx, runners, client.InNamespace(team), client.MatchingLabels{v1alpha1.PoolLabel: pool}); err != nil {
			return err
		}
		names = nil
		for _, r := range runners.Items {
			if r.Status.State != v1alpha1.RunnerIdle {
				return fmt.Errorf("%s is %s", r.Name, r.Status.State)
			}
			names = append(names, fmt.Sprintf("%s %s %d", r.Name, r.UID, r.Status.RunnerID))
		}
		slices.Sort(names)
		if len(names) != want {
			return fmt.Errorf("%d runners of %s", len(names), pool)
		}
		return nil
	})
	return names
}

// written returns the metadata and spec of the pools and connections, without their status.
func written(t *testing.T) map[string]string {
	t.Helper()
	pools, connections := &v1alpha1.RunnerPoolList{}, &v1alpha1.GitHubConnectionList{}
	must(t, w.Client.List(t.Context(), pools, client.InNamespace(team)))
	must(t, w.Client.List(t.Context(), connections, client.InNamespace(team)))
	all := map[string]string{}
	for i := range pools.Items {
		all["RunnerPool "+pools.Items[i].Name] = bare(t, &pools.Items[i].ObjectMeta, pools.Items[i].Spec)
	}
	for i := range connections.Items {
		all["GitHubConnection "+connections.Items[i].Name] = bare(t, &connections.Items[i].ObjectMeta, connections.Items[i].Spec)
	}
	return all
}

// bare encodes metadata and spec, without the fields that each status update changes.
func bare(t *testing.T, meta *metav1.ObjectMeta, spec any) string {
	t.Helper()
	meta = meta.DeepCopy()
	meta.ResourceVersion, meta.ManagedFields = "", nil
	text, err := json.Marshal(map[string]any{"metadata": meta, "spec": spec})
	must(t, err)
	return string(text)
}
