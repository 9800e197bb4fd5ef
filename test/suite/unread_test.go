// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// poisons are objects with values that Go cannot decode, each with the field that its status then names.
var poisons = []struct {
	spec  string
	into  kube.Object
	field string
}{
	{"connectionRef: {name: acme}, template: {spec: {containers: [{name: runner}]}}, scale: {idleTimeout: banana, behavior: {scaleUp: {tolerance: '1e-2147483647'}}}", &v1alpha1.RunnerPool{}, "spec.scale.idleTimeout: "},
	{"interval: 1h, git: {url: 'https://127.0.0.1/x'}, timeout: 99999999999h", &v1alpha1.PoolSource{}, "spec.timeout: "},
	{"url: 'https://github.com/acme', secretRef: {name: github}, webhook: {hookID: seven}", &v1alpha1.GitHubConnection{}, "spec.webhook.hookID: "},
	{"library: {resources: {maxPerPod: {cpu: '1e1.5'}}}", &v1alpha1.RunnerPolicy{}, "spec.library.resources.maxPerPod.cpu: "},
	{"namespaces: [poisoned], library: {pause: {reason: x, until: '2026-12-20t00:00:00z'}}", &v1alpha1.ClusterRunnerPolicy{}, "spec.library.pause.until: "},
	{"poolRef: {name: linux}, connectionRef: {name: acme}, revision: linux-1, scaleSetID: five", &v1alpha1.Runner{}, "spec.scaleSetID: "},
	{"poolRef: {name: linux}, connectionRef: {name: acme}, poolUID: x, name: linux, runnerGroup: default, labels: [5]", &v1alpha1.RunnerScaleSet{}, "spec.labels[0]: "},
}

// loosen removes all validation from Corral's CRDs, as if none had ever existed, until restore is called or the
// test ends.
func loosen(t *testing.T) (restore func()) {
	t.Helper()
	definitions := &unstructured.UnstructuredList{}
	definitions.SetAPIVersion("apiextensions.k8s.io/v1")
	definitions.SetKind("CustomResourceDefinitionList")
	must(t, shared.Client.List(t.Context(), definitions))
	var was []unstructured.Unstructured
	for _, d := range definitions.Items {
		if group, _, _ := unstructured.NestedString(d.Object, "spec", "group"); group != v1alpha1.GroupVersion.Group {
			continue
		}
		was = append(was, *d.DeepCopy())
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		delete(versions[0].(map[string]any), "selectableFields") // they refer to fields of the schema
		versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": anything}
		must(t, unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"))
		must(t, shared.Client.Update(t.Context(), &d))
	}
	restore = sync.OnceFunc(func() {
		for _, d := range was {
			d.SetResourceVersion("")
			patch, err := d.MarshalJSON()
			must(t, err)
			must(t, shared.Client.Patch(context.Background(), &d, client.RawPatch("application/merge-patch+json", patch)))
		}
	})
	t.Cleanup(restore)
	return restore
}

// poison creates an invalid object of each kind, which the API server accepts without validation.
func poison(t *testing.T, namespace string) []client.Object {
	t.Helper()
	var made []client.Object
	for _, p := range poisons {
		gvk, err := shared.Client.GroupVersionKindFor(p.into)
		must(t, err)
		object := &unstructured.Unstructured{Object: map[string]any{}}
		must(t, yaml.Unmarshal([]byte("spec: {"+p.spec+"}"), &object.Object))
		object.SetGroupVersionKind(gvk)
		object.SetNamespace(namespace)
		object.SetName("poisoned")
		if gvk.Kind == "ClusterRunnerPolicy" {
			object.SetNamespace("")
		}
		eventually(t, func(ctx context.Context) error { return shared.Client.Create(ctx, object.DeepCopy()) })
		made = append(made, object)
	}
	return made
}

func TestOneUnreadableObjectOfEachKindStopsNobodyElse(t *testing.T) {
	w := newLoneStory(t)
	must(t, w.Cluster.CreateNamespace(t.Context(), "poisoned"))
	must(t, w.Connect(t.Context(), "bystander", "acme", "bystander-org"))
	must(t, w.Client.Create(t.Context(), newPool("bystander", "linux", "acme")))
	running := w.start(t)
	w.allDone(t, w.addJobs(t, "bystander-org", "linux", 3, 50*time.Millisecond))

	restore := loosen(t)
	objects := poison(t, "poisoned")
	t.Cleanup(func() {
		for _, object := range objects {
			must(t, w.Client.Delete(context.Background(), object))
		}
	})
	tell := func() {
		t.Helper()
		for _, p := range poisons {
			eventually(t, func(ctx context.Context) error {
				at := key("poisoned", "poisoned")
				if _, cluster := p.into.(*v1alpha1.ClusterRunnerPolicy); cluster {
					at.Namespace = ""
				}
				if err := w.Client.Get(ctx, at, p.into); err != nil {
					return err
				}
				stalled := conditions.Get(p.into, v1alpha1.StalledCondition)
				if facts := recorder.Facts(p.into, v1alpha1.ReadyCondition); stalled == nil || !strings.Contains(facts, p.field) {
					return fmt.Errorf("%T: Stalled is %+v, with %q, want %q", p.into, stalled, facts, p.field)
				}
				return nil
			})
		}
	}
	tell()
	restore() // only now, because an API server with validation would also reject status updates of an object with an invalid duration
	night := recorderOf(t, "poisoned", ".said", running)
	night.LeaseNamespace, night.Warnings = world.SystemNamespace, len(poisons)
	night.Said(t.Context(), t, w.World.World)
	w.allDone(t, w.addJobs(t, "bystander-org", "linux", 10, 50*time.Millisecond))
	must(t, w.Client.Create(t.Context(), newPool("bystander", "late", "acme")))
	w.allDone(t, w.addJobs(t, "bystander-org", "late", 3, 50*time.Millisecond))

	must(t, running.Stop())
	w.start(t)
	ends(t, "bystander")
	w.allDone(t, w.addJobs(t, "bystander-org", "linux", 10, 50*time.Millisecond))
	tell()
	must(t, w.Client.Create(t.Context(), newPool("bystander", "later", "acme")))
	w.allDone(t, w.addJobs(t, "bystander-org", "later", 3, 50*time.Millisecond))
}

// The API server accepts some times that Go cannot parse. A status may contain such a time in a field without a
// validation rule.
func TestAStatusThatCannotBeReadIsWrittenAnew(t *testing.T) {
	w := newStory(t, "badstatus")
	must(t, w.Connect(t.Context(), "badstatus", "acme", "badstatus-org"))
	p := newPool("badstatus", "linux", "acme")
	must(t, w.Client.Create(t.Context(), p))
	w.elect(t, "badstatus-lease")
	night := recorderOf(t, "badstatus", "", w.start(t))
	night.Open(t, w.World.World)
	ends(t, "badstatus")
	w.allDone(t, w.addJobs(t, "badstatus-org", "linux", 1, 50*time.Millisecond))
	const patch = `{"status":{"schedule":{"min":0,"idle":0,"max":1,"next":"2026-12-20t00:00:00z"},` +
		`"conditions":[{"type":"Ready","status":"True","reason":"x","message":"","lastTransitionTime":["never"]}]}}`
	must(t, w.Client.Status().Patch(t.Context(), p.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))))
	w.allDone(t, w.addJobs(t, "badstatus-org", "linux", 3, 50*time.Millisecond))
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if ready := conditions.Get(p, v1alpha1.ReadyCondition); p.LostStatus() != "" || ready == nil || ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("lost: %s; Ready: %+v", p.LostStatus(), ready)
		}
		return nil
	})
	night.Look("it is written anew", func(context.Context) error { return nil })
	night.Tale("in the end")
	night.Close()
}

// The API server stores an object that is nested 9,994 levels deep, but cannot decode it again. A list of pools
// would then always fail.
func TestATemplateTooDeepToBeListedIsRefused(t *testing.T) {
	t.Parallel()
	must(t, shared.Cluster.CreateNamespace(t.Context(), "deep"))
	const runner = `{"spec":{"containers":[{"name":"runner"}]},"a":`
	for name, template := range map[string]string{
		"objects": runner + strings.Repeat(`{"a":`, 9993) + "1" + strings.Repeat("}", 9994),
		"lists":   runner + strings.Repeat("[", 9992) + strings.Repeat("]", 9992) + "}",
	} {
		p := newPool("deep", name, "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Template.Raw = []byte(template) })
		eventually(t, func(ctx context.Context) error { // a new admission policy takes effect after a delay
			if err := shared.Client.Create(ctx, p.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "spec has more than 9000 objects and lists") {
				return fmt.Errorf("%s: the API server said %q", name, fmt.Sprint(err))
			}
			return nil
		})
	}
	sized := func(bytes int) *v1alpha1.RunnerPool {
		return newPool("deep", "large", "acme", func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Raw = fmt.Appendf(nil, `{"spec":{"containers":[{"name":"runner","env":[{"name":"A","value":%q}]}]}}`, strings.Repeat("1234567 ", bytes/8))
		})
	}
	if err := shared.Client.Create(t.Context(), sized(800_000)); err == nil || !strings.Contains(err.Error(), "spec is larger than 256 KiB") {
		t.Errorf("of a large pool the API server said %v", err)
	}
	large := sized(250_000)
	must(t, shared.Client.Create(t.Context(), large))
	must(t, shared.Client.List(t.Context(), &v1alpha1.RunnerPoolList{}))
	must(t, shared.Client.Delete(t.Context(), large))
}
