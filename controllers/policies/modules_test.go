// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
)

type refusing struct{ loads int }

func (r *refusing) Load(context.Context, policy.Source, func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	r.loads++
	return policy.Facts{}, []v1alpha1.Diagnostic{{Message: "no"}}, nil
}
func (*refusing) Ask(context.Context, *policy.Policy, policy.Question) ([]byte, error) {
	return nil, nil
}

// Many policies that cannot be loaded refer to one ConfigMap.
func TestTextsThatCannotBeLoadedAreNotKept(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.RunnerPolicy{})
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "m"}, Data: map[string]string{"m.rego": strings.Repeat("x", 900<<10)}}
	b.WithObjects(config)
	const n = 60
	for i := range n {
		p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: fmt.Sprint("p", i)}}
		p.Spec.ModulesFrom = append(p.Spec.ModulesFrom, v1alpha1.ModulesSource{ConfigMapRef: v1alpha1.LocalObjectReference{Name: "m"}})
		b.WithObjects(p)
	}
	c := b.Build()
	rules := &refusing{}
	e := newEngine()
	r := &Reconciler{Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(1000)}, Live: c, Rules: rules, Engine: e, Kind: policy.KindRunnerPolicy}
	before := heap()
	for i := range n {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: fmt.Sprint("p", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if grown := (heap() - before) >> 20; grown > 5 {
		t.Errorf("%d policies of one ConfigMap, none of which could be loaded, keep %d MiB", n, grown)
	}
	runtime.KeepAlive(e)
}

// waiting changes a policy before its turn comes.
type waiting struct {
	refusing
	change func()
}

func (w *waiting) Load(ctx context.Context, source policy.Source, isCurrent func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	if w.change(); !isCurrent() {
		return policy.Facts{}, nil, policy.ErrOutdated
	}
	return w.refusing.Load(ctx, source, isCurrent)
}

func TestAPolicyThatChangesBeforeItsTurnIsLeftToItsNextLook(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(context.Context, client.Client, *v1alpha1.RunnerPolicy) error
		loads  int
	}{
		"nothing changes": {func(context.Context, client.Client, *v1alpha1.RunnerPolicy) error { return nil }, 1},
		"it is deleted":   {func(ctx context.Context, c client.Client, p *v1alpha1.RunnerPolicy) error { return c.Delete(ctx, p) }, 0},
		"it is edited": {func(ctx context.Context, c client.Client, p *v1alpha1.RunnerPolicy) error {
			p.Generation++ // as an API server counts
			return c.Update(ctx, p)
		}, 0},
		"it is made anew": {func(ctx context.Context, c client.Client, p *v1alpha1.RunnerPolicy) error {
			other := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: "another"}, Spec: p.Spec}
			return errors.Join(c.Delete(ctx, p), c.Create(ctx, other))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "p"}}
			p.Spec.Modules = map[string]string{"m.rego": "package corral.scaling"}
			c, e := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(p).WithObjects(p.DeepCopy()).Build(), newEngine()
			key := types.NamespacedName{Namespace: "ci", Name: "p"}
			rules := &waiting{change: func() {
				err := c.Get(t.Context(), key, p)
				if err = errors.Join(err, tc.change(t.Context(), c, p)); err != nil {
					t.Error(err)
				}
			}}
			r := &Reconciler{Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(10)}, Live: c, Rules: rules, Engine: e, Kind: policy.KindRunnerPolicy}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > recheck {
				t.Fatalf("%+v, %v", result, err)
			}
			known := e.Loaded(policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p"}.Ref())
			if rules.loads != tc.loads || (known != nil) != (tc.loads > 0) {
				t.Errorf("it was loaded %d times and is known as %v", rules.loads, known)
			}
		})
	}
}

// A namespace may have a limited number of policies, including those that use only the library. One more is not even
// loaded.
func TestOnePolicyTooManyIsNotLoaded(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policies := map[string]*v1alpha1.RunnerPolicy{"ci": {}, "other": {}}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.RunnerPolicy{})
	for namespace, p := range policies {
		p.Namespace, p.Name = namespace, "more"
		p.Spec.Modules = map[string]string{"m.rego": "package corral.scaling"}
		b.WithObjects(p)
	}
	c, rules, e := b.Build(), &refusing{}, newEngine()
	for i := range maxNamespacePolicies {
		s := policy.Source{
			Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: fmt.Sprint("p", i), Library: &v1alpha1.PolicyLibrary{Pause: &v1alpha1.Pause{Reason: "r"}},
		}
		e.Put(policy.Elsewhere(s, policy.Facts{}, rules), s)
	}
	r := &Reconciler{Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(10)}, Live: c, Rules: rules, Engine: e, Kind: policy.KindRunnerPolicy}
	for namespace, want := range map[string]struct {
		message string
		loads   int
	}{"ci": {"namespace ci has 32 policies already: join some of them", 0}, "other": {"no", 1}} {
		rules.loads = 0
		for range 2 {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "more"}}); err != nil {
				t.Fatal(err)
			}
		}
		said := e.Loaded(policy.Source{Kind: policy.KindRunnerPolicy, Namespace: namespace, Name: "more"}.Ref()).Diagnostics()
		if len(said) != 1 || said[0].Message != want.message || rules.loads != want.loads {
			t.Errorf("%s: loaded %d times, %+v", namespace, rules.loads, said)
		}
	}
}

// Library rules are trusted. Their parameters are trusted only if the platform team wrote them.
func TestATenantsPolicyIsNeverEvaluatedHere(t *testing.T) {
	library := &v1alpha1.PolicyLibrary{Pause: &v1alpha1.Pause{Reason: "r"}}
	modules := map[string]string{"m.rego": "package corral.scaling"}
	for name, tc := range map[string]struct {
		source policy.Source
		loads  int
	}{
		"the platform's, of the library":   {policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "p", Library: library}, 0},
		"the platform's, with modules":     {policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "p", Library: library, Modules: modules}, 1},
		"a tenant's, of the library":       {policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Library: library}, 1},
		"a tenant's, with modules as well": {policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Library: library, Modules: modules}, 1},
	} {
		rules := &refusing{}
		loaded, err := (&Reconciler{Rules: rules, Kind: tc.source.Kind}).loadRules(t.Context(), tc.source, nil)
		if err != nil || rules.loads != tc.loads || (len(loaded.Diagnostics()) > 0) != (tc.loads > 0) {
			t.Errorf("%s: loaded %d times elsewhere; %+v, %v", name, rules.loads, loaded.Diagnostics(), err)
		}
	}
}

// heap returns the memory in use, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// doubting loads policies in this process.
type doubting struct{ refusing }

func (*doubting) Load(_ context.Context, source policy.Source, _ func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	p, diagnostics := policy.Load(source)
	return p.Facts(), diagnostics, nil
}

// A rule that probably misses something is in force, and the condition says what it misses.
func TestThePolicyWarnsOfDoubts(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "memory"}}
	p.Spec.Modules = map[string]string{"a.rego": "package corral.template\n\ndeny contains \"x\" if {\n\tsome path, c in data.corral.pod.containers\n\tc.resources.limits.memory > \"2Gi\"\n}\n"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).WithStatusSubresource(p).Build()
	r := &Reconciler{Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(10)}, Live: c, Rules: &doubting{}, Engine: newEngine(), Kind: policy.KindRunnerPolicy}
	key := client.ObjectKeyFromObject(p)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, p); err != nil {
		t.Fatal(err)
	}
	ready := conditions.Get(p, v1alpha1.ReadyCondition)
	const want = "Loaded; it decides on template; warning: a.rego:5:2: input.pod.spec.containers[_].resources.limits.memory is a quantity such as 16Gi"
	if ready == nil || ready.Status != metav1.ConditionTrue || !strings.HasPrefix(ready.Message, want) {
		t.Errorf("Ready is %+v", ready)
	}
}
