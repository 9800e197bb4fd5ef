// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/kube"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

// cluster returns a bounded pool with its history, and a runner that runs a job, with its pod.
func cluster() []client.Object {
	labels := map[string]string{v1alpha1.PoolLabel: "linux"}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: "p1"}}
	pool.Spec.ConnectionRef.Name, pool.Spec.RunnerLabels = "acme", []string{"linux"}
	rule := v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/limits", Name: "corral.scaling.limit", File: "limits.rego", Line: 3}
	pool.Status.Jobs, pool.Status.Runners = new(int32(1)), v1alpha1.RunnerCounts{Total: 1, Busy: 1}
	pool.Status.Decision = &v1alpha1.Decision{
		Time: metav1.Time{Time: noon.Add(-time.Minute)}, Desired: 1, Announced: 1, Reason: "1 job",
		Limits: &v1alpha1.DecidedLimits{Max: new(int32(1)), Bounds: []v1alpha1.LimitBound{{Field: "max", Declared: v1alpha1.UnboundedMax, Value: 1, Rule: rule}}},
	}
	history := explain.History{}
	history.Add(explain.Entry{Time: metav1.Time{Time: noon.Add(-time.Hour)}, Decision: &v1alpha1.Decision{Reason: "0 jobs", Announced: 1}})
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-decisions"}, Data: map[string]string{explain.HistoryKey: history.String()}}
	config.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("RunnerPool"))}
	runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-1", Labels: labels}}
	runner.Spec.PoolRef.Name, runner.Status.State = "linux", v1alpha1.RunnerBusy
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-1", Labels: map[string]string{
		v1alpha1.PoolLabel: "linux", v1alpha1.RunnerLabel: "linux-1", v1alpha1.JobRunIDLabel: "123",
	}, Annotations: map[string]string{
		v1alpha1.RunnerUIDAnnotation: "r1", v1alpha1.RunnerIDAnnotation: "7",
		v1alpha1.JobAnnotation: `{"id": "9b1f", "repository": "acme/app", "runID": 123, "name": "build", "runnerUID": "r1", "runnerID": 7}`,
	}}}
	connection := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}, Spec: v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme"}}
	binds := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "limits", Labels: map[string]string{v1alpha1.SourceLabel: "pools"}}}
	other := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "of-gpus"}}
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}
	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	guard.Status.WouldChange = []v1alpha1.AuditFinding{{Pool: "ci/linux", Decision: "scaling", Message: "max 1 → 0"}, {Pool: "ci/other", Decision: "scaling", Message: "never mind"}}
	return []client.Object{pool, config, runner, pod, connection, binds, other, guard}
}

// explainerOf returns an explainer over a fake cluster. Reads fail with the errors that refuse returns.
func explainerOf(refuse func(obj any, namespace string) error, objects ...client.Object) *explainer {
	if refuse == nil {
		refuse = func(any, string) error { return nil }
	}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			return errors.Join(refuse(obj, key.Namespace), c.Get(ctx, key, obj, o...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			options := &client.ListOptions{}
			options.ApplyOptions(o)
			if err := refuse(list, options.Namespace); err != nil {
				return err
			}
			return c.List(ctx, list, o...)
		},
	}).Build()
	return &explainer{reader{c, "", "ci", error.Error, nil}, noon}
}

func TestExplain(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("ask your administrator"))
	tests := map[string]struct {
		args   []string
		at     time.Time
		labels []string
		refuse func(any, string) error
		want   []string
		never  []string
	}{
		"a pool": {
			args:  []string{"pool/linux"},
			want:  []string{"limits.rego:3", "ClusterRunnerPolicy/guard", "scaling: max 1 → 0", "it comes from PoolSource ci/pools", "max   1; unbounded is declared"},
			never: []string{"of-gpus", "never mind", "Not known"},
		},
		"a pool then": {args: []string{"pool", "linux"}, at: noon.Add(-10 * time.Minute), want: []string{"Why: 0 jobs"}},
		"a pool without rights on what is around it": {
			args: []string{"pool/linux"},
			refuse: func(obj any, _ string) error {
				if _, isPool := obj.(*v1alpha1.RunnerPool); isPool {
					return nil
				}
				return forbidden
			},
			want: []string{"limits.rego:3", "Not known", "the previous decisions: things is forbidden: ask your administrator", "the pool's runners", "the pool's pods", "the policies of the cluster", "the policies of the namespace"},
		},
		"a runner": {args: []string{"runner/linux-1"}, want: []string{"ci/linux-1 of RunnerPool ci/linux is Busy", "the end of its job"}},
		"a runner without rights on what is around it": {
			args: []string{"runner/linux-1"},
			refuse: func(obj any, _ string) error {
				if _, isRunner := obj.(*v1alpha1.Runner); isRunner {
					return nil
				}
				return forbidden
			},
			want: []string{"Runner ci/linux-1", "RunnerPool ci/linux: things is forbidden", "its pod"},
		},
		"a job that is being done": {args: []string{"https://github.com/acme/app/actions/runs/123"}, want: []string{"Runners here have 1 job of this run.", "ci/linux-1 of RunnerPool ci/linux: build of acme/app"}},
		"a job that waits": {
			args: []string{"job", "https://github.com/acme/app/actions/runs/124/job/1"}, labels: []string{"linux"},
			want: []string{"No runner has the job now. It may have finished. If it waits, it waits for RunnerPool ci/linux. The pool is full", "limits.rego:3"},
		},
		"a job, of one namespace's rights": {
			args: []string{"job", "https://github.com/acme/app/actions/runs/124/job/1"}, labels: []string{"linux"},
			refuse: func(_ any, namespace string) error {
				if namespace == "ci" {
					return nil
				}
				return forbidden
			},
			want: []string{"No visible runner has the job. Another runner may have it, or the job may have finished. If it waits, it waits for RunnerPool ci/linux", "RunnerPools in namespaces other than ci: things is forbidden"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			about, err := parseSubject(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := explainerOf(tc.refuse, cluster()...).explain(t.Context(), about, tc.at, tc.labels)
			if err != nil {
				t.Fatal(err)
			}
			text := answer.Text()
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
			for _, part := range tc.never {
				if strings.Contains(text, part) {
					t.Errorf("%q is in\n%s", part, text)
				}
			}
		})
	}
}

func TestAPoolThatIsGoneIsExplainedByTheRunnersThatItLeft(t *testing.T) {
	left := cluster()[1:]
	for what, part := range map[string]string{"pool": "RunnerPool ci/linux is gone, but its runners still exist", "runner": "deleted; Corral deletes the runner"} {
		name := map[string]string{"pool": "linux", "runner": "linux-1"}[what]
		answer, err := explainerOf(nil, left...).explain(t.Context(), subject{what, name}, time.Time{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := answer.Text(); !strings.Contains(text, part) || strings.Contains(text, "Not known") {
			t.Errorf("%q is missing, or something is unknown:\n%s", part, text)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "runnerpools"}, "", errors.New("ask your administrator"))
	refuse := func(obj any, _ string) error {
		if _, isPool := obj.(*v1alpha1.RunnerPool); isPool {
			return forbidden
		}
		return nil
	}
	if _, err := explainerOf(refuse, left...).explain(t.Context(), subject{"pool", "linux"}, time.Time{}, nil); !apierrors.IsForbidden(err) {
		t.Errorf("a pool that can't be read: %v", err)
	}
}

// When GitHub reports the end of a job, only the Runner's status shows it. The container may still be running.
func TestARunnerWhoseJobIsOverIsNotBusy(t *testing.T) {
	now := time.Unix(1000, 0)
	r := &v1alpha1.Runner{Status: v1alpha1.RunnerStatus{
		State: v1alpha1.RunnerFinished, Reason: "its job is over; its container is not known to have ended", Job: &v1alpha1.JobReference{ID: "1"}, StartedAt: &metav1.Time{Time: now},
	}}
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: v1alpha1.RunnerContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: now}}}},
	}}}
	if got := (&explainer{now: now}).judge(r, nil, pod); got.State != v1alpha1.RunnerFinished || got.Reason != r.Status.Reason {
		t.Errorf("got the state %s: %s", got.State, got.Reason)
	}
}

func TestWhatIsNotThereIsAnsweredWithWhatIs(t *testing.T) {
	for args, want := range map[string]string{
		"pool/windows": `there is no RunnerPool "windows" in namespace ci; existing: linux`,
		"runner/x":     `there is no Runner "x" in namespace ci; existing: linux-1`,
	} {
		about, err := parseSubject([]string{args})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := explainerOf(nil, cluster()...).explain(t.Context(), about, time.Time{}, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	var many []client.Object
	for i := range 30 {
		many = append(many, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: fmt.Sprintf("p%02d", i)}})
	}
	_, err := explainerOf(nil, many...).explain(t.Context(), subject{"pool", "x"}, time.Time{}, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "p18, p19, and 10 more") {
		t.Error(err)
	}
	if _, err := explainerOf(nil).explain(t.Context(), subject{"pool", "x"}, time.Time{}, nil); err == nil || !strings.HasSuffix(err.Error(), "; existing: none") {
		t.Error(err)
	}
}

func TestAHistoryOfSomebodyElseIsNotTold(t *testing.T) {
	objects := cluster()
	objects[1].SetOwnerReferences(nil)
	answer, err := explainerOf(nil, objects...).explain(t.Context(), subject{"pool", "linux"}, time.Time{}, nil)
	if err != nil || !strings.Contains(answer.Text(), "the previous decisions: the ConfigMap linux-decisions does not belong to the pool") {
		t.Errorf("%v\n%s", err, answer.Text())
	}
}

func TestParseSubject(t *testing.T) {
	for args, want := range map[string]subject{
		"pool/linux": {"pool", "linux"}, "RunnerPool/linux": {"pool", "linux"}, "runners x": {"runner", "x"},
		"https://github.com/a/b/actions/runs/1": {"job", "https://github.com/a/b/actions/runs/1"},
		"pool":                                  {}, "pool/": {}, "node/x": {}, "": {},
	} {
		got, err := parseSubject(strings.Split(args, " "))
		if (err != nil) != (want == subject{}) || err == nil && got != want {
			t.Errorf("%q: %+v, %v", args, got, err)
		}
	}
}

func TestParseAt(t *testing.T) {
	zone := time.FixedZone("CEST", 2*3600)
	now := noon.In(zone) // 14:00 in that zone
	for value, want := range map[string]time.Time{
		"":                          {},
		"2026-07-06T11:00:00Z":      noon.Add(-time.Hour),
		"2026-07-06T13:00:00+02:00": noon.Add(-time.Hour),
		"13:00":                     noon.Add(-time.Hour),
		"15:00":                     noon.Add(-23 * time.Hour),
		"90m":                       noon.Add(-90 * time.Minute),
	} {
		if got, err := parseAt(value, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", value, got, err)
		}
	}
	for _, value := range []string{"yesterday", "2026-07-07T00:00:00Z", "-5m"} {
		if got, err := parseAt(value, now); err == nil {
			t.Errorf("%s: %s", value, got)
		}
	}
}

func TestAnAnswerIsWrittenInEachFormat(t *testing.T) {
	answer, err := explainerOf(nil, cluster()...).explain(t.Context(), subject{"pool", "linux"}, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		var out bytes.Buffer
		var got explain.PoolAnswer
		if err := (&format{value: name}).write(&out, answer); err != nil {
			t.Fatal(err)
		}
		if err := decode(out.Bytes(), &got); err != nil || got.Pool != "ci/linux" || got.Decision.Limits.GetMax() != 1 {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}
