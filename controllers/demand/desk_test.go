// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/corral-dev/corral/internal/githubapi"
	actions "github.com/corral-dev/corral/internal/scaleset"
	"github.com/corral-dev/corral/internal/webhook"
)

const ns = "ci"

// github is a GitHub with deliveries and jobs.
type github struct {
	mu         sync.Mutex
	deliveries []githubapi.Delivery // oldest first
	payloads   map[int64][]byte
	jobs       map[string][]githubapi.Job
	hidden     map[string]bool // groups
	again      []int64         // deliveries that were asked for again
	calls      map[string]int
	fails      error

	installation int64
	unreadable   map[int64]error  // deliveries that can't be read
	slow         map[string]error // repositories that can't be listed
}

func newGitHub() *github {
	return &github{payloads: map[int64][]byte{}, jobs: map[string][]githubapi.Job{}, hidden: map[string]bool{}, calls: map[string]int{}}
}

func (g *github) call(what string) error {
	g.calls[what]++
	return g.fails
}

func (g *github) Deliveries(_ context.Context, _ int64, cursor string) ([]githubapi.Delivery, string, error) {
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

func (g *github) Payload(_ context.Context, _, id int64) (string, []byte, error) {
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
	return "", nil, actions.NewError(actions.KindNotFound, "reading", 404, 0, "not there", nil)
}

func (g *github) Redeliver(_ context.Context, _, id int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.again = append(g.again, id)
	return g.call("redeliver")
}

func (g *github) Jobs(_ context.Context, repository string, _ time.Duration) (githubapi.JobList, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := errors.Join(g.call("jobs"), g.slow[repository])
	return githubapi.JobList{Jobs: g.jobs[repository], Complete: true, At: time.Now()}, err
}

func (g *github) InstallationID() int64 { return g.installation }

func (g *github) Visible(_ context.Context, group, _ string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.hidden[group], g.call("visible")
}

// event has GitHub tell of a job, with an answer of the receiver's.
func (g *github) event(d webhook.Delivery, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := int64(len(g.deliveries) + 1)
	g.deliveries = append(g.deliveries, githubapi.Delivery{ID: id, GUID: d.GUID, Event: d.Event, Action: d.Action, StatusCode: code, DeliveredAt: time.Now()})
	g.payloads[id] = payload(d)
}

func (g *github) count(what string) int {
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

// place is where a Desk is tried: an API server without a network, and a GitHub.
type place struct {
	t        *testing.T
	api      client.Client
	gh       *github
	desk     *Desk
	stop     context.CancelFunc
	done     chan error
	mu       sync.Mutex
	writes   []write
	broken   error // what writes end with
	unread   error // what reads of ConfigMaps end with
	recorded []actions.JobEvent
	failing  int // how many records fail
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
			if _, ok := obj.(*corev1.ConfigMap); ok && x.unread != nil {
				return x.unread
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

// lead has a new process lead.
func (x *place) lead() {
	x.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.done = stop, make(chan error, 1)
	x.desk = NewDesk(Config{Client: x.api, Now: time.Now, GitHub: func(types.NamespacedName) (GitHub, bool) { return x.gh, true }, Record: x.record})
	x.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	if err := x.desk.Words().Start(ctx, x.queue); err != nil {
		x.t.Fatal(err)
	}
	go func() { x.done <- x.desk.Start(ctx) }()
	synctest.Wait()
}

// end ends the process in good order.
func (x *place) end() {
	x.t.Helper()
	x.stop()
	if err := <-x.done; err != nil {
		x.t.Fatal(err)
	}
	x.queue.ShutDown()
	synctest.Wait()
}

// kill ends it without a last word.
func (x *place) kill() {
	x.t.Helper()
	x.mu.Lock()
	x.broken = errors.New("killed")
	x.mu.Unlock()
	x.end()
	x.mu.Lock()
	x.broken = nil
	x.mu.Unlock()
}

func (x *place) record(_ context.Context, _ string, events []actions.JobEvent) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failing > 0 {
		x.failing--
		return errors.New("the API server is away")
	}
	x.recorded = append(x.recorded, events...)
	return nil
}

func (x *place) take(events ...webhook.Delivery) {
	x.t.Helper()
	for _, d := range events {
		if err := x.desk.Take(x.t.Context(), d); err != nil {
			x.t.Fatal(err)
		}
	}
}

// jobs that events tell a pool of; -1 if it isn't known.
func (x *place) jobs(pool string) int32 {
	r := x.desk.Reading(keyOf(pool))
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
			ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, Registration: v1alpha1.RegisterREST, Labels: []string{name},
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

// job is an event of a job with an id, of a label.
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

func TestTheFirstEventActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(10 * time.Second)
		for x.queue.Len() > 0 {
			r, _ := x.queue.Get()
			x.queue.Done(r)
		}
		began := time.Now()
		x.take(job(1, "queued", "GPU"))
		x.want("gpu", 1)
		if x.queue.Len() != 1 {
			t.Error("the pool isn't woken at once")
		}
		synctest.Wait()
		if at := x.written("gpu-jobs"); len(at) != 1 || !at[0].Equal(began) {
			t.Errorf("it is written down at %v, want at once (%v)", at, began)
		}
	})
}

func TestAStormCostsOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("cpu"))
		x.lead()
		for i := range int64(5000) {
			x.take(job(i, "queued", []string{"gpu", "cpu"}[i%2]))
			if i%5 == 0 {
				wait(5 * time.Millisecond)
			}
		}
		wait(2 * time.Second)
		x.want("gpu", 2500)
		for _, name := range []string{"gpu-jobs", "cpu-jobs"} {
			at := x.written(name)
			if len(at) > 8 {
				t.Errorf("%d writes of %s in seven seconds", len(at), name)
			}
			for i := 1; i < len(at); i++ {
				if at[i].Sub(at[i-1]) < writeInterval {
					t.Errorf("%s was written after %v", name, at[i].Sub(at[i-1]))
				}
			}
		}
		x.end()
	})
}

func TestAJobGoesWhereItsRunnerIs(t *testing.T) {
	cases := map[string]struct {
		events   func() []webhook.Delivery
		gpu, big int32
	}{
		"it waits":              {func() []webhook.Delivery { return []webhook.Delivery{job(1, "queued", "gpu")} }, 1, 0},
		"it waits for a person": {func() []webhook.Delivery { return []webhook.Delivery{job(1, "waiting", "gpu")} }, 0, 0},
		"on its pool's runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1")}
		}, 1, 0},
		"on another pool's runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "big-1")}
		}, 0, 1},
		"on another pool's runner, told in the other order": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "in_progress", "gpu", "big-1"), job(1, "queued", "gpu")}
		}, 0, 1},
		"on a runner that is nobody's": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "vm-1")}
		}, 0, 0},
		"on a runner that is nobody's, told in the other order": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "in_progress", "gpu", "vm-1"), job(1, "queued", "gpu")}
		}, 0, 0},
		"completed": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1"), job(1, "completed", "gpu", "gpu-1")}
		}, 0, 0},
		"completed elsewhere than expected": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "completed", "gpu", "big-1"), job(1, "in_progress", "gpu", "big-1")}
		}, 0, 0},
		"completed without a runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "completed", "gpu"), job(1, "queued", "gpu")}
		}, 0, 0},
		"twice each": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1"), job(1, "in_progress", "gpu", "gpu-1")}
		}, 1, 0},
		"of no pool's labels":      {func() []webhook.Delivery { return []webhook.Delivery{job(1, "queued", "ubuntu-latest")} }, 0, 0},
		"a word that nobody knows": {func() []webhook.Delivery { return []webhook.Delivery{job(1, "postponed", "gpu")} }, 0, 0},
		"of the year before": {func() []webhook.Delivery {
			d := job(1, "queued", "gpu")
			d.Job.CreatedAt = time.Now().AddDate(-1, 0, 0)
			return []webhook.Delivery{d}
		}, 0, 0},
		"of another organization": {func() []webhook.Delivery {
			d := job(1, "queued", "gpu")
			d.Repository.FullName = "other/web"
			return []webhook.Delivery{d}
		}, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				big := poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"gpu", "big"} })
				x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), big, runnerOf("gpu-1", "gpu"), runnerOf("big-1", "big"))
				x.lead()
				defer x.end()
				x.take(tc.events()...)
				x.want("gpu", tc.gpu)
				x.want("big", tc.big)
			})
		})
	}
}

func TestNothingIsTakenBeforeItIsKnownWhoseItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		idle := NewDesk(Config{Client: x.api, Now: time.Now})
		if err := idle.Take(t.Context(), job(1, "queued", "gpu")); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("who doesn't lead says %v", err)
		}
		if idle.Reading(keyOf("gpu")).Known {
			t.Error("it claims to know a pool")
		}
		x.lead()
		d := job(1, "queued", "gpu")
		d.Connection.Name = "unknown"
		if err := x.desk.Take(t.Context(), d); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("an unknown connection's event: %v", err)
		}
		x.take(job(1, "queued", "gpu"))
		x.end()
		if err := x.desk.Take(t.Context(), job(1, "queued", "gpu")); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("who has ended says %v", err)
		}
	})
}

func TestARestartForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		push := v1alpha1.SlackTrigger{Name: "morning", Event: "push", Amount: new(int32(3))}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Slack = []v1alpha1.SlackTrigger{push} }), runnerOf("gpu-1", "gpu"))
		x.lead()
		x.take(job(1, "queued", "gpu"), job(2, "queued", "gpu"), job(2, "in_progress", "gpu", "gpu-1"), job(3, "completed", "gpu"))
		x.take(webhook.Delivery{GUID: "p", Connection: keyOf("acme"), Event: "push", Branch: "main", At: time.Now(), Repository: webhook.Repository{FullName: "acme/web"}})
		before := x.desk.Reading(keyOf("gpu"))
		x.end()
		x.lead()
		defer x.end()
		after := x.desk.Reading(keyOf("gpu"))
		for i := range after.Signals {
			after.Signals[i].At = before.Signals[i].At
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		x.take(job(3, "queued", "gpu")) // late
		x.want("gpu", 2)
		if *after.Signals[1].Idle != 3 {
			t.Errorf("slack is %d, want 3", *after.Signals[1].Idle)
		}
		x.desk.Retain(keyOf("gpu"), func(string) bool { return false })
		x.want("gpu", 1)
	})
}

// What was accepted and not written down when the process was killed, and what was sent while nobody was there, is asked for.
func TestAKillLosesNoAcceptedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(time.Minute)
		for i := range int64(500) {
			d := job(i, "queued", "gpu")
			d.GUID = fmt.Sprint("a", i)
			x.take(d)
			x.gh.event(d, 202)
			if i%10 == 0 {
				wait(20 * time.Millisecond)
			}
		}
		x.kill()
		for i := range int64(100) {
			x.gh.event(job(1000+i, "queued", "gpu"), 503)
			wait(100 * time.Millisecond)
		}
		x.lead()
		defer x.end()
		wait(5 * time.Second)
		x.want("gpu", 600)
		if x.gh.count("jobs") != 0 {
			t.Error("a repository was polled")
		}
	})
}

func TestTwentyMinutesOfLostDeliveriesAreCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(time.Minute)
		x.gh.mu.Lock()
		x.gh.fails = actions.NewError(actions.KindUnavailable, "listing", 502, 0, "away", nil)
		x.gh.mu.Unlock()
		for i := range int64(240) { // one each five seconds, of which half have ended since
			x.gh.event(job(i, "queued", "gpu"), 504)
			if i%2 == 0 {
				d := job(i, "completed", "gpu")
				x.gh.event(d, 0)
			}
			x.gh.event(webhook.Delivery{GUID: fmt.Sprint("star", i), Event: "star", Action: "created"}, 504)
			wait(5 * time.Second)
		}
		x.want("gpu", 0)
		x.gh.mu.Lock()
		x.gh.fails = nil
		x.gh.mu.Unlock()
		calls := x.gh.count("payload")
		wait(2 * time.Minute)
		x.want("gpu", 120)
		if got := x.gh.count("payload") - calls; got != 360 {
			t.Errorf("%d deliveries were read, want each of a job once: 360", got)
		}
		if x.gh.count("jobs") != 0 {
			t.Error("a repository was polled")
		}
	})
}

// What GitHub takes for delivered may have been accepted by somebody else, such as a proxy.
func TestADeliveryThatSomebodyElseAcceptedIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(10 * time.Minute)
		d := job(1, "queued", "gpu")
		x.take(d)
		x.gh.event(d, 202)
		x.gh.event(job(2, "queued", "gpu"), 200)
		wait(2 * time.Minute)
		x.want("gpu", 2)
		if n := x.gh.count("payload"); n != 1 {
			t.Errorf("%d deliveries were read, want the one that didn't come in", n)
		}
	})
}

func TestADeliveryWithoutAPayloadIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(time.Minute)
		x.gh.event(job(1, "queued", "gpu"), 500)
		x.gh.event(job(2, "queued", "gpu"), 500)
		x.gh.mu.Lock()
		x.gh.payloads[1] = nil
		x.gh.payloads[2] = []byte(`{"action": 5}`)
		x.gh.mu.Unlock()
		wait(5 * time.Minute)
		if diff := cmp.Diff([]int64{1}, x.gh.again); diff != "" {
			t.Errorf("asked for again (-want +got):\n%s", diff)
		}
		if n := x.gh.count("payload"); n != 2 {
			t.Errorf("%d were read, want each once", n)
		}
	})
}

func TestJobsThatWaitForLongAreComparedWithGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.desk.AtMax(keyOf("gpu"), false)
		x.take(job(1, "queued", "gpu"), job(2, "queued", "gpu"))
		x.gh.jobs["acme/web"] = []githubapi.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}, {ID: 3, Status: "queued", Labels: []string{"gpu"}}, {ID: 4, Status: "queued", Labels: []string{"other"}}}
		wait(4 * time.Minute)
		x.want("gpu", 2)
		if n := x.gh.count("jobs"); n != 0 {
			t.Errorf("%d looks at jobs that are no more than four minutes old", n)
		}
		wait(2 * time.Minute)
		x.want("gpu", 2) // 1 and 3
		wait(58 * time.Minute)
		x.want("gpu", 2) // they don't expire while GitHub lists them
		if n := x.gh.count("jobs"); n > 13 {
			t.Errorf("%d looks in an hour", n)
		}
		x.gh.mu.Lock()
		x.gh.fails = actions.NewError(actions.KindForbidden, "listing", 403, 0, "no", nil)
		x.gh.mu.Unlock()
		wait(50 * time.Minute)
		x.want("gpu", 2)
		wait(15 * time.Minute)
		x.want("gpu", 0)
	})
}

func TestAtMaxNothingExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.fails = actions.NewError(actions.KindForbidden, "listing", 403, 0, "no", nil)
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		x.desk.AtMax(keyOf("gpu"), true)
		wait(5 * time.Hour)
		x.want("gpu", 1)
		x.desk.AtMax(keyOf("gpu"), false)
		wait(59 * time.Minute)
		x.want("gpu", 1)
		wait(2 * time.Minute)
		x.want("gpu", 0)
	})
}

// A group that the repository can't use is found out about after the first job; then it goes to the right pool.
func TestAHiddenGroupGetsNoJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := poolOf("secret", func(p *v1alpha1.RunnerPool) { p.Spec.Labels, p.Spec.RunnerGroup = []string{"gpu"}, "secret" })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), secret)
		x.gh.hidden["secret"] = true
		x.gh.jobs["acme/web"] = []githubapi.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}, {ID: 2, Status: "queued", Labels: []string{"gpu"}}}
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		x.want("secret", 1)
		wait(time.Second)
		x.take(job(2, "queued", "gpu"))
		x.want("gpu", 1)
		wait(2 * time.Minute)
		x.want("secret", 0)
		x.want("gpu", 2)
	})
}

func TestThePoolsOfAConnectionThatIsGoneGetNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), connOf("other", "acme"), poolOf("gpu"), poolOf("web", func(p *v1alpha1.RunnerPool) {
			p.Spec.ConnectionRef.Name, p.Spec.Labels = "other", []string{"gpu", "web"}
		}))
		x.lead()
		defer x.end()
		if err := x.api.Delete(t.Context(), connOf("other", "")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.desk.reconcileConnection(t.Context(), reconcile.Request{NamespacedName: keyOf("other")}); err != nil {
			t.Fatal(err)
		}
		x.take(job(1, "queued", "web"))
		x.want("web", 0)
	})
}

// When a pool goes, its jobs go to who is next, as soon as GitHub's list tells of them.
func TestTheJobsOfADeletedPoolAreForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"gpu", "big"} }))
		x.gh.jobs["acme/web"] = []githubapi.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}}
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		x.want("gpu", 1)
		if err := x.api.Delete(t.Context(), poolOf("gpu")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.desk.reconcilePool(t.Context(), reconcile.Request{NamespacedName: keyOf("gpu")}); err != nil {
			t.Fatal(err)
		}
		x.want("gpu", -1)
		wait(90 * time.Second)
		x.want("big", 1)
	})
}

func TestObserversCountWhatOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watching := poolOf("watching", func(p *v1alpha1.RunnerPool) { p.Spec.Mode, p.Spec.Labels = v1alpha1.Observe, []string{"gpu"} })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), watching)
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		x.want("gpu", 1)
		x.want("watching", 1)
		x.take(job(1, "in_progress", "gpu", "arc-1"))
		x.want("gpu", 0)
		x.want("watching", 1)
		x.desk.Retain(keyOf("watching"), func(string) bool { return false })
		x.want("watching", 1)
		x.take(job(1, "completed", "gpu", "arc-1"))
		x.want("watching", 0)
	})
}

func TestWhoHasAJobIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inSet := poolOf("inset", func(p *v1alpha1.RunnerPool) { p.Spec.Registration = "" })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), inSet, runnerOf("gpu-1", "gpu"), runnerOf("inset-1", "inset"))
		x.failing = 2
		x.lead()
		defer x.end()
		d := job(1, "in_progress", "gpu", "gpu-1")
		d.Job.StartedAt = time.Now().Add(-time.Second)
		x.take(d, d, job(2, "in_progress", "inset", "inset-1"), job(3, "in_progress", "gpu", "vm-1"))
		wait(10 * time.Second)
		x.take(job(1, "completed", "gpu", "gpu-1"))
		wait(time.Second)
		want := []actions.JobEvent{
			{Type: actions.JobStarted, JobID: "1", Repository: "acme/web", RunnerID: 7, RunnerName: "gpu-1", At: d.Job.StartedAt},
			{Type: actions.JobCompleted, JobID: "1", Repository: "acme/web", RunnerID: 7, RunnerName: "gpu-1", Result: "succeeded"},
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for i := range x.recorded[min(1, len(x.recorded)):] {
			x.recorded[i+1].At = time.Time{}
		}
		if diff := cmp.Diff(want, x.recorded); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

func TestSlackTriggers(t *testing.T) {
	at := func(d webhook.Delivery) webhook.Delivery {
		d.GUID, d.Connection, d.Repository.FullName = "g", keyOf("acme"), "acme/web"
		return d
	}
	check := at(webhook.Delivery{Event: "check_run", Action: "created", CheckRun: &webhook.CheckRun{Name: "build/linux", Status: "queued"}})
	pull := at(webhook.Delivery{Event: "pull_request", Action: "opened", Branch: "release/1"})
	push := at(webhook.Delivery{Event: "push", Branch: "main"})
	cases := map[string]struct {
		trigger v1alpha1.SlackTrigger
		event   webhook.Delivery
		want    bool
	}{
		"any check run":              {v1alpha1.SlackTrigger{Event: "check_run"}, check, true},
		"another event":              {v1alpha1.SlackTrigger{Event: "push"}, check, false},
		"its name, by pattern":       {v1alpha1.SlackTrigger{Event: "check_run", Names: []string{"test", "bui*"}}, check, true},
		"another name":               {v1alpha1.SlackTrigger{Event: "check_run", Names: []string{"test"}}, check, false},
		"its status":                 {v1alpha1.SlackTrigger{Event: "check_run", Status: "queued"}, check, true},
		"another status":             {v1alpha1.SlackTrigger{Event: "check_run", Status: "completed"}, check, false},
		"its action":                 {v1alpha1.SlackTrigger{Event: "check_run", Actions: []string{"created"}}, check, true},
		"another action":             {v1alpha1.SlackTrigger{Event: "check_run", Actions: []string{"completed"}}, check, false},
		"its repository":             {v1alpha1.SlackTrigger{Event: "push", Repositories: []string{"Acme/*"}}, push, true},
		"another repository":         {v1alpha1.SlackTrigger{Event: "push", Repositories: []string{"acme/api"}}, push, false},
		"its branch":                 {v1alpha1.SlackTrigger{Event: "push", Branches: []string{"main"}}, push, true},
		"another branch":             {v1alpha1.SlackTrigger{Event: "push", Branches: []string{"release/*"}}, push, false},
		"a push has no action":       {v1alpha1.SlackTrigger{Event: "push", Actions: []string{"created"}}, push, true},
		"a tag":                      {v1alpha1.SlackTrigger{Event: "push"}, at(webhook.Delivery{Event: "push"}), false},
		"where it is to be merged":   {v1alpha1.SlackTrigger{Event: "pull_request", Branches: []string{"release/*"}, Actions: []string{"opened"}}, pull, true},
		"merged elsewhere":           {v1alpha1.SlackTrigger{Event: "pull_request", Branches: []string{"main"}}, pull, false},
		"case of a branch matters":   {v1alpha1.SlackTrigger{Event: "push", Branches: []string{"Main"}}, push, false},
		"an event without its check": {v1alpha1.SlackTrigger{Event: "check_run"}, at(webhook.Delivery{Event: "check_run"}), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fits(&tc.trigger, tc.event); got != tc.want {
				t.Errorf("it fits: %v", got)
			}
		})
	}
}

func TestSlackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := v1alpha1.SlackTrigger{Name: "pr", Event: "pull_request", Amount: new(int32(2)), Duration: &metav1.Duration{Duration: time.Minute}}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) {
			p.Spec.Demand = v1alpha1.DemandSpec{Slack: []v1alpha1.SlackTrigger{trigger}}
		}))
		x.lead()
		defer x.end()
		idle := func() int32 { return *x.desk.Reading(keyOf("gpu")).Signals[0].Idle }
		d := webhook.Delivery{GUID: "a", Connection: keyOf("acme"), Event: "pull_request", Action: "opened", At: time.Now(), Repository: webhook.Repository{FullName: "acme/web"}}
		x.take(d, d)
		d.GUID = "b"
		x.take(d)
		if idle() != 4 {
			t.Errorf("two events give %d idle runners, want 4", idle())
		}
		wait(61 * time.Second)
		if idle() != 0 {
			t.Errorf("after a minute they give %d", idle())
		}
		d.GUID = "late" // it was sent a minute ago
		x.take(d)
		if idle() != 0 {
			t.Errorf("a late one gives %d", idle())
		}
	})
}

func TestForeignConfigMapsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpu-jobs"}, Data: map[string]string{"a": "b"}}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), theirs)
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		x.want("gpu", 1) // it counts all the same
		wait(time.Minute)
		if n := len(x.written("gpu-jobs")); n != 0 {
			t.Errorf("%d writes", n)
		}
		if err := x.api.Delete(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if n := len(x.written("gpu-jobs")); n != 1 {
			t.Errorf("%d writes after it was deleted, want 1", n)
		}
	})
}

func TestAChangedConfigMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.take(job(1, "queued", "gpu"))
		wait(2 * time.Second)
		config := &corev1.ConfigMap{}
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{partLabel: "jobs", v1alpha1.PoolLabel: "gpu"}, config.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		config.Annotations = map[string]string{"touched": "yes"}
		if err := x.api.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		x.take(job(2, "queued", "gpu"))
		wait(5 * time.Second)
		x.end()
		x.lead()
		x.want("gpu", 2)
		if err := x.api.Delete(t.Context(), config); err != nil { // and when somebody deletes it, it is made anew
			t.Fatal(err)
		}
		x.take(job(3, "queued", "gpu"))
		wait(5 * time.Second)
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Error(err)
		}
		x.want("gpu", 3)
	})
}

// Damaged bytes are as if nothing were there, and hold up nothing.
func TestADamagedAccountBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf("gpu")
		damaged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpu-jobs", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("RunnerPool"))}}, BinaryData: map[string][]byte{jobsKey: []byte("x"), slackKey: []byte("y")}}
		x := newPlace(t, connOf("acme", "acme"), p, damaged)
		x.lead()
		defer x.end()
		x.want("gpu", 0)
		x.take(job(1, "queued", "gpu"))
		x.want("gpu", 1)
	})
}

func TestIrrelevantEventsCostNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(2 * time.Minute)
		for i := range int64(200_000) {
			d := job(i, "queued", "ubuntu-latest")
			x.take(d)
		}
		wait(10 * time.Minute)
		x.mu.Lock()
		if len(x.writes) != 0 {
			t.Errorf("%d writes: %v", len(x.writes), x.writes[0])
		}
		x.mu.Unlock()
		c := x.desk.conns[keyOf("acme")]
		if len(c.seen[0])+len(c.seen[1]) > 2*maxSeen || len(x.desk.spaces[spaceKey{ns, ns}].held) != 0 {
			t.Errorf("%d and %d deliveries are remembered, and %d jobs", len(c.seen[0]), len(c.seen[1]), len(x.desk.spaces[spaceKey{ns, ns}].held))
		}
		x.end()
	})
}

// Until the account is read, nobody knows how many jobs there are; the first that come in are added to it then.
func TestNothingIsSaidBeforeTheAccountIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		x.take(job(1, "queued", "gpu"))
		x.end()
		x.unread = apierrors.NewServiceUnavailable("away")
		x.lead()
		defer x.end()
		x.take(job(2, "queued", "gpu"))
		wait(3 * time.Second)
		if r := x.desk.Reading(keyOf("gpu")); r.Known {
			t.Errorf("it says %+v", r)
		}
		x.unread = nil
		wait(time.Minute)
		x.want("gpu", 2)
	})
}

func TestFailedWritesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.broken = apierrors.NewServiceUnavailable("away")
		x.take(job(1, "queued", "gpu"))
		wait(time.Minute)
		n := len(x.written("gpu-jobs"))
		if n < 3 || n > 10 {
			t.Errorf("%d attempts in a minute", n)
		}
		x.mu.Lock()
		x.broken = nil
		x.mu.Unlock()
		wait(time.Minute)
		config := &corev1.ConfigMap{}
		if err := x.api.Get(t.Context(), keyOf("gpu-jobs"), config); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(string(config.BinaryData[jobsKey]), "\x1f\x8b") {
			t.Error("it isn't gzip")
		}
	})
}

func (x *place) config(name string) *corev1.ConfigMap {
	x.t.Helper()
	config := &corev1.ConfigMap{}
	if err := x.api.Get(x.t.Context(), keyOf(name), config); err != nil {
		x.t.Fatal(err)
	}
	return config
}
