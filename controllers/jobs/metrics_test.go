// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

// answers answers the requests of a Poller, and counts them.
type answers struct {
	mu      sync.Mutex
	value   float64         // of all metrics of servers
	err     error           // for all requests except Jobs
	hangs   map[string]bool // servers that do not answer
	repos   map[string]rest.JobList
	broken  map[string]error // errors of repositories
	runners []rest.Runner
	set     *scaleset.Set
	asked   map[string]int // number of requests, by server, metric or object
	now     int            // requests in progress
	most    int            // the maximum of now
}

// note counts a request until the returned function is called.
func (a *answers) note(what string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[what]++
	a.now++
	a.most = max(a.most, a.now)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.now--
	}
}

func (a *answers) Query(ctx context.Context, server, _ string, _ time.Duration) (float64, error) {
	defer a.note(server)()
	a.mu.Lock()
	hangs := a.hangs[server]
	a.mu.Unlock()
	if hangs {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
		return 0, errors.New("it took too long")
	}
	time.Sleep(10 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value, a.err
}

func (a *answers) Value(_ context.Context, namespace, metric string, _ *metav1.LabelSelector, _ time.Duration) (float64, error) {
	defer a.note(namespace + "/" + metric)()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value, a.err
}

func (a *answers) Repositories(_ context.Context, patterns []string) ([]string, error) {
	defer a.note("repositories")()
	if patterns[0] == "none-*" {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name := range a.repos {
		names = append(names, name)
	}
	for name := range a.broken {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, a.err
}

func (a *answers) Jobs(_ context.Context, repository string, _ time.Duration) (rest.JobList, error) {
	defer a.note(repository)()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.repos[repository], a.broken[repository]
}

func (a *answers) Runners(context.Context, time.Duration) (rest.RunnerList, error) {
	defer a.note("runners")()
	a.mu.Lock()
	defer a.mu.Unlock()
	return rest.RunnerList{Runners: a.runners}, a.err
}

func (a *answers) RunnerGroupID(_ context.Context, name string) (int64, error) {
	return int64(len(name)), nil
}

func (a *answers) Find(context.Context, int64, string) (*scaleset.Set, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.set == nil || a.err != nil {
		return nil, a.err
	}
	return &scaleset.Set{ID: a.set.ID}, nil
}

func (a *answers) Get(_ context.Context, id int64) (*scaleset.Set, error) {
	defer a.note(fmt.Sprint("set ", id))()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.set, a.err
}

// reply sets the answer to all further requests.
func (a *answers) reply(value float64, err error) {
	a.edit(func() { a.value, a.err = value, err })
}

// edit changes the answers while the Poller may be reading them.
func (a *answers) edit(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *answers) count(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[what]
}

// round is a running Poller in a synctest bubble, together with the endpoints that it polls.
type round struct {
	*answers
	t      *testing.T
	poller *Poller
	api    client.Client
	woken  map[string]int // how often each pool was woken
	ready  atomic.Bool    // whether the GitHubConnection is ready
}

// wakes is a queue that supports only Add. It reports the pools that a Poller wakes.
type wakes struct {
	kube.Queue
	add func(types.NamespacedName)
}

func (w wakes) Add(r reconcile.Request) { w.add(r.NamespacedName) }

func newRound(t *testing.T, objects ...client.Object) *round {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	x := &round{
		answers: &answers{asked: map[string]int{}, hangs: map[string]bool{}, repos: map[string]rest.JobList{}, broken: map[string]error{}},
		t:       t, api: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), woken: map[string]int{},
	}
	x.ready.Store(true)
	x.poller = NewPoller(PollerConfig{
		Client: x.api, GitHub: func(types.NamespacedName) (JobLister, bool) { return x, x.ready.Load() },
		ScaleSets:  func(types.NamespacedName) (SetFinder, bool) { return x, x.ready.Load() },
		Prometheus: x, External: x, Now: time.Now, Random: func() float64 { return 0.5 },
	})
	if err := x.poller.Events.Start(t.Context(), wakes{add: func(key types.NamespacedName) { x.woken[key.Name]++ }}); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if p, ok := o.(*v1alpha1.RunnerPool); ok {
			x.meet(p.Name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- x.poller.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return x
}

// meet makes the Poller reconcile a pool.
func (x *round) meet(name string) {
	x.t.Helper()
	if _, err := x.poller.reconcile(x.t.Context(), reconcile.Request{NamespacedName: keyOf(name)}); err != nil {
		x.t.Fatal(err)
	}
}

// change changes a pool, and makes the Poller reconcile it.
func (x *round) change(name string, change func(*v1alpha1.RunnerPool)) {
	x.t.Helper()
	p := &v1alpha1.RunnerPool{}
	if err := x.api.Get(x.t.Context(), keyOf(name), p); err != nil {
		x.t.Fatal(err)
	}
	change(p)
	if err := x.api.Update(x.t.Context(), p); err != nil {
		x.t.Fatal(err)
	}
	x.meet(name)
}

// want checks that a pool has the expected reading, apart from times.
func (x *round) want(name string, want demand.Reading) {
	x.t.Helper()
	if diff := cmp.Diff(want, x.poller.Reading(keyOf(name)), cmpopts.IgnoreFields(demand.Signal{}, "At")); diff != "" {
		x.t.Errorf("reading of pool %s (-want +got):\n%s", name, diff)
	}
}

func reading(signals ...demand.Signal) demand.Reading {
	return demand.Reading{Known: true, Signals: signals}
}

func jobsSignal(name string, n int32, reason string) demand.Signal {
	return demand.Signal{Name: name, Jobs: &n, Reason: reason}
}

func held(s demand.Signal, reason string) demand.Signal {
	s.Stale, s.Reason = true, reason
	return s
}

// metered returns a pool with metrics.
func metered(name string, metrics ...v1alpha1.MetricSource) *v1alpha1.RunnerPool {
	return poolOf(name, func(p *v1alpha1.RunnerPool) { p.Spec.Demand = v1alpha1.DemandSpec{Metrics: metrics} })
}

func promMetric(name, server string) v1alpha1.MetricSource {
	return v1alpha1.MetricSource{Name: name, Prometheus: &v1alpha1.PrometheusMetric{Server: server, Query: "q"}}
}

func TestPollerHoldsWithoutASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", promMetric("queue", "main")), metered("b"))
		x.edit(func() { x.value = 7 })
		if r := x.poller.Reading(keyOf("a")); r.Known {
			t.Errorf("the reading is known before the first poll: %+v", r)
		}
		x.want("b", demand.Reading{Known: true})
		wait(3 * time.Second)
		seven := jobsSignal("queue", 7, "the value is 7")
		x.want("a", reading(seven))
		woken := x.woken["a"]

		wait(10 * time.Minute)
		if n := x.asked["main"]; n != 11 {
			t.Errorf("polled %d times in 10 minutes, want 11", n)
		}
		if x.woken["a"] != woken {
			t.Error("the pool was woken although its number is the same")
		}
		x.reply(0, &demand.NoSignal{Reason: "the query has no result"})
		wait(2 * time.Minute)
		x.want("a", reading(held(seven, "no signal: the query has no result")))
		if x.woken["a"] != woken+1 {
			t.Errorf("the loss of the signal woke the pool %d times, want once", x.woken["a"]-woken)
		}
		x.reply(2, nil)
		wait(time.Minute)
		x.want("a", reading(jobsSignal("queue", 2, "the value is 2")))
		x.reply(-3, nil)
		wait(time.Minute)
		x.want("a", reading(held(jobsSignal("queue", 2, ""), "no signal: the value is -3, which is not a valid number of jobs")))
		if x.woken["b"] != 0 {
			t.Error("a pool without metrics was woken")
		}
	})
}

// The Poller has no number for a source that has failed since the start of the process. After a restart, the pool's status has the last number.
func TestPollerWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", promMetric("queue", "main")))
		x.reply(0, errors.New("it answered 503"))
		wait(3 * time.Second)
		x.want("a", reading(demand.Signal{Name: "queue", Stale: true, Reason: "no signal: it answered 503"}))
	})
}

func TestPollerFollowsChangesOfTheSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", promMetric("queue", "main"), promMetric("other", "main")))
		x.reply(4, nil)
		wait(3 * time.Second)
		x.change("a", func(p *v1alpha1.RunnerPool) {
			p.Spec.Demand.Metrics[0].Prometheus.AverageValue = new(v1alpha1.Quantity("2"))
			p.Spec.Demand.Metrics[1].Interval = nil
		})
		// The first metric must be polled again, and its old result is dropped; the second one continues.
		x.want("a", demand.Reading{Signals: []demand.Signal{jobsSignal("other", 4, "the value is 4")}})
		wait(3 * time.Second)
		x.want("a", reading(jobsSignal("queue", 2, "the value is 4, at 2 per runner"), jobsSignal("other", 4, "the value is 4")))
		woken := x.woken["a"]
		x.change("a", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Metrics = p.Spec.Demand.Metrics[:1] })
		x.want("a", reading(jobsSignal("queue", 2, "the value is 4, at 2 per runner")))
		if x.woken["a"] == woken {
			t.Error("the pool was not woken after a change of its metrics")
		}
		if err := x.api.Delete(t.Context(), metered("a")); err != nil {
			t.Fatal(err)
		}
		x.meet("a")
		asked := x.count("main")
		wait(10 * time.Minute)
		if x.count("main") != asked {
			t.Error("metrics of a deleted pool are polled")
		}
	})
}

// A server that hangs takes only its share of concurrent polls, so it does not delay polls of other servers. Each metric of the hanging server is
// polled in turn.
func TestPollerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pools []client.Object
		for i := range 40 {
			m := []v1alpha1.MetricSource{promMetric("good", "good")}
			for k := range 3 {
				slow := promMetric(fmt.Sprint("slow", k), "slow")
				slow.Interval = &metav1.Duration{Duration: 10 * time.Second}
				m = append(m, slow)
			}
			pools = append(pools, metered(fmt.Sprintf("p%02d", i), m...))
		}
		x := newRound(t, pools...)
		x.edit(func() { x.hangs["slow"], x.value = true, 3 })
		wait(5 * time.Second)
		for _, p := range pools {
			r := x.poller.Reading(client.ObjectKeyFromObject(p))
			if len(r.Signals) == 0 || r.Signals[0].Name != "good" || *r.Signals[0].Jobs != 3 {
				t.Fatalf("pool %s waits for a server that hangs: %+v", p.GetName(), r)
			}
		}
		x.edit(func() {
			if x.most > 2*pollsAtOnce {
				t.Errorf("%d polls ran concurrently", x.most)
			}
		})
		// 120 polls of 10 s take 150 s with 8 at a time, because all are in one namespace.
		wait(190 * time.Second)
		for _, p := range pools {
			if r := x.poller.Reading(client.ObjectKeyFromObject(p)); !r.Known || !r.Signals[3].Stale {
				t.Errorf("not all metrics of pool %s were polled: %+v", p.GetName(), r)
			}
		}
	})
}

// Namespaces take turns at a server that does not answer, and each uses at most a quarter of the concurrent polls.
func TestNamespacesTakeTurnsAtAMetricsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t)
		x.edit(func() { x.hangs["slow"] = true })
		add := func(namespace string, pools int) {
			for i := range pools {
				p := metered(fmt.Sprintf("p%02d", i), promMetric("slow", "slow"))
				p.Namespace = namespace
				if err := x.api.Create(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				x.poller.setPool(p)
			}
		}
		running := func(namespace string) int {
			x.poller.mu.Lock()
			defer x.poller.mu.Unlock()
			return x.poller.running[pollPlace{"prometheus/slow", namespace}]
		}
		for i := range 4 {
			add(fmt.Sprint("greedy-", i), 40)
		}
		wait(5 * time.Second)
		for i := range 4 {
			if n := running(fmt.Sprint("greedy-", i)); n != pollsAtOnce/4 {
				t.Errorf("a namespace has %d concurrent polls, want %d", n, pollsAtOnce/4)
			}
		}
		add("quiet", 2)
		wait(13 * time.Second) // until its metrics are due, and the first polls of the other namespaces end
		if n := x.poller.lastAt(pollPlace{"prometheus/slow", "quiet"}); n == 0 {
			t.Error("the namespace quiet waits for all waiting polls of other namespaces")
		}
	})
}

func TestPollerObeysGitHubsRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", v1alpha1.MetricSource{Name: "busy", Busy: &v1alpha1.BusyMetric{}}))
		x.reply(0, github.NewError(github.KindRateLimited, "listing runners", 403, 10*time.Minute, "slow down", nil))
		wait(9 * time.Minute)
		if n := x.count("runners"); n != 1 {
			t.Errorf("polled %d times, want once", n)
		}
		wait(2 * time.Minute)
		if n := x.count("runners"); n != 2 {
			t.Errorf("polled %d times, want twice", n)
		}
	})
}

func TestPollerCountsJobs(t *testing.T) {
	list := func(jobs ...rest.Job) rest.JobList { return rest.JobList{Jobs: jobs, Complete: true} }
	on := func(status, runner string, labels ...string) rest.Job {
		return rest.Job{Status: status, RunnerName: runner, Labels: labels}
	}
	metric := v1alpha1.MetricSource{Name: "jobs", Jobs: &v1alpha1.JobsMetric{Repositories: []string{"acme/*"}}}
	down := github.NewError(github.KindUnavailable, "listing jobs of acme/web", 502, 0, "Bad Gateway", nil)
	barred := github.NewError(github.KindForbidden, "listing jobs of acme/web", 403, 0, "Forbidden", nil)
	gone := github.NewError(github.KindNotFound, "listing jobs", 404, 0, "Not Found", nil)
	repos := map[string]rest.JobList{
		"acme/api": list(
			on("queued", "", "self-hosted", "Linux", "A"), on("queued", "", "a"), on("queued", "", "gpu"), on("queued", ""), on("waiting", "", "a"),
			on("in_progress", "a-1", "a"), on("in_progress", "z-9", "a"), on("in_progress", "", "a"), on("in_progress", "a-2", "odd"), on("completed", "a-1", "a"),
		),
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.RunnerPool)
		repos  map[string]rest.JobList
		broken map[string]error
		away   bool
		want   demand.Signal
	}{
		"queued jobs with its labels and running jobs on its runners": {
			repos: repos, want: jobsSignal("jobs", 5, "2 queued, 3 running"),
		},
		"observing pool: running jobs on any runner": {
			change: func(p *v1alpha1.RunnerPool) { p.Spec.Mode = v1alpha1.Observe },
			repos:  repos, want: jobsSignal("jobs", 6, "2 queued, 4 running"),
		},
		"scale set: runners have no default labels": {
			change: func(p *v1alpha1.RunnerPool) { p.Spec.Registration = v1alpha1.RegisterScaleSet },
			repos:  repos, want: jobsSignal("jobs", 4, "1 queued, 3 running"),
		},
		"several jobs share a runner": {
			change: func(p *v1alpha1.RunnerPool) {
				p.Spec.Demand.Metrics[0].Jobs.RunnersPerJob = new(v1alpha1.Quantity("500m"))
			},
			repos: repos, want: jobsSignal("jobs", 3, "2 queued, 3 running, times 500m"),
		},
		"no jobs": {
			repos: map[string]rest.JobList{"acme/api": list()}, want: jobsSignal("jobs", 0, "0 queued, 0 running"),
		},
		"one repository fails: the count of the others, and the previous number": {
			repos: repos, broken: map[string]error{"acme/web": down},
			want: held(jobsSignal("jobs", 5, ""), "2 queued, 3 running; temporarily incomplete: listing jobs of acme/web: GitHub answered 502: Bad Gateway"),
		},
		"a missing repository has no jobs": {
			repos: repos, broken: map[string]error{"acme/web": gone, "acme/old": gone, "acme/x": gone},
			want: jobsSignal("jobs", 5, "2 queued, 3 running; GitHub has no repository acme/old for this connection, nor 2 others"),
		},
		"all repositories are missing": {
			broken: map[string]error{"acme/web": gone},
			want:   demand.Signal{Name: "jobs", Stale: true, Reason: "no signal: GitHub has no repository acme/web for this connection"},
		},
		"more workflow runs than Corral reads": {
			repos: map[string]rest.JobList{"acme/api": {Jobs: []rest.Job{on("queued", "", "a")}}},
			want:  jobsSignal("jobs", 1, "1 queued, 0 running; incomplete: acme/api has more workflow runs than Corral reads"),
		},
		"a repository without access": {
			repos: repos, broken: map[string]error{"acme/web": barred},
			want: jobsSignal("jobs", 5, "2 queued, 3 running; incomplete: acme/web: listing jobs of acme/web: GitHub answered 403: Forbidden"),
		},
		"no access to any repository": {
			broken: map[string]error{"acme/web": barred},
			want:   demand.Signal{Name: "jobs", Stale: true, Reason: "no signal: acme/web: listing jobs of acme/web: GitHub answered 403: Forbidden"},
		},
		"all repositories fail": {
			broken: map[string]error{"acme/web": down},
			want:   demand.Signal{Name: "jobs", Stale: true, Reason: "no signal: listing jobs of acme/web: GitHub answered 502: Bad Gateway"},
		},
		"no repository matches": {
			change: func(p *v1alpha1.RunnerPool) {
				p.Spec.Demand.Metrics[0].Jobs.Repositories = []string{"none-*", "acme/x*"}
			},
			want: demand.Signal{Name: "jobs", Stale: true, Reason: "no signal: no repository matches none-*, acme/x*"},
		},
		"the connection is not ready": {
			away: true, want: demand.Signal{Name: "jobs", Stale: true, Reason: "no signal: the GitHubConnection acme isn't ready"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := metered("a", *metric.DeepCopy())
				if tc.change != nil {
					tc.change(p)
				}
				x := newRound(t, p, ownRunner("a-1"), ownRunner("a-2"))
				x.ready.Store(!tc.away)
				x.edit(func() { x.repos, x.broken = tc.repos, tc.broken })
				wait(3 * time.Second)
				r := x.poller.Reading(keyOf("a"))
				r.Signals, r.Actual = r.Signals[len(r.Signals)-1:], nil // the first one is the observation
				if diff := cmp.Diff(reading(tc.want), r, cmpopts.IgnoreFields(demand.Signal{}, "At")); diff != "" {
					t.Errorf("jobs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// While a repository fails, the previous number stays in force, but only for a limited time.
func TestPollerHoldsANumberForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", v1alpha1.MetricSource{Name: "jobs", Jobs: &v1alpha1.JobsMetric{Repositories: []string{"acme/*"}}}))
		broken := map[string]error{"acme/web": github.NewError(github.KindUnavailable, "listing jobs of acme/web", 502, 0, "Bad Gateway", nil)}
		x.edit(func() { x.repos, x.broken = map[string]rest.JobList{"acme/api": {Complete: true}}, broken })
		isHeld := func() bool {
			signals := x.poller.Reading(keyOf("a")).Signals
			return signals[len(signals)-1].Stale
		}
		if wait(14 * time.Minute); !isHeld() {
			t.Error("the previous number is not held")
		}
		if wait(3 * time.Minute); isHeld() {
			t.Error("the previous number is held for too long")
		}
		x.edit(func() { x.broken = nil })
		wait(2 * time.Minute)
		x.edit(func() { x.broken = broken })
		if wait(2 * time.Minute); !isHeld() {
			t.Error("the previous number is not held after a second failure")
		}
	})
}

func ownRunner(name string) *v1alpha1.Runner {
	r := runnerOf(name, "a")
	r.Labels = map[string]string{v1alpha1.PoolLabel: "a"}
	return r
}

func TestPollerReadsBusyRunners(t *testing.T) {
	runners := []rest.Runner{
		{Name: "a-1", Busy: true, Labels: []string{"a", "self-hosted", "linux", "x64"}},
		{Name: "a-2", Labels: []string{"a", "self-hosted", "linux", "x64"}},
		{Name: "theirs", Busy: true, Labels: []string{"A", "Self-Hosted", "Linux", "X64", "more"}},
		{Name: "other", Busy: true, Labels: []string{"b", "self-hosted", "linux", "x64"}},
	}
	busy := func(change func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
		p := metered("a", v1alpha1.MetricSource{Name: "busy", Busy: &v1alpha1.BusyMetric{ScaleUpThresholdPercent: new(int32(50))}})
		p.Status.Decision = &v1alpha1.Decision{Desired: 2}
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		pool *v1alpha1.RunnerPool
		want demand.Reading
	}{
		"its own runners, relative to the desired number": {
			busy(func(*v1alpha1.RunnerPool) {}),
			reading(demand.Signal{Name: "busy", Total: new(int32(3)), Reason: "1 of 2 busy: 50 %, at least the threshold of 50 %"}),
		},
		"no runners": {
			busy(func(p *v1alpha1.RunnerPool) { p.Status.Decision = nil }),
			reading(demand.Signal{Name: "busy", Total: new(int32(0)), Reason: "no runners, so none can be busy"}),
		},
		"observing pool: all runners with its labels": {
			busy(func(p *v1alpha1.RunnerPool) { p.Spec.Mode = v1alpha1.Observe }),
			demand.Reading{
				Known: true, Actual: &demand.Actual{Runners: 3, Busy: 2},
				Signals: []demand.Signal{{Name: "busy", Total: new(int32(4)), Reason: "2 of 3 busy: 66 %, at least the threshold of 50 %"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newRound(t, tc.pool, ownRunner("a-1"), ownRunner("a-2"))
				x.edit(func() { x.runners = runners })
				wait(3 * time.Second)
				x.want("a", tc.want)
			})
		})
	}
}

func TestPollerObservesAScaleSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf("a", func(p *v1alpha1.RunnerPool) {
			p.Spec.Mode, p.Spec.Registration, p.Spec.Demand = v1alpha1.Observe, v1alpha1.RegisterScaleSet, v1alpha1.DemandSpec{}
		})
		x := newRound(t, p)
		wait(3 * time.Second)
		x.want("a", reading(demand.Signal{Name: "scaleSet", Stale: true, Reason: `no signal: runner group "default" has no scale set "a"`}))

		x.edit(func() {
			x.set = &scaleset.Set{ID: 5, Statistics: &scaleset.Statistics{AssignedJobs: 4, RunningJobs: 3, RegisteredRunners: 6, BusyRunners: 3}}
		})
		wait(40 * time.Second)
		four := jobsSignal("scaleSet", 4, "GitHub counts 4 jobs, 3 running")
		x.want("a", demand.Reading{Known: true, Signals: []demand.Signal{four}, Actual: &demand.Actual{Runners: 6, Busy: 3}})

		woken := x.woken["a"]
		x.edit(func() {
			x.set = &scaleset.Set{ID: 5, Statistics: &scaleset.Statistics{AssignedJobs: 4, RunningJobs: 3, RegisteredRunners: 7, BusyRunners: 3}}
		})
		wait(40 * time.Second)
		if x.woken["a"] != woken+1 {
			t.Error("the pool was not woken after GitHub reported another runner")
		}
		x.reply(0, errors.New("away"))
		wait(40 * time.Second)
		x.want("a", reading(held(four, "no signal: away")))
	})
}

func TestPollerIgnoresAMetricWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", v1alpha1.MetricSource{Name: "none"}))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(x.asked) > 0 {
			t.Errorf("the Poller sent requests: %v", x.asked)
		}
	})
}

func TestPollerReadsExternalMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRound(t, metered("a", v1alpha1.MetricSource{Name: "queue", External: &v1alpha1.ExternalMetric{MetricName: "depth", AverageValue: new(v1alpha1.Quantity("10"))}}))
		x.reply(25, nil)
		wait(3 * time.Second)
		x.want("a", reading(jobsSignal("queue", 3, "the value is 25, at 10 per runner")))
		if n := x.count(ns + "/depth"); n != 1 {
			t.Errorf("polled %d times, want once", n)
		}
	})
}

// A namespace with many due metrics does not delay other namespaces: the Poller sorts only as many metrics as it may poll, releases its lock after
// every 64 pools, and polls the metric of the other namespace.
func TestManyDueMetricsDelayNoOtherNamespace(t *testing.T) {
	for _, n := range []int{10, 100, 1000, 5000} {
		p := NewPoller(PollerConfig{Now: time.Now, Random: func() float64 { return 0 }})
		for i := range n {
			pool := metered(fmt.Sprint("p", i), promMetric("a", "main"), promMetric("b", "main"), promMetric("c", "other"))
			pool.Namespace = greedy
			p.setPool(pool)
		}
		p.setPool(metered("gpu", promMetric("a", "main")))
		others := 0
		betweenParts = func() {
			others++
			p.Reading(keyOf("gpu"))
			p.setPool(metered("gpu", promMetric("a", "main")))
		}
		p.mu.Lock()
		due, _ := p.first(time.Now().Add(time.Minute))
		p.mu.Unlock()
		betweenParts = func() {}
		got := map[pollPlace]int{}
		for _, d := range due {
			got[d.share()]++
		}
		want := map[pollPlace]int{{"prometheus/main", greedy}: pollsAtOnce / 4, {"prometheus/other", greedy}: pollsAtOnce / 4, {"prometheus/main", ns}: 1}
		if diff := cmp.Diff(want, got); diff != "" || others != (n+1)/lookedAtOnce {
			t.Errorf("%d pools: others had the lock %d times; polls (-want +got):\n%s", n, others, diff)
		}
	}
}

// Pools name their endpoints: servers that do not exist, and connections. However many of them a namespace names, no more of
// its polls are sorted and run than have places, each endpoint has its turn, and another namespace's metric is polled.
func TestManyEndpointsOfANamespaceHaveFewPolls(t *testing.T) {
	const n = 500
	p := NewPoller(PollerConfig{Now: time.Now, Random: func() float64 { return 0 }})
	for i := range n {
		pool := metered(fmt.Sprint("p", i), promMetric("a", fmt.Sprint("a", i)), promMetric("b", fmt.Sprint("b", i)))
		pool.Namespace = greedy
		p.setPool(pool)
	}
	p.setPool(metered("gpu", promMetric("a", "main")))
	seen, most := map[string]bool{}, endpointsAtOnce*pollsAtOnce/4
	for rounds := 0; len(seen) < 2*n+1; rounds++ {
		p.mu.Lock()
		due, _ := p.first(time.Now().Add(time.Minute))
		p.mu.Unlock()
		if len(due) > most+1 || rounds > 2*n {
			t.Fatalf("round %d: %d polls may begin at once, more than %d; %d endpoints had their turn", rounds, len(due), most+1, len(seen))
		}
		for _, d := range due {
			seen[d.probe.endpoint], p.looks = true, p.looks+1
			p.begun.Push(d.target.key.Namespace, d.share(), p.looks)
		}
		if !seen["prometheus/main"] {
			t.Fatal("the other namespace has no turn")
		}
	}
	p.running[pollPlace{namespace: greedy}] = most
	p.mu.Lock()
	defer p.mu.Unlock()
	due, _ := p.first(time.Now().Add(time.Minute))
	if len(due) != 1 {
		t.Errorf("%d polls may begin, although the namespace has all its places", len(due))
	}
}
