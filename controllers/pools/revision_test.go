// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

// twin returns one of two templates whose digests begin with the same digits. Such a pair is found in three seconds.
func twin(image string) runtime.RawExtension {
	n := map[string]int{"runner:1": 992218, "runner:2": 1790303}[image]
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}},"spec":{"containers":[{"name":"runner","image":%q}]}}`, n, image)}
}

const twins = "linux-0d7f9ec30b"

// newTwins is a bench whose pool has the first of the twins.
func newTwins(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = twin("runner:1") })
	b.start()
	if r := b.pool().Status.Revision; r != twins {
		t.Fatalf("revision %s", r)
	}
	return b
}

func (b *bench) revisionOf(name string) *appsv1.ControllerRevision {
	b.t.Helper()
	r := &appsv1.ControllerRevision{}
	must(b.t, b.Client.Get(b.t.Context(), types.NamespacedName{Namespace: "ci", Name: name}, r))
	return r
}

func digestOf(t *testing.T, template runtime.RawExtension) string {
	t.Helper()
	digest, err := podspec.Digest(template.Raw)
	must(t, err)
	return digest
}

func TestTemplatesWithTheSameTenDigitsAreTwoRevisions(t *testing.T) {
	b := newTwins(t)
	b.snapshot.Assigned = 1
	b.reconcile()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = twin("runner:2") })
	b.snapshot.Assigned = 2
	b.reconcile()
	const second = twins + "-1"
	if r := b.pool().Status.Revision; r != second || len(b.revisions()) != 2 {
		t.Fatalf("revision %s of %v", r, b.revisions())
	}
	r := b.revisionOf(second)
	if want := digestOf(t, twin("runner:2")); !strings.Contains(string(r.Data.Raw), "runner:2") || r.Annotations[v1alpha1.TemplateDigestAnnotation] != want {
		t.Errorf("it is %s, %v; want %s", r.Data.Raw, r.Annotations, want)
	}
	for _, r := range b.runners() {
		image := map[string]string{twins: "runner:1", second: "runner:2"}[r.Spec.Revision]
		if r.Spec.TemplateDigest != digestOf(t, twin(image)) {
			t.Errorf("runner %s of %s is for template %s", r.Name, r.Spec.Revision, r.Spec.TemplateDigest)
		}
	}
	b.delete(twins)
	b.reconcile()
	if r := b.pool().Status.Revision; r != second {
		t.Errorf("it is %s once the first is gone", r)
	}
}

func TestAVerdictOnOneTemplateIsNoneOnAnotherOfTheSameName(t *testing.T) {
	b := newTwins(t)
	b.put("p", deny("runner:2"))
	b.reconcile()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = twin("runner:2") })
	b.snapshot.Assigned = 1
	b.reconcile()
	if r := b.readyReason(); !strings.Contains(r, "PolicyDenied") || len(b.runners()) != 1 || b.runners()[0].Spec.Revision != twins || len(b.revisions()) != 1 {
		t.Errorf("ready: %s; runners %+v", r, b.runners())
	}
}

// Anyone who can delete ControllerRevisions may replace an allowed revision under its name.
func TestWhatWasAllowedOfATemplateHoldsForNoOther(t *testing.T) {
	for name, bound := range map[string]bool{"judged by policies": true, "without policies": false} {
		t.Run(name, func(t *testing.T) {
			b := newTwins(t)
			if bound {
				b.put("p", deny("another"))
				b.reconcile()
			}
			b.put("p", brokenModule)
			b.delete(twins)
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = twin("runner:2") })
			b.snapshot.Assigned = 1
			if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
				t.Error("a runner was made of a template that is gone")
			}
			if len(b.revisions()) != 0 || len(b.runners()) != 0 {
				t.Errorf("revisions %v, %d runners: %s", b.revisions(), len(b.runners()), b.readyReason())
			}
		})
	}
}

func TestARevisionThatSomebodyReplacedIsNotAdopted(t *testing.T) {
	b := newTwins(t)
	b.snapshot.Assigned = 1
	b.reconcile()
	forged := b.revisionOf(twins)
	b.delete(twins)
	forged.ResourceVersion, forged.Data = "", template("runner:evil")
	must(t, b.Client.Create(t.Context(), forged))
	b.allEvents()
	b.reconcile()
	r := b.pool().Status.Revision
	if want := "the pool's ControllerRevisions were modified: the template of revision " + twins + " is now revision " + r; r == twins || !strings.Contains(strings.Join(b.allEvents(), "\n"), want) {
		t.Errorf("revision %s, of which nobody is told", r)
	}
}

func TestARunnerOfATemplateThatWasReplacedIsReplaced(t *testing.T) {
	b := newTwins(t)
	b.snapshot.Assigned = 1
	b.reconcile()
	b.runAll()
	former := b.runners()[0].Name
	b.delete(twins)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = twin("runner:2") })
	b.allEvents()
	b.reconcile()
	b.reconcile()
	if told := b.allEvents(); !strings.Contains(strings.Join(told, "\n"), former+"; another template replaced revision "+twins) {
		t.Errorf("told %q", told)
	}
	if i := slices.IndexFunc(b.runners(), func(r v1alpha1.Runner) bool { return r.Name == former && r.DeletionTimestamp.IsZero() }); i >= 0 {
		t.Errorf("%s goes on as one of revision %s", former, b.pool().Status.Revision)
	}
}

func TestARevisionThatTheCacheDoesNotShowIsNotTakenForOurs(t *testing.T) {
	b := newTwins(t)
	b.refusedRevision = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "controllerrevisions"}, "x")
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:3") })
	b.reconcile()
	if r := b.pool().Status.Revision; r != twins || !strings.Contains(b.readyReason(), "may have another template") {
		t.Errorf("revision %s: %s", r, b.readyReason())
	}
}

// The cache never shows a foreign revision without Corral's labels.
func TestARevisionThatTheCacheNeverShowsTakesItsNameAlone(t *testing.T) {
	b := newTwins(t)
	next := podspec.RevisionNames("linux", digestOf(t, template("runner:3")))
	must(t, b.Client.Create(t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: next[0]}, Data: template("runner:evil")}))
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, isRevision := o.(*appsv1.ControllerRevision); isRevision && key.Name == next[0] {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "controllerrevisions"}, key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:3") })
	b.reconcile()
	b.reconcile()
	if r := b.pool().Status.Revision; r != next[1] || strings.Contains(strings.Join(b.allEvents(), "\n"), "Warning") {
		t.Errorf("revision %s: %s", r, b.readyReason())
	}
}

func (b *bench) delete(revision string) {
	b.t.Helper()
	must(b.t, b.Client.Delete(b.t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: revision}}))
}

func TestATemplateThatAFormerVersionTookIsNamed(t *testing.T) {
	b := newBench(t)
	marked := runtime.RawExtension{Raw: []byte(`{"metadata":{"annotations":{"corral.dev/job":"{}"}},"spec":{"containers":[{"name":"runner","image":"r"}]}}`)}
	b.start()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = marked })
	stored := b.revisionOf(b.pool().Status.Revision)
	stored.ResourceVersion, stored.Name, stored.Data = "", podspec.RevisionNames("linux", digestOf(t, marked))[0], marked
	must(t, b.Client.Create(t.Context(), stored))
	b.reconcile()
	if r := b.readyReason(); !strings.Contains(r, "TemplateInvalid") || !strings.Contains(r, "spec.template.metadata.annotations[corral.dev/job]") {
		t.Errorf("ready: %s", r)
	}
}

// The garbage collector soon deletes what a deleted pool left. A new pool with its name waits for that, and no user needs
// to act.
func TestAPoolThatIsMadeAgainWarnsOfNothing(t *testing.T) {
	b := newBench(t)
	b.start()
	left := b.revisionOf(b.pool().Status.Revision)
	left.OwnerReferences[0].UID = "former"
	must(t, b.Client.Update(t.Context(), left))
	b.restart()
	b.reconcile()
	if told := strings.Join(b.allEvents(), "\n"); strings.Contains(told, "Warning") || !strings.Contains(b.readyReason(), "of a deleted pool with the same name still exists") {
		t.Errorf("told %q, ready: %s", told, b.readyReason())
	}
}
