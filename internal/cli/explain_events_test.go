// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
)

// gpuPool returns a pool without a scale set, which counts jobs from webhook events.
func gpuPool(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Time{Time: noon}}}
	p.Spec.ConnectionRef.Name = "acme"
	p.Spec.Registration = v1alpha1.RegisterREST
	p.Spec.RunnerLabels = []string{"gpu"}
	p.Spec.Demand.Webhook = &v1alpha1.WebhookDemand{}
	p.Status.Decision = &v1alpha1.Decision{Time: metav1.Time{Time: noon}, Desired: 1, Announced: 9, Reason: "1 job"}
	for _, c := range change {
		c(p)
	}
	return p
}

func connectionTo(name, url string, hook bool) *v1alpha1.GitHubConnection {
	c := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}, Spec: v1alpha1.GitHubConnectionSpec{URL: url}}
	if hook {
		c.Spec.Webhook = &v1alpha1.ConnectionWebhook{}
	}
	return c
}

// recordedJobs returns recorded job states: job 1 has been queued for half an hour, 2 is waiting, 3 is running, 4 is
// running elsewhere and 5 is done.
func recordedJobs() []byte {
	l := reservation.New(noon.Add(-time.Hour))
	l.Pause(false, noon.Add(-time.Hour))
	for id, state := range []reservation.State{reservation.Queued, reservation.Waiting, reservation.Running, reservation.Elsewhere, reservation.Done} {
		l.Record(reservation.Event{ID: int64(id + 1), State: state, Repository: "acme/app", Runner: "gpu-1"}, noon.Add(-30*time.Minute))
	}
	l.Expire(2*time.Hour, noon)
	return l.Encode()
}

func jobsOf(pool *v1alpha1.RunnerPool, data []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: pool.Name + "-jobs",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("RunnerPool"))},
		},
		BinaryData: map[string][]byte{"jobs": data},
	}
}

func TestExplainAJobThatEventsTellOf(t *testing.T) {
	gpu, big := gpuPool("gpu"), gpuPool("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} })
	watch := gpuPool("watch", func(p *v1alpha1.RunnerPool) { p.Spec.Mode = v1alpha1.Observe })
	all := gpuPool("all", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Name = "big" })
	other := gpuPool("other", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Name = "ghes" })
	world := func(hook bool, config ...client.Object) []client.Object {
		return append(config, connectionTo("acme", "https://github.com/acme", hook), connectionTo("ghes", "https://ghe.acme.io/acme", true), connectionTo("big", "https://github.com/enterprises/big", false), gpu, big, watch, all, other)
	}
	elsewhere := jobsOf(gpu, recordedJobs())
	elsewhere.OwnerReferences = nil
	page := "https://github.com/acme/app/actions/runs/7/job/"
	tests := map[string]struct {
		job     string
		labels  []string
		objects []client.Object
		refuse  func(any, string) error
		want    []string
	}{
		"queued":                   {job: "1", labels: []string{"gpu", "self-hosted"}, objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"It waits for RunnerPool ci/gpu, which knows the job", "counts here, before ci/big: ci/gpu has fewer labels beyond those asked for: 4 in all, ci/big has 5", "counts for ci/gpu"}},
		"waiting":                  {job: "2", objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"it waits for an approval"}},
		"running":                  {job: "3", objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"a runner of RunnerPool ci/gpu has it"}},
		"elsewhere":                {job: "4", objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"according to the events of RunnerPool ci/gpu, a runner outside that pool has it"}},
		"ended":                    {job: "5", objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"it has ended"}},
		"unheard":                  {job: "6", labels: []string{"gpu"}, objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"does not know the job", "check the recent deliveries of GitHub's webhook for GitHubConnection ci/acme"}},
		"nothing is written down":  {job: "1", labels: []string{"gpu"}, objects: world(true), want: []string{"does not know the job"}},
		"no webhook":               {job: "1", labels: []string{"gpu"}, objects: world(false), want: []string{"RunnerPool ci/gpu fits but does not know the job, because it receives no events"}},
		"what isn't the pool's":    {job: "1", labels: []string{"gpu"}, objects: world(true, elsewhere), want: []string{"whether RunnerPool ci/gpu knows of the job: the ConfigMap gpu-jobs does not belong to the pool"}},
		"what is damaged":          {job: "1", labels: []string{"gpu"}, objects: world(true, jobsOf(gpu, []byte("x"))), want: []string{"whether RunnerPool ci/gpu knows of the job: reading reservations: unpacking"}},
		"a run has no job's state": {job: "", labels: []string{"gpu"}, objects: world(true, jobsOf(gpu, recordedJobs())), want: []string{"use the URL of the job"}},
		"without the right": {
			job: "1", labels: []string{"gpu"}, objects: world(true, jobsOf(gpu, recordedJobs())),
			refuse: func(obj any, _ string) error {
				if _, isConfig := obj.(*corev1.ConfigMap); isConfig {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "gpu-jobs", errors.New("no"))
				}
				return nil
			},
			want: []string{"whether RunnerPool ci/gpu knows of the job: configmaps \"gpu-jobs\" is forbidden", "RunnerPool ci/gpu fits. The pool knows of"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			url := strings.TrimSuffix(page+tc.job, "/job/")
			answer, err := explainerOf(tc.refuse, tc.objects...).explain(t.Context(), subject{"job", url}, time.Time{}, tc.labels)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range tc.want {
				if !strings.Contains(answer.Text(), text) {
					t.Errorf("%q is not in\n%s", text, answer.Text())
				}
			}
		})
	}
}

func TestExplainWhoTakesEventsIn(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []client.Object
		refuse  func(any, string) error
		want    string
	}{
		"a webhook":             {[]client.Object{connectionTo("acme", "https://github.com/acme", true)}, nil, "through the webhook of GitHubConnection ci/acme"},
		"another's webhook":     {[]client.Object{connectionTo("acme", "https://github.com/acme", false), connectionTo("app", "https://github.com/acme/app", true)}, nil, "through the webhook of GitHubConnection ci/app"},
		"one of another GitHub": {[]client.Object{connectionTo("acme", "https://github.com/acme", false), connectionTo("ghes", "https://ghe.acme.io/acme", true)}, nil, "It receives no events"},
		"no connection":         {nil, nil, "which GitHubConnections receive events: there is no GitHubConnection acme"},
		"connections that can't be": {nil, func(obj any, _ string) error {
			if _, isList := obj.(*v1alpha1.GitHubConnectionList); isList {
				return errors.New("no")
			}
			return nil
		}, "which GitHubConnections receive events: no"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := explainerOf(tc.refuse, append(tc.objects, gpuPool("gpu"))...).explain(t.Context(), subject{"pool", "gpu"}, time.Time{}, nil)
			if err != nil || !strings.Contains(answer.Text(), tc.want) {
				t.Errorf("%v: %q is not in\n%s", err, tc.want, answer.Text())
			}
		})
	}
}

// The reason for a pool's precedence names the rule of jobmatch that decides, and no other rule.
func TestPrecedence(t *testing.T) {
	org := jobmatch.Scope{Host: "github.com", Kind: jobmatch.Organization, Path: "acme"}
	repo := jobmatch.Scope{Host: "github.com", Kind: jobmatch.Repository, Path: "acme/app"}
	big := jobmatch.Scope{Host: "github.com", Kind: jobmatch.Enterprise, Path: "big"}
	older := func(p *v1alpha1.RunnerPool) { p.CreationTimestamp.Time = noon.Add(-time.Hour) }
	for want, tc := range map[string]struct {
		winner, loser jobmatch.Scope
		of, than      func(*v1alpha1.RunnerPool)
	}{
		"ci/b is suspended": {big, repo, nil, func(p *v1alpha1.RunnerPool) { p.Spec.StopPolicy, p.Spec.RunnerGroup = v1alpha1.StopDrain, "own" }},
		"ci/a is for a repository, ci/b for an organization":                  {repo, org, nil, older},
		"ci/a is for an organization, ci/b for an enterprise":                 {org, big, nil, older},
		"ci/a has its own runner group, own, and ci/b has the default group":  {org, org, func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup, p.Spec.RunnerLabels = "own", []string{"gpu", "x"} }, older},
		"ci/a has fewer labels beyond those asked for: 4 in all, ci/b has 5":  {org, org, nil, func(p *v1alpha1.RunnerPool) { older(p); p.Spec.RunnerLabels = []string{"gpu", "x", "GPU"} }},
		"ci/a is older, and the pools do not differ otherwise":                {org, org, older, nil},
		"ci/a comes first by its name, and the pools do not differ otherwise": {org, org, nil, nil},
	} {
		competitorOf := func(name string, scope jobmatch.Scope, change func(*v1alpha1.RunnerPool)) competitor {
			p := gpuPool(name)
			if change != nil {
				change(p)
			}
			return competitor{p, jobmatch.Of(p, scope)}
		}
		competing := []competitor{competitorOf("b", tc.loser, tc.than), competitorOf("a", tc.winner, tc.of)}
		job := jobmatch.Job{Host: "github.com", Repository: "acme/app", Labels: []string{"gpu"}}
		if got := winnerOf(job, competing, -1); got != 1 || winnerOf(job, competing, 1) != 0 {
			t.Errorf("%s: the winner is %d", want, got)
		}
		if got := precedence(&competing[1], &competing[0]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAccount(t *testing.T) {
	pool := gpuPool("gpu")
	pool.Spec.Demand.Webhook.HoldFor = &metav1.Duration{Duration: 40 * time.Minute}
	config := jobsOf(pool, recordedJobs())
	config.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: &metav1.Time{Time: noon}}, {Manager: "corral"}, {Manager: "corral", Time: &metav1.Time{Time: noon.Add(-time.Minute)}},
	}
	if at := writtenAt(config); !at.Equal(noon.Add(-time.Minute)) {
		t.Errorf("last write at %s", at)
	}
	e := explainerOf(nil)
	e.client = singleConfigMap{config}
	state, until := e.account(t.Context(), pool, 1)
	if diff := cmp.Diff(&metav1.Time{Time: noon.Add(9 * time.Minute)}, until); state != explain.JobQueued || diff != "" {
		t.Errorf("%s, %s", state, diff)
	}
}

// singleConfigMap is a client that has a single ConfigMap.
type singleConfigMap struct{ config *corev1.ConfigMap }

func (o singleConfigMap) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	config, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return errors.New("there is none")
	}
	o.config.DeepCopyInto(config)
	return nil
}

func (singleConfigMap) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

// A pool receives events if at least one of its connections accepts them.
func TestEventsAreRefusedOnlyWhereAllConnectionsRefuseThem(t *testing.T) {
	connection := func(name, refused string) (c v1alpha1.GitHubConnection) {
		c.Namespace, c.Name = "ci", name
		c.Status.MissingFeatures = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureDeliveries, Message: "lost"}}
		if refused != "" {
			c.Status.MissingFeatures = append(c.Status.MissingFeatures, v1alpha1.MissingFeature{Name: v1alpha1.FeatureEvents, Message: refused})
		}
		return c
	}
	all := map[string]v1alpha1.GitHubConnection{"a": connection("a", "by a"), "b": connection("b", "by b"), "c": connection("c", ""), "d": connection("d", "by a")}
	for names, want := range map[string]string{"": "", "a": "by a", "a b": "by a; by b", "a d": "by a", "a c": "", "c a": ""} {
		some := converted(strings.Fields(names), func(name string) v1alpha1.GitHubConnection { return all[name] })
		if got := refusedBy(some); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}
