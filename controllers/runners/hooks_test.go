// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// hooked returns a bench whose runner has container hooks, runs, and has left a pod, a Secret and a Job. Requests of the
// account go through as.
func hooked(t *testing.T, as interceptor.Funcs) (b *bench, accounts *[]types.NamespacedName) {
	t.Helper()
	b = newBench(t)
	b.reconcile()
	r := b.runner()
	r.Spec.HooksAccount = "hooks"
	if err := b.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	for _, runner := range []string{"linux-a", "linux-b"} {
		meta := metav1.ObjectMeta{Namespace: "ci", Name: runner + "-workflow", UID: types.UID(runner), Labels: map[string]string{"runner-pod": runner}}
		for _, obj := range []client.Object{&corev1.Pod{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}} {
			if err := b.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
	}
	accounts = &[]types.NamespacedName{}
	b.Impersonate = func(account types.NamespacedName) (client.Client, error) {
		*accounts = append(*accounts, account)
		return interceptor.NewClient(b.Client.(client.WithWatch), as), nil
	}
	return b, accounts
}

// left counts the objects that the runner's hooks left behind.
func (b *bench) left(runner string) int {
	n := 0
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &batchv1.JobList{}} {
		if err := b.Client.List(b.t.Context(), list, client.MatchingLabels{"runner-pod": runner}); err != nil {
			b.t.Fatal(err)
		}
		switch list := list.(type) {
		case *corev1.PodList:
			n += len(list.Items)
		case *corev1.SecretList:
			n += len(list.Items)
		case *batchv1.JobList:
			n += len(list.Items)
		}
	}
	return n
}

// refusing refuses to list the kinds.
func refusing(message string, kinds ...string) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		kind := list.GetObjectKind().GroupVersionKind().Kind
		for _, k := range kinds {
			if kind == k+"List" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: k}, "", errors.New(message))
			}
		}
		return c.List(ctx, list, opts...)
	}}
}

func TestWhatHooksLeaveBehind(t *testing.T) {
	for name, tc := range map[string]struct {
		as    interceptor.Funcs
		left  int // of three
		told  string
		clean bool
	}{
		"is deleted as their account": {interceptor.Funcs{}, 0, "Normal HookObjectsDeleted deleted objects that its container hooks left behind: Pod linux-a-workflow, Secret linux-a-workflow, Job linux-a-workflow", false},
		"an account without Jobs":     {refusing("no", "Job"), 1, "Normal HookObjectsDeleted deleted objects that its container hooks left behind: Pod linux-a-workflow, Secret linux-a-workflow", false},
		"the controller may not":      {refusing("cannot impersonate resource", "Pod", "Secret", "Job"), 3, "Warning HookObjectsLeft its container hooks may have left behind Pod linux-a-workflow, and Secrets and Jobs: ", true},
		"what helps then":             {refusing("cannot impersonate resource", "Pod"), 3, "set impersonation.enabled in the chart. To delete them: kubectl delete pods,secrets,jobs -n ci -l runner-pod=linux-a", false},
		"the account may not":         {refusing("no", "Secret"), 2, "Let ServiceAccount hooks list and delete them", false},
	} {
		t.Run(name, func(t *testing.T) {
			b, accounts := hooked(t, tc.as)
			b.allEvents()
			code := int32(1)
			if tc.clean {
				code = 0
			}
			b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Time{Time: b.now}}})
			b.reconcile()
			b.delete()
			b.reconcile()
			b.reconcile()
			if b.runner() != nil {
				t.Fatal("the runner is still there")
			}
			if told := b.allEvents(); !strings.Contains(told, tc.told) {
				t.Errorf("told is %s", told)
			}
			if got := b.left("linux-a"); got != tc.left {
				t.Errorf("%d left, want %d", got, tc.left)
			}
			if got := b.left("linux-b"); got != 3 {
				t.Errorf("another's were touched: %d left", got)
			}
			if want := (types.NamespacedName{Namespace: "ci", Name: "hooks"}); len(*accounts) == 0 || (*accounts)[0] != want {
				t.Errorf("acted as %v", *accounts)
			}
		})
	}
}

// While the API server fails, the runner stays, but not forever.
func TestWhatHooksLeaveBehindIsTriedForABound(t *testing.T) {
	b, _ := hooked(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewInternalError(errors.New("away"))
	}})
	b.delete()
	b.now = b.runner().DeletionTimestamp.Time
	for range 3 {
		if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: "linux-a"}}); err == nil && b.runner() == nil {
			t.Fatal("let go at once")
		}
	}
	b.now = b.now.Add(orphanAfter)
	b.reconcile()
	if b.runner() != nil {
		t.Error("not let go")
	}
	if told := b.allEvents(); !strings.Contains(told, "Warning HookObjectsLeft its container hooks may have left behind Pod linux-a-workflow") {
		t.Errorf("told is %s", told)
	}
}

// Jobs can also create such objects with finalizers. Even so many that a list never ends must not keep the runner forever.
func TestObjectsOfHooksThatDoNotGoHoldARunnerForABound(t *testing.T) {
	b, _ := hooked(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		list.SetContinue("more")
		return err
	}})
	b.delete()
	b.now = b.runner().DeletionTimestamp.Time
	b.reconcile()
	if b.runner() == nil {
		t.Fatal("let go at once")
	}
	b.now = b.now.Add(orphanAfter)
	b.reconcile()
	if told := b.allEvents(); b.runner() != nil || !strings.Contains(told, "Warning HookObjectsLeft") || !strings.Contains(told, "Look at their finalizers") {
		t.Errorf("runner %v, told is %s", b.runner(), told)
	}
}

func TestRunnersWithoutHooksAskNobody(t *testing.T) {
	b := newBench(t)
	b.Impersonate = func(types.NamespacedName) (client.Client, error) {
		t.Error("acted as an account")
		return nil, errors.New("no")
	}
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.delete()
	b.reconcile()
	b.reconcile()
	if b.runner() != nil {
		t.Error("the runner is still there")
	}
}

func TestAccountMissing(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "pool-hooks"}}
	missing := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(`error looking up service account ci/pool-hooks: serviceaccount "pool-hooks" not found`))
	for name, tc := range map[string]struct {
		err  error
		made string
		want string
	}{
		"one that is made for the pool": {missing, "pool-hooks", "ServiceAccount pool-hooks of the runners not found in namespace ci: apply it with its Role and RoleBinding, as `corral build` prints them"},
		"one that the template names":   {missing, "", "ServiceAccount pool-hooks of the runners not found in namespace ci: create it"},
		"another refusal":               {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("violates PodSecurity")), "", ""},
		"no answer":                     {errors.New("error looking up service account"), "", ""},
	} {
		err := AccountMissing(tc.err, pod, tc.made)
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && (kube.ReasonOf(err, "") != v1alpha1.ServiceAccountMissingReason || kube.IsStalled(err)) {
			t.Errorf("%s: the outcome is %v", name, err)
		}
	}
}
