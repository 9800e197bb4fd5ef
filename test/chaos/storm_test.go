// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/sim/world"
)

// storm is the run of one seed. It has a namespace with 20 pools on four connections, its own simulated GitHub,
// three nodes, and a controller process that watches only this namespace.
type storm struct {
	*testing.T
	seed      uint64
	namespace string
	schedule  schedule
	storms    int // number of storms so far
	github    *githubsim.Running
	node      *nodeplay.Node
	log       *eventLog
	pulse     pulse
	attempts  attempts
	startup   time.Duration // startup deadline of the pools' runners

	replicas    []*replica
	clockBinary string         // the controller binary that supports a fake clock
	running     sync.WaitGroup // goroutines that the schedule started
	mu          sync.Mutex
	canceled    map[string]bool // by job ID
}

// replica is one controller with its API proxy.
type replica struct {
	name       string
	api        *apiproxy.Proxy
	clock      *harness.Clock // the replica's clock; nil to use the machine's
	mu         sync.Mutex
	controller *world.Controller // nil while it is down
}

func token(org int) string { return fmt.Sprintf("ghp_%s", connectionName(org)) }

// newStorm prepares a storm with one controller, or with several that use leader election.
func newStorm(t *testing.T, seed uint64, replicas int) *storm {
	s := &storm{T: t, seed: seed, namespace: fmt.Sprintf("storm-%d-%d", replicas, seed), canceled: map[string]bool{}}
	s.log = newEventLog(s)
	for i := range replicas {
		api, err := apiproxy.Start(w.Cluster.Config)
		harness.Must(t, err)
		t.Cleanup(api.Close)
		s.replicas = append(s.replicas, &replica{name: fmt.Sprintf("corral-%d", i), api: api})
	}
	if replicas > 1 {
		s.giveClocks()
	}
	s.prepare()
	return s
}

// blow runs a storm from beginning to end, including the final checks.
func blow(t *testing.T, seed uint64) {
	s := newStorm(t, seed, 1)
	s.rage(seed)
	s.slowDown()
	s.judge()
}

// rage executes the schedule of a seed, and waits until everything has recovered.
func (s *storm) rage(seed uint64) {
	s.Helper()
	schedule := plan(seed, s.namespace, len(s.replicas))
	s.storms++
	s.schedule.steps, s.schedule.arrivals = append(s.schedule.steps, schedule.steps...), append(s.schedule.arrivals, schedule.arrivals...)
	s.log.add("", "storm", "%d begins", seed)
	s.play(schedule)
	s.log.add("", "storm", "%d is over", seed)
	s.calm()
	s.recovers()
}

// prepare creates all objects of the storm, and waits until they work.
func (s *storm) prepare() {
	s.Helper()
	var err error
	s.github, err = githubsim.Start(githubsim.Options{
		Seed: s.seed, SessionExpiry: 3 * time.Second, LostAfter: 10 * time.Second, QueueTokenTTL: 20 * time.Second,
	})
	harness.Must(s.T, err)
	s.Cleanup(s.github.Close)
	s.Cleanup(s.log.tell)
	s.startNodes()
	harness.Must(s.T, w.Cluster.CreateNamespace(s.Context(), s.namespace))
	s.startup = time.Duration(s.slowness("before")) * shortDeadline
	s.log.watch()
	s.watchClaims()
	s.pulse.feel(s.T, s.namespace)
	for i := range connections {
		s.connect(i)
	}
	s.elect()
	for _, r := range s.replicas {
		s.start(r)
		s.Cleanup(func() { s.stop(r) })
	}
	for _, p := range s.allPools() {
		harness.Must(s.T, w.Client.Create(s.Context(), p))
	}
	if !s.eventually(func(context.Context) error { return errors.Join(s.listening(), s.capacity()) }) {
		s.FailNow()
	}
}

func (s *storm) startNodes() {
	var err error
	s.node, err = nodeplay.New(w.Cluster.Config, nodeplay.Options{
		NodeName: s.namespace, Nodes: nodesPerStorm, Namespace: s.namespace, Seed: s.seed, Run: world.RunRunner,
		StartDelay: 100 * time.Millisecond,
		OnFault: func(pod *corev1.Pod, m nodeplay.FaultKind) {
			s.log.add(pod.Labels[v1alpha1.PoolLabel], "pod", "%s: %s", pod.Name, m)
			s.attempts.strike(pod, m)
			s.github.Excuse(pod.Name)
		},
	})
	harness.Must(s.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.node.Play(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

func (s *storm) connect(i int) {
	name := connectionName(i)
	s.github.AddOrg(name)
	s.github.AddToken(token(i))
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: name}
	harness.Must(s.T, w.Client.Create(s.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{v1alpha1.TokenKey: token(i)}}))
	harness.Must(s.T, w.Client.Create(s.Context(), &v1alpha1.GitHubConnection{ObjectMeta: meta, Spec: v1alpha1.GitHubConnectionSpec{
		URL: s.github.ConfigURL(name), SecretRef: &v1alpha1.LocalObjectReference{Name: name},
	}}))
}

// wanted is the number of idle runners that a pool has without any jobs.
func wanted(i int) int { return i % 3 }

// pool returns a pool with short deadlines. Two of every five pools have a cache. One of every three keeps a
// runner through its min, and one through idle.
func (s *storm) pool(i int) *v1alpha1.RunnerPool {
	p := harness.NewPool(s.namespace, poolName(i), connectionName(i))
	p.Spec.Scale.Max, p.Spec.Cache = new(int32(maxRunners)), cacheOf(i)
	switch wanted(i) {
	case 1:
		p.Spec.Scale.Min = new(int32(1))
	case 2:
		p.Spec.Scale.Idle = new(int32(2))
	}
	deadline := &metav1.Duration{Duration: s.startup}
	p.Spec.Deadlines = v1alpha1.DeadlinesSpec{Startup: deadline, Connect: deadline}
	p.Spec.Template = runtime.RawExtension{Raw: template("first")}
	return p
}

// template returns a working template with the given version.
func template(version string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{"version":%q}},"spec":{"terminationGracePeriodSeconds":2,"containers":[{"name":"runner","image":"runner:1"}]}}`, version)
}

// update changes the template of a pool.
func (s *storm) update(ctx context.Context, pool, version string) {
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pool}}
	patch := fmt.Appendf(nil, `{"spec":{"template":%s}}`, template(version))
	if err := w.Client.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Error(err)
	}
}

// staying is the name of a pool with two persistent runners, each of which runs many jobs. GitHub sends no events
// about their jobs.
const staying = "staying"

func (s *storm) stayingPool() *v1alpha1.RunnerPool {
	p := s.pool(pools)
	p.Name, p.Spec.RunnerLabels = staying, []string{staying}
	p.Spec.Scale = v1alpha1.ScaleSpec{Min: new(int32(2)), Max: new(int32(2))}
	p.Spec.Registration, p.Spec.Lifetime = v1alpha1.RegisterREST, v1alpha1.LifetimePersistent
	p.Spec.Persistent = &v1alpha1.PersistentSpec{MaxAge: &metav1.Duration{Duration: 20 * time.Second}}
	return p
}

// allPools returns the pools of the storm.
func (s *storm) allPools() []*v1alpha1.RunnerPool {
	all := []*v1alpha1.RunnerPool{s.stayingPool()}
	for i := range pools {
		all = append(all, s.pool(i))
	}
	return all
}

// play executes a schedule.
func (s *storm) play(schedule schedule) {
	begin := time.Now()
	s.running.Go(func() {
		for _, a := range schedule.arrivals {
			s.until(begin.Add(a.at))
			if _, err := s.github.AddJob(a.job); err != nil {
				s.Error(err)
			}
		}
	})
	for _, x := range schedule.steps {
		s.until(begin.Add(x.at))
		s.log.add("", "schedule", "%s", x.what)
		x.do(s.Context(), s)
	}
	s.until(begin.Add(duration))
	s.running.Wait()
}

func (s *storm) until(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.Context().Done():
	}
}

// later runs a function after a delay. The storm waits for it to finish.
func (s *storm) later(after time.Duration, do func()) {
	at := time.Now().Add(after)
	s.running.Go(func() {
		s.until(at)
		do()
	})
}

// calm ends all faults.
func (s *storm) calm() {
	s.github.ClearFaults()
	s.node.ClearFaults()
	for _, r := range s.replicas {
		r.api.ClearFaults()
	}
	if err := s.node.ReturnAll(s.Context()); err != nil {
		s.Error(err)
	}
	for i := range connections {
		s.github.AddToken(token(i))
	}
}

// onScaleSet calls a function with the ID of a pool's scale set, if it exists.
func (s *storm) onScaleSet(pool string, do func(id int) bool) {
	for _, ss := range s.github.Report().ScaleSets {
		if ss.Name == pool {
			do(ss.ID)
		}
	}
}

// purge removes the registration of a runner that has no job.
func (s *storm) purge(choice uint64) {
	runners := slices.DeleteFunc(s.github.Report().Runners, func(r githubsim.RunnerReport) bool { return r.Job != "" })
	if len(runners) == 0 {
		return
	}
	r := runners[choice%uint64(len(runners))]
	done := s.github.PurgeRunner(r.ID)
	s.log.add("", "purge", "%s: %t", r.Name, done)
	pod := &corev1.Pod{}
	if err := w.Client.Get(s.Context(), harness.Key(s.namespace, r.Name), pod); done && err == nil {
		s.attempts.strike(pod, purged)
	}
}

// cancelJob cancels a job that is not finished.
func (s *storm) cancelJob(choice uint64) {
	jobs := slices.DeleteFunc(s.github.Jobs(), func(j githubsim.JobTimeline) bool { return j.State == githubsim.JobCompleted })
	if len(jobs) == 0 {
		return
	}
	j := jobs[choice%uint64(len(jobs))]
	s.mu.Lock()
	s.canceled[j.ID] = true
	s.mu.Unlock()
	s.github.CancelJob(j.ID)
	s.log.add(j.Labels[0], "cancel", "%s", j.Name)
}

func (s *storm) loseNode(ctx context.Context, number int, loss nodeplay.Loss, lasts time.Duration) {
	name := s.node.Places()[number]
	if err := s.node.Lose(ctx, name, loss); err != nil {
		if !errors.Is(err, nodeplay.ErrLost) { // on a slow machine, the node may return late
			s.Error(err)
		}
		return
	}
	s.later(lasts, func() {
		if err := s.node.Return(ctx, name); err != nil {
			s.Error(err)
		}
	})
}

// starts is the number of times that a kubelet would restart a controller while a fault of its API server lasts.
const starts = 10

// start starts a replica's controller.
func (s *storm) start(r *replica) {
	flags := []string{"--watch-namespaces=" + s.namespace, "--leader-elect=false"}
	if len(s.replicas) > 1 {
		flags = []string{"--watch-namespaces=" + s.namespace, "--leader-elect", "--leader-election-namespace=" + s.namespace}
	}
	own, binary := world.Replica{Pod: r.name, Proxy: r.api}, w.Binary
	if r.clock != nil {
		own.Env, binary = []string{r.clock.Env()}, s.clockBinary
	}
	var c *world.Controller
	var err error
	for range starts { // the controller exits at once while its API server is unreachable
		if c, err = w.RunReplica(s.Context(), own, binary, flags...); err == nil {
			break
		}
		s.log.add("", "ended", "%s: %s", r.name, err)
		s.until(time.Now().Add(time.Second))
	}
	if err != nil {
		s.Error(err)
		return
	}
	s.mu.Lock()
	s.log.controllers = append(s.log.controllers, c.LogPath)
	s.mu.Unlock()
	r.controller = c
	go func() {
		<-c.Ended()
		s.restart(r, c)
	}()
}

// restart starts a controller again after it exited on its own, as a replica does when it loses the lease.
func (s *storm) restart(r *replica, ended *world.Controller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controller != ended {
		return
	}
	r.controller = nil
	s.log.add("", "ended", "%s", r.name)
	if len(s.replicas) == 1 {
		s.complain("the controller ended")
	}
	s.start(r)
}

func (s *storm) stop(r *replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.controller
	r.controller = nil
	if c == nil {
		return
	}
	if err := c.Stop(); err != nil {
		s.Error(err)
	}
}

// kill kills a replica's controller and starts a new one after a delay.
func (s *storm) kill(r *replica, away time.Duration) {
	s.running.Go(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.controller
		r.controller = nil
		if c == nil {
			return
		}
		c.Kill()
		s.until(time.Now().Add(away))
		s.start(r)
	})
}
