// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
)

// treeChoice lists alternative texts for a generated tree. The first is always valid. It is the most frequent one, so that
// vet accepts some trees.
type treeChoice []string

func (c treeChoice) pick(r *rand.Rand) string {
	if r.IntN(8) > 0 {
		return c[0]
	}
	return c[r.IntN(len(c))]
}

var (
	treePaths      = treeChoice{"teams/web", "teams", "", "teams/api"}
	treeNamespaces = treeChoice{"", `namespace: "trees"`, `namespace: "elsewhere"`, `namespace: "Trees"`}
	treeNames      = treeChoice{"web", "web-linux", "api", "Web", "a.b"}
	treeTags       = treeChoice{``, `, tags: {max: "7"}`, `, tags: {max: "-1"}`, `, tags: {max: many}`, `, tags: {maximum: "7"}`}
	treeFields     = treeChoice{``, `scale: schedules: [{name: "day", weekly: {from: "07:00", to: "19:00"}, scale: max: 9}]`, `stopPolicy: "Hold"`, `scale: idle: 9`, `runnerLabels: ["a b"]`,
		`containerMode: type: "KubernetesNoVolume"`, `template: spec: serviceAccountName: "default"`, `stopPolicy: "Sometimes"`, `scale: min: 50`}
	treePods  = treeChoice{``, `securityContext: privileged: true`, `resources: requests: cpu: "1"`, `resources: requests: cpu: "one"`, `volumeMounts: [{name: "work", mountPath: "/w"}]`}
	treeRules = treeChoice{``, "package corral.template\n\nimport data.corral.pod\n\ndeny contains \"privileged\" if {\n\tsome container in pod.containers\n\tcontainer.securityContext.privileged\n}\n",
		"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"three\"} if time.clock(input.now)[0] >= 0\n", "package corral.scaling\n\nlimit := 3\n", "package corral.template\n\ndeny contains {\n"}
	treeExtras = treeChoice{``,
		`connections: schema.#Connections & {own: spec: {url: "https://github.com/acme", secretRef: name: "github"}}`,
		`policies: schema.#Policies & {three: spec: library: ceilings: [{max: 3, over: "Namespace"}]}`,
		`rails: schema.#ClusterPolicies & {rail: spec: library: pause: reason: "no"}`,
		`role: {apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata: name: "r", rules: []}`,
		`settings: {apiVersion: "v1", kind: "ConfigMap", metadata: name: "c"}`}
)

// generatedTree is a tree, and the settings of its PoolSource.
type generatedTree struct {
	files    map[string]string
	settings string
}

func generateTree(seed uint64, url string) generatedTree {
	r := rand.New(rand.NewPCG(seed, 41)) //nolint:gosec // a test
	g := generatedTree{files: map[string]string{}}
	for _, team := range []string{"web", "api"} {
		name := team
		if team == "web" {
			name = treeNames.pick(r)
		}
		g.files["teams/"+team+"/pools.cue"] = fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

_max: *5 | int @tag(max,type=int)
pools: schema.#Pools
pools: %q: {metadata: {%s}, spec: {
	connectionRef: name: "acme"
	scale: max: _max
	%s
	template: spec: containers: [{name: "runner", image: "runner:1", %s}]
}}
%s
`, name, treeNamespaces.pick(r), treeFields.pick(r), treePods.pick(r), treeExtras.pick(r))
		g.files["teams/"+team+"/policies/rules.rego"] = treeRules.pick(r)
	}
	g.settings = fmt.Sprintf("path: %q%s", treePaths.pick(r), treeTags.pick(r))
	g.files["cluster/source.yaml"] = fmt.Sprintf("apiVersion: corral.dev/v1alpha1\nkind: PoolSource\nmetadata: {name: pools, namespace: trees}\nspec: {interval: 1h, git: {url: %q}, %s}\n", url, g.settings)
	return g
}

// write puts the tree in place of the previous one.
func (g *gitops) write(tree generatedTree) {
	g.Remove("teams")
	for name, text := range tree.files {
		if text != "" {
			g.Write(name, text)
		}
	}
}

func (g *gitops) annotate(name, value string) {
	g.T.Helper()
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
	must(g.T, g.w.Client.Patch(g.T.Context(), source, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// If vet accepts a tree that declares its PoolSource, the PoolSource applies the tree. CORRAL_TREES is the number of trees
// that are generated, and CORRAL_TREE the seed of a single one.
func TestWhatVetAcceptsASourceApplies(t *testing.T) {
	first, n := uint64(0), uint64(32)
	if asked := os.Getenv("CORRAL_TREES"); asked != "" {
		n, _ = strconv.ParseUint(asked, 10, 64)
	}
	if asked := os.Getenv("CORRAL_TREE"); asked != "" {
		first, _ = strconv.ParseUint(asked, 10, 64)
		n = 1
	}
	w := newStory(t, "trees")
	must(t, w.Connect(t.Context(), "trees", "acme", "trees-org"))
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: "trees", key: client.ObjectKey{Namespace: "trees", Name: "pools"}}
	w.controller(t)
	accepted := 0
	for seed := first; seed < first+n; seed++ {
		tree := generateTree(seed, g.URL())
		g.write(tree)
		out, err := exec.CommandContext(t.Context(), w.Binary, "vet", g.Path("")).CombinedOutput()
		if err != nil {
			why, _, _ := strings.Cut(string(out), "\n")
			t.Logf("seed %d: refused: %s", seed, why)
			continue
		}
		accepted++
		commit := g.Push(fmt.Sprintf("Tree %d", seed))
		must(t, w.Cluster.Apply(t.Context(), []byte(tree.files["cluster/source.yaml"])))
		g.annotate(v1alpha1.AllowPruneAnnotation, "main@sha1:"+commit) // trees have little in common
		g.request()
		waitSource(t, g.key, func(s *v1alpha1.PoolSource) error {
			ready := conditions.Get(s, meta.ReadyCondition)
			switch {
			case ready != nil && conditions.IsStalled(s) && s.Status.ObservedGeneration == s.Generation && ready.Reason != v1alpha1.PruneRefusedReason:
				t.Fatalf("seed %d: vet accepts it (%s), and the PoolSource says %s: %s\n%v", seed, out, ready.Reason, ready.Message, tree)
			case !conditions.IsReady(s) || !strings.HasSuffix(s.Status.LastAppliedRevision, commit):
				return fmt.Errorf("seed %d: %v", seed, ready)
			}
			return nil
		})
	}
	w.cleanUp(t, "trees")
	if n > 1 && (accepted < int(n)/6 || accepted == int(n)) { //nolint:gosec // few
		t.Errorf("%d of %d trees were accepted", accepted, n)
	}
	t.Logf("%d of %d trees were accepted and applied", accepted, n)
}
