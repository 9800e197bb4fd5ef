// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/webhook"
)

const ns = "ci"

// fakeGitHub is a GitHub with deliveries and jobs.
type fakeGitHub struct {
	mu         sync.Mutex
	deliveries []rest.Delivery // oldest first
	payloads   map[int64][]byte
	jobs       map[string][]rest.Job
	hidden     map[string]bool // groups
	again      []int64         // deliveries that GitHub was asked to send again
	calls      map[string]int
	fails      error

	installation int64
	unreadable   map[int64]error  // deliveries that cannot be read
	slow         map[string]error // repositories that cannot be listed
}

func newGitHub() *fakeGitHub {
	return &fakeGitHub{payloads: map[int64][]byte{}, jobs: map[string][]rest.Job{}, hidden: map[string]bool{}, calls: map[string]int{}}
}

func (g *fakeGitHub) call(what string) error {
	g.calls[what]++
	return g.fails
}

func (g *fakeGitHub) Deliveries(_ context.Context, _ int64, cursor string) ([]rest.Delivery, string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call("deliveries"); err != nil {
		return nil, "", err
	}
	const size = 100
	from := 0
	if cursor != "" {
		_, _ = fmt.Sscan(cursor, &from)
	}
	newest := slices.Clone(g.deliveries)
	slices.Reverse(newest)
	page := newest[min(from, len(newest)):min(from+size, len(newest))]
	if from+size >= len(newest) {
		return page, "", nil
	}
	return page, fmt.Sprint(from + size), nil
}

func (g *fakeGitHub) Payload(_ context.Context, _, id int64) (string, []byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := errors.Join(g.call("payload"), g.unreadable[id]); err != nil {
		return "", nil, err
	}
	for _, d := range g.deliveries {
		if d.ID == id {
			return d.Event, g.payloads[id], nil
		}
	}
	return "", nil, github.NewError(github.KindNotFound, "reading", 404, 0, "not there", nil)
}

func (g *fakeGitHub) Redeliver(_ context.Context, _, id int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.again = append(g.again, id)
	return g.call("redeliver")
}

func (g *fakeGitHub) Jobs(_ context.Context, repository string, _ time.Duration) (rest.JobList, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := errors.Join(g.call("jobs"), g.slow[repository])
	return rest.JobList{Jobs: g.jobs[repository], Complete: true, At: time.Now()}, err
}

func (g *fakeGitHub) InstallationID() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.installation
}

// edit changes the state of GitHub while the tracker may be reading it.
func (g *fakeGitHub) edit(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *fakeGitHub) Visible(_ context.Context, group, _ string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.hidden[group], g.call("visible")
}

// event records a delivery at GitHub, with the receiver's status code.
func (g *fakeGitHub) event(d webhook.Delivery, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := int64(len(g.deliveries) + 1)
	g.deliveries = append(g.deliveries, rest.Delivery{ID: id, GUID: d.GUID, Event: d.Event, Action: d.Action, StatusCode: code, DeliveredAt: time.Now()})
	g.payloads[id] = payload(d)
}

func (g *fakeGitHub) count(what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[what]
}

func payload(d webhook.Delivery) []byte {
	body := map[string]any{"action": d.Action, "repository": map[string]any{"full_name": d.Repository.FullName, "owner": map[string]any{"type": "Organization"}}}
	if j := d.Job; j != nil {
		body["workflow_job"] = map[string]any{"id": j.ID, "run_id": 1, "status": j.Status, "labels": j.Labels, "runner_name": j.RunnerName, "created_at": time.Now()}
	}
	if d.Event == webhook.PushEvent {
		body["ref"] = "refs/heads/" + d.Branch
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}

// place is the test environment of a JobTracker: an API server without a network, and a GitHub.
type place struct {
	t        *testing.T
	api      client.Client
	gh       *fakeGitHub
	tracker  *JobTracker
	stop     context.CancelFunc
	done     chan error
	mu       sync.Mutex
	writes   []write
	broken   error // error of writes
	unread   error // error of reads of ConfigMaps
	recorded []scaleset.JobEvent
	failing  int // number of records that fail
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type write struct {
	name string
	at   time.Time
}

func newPlace(t *testing.T, objects ...client.Object) *place {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	x := &place{t: t, gh: newGitHub()}
	noted := func(obj client.Object) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if _, ok := obj.(*corev1.ConfigMap); ok {
			x.writes = append(x.writes, write{obj.GetName(), time.Now()})
		}
		return x.broken
	}
	x.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := noted(obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.ConfigMap); ok {
				x.mu.Lock()
				err := x.unread
				x.mu.Unlock()
				if err != nil {
					return err
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := noted(obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	}).Build()
	return x
}

// lead starts a new process as the leader.
func (x *place) lead() {
	x.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.done = stop, make(chan error, 1)
	x.tracker = NewJobTracker(Config{Client: x.api, Now: time.Now, GitHub: func(types.NamespacedName) (GitHub, bool) { return x.gh, true }, Record: x.record, Meter: NewJobMeter(MeterOptions{})})
	x.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	if err := x.tracker.Events.Start(ctx, x.queue); err != nil {
		x.t.Fatal(err)
	}
	go func() { x.done <- x.tracker.Start(ctx) }()
	synctest.Wait()
}

// end stops the process gracefully.
func (x *place) end() {
	x.t.Helper()
	x.stop()
	if err := <-x.done; err != nil {
		x.t.Fatal(err)
	}
	x.queue.ShutDown()
	synctest.Wait()
}

// kill stops the process without its final writes.
func (x *place) kill() {
	x.t.Helper()
	x.edit(func() { x.broken = errors.New("killed") })
	x.end()
	x.edit(func() { x.broken = nil })
}

// edit changes the errors of reads and writes while the tracker runs.
func (x *place) edit(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

func (x *place) record(_ context.Context, _ string, events []scaleset.JobEvent) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failing > 0 {
		x.failing--
		return errors.New("the API server is away")
	}
	x.recorded = append(x.recorded, events...)
	return nil
}

func (x *place) accept(events ...webhook.Delivery) {
	x.t.Helper()
	for _, d := range events {
		if err := x.tracker.Accept(x.t.Context(), d); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *place) setPool(p *v1alpha1.RunnerPool) {
	x.tracker.setPool(p)
	x.settle()
}

// settle assigns waiting jobs to pools that changed, as a worker does.
func (x *place) settle() {
	x.t.Helper()
	if _, err := x.tracker.reconcileUnmatched(x.t.Context(), x.space()); err != nil {
		x.t.Fatal(err)
	}
}

// space returns the only space in these tests.
func (x *place) space() *space {
	x.tracker.mu.Lock()
	defer x.tracker.mu.Unlock()
	return x.tracker.space(spaceKey{ns, ns})
}

func (x *place) connection() *connection {
	c, _ := x.tracker.connection(keyOf("acme"))
	return c
}

// jobs returns the number of a pool's jobs according to events; -1 if unknown.
func (x *place) jobs(pool string) int32 {
	r := x.tracker.Reading(keyOf(pool))
	if !r.Known {
		return -1
	}
	for _, s := range r.Signals {
		if s.Name == v1alpha1.DemandWebhook {
			return *s.Jobs
		}
	}
	return -1
}

func (x *place) want(pool string, jobs int32) {
	x.t.Helper()
	if got := x.jobs(pool); got != jobs {
		x.t.Errorf("events tell pool %s of %d jobs, want %d", pool, got, jobs)
	}
}

func (x *place) written(name string) []time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	var at []time.Time
	for _, w := range x.writes {
		if w.name == name {
			at = append(at, w.at)
		}
	}
	return at
}

func keyOf(name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func connOf(name, path string) *v1alpha1.GitHubConnection {
	return &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("conn-" + name)},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/" + path, Webhook: &v1alpha1.ConnectionWebhook{}},
	}
}

func poolOf(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	p := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("pool-" + name)},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, Registration: v1alpha1.RegisterREST, RunnerLabels: []string{name},
			Demand: v1alpha1.DemandSpec{Webhook: &v1alpha1.WebhookDemand{}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func runnerOf(name, pool string) *v1alpha1.Runner {
	return &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.RunnerSpec{PoolRef: v1alpha1.LocalObjectReference{Name: pool}, REST: &v1alpha1.RESTRegistration{}}}
}

// job returns an event of a job with an ID and a label.
func job(id int64, action, label string, on ...string) webhook.Delivery {
	d := webhook.Delivery{
		GUID: fmt.Sprintf("%d-%s", id, action), Connection: keyOf("acme"), Event: webhook.WorkflowJobEvent, Action: action, At: time.Now(),
		Repository: webhook.Repository{FullName: "acme/web", OwnerType: "Organization"},
		Job:        &webhook.WorkflowJob{ID: id, Status: action, Labels: []string{"self-hosted", label}},
	}
	if len(on) > 0 {
		d.Job.RunnerName, d.Job.RunnerID = on[0], 7
	}
	if action == "completed" {
		d.Job.Conclusion = "success"
	}
	return d
}

func (x *place) config(name string) *corev1.ConfigMap {
	x.t.Helper()
	config := &corev1.ConfigMap{}
	if err := x.api.Get(x.t.Context(), keyOf(name), config); err != nil {
		x.t.Fatal(err)
	}
	return config
}
