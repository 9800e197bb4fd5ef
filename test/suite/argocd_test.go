// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/test/argocd"
	"github.com/corral-dev/corral/test/golden"
)

// argoManager is the field manager of Argo CD's server-side apply.
const argoManager = "argocd-controller"

// sighting is a version of an object, with the result of its health script.
type sighting struct {
	object *unstructured.Unstructured
	health argocd.Health
}

// observer watches all versions of Corral's objects, as Argo CD's cache does, and runs their health scripts.
type observer struct {
	t    *testing.T
	mu   sync.Mutex
	seen []sighting
}

// observe watches the seven kinds in a namespace until the test ends. Of cluster-scoped objects, it watches those
// whose name starts with the namespace's.
func observe(t *testing.T, namespace string) *observer {
	t.Helper()
	o := &observer{t: t}
	c, err := client.NewWithWatch(shared.Cluster.Config, client.Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for _, kind := range []string{"PoolSource", "GitHubConnection", "RunnerPool", "RunnerPolicy", "ClusterRunnerPolicy", "Runner", "RunnerScaleSet"} {
		gvk := v1alpha1.GroupVersion.WithKind(kind)
		script, err := argocd.Script(gvk.GroupKind())
		must(t, err)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
		watcher, err := c.Watch(ctx, list)
		must(t, err)
		all.Go(func() {
			defer watcher.Stop()
			for event := range watcher.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if ok && (object.GetNamespace() == namespace || strings.HasPrefix(object.GetName(), namespace)) {
					o.note(object, script)
				}
			}
		})
	}
	return o
}

func (o *observer) note(object *unstructured.Unstructured, script string) {
	if object.GetDeletionTimestamp() != nil {
		return // Argo CD reports "Pending deletion" itself, without running the script
	}
	health, err := argocd.Ask(script, object.Object)
	if err != nil || health.Status == "" || health.Message == "" {
		o.t.Errorf("%s %s: %+v, %v", object.GetKind(), object.GetName(), health, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, sighting{object, health})
}

// wanted is an object with the health that the test must observe.
type wanted struct {
	// file is the name of the recording in testdata, without its extension.
	file, kind, name, status string
	// text must occur in the message.
	text string
}

// find waits for an object with the wanted health.
func (o *observer) find(want wanted) sighting {
	o.t.Helper()
	var found sighting
	eventually(o.t, func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		var met []string
		for _, s := range o.seen {
			if s.object.GetKind() != want.kind || !strings.HasPrefix(s.object.GetName(), want.name) {
				continue
			}
			if s.health.Status == want.status && strings.Contains(s.health.Message, want.text) {
				found = s
				return nil
			}
			met = append(met, fmt.Sprintf("%s: %s", s.health.Status, s.health.Message))
		}
		return fmt.Errorf("%s %s was never %s %q but %q", want.kind, want.name, want.status, want.text, slices.Compact(met))
	})
	return found
}

// Objects that Argo CD applies become Healthy, and objects in other states have the expected health. Corral
// changes none of the applied fields. UPDATE_GOLDEN=1 records the objects for the tests of the health scripts.
func TestArgoCDSeesHealthAndNoDifference(t *testing.T) {
	const namespace = "argocd"
	w := newStory(t, namespace)
	w.controller(t)
	must(t, w.Connect(t.Context(), namespace, "other", namespace+"-org"))
	ends(t, namespace)
	o := observe(t, namespace)
	credentials := w.CredentialsSecret(namespace, "github")
	must(t, w.Client.Create(t.Context(), credentials))
	objects := w.argoSync(t, namespace)

	source := w.argoTroubles(t, namespace)
	job := w.longJob(t, namespace, 1)
	for _, want := range argoHealth(namespace) {
		s := o.find(want)
		if golden.Updating() {
			record(t, want, s.object)
		}
	}
	checkTree(t, namespace)
	if !w.GitHub.CancelJob(job) {
		t.Error("the job was over before it was cancelled")
	}
	argoSourceStates(t, o, source)
	checkUntouched(t, objects)
}

// argoHealth lists the expected health of the objects from argoSync and argoTroubles.
func argoHealth(namespace string) []wanted {
	return []wanted{
		{"progressing", "GitHubConnection", "acme", "Progressing", "Waiting for the controller"},
		{"healthy", "GitHubConnection", "acme", "Healthy", "connected"},
		{"suspended", "GitHubConnection", "idle", "Suspended", ""},
		{"degraded-credentials", "GitHubConnection", "refused", "Degraded", ""},
		{"degraded-secret", "GitHubConnection", "missing", "Degraded", "Secret"},
		{"progressing", "RunnerPool", "linux", "Progressing", ""},
		{"healthy", "RunnerPool", "linux", "Healthy", "listening"},
		{"suspended", "RunnerPool", "parked", "Suspended", "draining"},
		{"degraded-group", "RunnerPool", "nogroup", "Degraded", "group"},
		{"degraded-failing", "RunnerPool", "crash", "Degraded", ""},
		{"progressing-connection", "RunnerPool", "early", "Progressing", ""},
		{"progressing", "RunnerPolicy", "limits", "Progressing", "Waiting for the controller"},
		{"healthy", "RunnerPolicy", "limits", "Healthy", ""},
		{"degraded", "RunnerPolicy", "broken", "Degraded", "broken.rego:"},
		{"progressing", "ClusterRunnerPolicy", namespace + "-guard", "Progressing", "Waiting for the controller"},
		{"healthy", "ClusterRunnerPolicy", namespace + "-guard", "Healthy", ""},
		{"degraded", "ClusterRunnerPolicy", namespace + "-broken", "Degraded", "broken.rego:"},
		{"progressing", "RunnerScaleSet", "linux", "Progressing", ""},
		{"healthy", "RunnerScaleSet", "linux", "Healthy", "listening"},
		{"degraded-group", "RunnerScaleSet", "nogroup", "Degraded", "group"},
		{"progressing", "Runner", "linux-", "Progressing", ""},
		{"healthy-idle", "Runner", "warm-", "Healthy", "Idle, "},
		{"healthy-busy", "Runner", "linux-", "Healthy", namespace + "-org/app"},
		{"progressing", "PoolSource", "pools", "Progressing", ""},
		{"healthy", "PoolSource", "pools", "Healthy", ""},
	}
}

// argoSync compiles the example for Argo CD, applies the objects as Argo CD does, and returns them.
func (w *story) argoSync(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	build := exec.CommandContext(t.Context(), w.Binary, "build", "--argocd", filepath.Join("..", "..", "examples", "argocd"))
	build.Env = append(os.Environ(), "ARGOCD_ENV_CORRAL_TAGS=image=runner:1,url="+w.GitHub.ConfigURL(namespace+"-org"))
	out, err := build.Output()
	must(t, err)
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		must(t, err)
		// Argo CD adds the namespace of its destination, and an annotation that identifies the Application.
		object.SetNamespace(namespace)
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["argocd.argoproj.io/tracking-id"] = fmt.Sprintf("runners:%s/%s:%s/%s", v1alpha1.GroupVersion.Group, object.GetKind(), namespace, object.GetName())
		object.SetAnnotations(annotations)
		must(t, w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner(argoManager), client.ForceOwnership))
		objects = append(objects, object)
	}
}

// argoTroubles creates objects in all other states.
func (w *story) argoTroubles(t *testing.T, namespace string) *gitops {
	t.Helper()
	connection := func(name, secret string, verification v1alpha1.VerificationState) *v1alpha1.GitHubConnection {
		return &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.GitHubConnectionSpec{
			URL: w.GitHub.ConfigURL(namespace + "-org"), SecretRef: &v1alpha1.LocalObjectReference{Name: secret}, Verification: verification,
		}}
	}
	wrong := w.CredentialsSecret(namespace, "wrong")
	wrong.StringData[v1alpha1.TokenKey] = "ghp_wrong"
	broken := map[string]string{"broken.rego": "package corral.scaling\n\nlimit contains {"}
	policy := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "broken"}}
	policy.Spec.Modules = broken
	// It selects no pool, because a policy that cannot be evaluated blocks the pools that it binds.
	policy.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}}
	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-guard"}}
	guard.Spec.Modules, guard.Spec.Namespaces = map[string]string{"limits.rego": teamLimits}, []string{namespace}
	brokenGuard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-broken"}}
	brokenGuard.Spec.Modules, brokenGuard.Spec.Namespaces = broken, []string{namespace + "-nobody"}
	t.Cleanup(w.Node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: namespace, Labels: map[string]string{v1alpha1.PoolLabel: "crash"}}))
	for _, object := range []client.Object{
		wrong, connection("idle", "github", v1alpha1.VerificationPaused), connection("refused", "wrong", ""), connection("missing", "nowhere", ""),
		newPool(namespace, "parked", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.StopPolicy = v1alpha1.StopDrain }),
		newPool(namespace, "nogroup", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup = "nobody's" }),
		newPool(namespace, "crash", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) }),
		newPool(namespace, "early", "later"),
		policy, guard, brokenGuard,
	} {
		must(t, w.Client.Create(t.Context(), object))
	}
	t.Cleanup(func() {
		for _, object := range []client.Object{guard, brokenGuard} {
			must(t, w.Client.Delete(context.Background(), object))
		}
	})
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: key(namespace, "pools")}
	g.Write("pools.cue", strings.ReplaceAll(poolWith(3, false), "linux", "fromgit"))
	g.Push("A pool")
	must(t, w.Client.Create(t.Context(), &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pools"},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: g.URL()}, Interval: metav1.Duration{Duration: time.Hour}},
	}))
	return g
}

// argoSourceStates breaks the source, then suspends it.
func argoSourceStates(t *testing.T, o *observer, g *gitops) {
	t.Helper()
	g.Write("pools.cue", "package pools\n\npools: {")
	g.pushAndRequest("Break it")
	for _, want := range []wanted{
		{"degraded", "PoolSource", "pools", "Degraded", "pools.cue:3:"},
		{"suspended", "PoolSource", "pools", "Suspended", ""},
	} {
		s := o.find(want)
		if golden.Updating() {
			record(t, want, s.object)
		}
		must(t, shared.Client.Patch(t.Context(), &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "pools"}},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))))
	}
}

// checkUntouched compares the applied objects with the live ones. Argo CD's server-side diff must be empty, and no
// other field manager may own a field outside of status.
func checkUntouched(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		must(t, shared.Client.Get(t.Context(), client.ObjectKeyFromObject(object), live))
		for _, f := range live.GetManagedFields() {
			if f.Manager != argoManager && f.Subresource != "status" {
				t.Errorf("%s %s: %s holds %s", object.GetKind(), object.GetName(), f.Manager, f.FieldsV1)
			}
		}
		if live.GetGeneration() != 1 || len(live.GetFinalizers()) > 0 || len(live.GetOwnerReferences()) > 0 {
			t.Errorf("%s %s is of generation %d, finalizers %v, owners %v", object.GetKind(), object.GetName(), live.GetGeneration(), live.GetFinalizers(), live.GetOwnerReferences())
		}
		predicted := object.DeepCopy()
		must(t, shared.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(predicted), client.FieldOwner(argoManager), client.ForceOwnership, client.DryRunAll))
		live.SetManagedFields(nil)
		predicted.SetManagedFields(nil)
		// The status keeps changing. Argo CD ignores it as well.
		for _, o := range []*unstructured.Unstructured{live, predicted} {
			unstructured.RemoveNestedField(o.Object, "status")
			o.SetResourceVersion("")
		}
		if diff := gocmp.Diff(live.Object, predicted.Object); diff != "" {
			t.Errorf("%s %s differs:\n%s", object.GetKind(), object.GetName(), diff)
		}
		if golden.Updating() {
			recordDifference(t, object, live)
		}
	}
}

// checkTree follows owner references as Argo CD's resource tree does. Objects that Corral created must belong to a
// pool or runner, and must not be tracked as objects from Git. Only some pods have no owner, see
// podspec.BelongsTo.
func checkTree(t *testing.T, namespace string) {
	t.Helper()
	seen := map[string]int{}
	for _, gvk := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("Runner"), v1alpha1.GroupVersion.WithKind("RunnerScaleSet"), {Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "ControllerRevision"}, {Version: "v1", Kind: "Pod"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		must(t, shared.Client.List(t.Context(), list, client.InNamespace(namespace)))
		for _, item := range list.Items {
			owner := metav1.GetControllerOf(&item)
			if item.GetAnnotations()["argocd.argoproj.io/tracking-id"] != "" {
				t.Errorf("%s %s is tracked", gvk.Kind, item.GetName())
			}
			if owner == nil {
				continue
			}
			if owner.Kind != "RunnerPool" && owner.Kind != "Runner" {
				t.Errorf("%s %s is owned by %s %s", gvk.Kind, item.GetName(), owner.Kind, owner.Name)
			}
			seen[owner.Kind+" "+gvk.Kind]++
		}
	}
	for _, want := range []string{"RunnerPool Runner", "RunnerPool RunnerScaleSet", "RunnerPool ControllerRevision", "RunnerPool ConfigMap", "Runner Secret", "Runner Pod"} {
		if seen[want] == 0 {
			t.Errorf("no %s in the tree: %v", want, seen)
		}
	}
}

// now matches timestamps, which recordings replace.
var now = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// repository matches the local URL of the test's repository.
var repository = regexp.MustCompile(`file:///\S+/bare\.git`)

// github matches the local URL of the simulated GitHub.
var github = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// scrubbed returns an object as YAML, without values that differ between recordings.
func scrubbed(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	object.SetUID("")
	text, err := yaml.Marshal(object.Object)
	must(t, err)
	text = now.ReplaceAll(text, []byte("2026-01-01T00:00:00Z"))
	text = repository.ReplaceAll(text, []byte("https://git.acme.example/pools.git"))
	return github.ReplaceAll(text, []byte("https://github.com"))
}

// record writes an object to the testdata of its kind's script, and adds the script's result to the list of tests.
func record(t *testing.T, want wanted, object *unstructured.Unstructured) {
	t.Helper()
	folder := argocd.Folder(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: want.kind})
	must(t, os.MkdirAll(filepath.Join(folder, "testdata"), 0o750))
	text := scrubbed(t, object)
	must(t, os.WriteFile(filepath.Join(folder, "testdata", want.file+".yaml"), text, 0o644))
	var recorded map[string]any
	must(t, yaml.Unmarshal(text, &recorded))
	script, err := argocd.Script(object.GroupVersionKind().GroupKind())
	must(t, err)
	health, err := argocd.Ask(script, recorded)
	must(t, err)

	type test struct {
		InputPath    string        `json:"inputPath"`
		HealthStatus argocd.Health `json:"healthStatus"`
	}
	var all struct {
		Tests []test `json:"tests"`
	}
	list := filepath.Join(folder, "health_test.yaml")
	if former, err := os.ReadFile(list); err == nil {
		must(t, yaml.Unmarshal(former, &all))
	}
	input := "testdata/" + want.file + ".yaml"
	all.Tests = slices.DeleteFunc(all.Tests, func(c test) bool { return c.InputPath == input })
	all.Tests = append(all.Tests, test{input, health})
	slices.SortFunc(all.Tests, func(a, b test) int { return cmp.Compare(a.InputPath, b.InputPath) })
	text, err = yaml.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(list, text, 0o644))
}

// recordDifference writes the objects that Argo CD would compare, for the test that uses Argo CD's own code.
func recordDifference(t *testing.T, target, live *unstructured.Unstructured) {
	t.Helper()
	for folder, object := range map[string]*unstructured.Unstructured{"target": target, "live": live} {
		folder = filepath.Join("..", "interop", "argocd", "testdata", folder)
		must(t, os.MkdirAll(folder, 0o750))
		name := strings.ToLower(object.GetKind()) + "-" + object.GetName() + ".yaml"
		must(t, os.WriteFile(filepath.Join(folder, name), scrubbed(t, object), 0o644))
	}
}
