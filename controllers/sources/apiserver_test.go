// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/localcluster"
)

// inProcess compiles trusted files in the test process.
type inProcess struct{}

func (inProcess) Compile(_ context.Context, files fs.FS, options compile.Options) (compile.Result, error) {
	return compile.Compile(files, options), nil
}

// site is a namespace of a real API server, and a Git repository as its source.
type site struct {
	t          *testing.T
	cluster    *localcluster.Cluster
	client     client.Client
	namespace  string
	dir        string
	git        *git.Repository
	reconciler *Reconciler
}

// TestOnAnAPIServer runs the stories whose result only a real API server determines, through server-side apply, field
// owners and CRD validation.
func TestOnAnAPIServer(t *testing.T) {
	definitions, err := filepath.Glob("../../charts/corral/files/crds/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	var manifests [][]byte
	for _, name := range definitions {
		manifest, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, manifest)
	}
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{Manifests: manifests})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, story := range map[string]func(*site){
		"a commit takes effect, and nothing is written twice": storyOfACommit,
		"drift is corrected":                    storyOfDrift,
		"a bad commit is refused":               storyOfABadCommit,
		"an invalid object":                     storyOfAnInvalidObject,
		"prune, within bounds":                  storyOfPruning,
		"the deletion policy":                   storyOfTheDeletionPolicy,
		"two sources that claim one pool":       storyOfTwoSources,
		"suspend, and a look that is asked for": storyOfTheManager,
	} {
		t.Run(name, func(t *testing.T) { story(newSite(t, cluster)) })
	}
}

func newSite(t *testing.T, cluster *localcluster.Cluster) *site {
	t.Helper()
	s := &site{t: t, cluster: cluster, dir: t.TempDir()}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		s.must(add(scheme))
	}
	var err error
	s.client, err = client.New(cluster.Config, client.Options{Scheme: scheme})
	s.must(err)
	s.namespace = fmt.Sprintf("ci-%d", time.Now().UnixNano())
	s.must(cluster.CreateNamespace(t.Context(), s.namespace))
	s.git, err = git.PlainInitWithOptions(s.dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: "refs/heads/main"}})
	s.must(err)
	s.reconciler = s.newReconciler(s.client, Options{})
	return s
}

func (s *site) newReconciler(c client.Client, options Options) *Reconciler {
	reporter := kube.Reporter{Client: c, Events: &events.FakeRecorder{}}
	return New(reporter, s.client, nil, &gitsource.Client{AllowFile: true}, nil, inProcess{}, options)
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// poolsIn returns definitions of pools, NAME:MAX each, with a connection in the same file.
func poolsIn(pools ...string) string {
	text := &strings.Builder{}
	text.WriteString("package ci\n\nconnection: {apiVersion: \"corral.dev/v1alpha1\", kind: \"GitHubConnection\", metadata: name: \"main\",\n" +
		"\tspec: {url: \"https://github.com/acme\", secretRef: name: \"github\"}}\n")
	for _, pool := range pools {
		name, max, _ := strings.Cut(pool, ":")
		fmt.Fprintf(text, "%s: {apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPool\", metadata: name: %q,\n"+
			"\tspec: {connectionRef: name: \"main\", scale: max: %s\n"+
			"\t\ttemplate: spec: containers: [{name: \"runner\", image: \"example.com/runner:1\"}]}}\n", name, name, max)
	}
	return text.String()
}

// commit commits one file of definitions and returns the revision's name.
func (s *site) commit(definitions string) string {
	s.t.Helper()
	s.must(os.WriteFile(filepath.Join(s.dir, "pools.cue"), []byte(definitions), 0o600))
	tree, err := s.git.Worktree()
	s.must(err)
	_, err = tree.Add("pools.cue")
	s.must(err)
	author := &object.Signature{Name: "Test", Email: "test@example.com", When: time.Unix(1_000_000_000, 0)}
	hash, err := tree.Commit("change", &git.CommitOptions{Author: author})
	s.must(err)
	return "main@sha1:" + hash.String()
}

func (s *site) create(name string, change ...func(*v1alpha1.PoolSource)) {
	s.t.Helper()
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	source.Spec.Git = &v1alpha1.GitSource{URL: "file://" + s.dir}
	source.Spec.Interval.Duration = time.Hour
	for _, c := range change {
		c(source)
	}
	s.must(s.client.Create(s.t.Context(), source))
}

func (s *site) source(name string) *v1alpha1.PoolSource {
	s.t.Helper()
	source := &v1alpha1.PoolSource{}
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, source))
	return source
}

func (s *site) change(name string, change func(*v1alpha1.PoolSource)) {
	s.t.Helper()
	source := s.source(name)
	before := source.DeepCopy()
	change(source)
	s.must(s.client.Patch(s.t.Context(), source, client.MergeFrom(before)))
}

func (s *site) pool(name string) *v1alpha1.RunnerPool {
	s.t.Helper()
	p := &v1alpha1.RunnerPool{}
	s.must(s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, p))
	return p
}

func (s *site) poolNames() []string {
	s.t.Helper()
	pools := &v1alpha1.RunnerPoolList{}
	s.must(s.client.List(s.t.Context(), pools, client.InNamespace(s.namespace)))
	var names []string
	for _, p := range pools.Items {
		names = append(names, p.Name)
	}
	return names
}

// sync reconciles a source once and returns its Ready condition with the first line of its message.
func (s *site) sync(name string) string {
	s.t.Helper()
	_, err := s.reconciler.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: name}})
	s.must(err)
	ready := conditions.Get(s.source(name), v1alpha1.ReadyCondition)
	first, _, _ := strings.Cut(ready.Message, "\n")
	return ready.Reason + ": " + first
}

func (s *site) expectSync(name, want string) {
	s.t.Helper()
	if got := s.sync(name); got != want {
		s.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func (s *site) expectPools(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.poolNames()); diff != "" {
		s.t.Fatal(diff)
	}
}

func storyOfACommit(s *site) {
	first := s.commit(poolsIn("linux:3"))
	s.create("us")
	s.expectSync("us", "Succeeded: Applied revision "+first+": 1 pool, 1 connection")
	s.sync("us") // stores the default of the pool's status, because no pool controller did
	before, sourceBefore := s.pool("linux"), s.source("us")

	s.expectSync("us", "Succeeded: Applied revision "+first+": 1 pool, 1 connection")
	if after := s.pool("linux"); after.ResourceVersion != before.ResourceVersion {
		s.t.Errorf("the pool was written again:\n%s", cmp.Diff(before, after))
	}
	if after := s.source("us"); after.ResourceVersion != sourceBefore.ResourceVersion {
		s.t.Errorf("the source was written again:\n%s", cmp.Diff(sourceBefore, after))
	}

	second := s.commit(poolsIn("linux:5"))
	s.expectSync("us", "Succeeded: Applied revision "+second+": 1 pool, 1 connection")
	if got := s.pool("linux").Spec.Scale.GetMax(); got != 5 {
		s.t.Errorf("max is %d", got)
	}
	if got := s.source("us"); !cmp.Equal(got.Spec, sourceBefore.Spec) || got.Generation != 1 {
		s.t.Errorf("the source's spec was written: %s", cmp.Diff(sourceBefore.Spec, got.Spec))
	}
}

func storyOfDrift(s *site) {
	s.commit(poolsIn("linux:3"))
	s.create("us")
	s.sync("us")
	p := s.pool("linux")
	other := int32(50)
	p.Spec.Scale.Max, p.Labels = &other, nil
	s.must(s.client.Update(s.t.Context(), p))
	s.sync("us")
	if p := s.pool("linux"); p.Spec.Scale.GetMax() != 3 || p.Labels[v1alpha1.SourceLabel] != "us" {
		s.t.Errorf("drift stays: max %d, labels %v", p.Spec.Scale.GetMax(), p.Labels)
	}
}

func storyOfABadCommit(s *site) {
	good := s.commit(poolsIn("linux:3"))
	s.create("us")
	s.sync("us")
	before := s.pool("linux")
	bad := s.commit(poolsIn("linux:\"many\"", "other:1"))
	if got := s.sync("us"); !strings.HasPrefix(got, "BuildFailed: pools.cue:") {
		s.t.Errorf("got %s", got)
	}
	if after := s.pool("linux"); after.ResourceVersion != before.ResourceVersion {
		s.t.Error("the pool was written")
	}
	s.expectPools("linux")
	status := s.source("us").Status
	if status.LastAppliedRevision != good || status.LastAttemptedRevision != bad || len(status.Diagnostics) == 0 {
		s.t.Errorf("status: %+v", status)
	}
}

// The API server makes the final decision about an object that compiles.
func storyOfAnInvalidObject(s *site) {
	s.create("us")
	s.commit(poolsIn("good:1", "bad:2"))
	s.reconciler.Compiler = badly{}
	if got := s.sync("us"); !strings.HasPrefix(got, "ApplyFailed: pools.cue:") || !strings.Contains(got, "min must not be above max") {
		s.t.Errorf("got %s", got)
	}
	s.expectPools("good")
	if !conditions.IsStalled(s.source("us")) {
		s.t.Error("not Stalled")
	}
}

// badly compiles the pool bad to an object that the API server refuses.
type badly struct{ inProcess }

func (b badly) Compile(ctx context.Context, files fs.FS, options compile.Options) (compile.Result, error) {
	result, err := b.inProcess.Compile(ctx, files, options)
	for _, o := range result.Objects {
		if o.Manifest.GetName() == "bad" {
			o.Manifest.Object["spec"].(map[string]any)["scale"] = map[string]any{"min": int64(9), "max": int64(2)}
		}
	}
	return result, err
}

func storyOfPruning(s *site) {
	s.commit(poolsIn("a:1", "b:1", "c:1", "d:1"))
	s.create("us")
	s.sync("us")
	half := s.commit(poolsIn("a:1", "b:1"))
	s.expectSync("us", "Succeeded: Applied revision "+half+": 2 pools, 1 connection")
	s.expectPools("a", "b")

	all := s.commit(poolsIn("new:1"))
	s.expectSync("us", "PruneRefused: Revision "+all+" would remove 2 of 2 pools, more than half: a, b")
	s.expectPools("a", "b")
	if status := s.source("us").Status; status.LastAppliedRevision != half || len(status.Inventory.Entries) != 3 {
		s.t.Errorf("status: %+v", status)
	}
	s.change("us", func(p *v1alpha1.PoolSource) { p.Annotations = map[string]string{v1alpha1.AllowPruneAnnotation: all} })
	s.expectSync("us", "Succeeded: Applied revision "+all+": 1 pool, 1 connection")
	s.expectPools("new")

	none := s.commit(poolsIn())
	s.expectSync("us", "PruneRefused: Revision "+none+" would remove the only pool, new; corral.dev/allow-prune is set to "+all+", which is not this revision")
	s.expectPools("new")
	s.change("us", func(p *v1alpha1.PoolSource) { p.Annotations = map[string]string{v1alpha1.AllowPruneAnnotation: none} })
	s.expectSync("us", "Succeeded: Applied revision "+none+": 0 pools, 1 connection")
	s.expectPools()
}

func storyOfTheDeletionPolicy(s *site) {
	s.commit(poolsIn("linux:3"))
	s.create("us")
	s.sync("us")
	s.sync("us") // stores the default of the pool's status, because no pool controller did
	for _, policy := range []v1alpha1.DeletionPolicy{"", v1alpha1.DeletionDelete, v1alpha1.DeletionOrphan} {
		s.change("us", func(p *v1alpha1.PoolSource) { p.Spec.DeletionPolicy = policy })
		s.sync("us")
		owned := len(s.pool("linux").OwnerReferences) == 1
		if owned != (policy == v1alpha1.DeletionDelete) {
			s.t.Errorf("%q: owner references %v", policy, s.pool("linux").OwnerReferences)
		}
		before := s.pool("linux")
		s.sync("us")
		if after := s.pool("linux"); after.ResourceVersion != before.ResourceVersion {
			s.t.Errorf("%q: the pool was written again:\n%s", policy, cmp.Diff(before, after))
		}
	}
}

func storyOfTwoSources(s *site) {
	s.commit(poolsIn("linux:3"))
	s.create("us")
	s.create("them")
	s.sync("us")
	if got := s.sync("them"); !strings.HasPrefix(got, "ApplyFailed: pools.cue:") || !strings.Contains(got, `PoolSource "us" holds it`) {
		s.t.Errorf("got %s", got)
	}
	if got := s.pool("linux").Labels[v1alpha1.SourceLabel]; got != "us" {
		s.t.Errorf("the pool went to %s", got)
	}
	s.must(s.client.Delete(s.t.Context(), s.source("us")))
	if got := s.sync("them"); !strings.HasPrefix(got, "Succeeded") {
		s.t.Errorf("the holder is gone: %s", got)
	}
	if got := s.pool("linux").Labels[v1alpha1.SourceLabel]; got != "them" {
		s.t.Errorf("the pool stayed with %s", got)
	}
}

// storyOfTheManager runs the controller as the program does, with an interval that never ends.
func storyOfTheManager(s *site) {
	s.commit(poolsIn("linux:2", "other:1"))
	isDeleted := func(p *v1alpha1.PoolSource) { p.Spec.DeletionPolicy = v1alpha1.DeletionDelete }
	s.create("us", isDeleted)
	s.sync("us")
	s.must(s.client.Delete(s.t.Context(), s.source("us")))
	mgr, err := ctrl.NewManager(s.cluster.Config, ctrl.Options{
		Scheme: s.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.namespace: {}}},
	})
	s.must(err)
	s.must(kube.AddIndexes(mgr.GetFieldIndexer(), kube.Indexes("here")))
	s.must(s.newReconciler(mgr.GetClient(), Options{Concurrent: 2, JitterPercent: 10}).SetupWithManager(mgr))
	ctx, stop := context.WithCancel(s.t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	defer func() {
		stop()
		s.must(<-stopped)
	}()

	s.awaitNoConnection()
	first := s.commit(poolsIn("linux:3", "other:1"))
	s.create("us", isDeleted)
	s.await("the first revision", func(p *v1alpha1.PoolSource) bool { return p.Status.LastAppliedRevision == first })

	second := s.commit(poolsIn("linux:5", "other:1"))
	s.change("us", func(p *v1alpha1.PoolSource) {
		p.Annotations = map[string]string{fluxmeta.ReconcileRequestAnnotation: "now"}
	})
	s.await("the look that was asked for", func(p *v1alpha1.PoolSource) bool {
		return p.Status.LastAppliedRevision == second && p.Status.LastHandledReconcileAt == "now"
	})

	s.change("us", func(p *v1alpha1.PoolSource) { p.Spec.Suspend = true })
	s.await("suspension", func(p *v1alpha1.PoolSource) bool {
		return conditions.GetReason(p, v1alpha1.ReadyCondition) == v1alpha1.SuspendedReason
	})
	third := s.commit(poolsIn("new:1"))
	s.change("us", func(p *v1alpha1.PoolSource) { p.Spec.Suspend = false })
	s.await("the refusal", func(p *v1alpha1.PoolSource) bool {
		return conditions.GetReason(p, v1alpha1.ReadyCondition) == v1alpha1.PruneRefusedReason
	})
	s.change("us", func(p *v1alpha1.PoolSource) { p.Annotations[v1alpha1.AllowPruneAnnotation] = third })
	s.await("what the annotation allows", func(p *v1alpha1.PoolSource) bool { return p.Status.LastAppliedRevision == third })
	s.expectPools("new")
	s.must(s.client.Delete(s.t.Context(), s.source("us")))
	s.awaitNoConnection()
}

// awaitNoConnection waits until the connection of the deleted source is deleted.
func (s *site) awaitNoConnection() {
	s.t.Helper()
	connections := &v1alpha1.GitHubConnectionList{}
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := s.client.List(ctx, connections, client.InNamespace(s.namespace))
		return len(connections.Items) == 0, err
	})
	if err != nil {
		s.t.Fatalf("waiting for the connection to go with its source: %v: %+v", err, connections.Items)
	}
}

func (s *site) await(what string, done func(*v1alpha1.PoolSource) bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return done(s.source("us")), nil
	})
	if err != nil {
		s.t.Fatalf("waiting for %s: %v: %+v", what, err, s.source("us").Status)
	}
}
