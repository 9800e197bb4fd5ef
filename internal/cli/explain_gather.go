// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// maxNames is the maximum number of names in an error message.
const maxNames = 20

// explainer builds an answer from the objects that it reads.
type explainer struct {
	reader
	now time.Time
}

// explain returns the answer for a pool, a runner or a job. If at is zero, it explains the current state.
func (e *explainer) explain(ctx context.Context, target subject, at time.Time, labels []string) (texter, error) {
	switch target.kind {
	case "pool":
		return e.pool(ctx, target.name, at)
	case "runner":
		return e.runner(ctx, target.name)
	}
	return e.job(ctx, target.name, labels)
}

// unknowns returns the objects that could not be read, with the reasons.
func (e *explainer) unknowns() []string {
	return converted(e.unseen, func(u explain.Unseen) string { return u.What + ": " + u.Why })
}

// find reads an object by its name. If the object does not exist, the error lists the existing names.
func (e *explainer) find(ctx context.Context, kind, name string, obj client.Object, list client.ObjectList) error {
	err := e.client.Get(ctx, client.ObjectKey{Namespace: e.own, Name: name}, obj)
	switch {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading %s %s/%s: %w", kind, e.own, name, err)
	}
	if err := e.client.List(ctx, list, client.InNamespace(e.own)); err != nil {
		return notFoundError(fmt.Sprintf("there is no %s %q in namespace %s, and listing the existing ones failed: %v", kind, name, e.own, err))
	}
	names := orNone(wording.List(namesOf(list), maxNames))
	return notFoundError(fmt.Sprintf("there is no %s %q in namespace %s; existing: %s", kind, name, e.own, names))
}

// notFoundError is the error for an object that does not exist.
type notFoundError string

func (e notFoundError) Error() string { return string(e) }

func namesOf(list client.ObjectList) (names []string) {
	_ = meta.EachListItem(list, func(item runtime.Object) error { // cannot fail for these kinds
		names = append(names, item.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names
}

// pool explains a pool. If the pool was deleted, it explains the remaining runners.
func (e *explainer) pool(ctx context.Context, name string, at time.Time) (texter, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := e.find(ctx, "RunnerPool", name, pool, &v1alpha1.RunnerPoolList{}); err != nil {
		pool.Namespace, pool.Name = e.own, name
		left, _ := e.runners(ctx, pool)
		if errors.As(err, new(notFoundError)) && len(left) > 0 && at.IsZero() {
			return explain.Gone(explain.GoneFacts{Namespace: e.own, Name: name, Runners: left, Unknown: e.unknowns(), Now: e.now}), nil
		}
		return nil, err
	}
	f := explain.PoolFacts{Pool: pool, Now: e.now, At: at, History: e.history(ctx, pool)}
	if at.IsZero() {
		f.Runners, f.Kept = e.runners(ctx, pool)
		f.Policies = e.policies(ctx, pool)
		f.Webhooks, f.EventsRefused = e.webhooks(ctx, pool)
		f.ScaleSet, f.Connection = e.scaleSet(ctx, pool), e.connection(ctx, pool)
		f.Source, f.Applied = e.source(ctx, pool)
	}
	f.Unknown = e.unknowns()
	return explain.Pool(f)
}

// scaleSet reads the pool's RunnerScaleSet. It returns nil if there is none.
func (e *explainer) scaleSet(ctx context.Context, pool *v1alpha1.RunnerPool) *v1alpha1.RunnerScaleSet {
	set := &v1alpha1.RunnerScaleSet{}
	if e.get(ctx, "the pool's scale set", client.ObjectKeyFromObject(pool), set) != nil || set.Spec.PoolUID != string(pool.UID) {
		return nil // the RunnerScaleSet may belong to a deleted pool of the same name
	}
	return set
}

// connection returns the Ready condition of the pool's connection. It returns nil if the connection does not exist, or if the user may not read it.
func (e *explainer) connection(ctx context.Context, pool *v1alpha1.RunnerPool) *explain.Condition {
	connection := &v1alpha1.GitHubConnection{}
	err := e.client.Get(ctx, pool.Spec.ConnectionRef.From(pool.Namespace), connection)
	if !apierrors.IsForbidden(err) {
		e.recordUnseen("the pool's connection", client.IgnoreNotFound(err))
	}
	return explain.ConditionOf(connection, v1alpha1.ReadyCondition)
}

// source returns the PoolSource that applies the pool, and its Ready condition.
func (e *explainer) source(ctx context.Context, pool *v1alpha1.RunnerPool) (name string, applied *explain.Condition) {
	key := client.ObjectKey{Namespace: pool.Namespace, Name: pool.Labels[v1alpha1.SourceLabel]}
	if key.Name == "" {
		return "", nil
	}
	source := &v1alpha1.PoolSource{}
	_ = e.get(ctx, "the pool's source", key, source) // get records the error
	return key.String(), explain.ConditionOf(source, v1alpha1.ReadyCondition)
}

// history reads the previous decisions on a pool.
func (e *explainer) history(ctx context.Context, pool *v1alpha1.RunnerPool) (entries []explain.Entry) {
	config, err := e.ownConfig(ctx, pool, explain.HistoryName(pool.Name))
	if err == nil {
		entries, err = explain.ParseHistory(config.Data[explain.HistoryKey])
	}
	e.recordUnseen("the previous decisions", err)
	return entries
}

// ownConfig reads a ConfigMap that the controller keeps for a pool. If there is none, it returns an empty ConfigMap.
func (e *explainer) ownConfig(ctx context.Context, pool *v1alpha1.RunnerPool, name string) (*corev1.ConfigMap, error) {
	config := &corev1.ConfigMap{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: name}, config)
	if err == nil && !metav1.IsControlledBy(config, pool) {
		err = fmt.Errorf("the ConfigMap %s does not belong to the pool", name)
	}
	return config, client.IgnoreNotFound(err)
}

// runners reads a pool's runners and their pods, and assesses each runner. kept is the name of the pod of a failed runner
// that the controller keeps for debugging.
func (e *explainer) runners(ctx context.Context, pool *v1alpha1.RunnerPool) (runners []explain.Runner, kept string) {
	list, pods := &v1alpha1.RunnerList{}, &corev1.PodList{}
	of := []client.ListOption{client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}}
	e.recordUnseen("the pool's runners", e.client.List(ctx, list, of...))
	e.recordUnseen("the pool's pods", e.client.List(ctx, pods, of...))
	byName := map[string]*corev1.Pod{}
	for i := range pods.Items {
		byName[pods.Items[i].Name] = &pods.Items[i]
		if pods.Items[i].Annotations[v1alpha1.KeptUntilAnnotation] != "" {
			kept = pool.Namespace + "/" + pods.Items[i].Name
		}
	}
	for i := range list.Items {
		r := &list.Items[i]
		runners = append(runners, e.judge(r, pool, byName[r.Name]))
	}
	return runners, kept
}

// judge assesses a runner as the controller does. Without the pool, it assumes the default startup deadline.
func (e *explainer) judge(r *v1alpha1.Runner, pool *v1alpha1.RunnerPool, pod *corev1.Pod) explain.Runner {
	pool = cmp.Or(pool, &v1alpha1.RunnerPool{})
	v := poolstatus.Assess(poolstatus.Observe(r, pod, pool.Spec.Deadlines.GetStartup(), e.now), e.now)
	if r.Status.State == v1alpha1.RunnerFinished && v.State == v1alpha1.RunnerBusy || r.IsReleased() { // only the controller knows what GitHub reports about the job
		v = poolstatus.Assessment{State: r.Status.State, Reason: r.Status.Reason, Since: v.Since}
	}
	judged := explain.Runner{Object: r, Judgement: explain.Judgement{
		State: v.State, Reason: v.Reason, Cause: v.Cause, Since: v.Since, Until: v.Until,
	}}
	if pod != nil {
		judged.HasPod, judged.Node = true, pod.Spec.NodeName
	}
	return judged
}

// policies lists the policies that bind a pool: first cluster policies, then policies of its namespace.
func (e *explainer) policies(ctx context.Context, pool *v1alpha1.RunnerPool) []explain.Policy {
	cluster, namespaced := &v1alpha1.ClusterRunnerPolicyList{}, &v1alpha1.RunnerPolicyList{}
	e.recordUnseen("the policies of the cluster", e.client.List(ctx, cluster))
	e.recordUnseen("the policies of the namespace", e.client.List(ctx, namespaced, client.InNamespace(pool.Namespace)))
	s := &explain.Snapshot{ClusterPolicies: cluster.Items, Policies: namespaced.Items}
	return s.PoliciesOf(pool)
}

// runner explains a runner.
func (e *explainer) runner(ctx context.Context, name string) (texter, error) {
	r := &v1alpha1.Runner{}
	if err := e.find(ctx, "Runner", name, r, &v1alpha1.RunnerList{}); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}
	pool, pod := &v1alpha1.RunnerPool{}, &corev1.Pod{}
	err := e.get(ctx, "RunnerPool "+key.String(), key, pool)
	if err != nil {
		pool = nil
	}
	if e.get(ctx, "its pod", client.ObjectKeyFromObject(r), pod) != nil {
		pod = nil
	}
	return explain.OfRunner(explain.RunnerFacts{Runner: e.judge(r, pool, pod), Pool: pool, PoolGone: apierrors.IsNotFound(err), Unknown: e.unknowns(), Now: e.now}), nil
}

// job explains a job. Without --namespace, it reads all namespaces if the user has permission to do so.
func (e *explainer) job(ctx context.Context, raw string, labels []string) (texter, error) {
	at, err := explain.ParseJobURL(raw)
	if err != nil {
		return nil, err
	}
	s, pods := &explain.Snapshot{Now: e.now}, []corev1.Pod{}
	e.readPools(ctx, s)
	listNamespaced(ctx, &e.reader, "pods of the workflow run", &corev1.PodList{}, &pods, client.MatchingLabels{v1alpha1.JobRunIDLabel: strconv.FormatInt(at.RunID, 10)})
	isPartial, connections := e.namespace != "" || len(e.unseen) > 0, map[string]explain.Connection{}
	for i := range s.Connections {
		c := &s.Connections[i]
		if known, err := githubOf(c); err != nil {
			e.recordUnseen("where GitHubConnection "+c.Namespace+"/"+c.Name+" points to", err)
		} else {
			connections[c.Namespace+"/"+c.Name] = known
		}
	}
	events := e.events(ctx, at, labels, s)
	return explain.Job(explain.JobFacts{
		URL: at, RunsOn: labels, Pods: jobPods(pods, s.Runners), Unseen: isPartial, Pools: s.Facts(), Events: events,
		Connections: connections, Unknown: e.unknowns(), Now: e.now,
	}), nil
}

func githubOf(c *v1alpha1.GitHubConnection) (explain.Connection, error) {
	target, err := github.ParseURL(c.Spec.URL)
	if err != nil {
		return explain.Connection{}, err
	}
	u, _ := url.Parse(c.Spec.URL) // ParseURL accepted it
	return explain.Connection{
		Namespace: c.Namespace, Name: c.Name, Host: u.Host, Scope: string(target.Scope), Owner: target.Owner, Path: target.Name,
	}, nil
}

// jobPods returns the jobs of runners. It prefers the pods' information, and uses the status of the runners if the user may
// not read pods.
func jobPods(pods []corev1.Pod, runners []v1alpha1.Runner) []explain.JobPod {
	byRunner := map[string]explain.JobPod{}
	for i := range runners {
		r := &runners[i]
		if r.Status.Job != nil {
			byRunner[r.Namespace+"/"+r.Name] = explain.JobPod{Namespace: r.Namespace, Runner: r.Name, Pool: r.Spec.PoolRef.Name, Job: *r.Status.Job}
		}
	}
	for i := range pods {
		p := &pods[i]
		job, name := poolstatus.JobOf(p), p.Labels[v1alpha1.RunnerLabel]
		if job != nil && name != "" {
			byRunner[p.Namespace+"/"+name] = explain.JobPod{Namespace: p.Namespace, Runner: name, Pool: p.Labels[v1alpha1.PoolLabel], Job: *job}
		}
	}
	return slices.SortedFunc(maps.Values(byRunner), func(a, b explain.JobPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Runner, b.Runner))
	})
}
