// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

func TestADockerPoolGoesFromZeroToZero(t *testing.T) {
	const namespace = "docker-mode"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "docker", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.ContainerMode = &v1alpha1.ContainerMode{Type: v1alpha1.DockerMode, Docker: &v1alpha1.DockerSpec{MTU: new(int32(1400))}}
	})))
	ids := w.addJobs(t, namespace+"-org", "docker", 3, harness.LongJob)
	eventually(t, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		must(t, w.Client.List(ctx, pods, client.InNamespace(namespace)))
		for _, pod := range pods.Items {
			init := pod.Spec.InitContainers
			if len(init) == 2 && init[1].Name == "dind" && init[1].StartupProbe != nil && slices.Contains(init[1].Args, "--mtu=1400") &&
				len(pod.Status.InitContainerStatuses) == 2 && pod.Status.InitContainerStatuses[1].State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("no pod with a daemon runs among %d", len(pods.Items))
	})
	harness.CutShort(t, w.GitHub, ids...)
	w.atZero(t, key(namespace, "docker"))
	w.cleanUp(t, namespace)
}

// atZero waits until a pool has no runners.
func (w *story) atZero(t *testing.T, name client.ObjectKey) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		must(t, w.Client.Get(ctx, name, p))
		if p.Status.Runners.Total != 0 || p.Status.GetJobs() != 0 || p.Status.Decision == nil || p.Status.Decision.Desired != 0 {
			return fmt.Errorf("the pool is %+v, decided %+v", p.Status.Runners, p.Status.Decision)
		}
		return nil
	})
}

const hooksNamespace = "hooks-mode"

// jobPods returns the definitions of two pools, optionally with a third one whose jobs run as pods.
func jobPods(with bool) string {
	text := definitions(3, "linux", "runner:1", true)
	if with {
		text += `pools: jobs: spec: {
	connectionRef: name: "acme"
	scale: max: 2
	containerMode: {type: "Kubernetes", kubernetes: workVolumeClaim: size: "1Gi"}
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
`
	}
	return text
}

// maySetUpPools lets an account apply pools and the objects that they need. With hooks, the account also has the
// rights of the hooks, which it may then grant to others.
func maySetUpPools(t *testing.T, hooks bool) {
	t.Helper()
	rules := `
- {apiGroups: [corral.dev], resources: [runnerpools], verbs: [create, patch, delete]}
- {apiGroups: [""], resources: [serviceaccounts], verbs: [get, create, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [get, create, patch, delete]}
`
	if hooks {
		rules += `
- {apiGroups: [""], resources: [pods, secrets], verbs: [get, list, create, delete]}
- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
- {apiGroups: [""], resources: [pods/log], verbs: [get, list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, create, delete]}
`
	}
	must(t, shared.Cluster.Apply(t.Context(), []byte(strings.ReplaceAll(`
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: NAMESPACE, name: deployer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: NAMESPACE, name: deployer}
rules:`+rules+`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: NAMESPACE, name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects:
- {kind: ServiceAccount, namespace: NAMESPACE, name: deployer}
`, "NAMESPACE", hooksNamespace))))
}

func TestJobsThatRunAsPodsLeaveNothingBehind(t *testing.T) {
	w := newStory(t, hooksNamespace)
	own := &tenant{w.newGitops(t, hooksNamespace, time.Hour)}
	w.controller(t)
	pool := key(hooksNamespace, "jobs")

	t.Run("the source gives no rights of the controller's", func(t *testing.T) {
		own.T = t
		own.Write("pools.cue", jobPods(true))
		commit := own.pushAndRequest("Run jobs as pods")
		own.refused(commit, v1alpha1.ApplyFailedReason, "pools.cue:", "ServiceAccount jobs-hooks", "spec.serviceAccountName of the PoolSource")
		absent(t, &corev1.ServiceAccount{}, key(hooksNamespace, "jobs-hooks"))
		absent(t, &v1alpha1.RunnerPool{}, pool)
	})
	t.Run("an account gives no rights that it lacks", func(t *testing.T) {
		own.T = t
		maySetUpPools(t, false)
		own.patchSource(`{"spec":{"serviceAccountName":"deployer"}}`)
		commit := own.pushAndRequest("Try again")
		own.refused(commit, v1alpha1.AccessDeniedReason, "attempting to grant RBAC permissions", hooksNamespace+"/deployer", "RunnerPool jobs")
		absent(t, &v1alpha1.RunnerPool{}, pool)
		if s := own.remote("jobs"); s != nil {
			t.Errorf("GitHub has its scale set %+v", s)
		}
	})
	t.Run("with its rights the pool starts", func(t *testing.T) {
		own.T = t
		maySetUpPools(t, true)
		own.applied(own.pushAndRequest("And again"))
		own.waitRemote("jobs", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.Capacity == 2 })
	})
	t.Run("what a killed runner's hooks left goes, and nothing else", func(t *testing.T) {
		own.T = t
		w.hooksLeaveBehind(t, own)
	})
	t.Run("what the account may not delete any more is named", func(t *testing.T) {
		own.T = t
		w.hooksLoseRights(t, own)
	})
	t.Run("of another type it has other rights, and a job keeps those of the former", func(t *testing.T) {
		own.T = t
		w.changeType(t, own)
	})
	t.Run("what gave the rights goes with the pool", func(t *testing.T) {
		own.T = t
		w.atZero(t, pool)
		eventually(t, func(ctx context.Context) error {
			runners := &v1alpha1.RunnerList{}
			must(t, w.Client.List(ctx, runners, client.InNamespace(hooksNamespace)))
			if n := len(runners.Items); n > 0 {
				return fmt.Errorf("%d runners are there, and their rights stay with them", n)
			}
			return nil
		})
		own.Write("pools.cue", jobPods(false))
		own.applied(own.pushAndRequest("Remove it"))
		for _, name := range []string{"jobs-hooks", "jobs-hooks-novolume"} {
			for _, obj := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
				absent(t, obj, key(hooksNamespace, name))
			}
		}
	})
	w.cleanUp(t, hooksNamespace)
}

// killedInJob returns a busy runner that will be killed soon.
func (w *story) killedInJob(t *testing.T, own *tenant) *v1alpha1.Runner {
	t.Helper()
	t.Cleanup(w.Node.Inject(nodeplay.Fault{
		Kind: nodeplay.KilledInJob, Namespace: hooksNamespace, Labels: map[string]string{v1alpha1.PoolLabel: "jobs"}, Times: 1, After: 15 * time.Second,
	}))
	own.job("jobs", time.Hour)
	runner := &v1alpha1.Runner{}
	eventually(t, func(ctx context.Context) error {
		runners := &v1alpha1.RunnerList{}
		must(t, w.Client.List(ctx, runners, client.InNamespace(hooksNamespace)))
		for _, r := range runners.Items {
			if r.Status.State == v1alpha1.RunnerBusy {
				*runner = r
				return nil
			}
		}
		return fmt.Errorf("no runner is busy among %d", len(runners.Items))
	})
	if runner.Spec.HooksAccount != "jobs-hooks" {
		t.Errorf("its hooks act as %q", runner.Spec.HooksAccount)
	}
	return runner
}

// hooksLeaveBehind simulates the hooks of a runner that is killed during its job. They create a pod, lose it to an
// eviction, create it again, and leave it behind.
func (w *story) hooksLeaveBehind(t *testing.T, own *tenant) {
	runner := w.killedInJob(t, own)
	hooks := w.hooksOf(t)
	lost := ofHooks(&corev1.Pod{Spec: jobPod}, runner.Name, "workflow")
	must(t, hooks.Create(t.Context(), lost))
	must(t, w.Client.SubResource("eviction").Create(t.Context(), lost, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}}))
	if err := hooks.Get(t.Context(), client.ObjectKeyFromObject(lost), &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hooks' look for the pod that they lost: %v", err)
	}
	var left []client.Object
	for _, name := range []string{runner.Name, "another-runner"} {
		for _, obj := range []client.Object{
			ofHooks(&corev1.Pod{Spec: jobPod}, name, "workflow"),
			ofHooks(&corev1.Secret{StringData: map[string]string{"TOKEN": "x"}}, name, "secret-1"),
			ofHooks(&batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: jobPod}}}, name, "step-1"),
		} {
			must(t, hooks.Create(t.Context(), obj))
			left = append(left, obj)
		}
	}
	eventually(t, func(ctx context.Context) error {
		for i, obj := range left {
			err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			isGone := apierrors.IsNotFound(err) || err == nil && obj.GetDeletionTimestamp() != nil
			if client.IgnoreNotFound(err) != nil || isGone != (i < len(left)/2) {
				return fmt.Errorf("%T %s: gone is %t, %w", obj, obj.GetName(), isGone, err)
			}
		}
		return nil
	})
	w.waitEvent(t, hooksNamespace, runner.Name, "HookObjectsDeleted", "Pod "+runner.Name+"-workflow, Secret "+runner.Name+"-secret-1, Job "+runner.Name+"-step-1")
}

// changeType removes the volume from the pods of jobs while a job with such a volume runs. The job's hooks may
// create Jobs until it is over.
func (w *story) changeType(t *testing.T, own *tenant) {
	id := own.job("jobs", harness.LongJob)
	own.runnerOf(id)
	own.Write("pools.cue", strings.Replace(jobPods(true), `{type: "Kubernetes", kubernetes: workVolumeClaim: size: "1Gi"}`, `{type: "KubernetesNoVolume"}`, 1))
	own.applied(own.pushAndRequest("Copy the work folder"))
	mayMakeJobs := func(name string) bool {
		role := &rbacv1.Role{}
		must(t, w.Client.Get(t.Context(), key(hooksNamespace, name), role))
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "jobs") })
	}
	if !mayMakeJobs("jobs-hooks") || mayMakeJobs("jobs-hooks-novolume") {
		t.Error("the rights are none of the types'")
	}
	own.cutShort(id)
	eventually(t, func(ctx context.Context) error {
		err := w.Client.Get(ctx, key(hooksNamespace, "jobs-hooks"), &rbacv1.Role{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the former Role is there: %w", err)
		}
		return nil
	})
}

// hooksLoseRights simulates hooks whose RoleBinding was deleted before their runner is killed.
func (w *story) hooksLoseRights(t *testing.T, own *tenant) {
	runner := w.killedInJob(t, own)
	left := ofHooks(&corev1.Pod{Spec: jobPod}, runner.Name, "workflow")
	must(t, w.hooksOf(t).Create(t.Context(), left))
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: hooksNamespace, Name: "jobs-hooks"}}
	must(t, w.Client.Delete(t.Context(), binding))
	w.waitEvent(t, hooksNamespace, runner.Name, "HookObjectsLeft", left.GetName())
	w.waitEvent(t, hooksNamespace, runner.Name, "HookObjectsLeft", "ServiceAccount jobs-hooks")
	w.waitEvent(t, hooksNamespace, runner.Name, "HookObjectsLeft", "kubectl delete pods,secrets,jobs -n "+hooksNamespace+" -l runner-pod="+runner.Name)
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left))
	must(t, w.Client.Delete(t.Context(), left, client.GracePeriodSeconds(0)))
}

// hooksOf returns a client with the token and the rights of the hooks.
func (w *story) hooksOf(t *testing.T) client.Client {
	config, err := w.Cluster.ServiceAccountConfig(t.Context(), hooksNamespace, "jobs-hooks")
	must(t, err)
	hooks, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	must(t, err)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &batchv1.JobList{}} {
		must(t, hooks.List(t.Context(), list, client.InNamespace(hooksNamespace)))
	}
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &v1alpha1.RunnerPoolList{}} {
		if err := hooks.List(t.Context(), list, client.InNamespace(hooksNamespace)); !apierrors.IsForbidden(err) {
			t.Errorf("the hooks list %T: %v", list, err)
		}
	}
	if err := hooks.List(t.Context(), &corev1.SecretList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Errorf("the hooks list Secrets of another namespace: %v", err)
	}
	return hooks
}

var jobPod = corev1.PodSpec{
	Containers: []corev1.Container{{Name: "job", Image: "job:1"}}, RestartPolicy: corev1.RestartPolicyNever,
	NodeSelector: map[string]string{"node": "none"},
}

// ofHooks names and labels an object as a runner's hooks do.
func ofHooks(obj client.Object, runner, suffix string) client.Object {
	obj.SetNamespace(hooksNamespace)
	obj.SetName(runner + "-" + suffix)
	obj.SetLabels(map[string]string{"runner-pod": runner})
	return obj
}

// waitEvent waits for an event about an object.
func (w *story) waitEvent(t *testing.T, namespace, about, reason, says string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		found := false
		must(t, meta.EachListItem(list, func(o runtime.Object) error {
			e := o.(*eventsv1.Event)
			found = found || e.Regarding.Name == about && e.Reason == reason && strings.Contains(e.Note, says)
			return nil
		}))
		if !found {
			return fmt.Errorf("no event %s about %s that says %q among %d", reason, about, says, len(list.Items))
		}
		return nil
	})
}
