// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/harness"
)

// kind is one kind of runner, in its own namespace.
type kind struct {
	namespace string
	change    func(p *v1alpha1.RunnerPool)
	// claims is the number of cache claims that outlive the runners.
	claims int
}

func inMode(mode v1alpha1.ContainerModeType, hooks *v1alpha1.HooksSpec) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) {
		p.Spec.ContainerMode = &v1alpha1.ContainerMode{Type: mode, Kubernetes: hooks}
	}
}

// kinds lists all kinds except for persistent runners, which TestPersistentRunners covers.
var kinds = []kind{
	{"kind-plain", func(p *v1alpha1.RunnerPool) { p.Spec.WorkFolder = "/builds" }, 0},
	{"kind-docker", inMode(v1alpha1.DockerMode, nil), 0},
	{"kind-kubernetes", inMode(v1alpha1.KubernetesMode, &v1alpha1.HooksSpec{WorkVolumeClaim: &v1alpha1.WorkVolumeClaim{Size: "1Gi"}}), 0},
	{"kind-novolume", inMode(v1alpha1.KubernetesNoVolumeMode, nil), 0},
	// An update proceeds although the runner to be replaced holds the only claim.
	{"kind-cached", func(p *v1alpha1.RunnerPool) {
		p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 1, OnMissing: v1alpha1.WaitForClaim}
	}, 1},
}

// ofVersion returns a template with a version label.
func ofVersion(version string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"labels":{"version":%q}},"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`, version)}
}

// kindStory is the story of one kind. All kinds go through each step before the next one.
type kindStory struct {
	kind
	w *story
	t *testing.T
}

func (k *kindStory) pool() *v1alpha1.RunnerPool {
	k.t.Helper()
	p := &v1alpha1.RunnerPool{}
	must(k.t, k.w.Client.Get(k.t.Context(), key(k.namespace, "linux"), p))
	return p
}

// edit changes the pool.
func (k *kindStory) edit(change func(p *v1alpha1.RunnerPool)) {
	k.t.Helper()
	p := k.pool()
	before := p.DeepCopy()
	change(p)
	must(k.t, k.w.Client.Patch(k.t.Context(), p, client.MergeFrom(before)))
}

func (k *kindStory) jobs(n int, each time.Duration) []string {
	return k.w.addJobs(k.t, k.namespace+"-org", "linux", n, each)
}

// free waits until the only runner is idle and has the given version. It returns the runner's name.
func (k *kindStory) free(version string) (name string) {
	k.t.Helper()
	eventually(k.t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		must(k.t, k.w.Client.List(ctx, list, client.InNamespace(k.namespace)))
		if len(list.Items) != 1 || list.Items[0].Status.State != v1alpha1.RunnerIdle {
			return fmt.Errorf("%s: %d runners: %+v", k.namespace, len(list.Items), k.pool().Status.Conditions)
		}
		name = list.Items[0].Name
		pod := &corev1.Pod{}
		if err := k.w.Client.Get(ctx, key(k.namespace, name), pod); err != nil || pod.Labels["version"] != version {
			return fmt.Errorf("%s: %s is of version %q, %w", k.namespace, name, pod.Labels["version"], err)
		}
		return nil
	})
	return name
}

// busy waits until a runner has the job, and returns the runner's name.
func (k *kindStory) busy(id string) (name string) {
	k.t.Helper()
	eventually(k.t, func(context.Context) error {
		for _, j := range k.w.GitHub.Jobs() {
			if j.ID == id {
				name = j.Runner
			}
		}
		if name == "" {
			return fmt.Errorf("%s: nobody has job %s", k.namespace, id)
		}
		return nil
	})
	return name
}

// all runs a step for each kind.
func all(kinds []*kindStory, step func(k *kindStory)) {
	for _, k := range kinds {
		step(k)
	}
}

// Each kind scales from zero to zero, and goes through an update, a denied template, a drain and a deletion.
func TestEachKindGoesItsWay(t *testing.T) {
	var namespaces []string
	for _, k := range kinds {
		namespaces = append(namespaces, k.namespace)
	}
	w := newStory(t, namespaces...)
	var stories []*kindStory
	for _, k := range kinds {
		must(t, w.Connect(t.Context(), k.namespace, "acme", k.namespace+"-org"))
		stories = append(stories, &kindStory{kind: k, w: w, t: t})
	}
	w.controller(t)
	all(stories, (*kindStory).begin)
	jobs := map[string][]string{}
	all(stories, func(k *kindStory) { jobs[k.namespace] = k.jobs(2, 50*time.Millisecond) })
	all(stories, func(k *kindStory) { w.allDone(t, jobs[k.namespace]) })
	all(stories, func(k *kindStory) { w.atZero(t, key(k.namespace, "linux")) })

	// An update replaces the idle runner. Objects that Corral creates for the pool have the pool's object
	// metadata.
	all(stories, func(k *kindStory) { k.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) }) })
	before := map[string]string{}
	all(stories, func(k *kindStory) { before[k.namespace] = k.free("1") })
	all(stories, (*kindStory).checkMetadata)
	all(stories, func(k *kindStory) { k.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Template = ofVersion("2") }) })
	all(stories, func(k *kindStory) {
		if after := k.free("2"); after == before[k.namespace] {
			t.Errorf("%s: %s is of both versions", k.namespace, after)
		}
	})

	// A denied template is used for no runner, and the previous one stays in use. Then the pool scales down its
	// idle runner while another runner works.
	all(stories, (*kindStory).deny)
	all(stories, func(k *kindStory) { jobs[k.namespace] = k.jobs(1, harness.LongJob) })
	all(stories, func(k *kindStory) { before[k.namespace] = k.busy(jobs[k.namespace][0]) })
	all(stories, func(k *kindStory) {
		k.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = nil; p.Spec.Template = ofVersion("2") })
	})
	all(stories, func(k *kindStory) { harness.CutShort(t, w.GitHub, jobs[k.namespace]...) })
	all(stories, func(k *kindStory) { w.atZero(t, key(k.namespace, "linux")) })
	all(stories, (*kindStory).checkClaims)

	// A deleted pool lets its job finish.
	all(stories, func(k *kindStory) { jobs[k.namespace] = k.jobs(1, harness.LongJob) })
	all(stories, func(k *kindStory) { k.busy(jobs[k.namespace][0]) })
	all(stories, func(k *kindStory) { must(t, w.Client.Delete(t.Context(), k.pool())) })
	all(stories, func(k *kindStory) { harness.CutShort(t, w.GitHub, jobs[k.namespace]...) })
	all(stories, func(k *kindStory) { w.noClaims(t, k.namespace) })
	all(stories, func(k *kindStory) {
		eventually(t, func(ctx context.Context) error { return w.Left(ctx, k.namespace) })
	})
}

// begin creates the pool, and the hooks' ServiceAccount that its definitions would include.
func (k *kindStory) begin() {
	k.t.Helper()
	p := newPool(k.namespace, "linux", "acme", k.change, func(p *v1alpha1.RunnerPool) {
		p.Labels = map[string]string{"app.kubernetes.io/instance": "fleet"} // set by Argo CD
		p.Spec.Template = ofVersion("1")
		p.Spec.ObjectMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]v1alpha1.LabelValue{"team": "kinds"}}
	})
	if account := p.GetHooksAccount(); account != "" {
		must(k.t, k.w.Client.Create(k.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: account}}))
	}
	must(k.t, k.w.Client.Create(k.t.Context(), p))
}

// checkMetadata checks that every object created for the pool has the labels of objectMetadata, but not the pool's
// own labels.
func (k *kindStory) checkMetadata() {
	k.t.Helper()
	for name, list := range map[string]client.ObjectList{
		"Runner": &v1alpha1.RunnerList{}, "RunnerScaleSet": &v1alpha1.RunnerScaleSetList{}, "Secret": &corev1.SecretList{}, "Pod": &corev1.PodList{},
		"ControllerRevision": &appsv1.ControllerRevisionList{},
	} {
		found := 0
		must(k.t, k.w.Client.List(k.t.Context(), list, client.InNamespace(k.namespace), client.MatchingLabels{v1alpha1.PoolLabel: "linux", "team": "kinds"}))
		must(k.t, meta.EachListItem(list, func(o runtime.Object) error {
			found++
			if labels := o.(client.Object).GetLabels(); labels["app.kubernetes.io/instance"] != "" {
				k.t.Errorf("%s: a %s has %v", k.namespace, name, labels)
			}
			return nil
		}))
		if found == 0 {
			k.t.Errorf("%s: no %s has the label that the pool declares", k.namespace, name)
		}
	}
	claims, err := k.w.claims(k.t.Context(), k.namespace)
	must(k.t, err)
	for _, c := range claims {
		if c.Labels["team"] != "kinds" {
			k.t.Errorf("%s: claim %s has %v", k.namespace, c.Name, c.Labels)
		}
	}
}

// deny creates a policy that denies version 3, and then declares that version. The previously accepted version
// stays in use.
func (k *kindStory) deny() {
	k.t.Helper()
	policy := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "no-third"}}
	policy.Spec.Modules = map[string]string{"no.rego": `package corral.template
deny contains {"msg": "no third version"} if input.pod.metadata.labels.version == "3"
`}
	must(k.t, k.w.Client.Create(k.t.Context(), policy))
	eventually(k.t, func(ctx context.Context) error {
		must(k.t, k.w.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy))
		if !conditions.IsReady(policy) {
			return fmt.Errorf("%s: the policy isn't in force: %+v", k.namespace, policy.Status.Conditions)
		}
		return nil
	})
	accepted := k.pool().Status.Revision
	k.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Template = ofVersion("3") })
	eventually(k.t, func(context.Context) error {
		p := k.pool()
		if reason := conditions.GetReason(p, v1alpha1.PolicyCondition); reason != v1alpha1.PolicyDeniedReason || p.Status.Revision != accepted {
			return fmt.Errorf("%s: %s, revision %s", k.namespace, reason, p.Status.Revision)
		}
		return nil
	})
	k.free("2")
}

// checkClaims checks the number of claims that are left for the next runners.
func (k *kindStory) checkClaims() {
	k.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	eventually(k.t, func(ctx context.Context) error {
		must(k.t, k.w.Client.List(ctx, list, client.InNamespace(k.namespace)))
		if len(list.Items) != k.claims {
			return fmt.Errorf("%s: %d claims are left", k.namespace, len(list.Items))
		}
		return nil
	})
}

// For pods with os.name windows, the API server rejects fields that exist only on Linux. It accepts the example's
// pod.
func TestAnAPIServerTakesAPodOfWindows(t *testing.T) {
	w := newStory(t, "kind-windows")
	must(t, w.Cluster.CreateNamespace(t.Context(), "kind-windows"))
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "windows", "objects.yaml"))
	must(t, err)
	pool := &v1alpha1.RunnerPool{}
	for document := range strings.SplitSeq(string(text), "---\n") {
		if strings.Contains(document, "kind: RunnerPool") {
			must(t, yaml.UnmarshalStrict([]byte(document), pool))
		}
	}
	pool.Namespace, pool.Spec.WorkFolder = "kind-windows", `D:\work`
	pool.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"}
	pod, err := podspec.SpecimenOver(pool, podspec.Network{Proxies: true, CA: true})
	must(t, err)
	pod.OwnerReferences = nil
	if err := w.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("it is refused: %v", err)
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1001))}
	if err := w.Client.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "windows") {
		t.Errorf("with an fsGroup: %v", err)
	}
}
