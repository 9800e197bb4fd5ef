// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// Phases of a Story, in order.
const (
	// PhaseStart is a start of the leader: the neighbor's job waits for it.
	PhaseStart = "start"
	// PhaseCommit is while the controller fetches, compiles and applies a commit that changes all of the tenant's pools.
	PhaseCommit = "commit"
	// PhaseChanges is while each of the tenant's pools changes, again and again.
	PhaseChanges = "changes"
	// PhaseEvents is the phase in which signed events arrive for the tenant.
	PhaseEvents = "events"
	// PhasePolls is the phase in which only the polling for the tenant's objects happens.
	PhasePolls = "polls"
	// PhaseKill is a crash of the leader: the neighbor's job waits for the next start of the same container.
	PhaseKill = "kill"
)

// Phases are all of them.
var Phases = []string{PhaseStart, PhaseCommit, PhaseChanges, PhaseEvents, PhasePolls, PhaseKill}

const (
	// neighbour is the namespace of an ordinary tenant, and its account; tenantSpace is the namespace of the maximal
	// tenant.
	neighbour, tenantSpace = "neighbour", "maximal"
	connectionName         = "acme"
	neighbourPool          = "linux"
	// longestWait and longestWaitPerPool bound the wait for anything that must happen: the API server needs about 100 ms
	// of CPU time to apply a pool of the maximum size.
	longestWait, longestWaitPerPool = 8 * time.Minute, 500 * time.Millisecond
	// writers is the number of concurrent writes of the tenant's objects.
	writers = 8
	// changeEach and eventEach are the times between two changes of the tenant's pools, and between two events. With
	// shorter times, the API server or the sender would be the bottleneck.
	changeEach, eventEach = 50 * time.Millisecond, 10 * time.Millisecond
	// sourceInterval is the time after which a PoolSource looks for a new commit.
	sourceInterval = time.Second
)

// Story is a world in which an ordinary tenant has jobs, first alone and then next to the maximal tenant.
type Story struct {
	World  *world.World
	Binary string
	// Pools and Wide configure the maximal tenant, see Tenant.
	Pools, Wide int
	// Jobs is the number of the neighbor's jobs in each phase, and Starts the number of the leader's starts and
	// crashes.
	Jobs, Starts int
	// Args are additional flags of the controller.
	Args []string
	// Say receives progress messages; it can be nil.
	Say func(format string, args ...any)

	controller *world.Controller
	address    string // of the webhook server
	pools      []string
	repository *gitRepository

	mu     sync.Mutex
	memory Memory
}

// Memory is the peak memory use, in MiB.
type Memory struct {
	// Leader is for the controller process, Children for its child processes together, and Both for all of them.
	Leader, Children, Both float64
}

// Result contains the measurements of a Story.
type Result struct {
	// Alone and Beside contain the times until the neighbor's jobs started, by phase and sorted: without and with the
	// maximal tenant.
	Alone, Beside map[string][]time.Duration
	// AloneMemory and BesideMemory are the controller's memory use.
	AloneMemory, BesideMemory Memory
	// Refused lists the tenant's pools that were rejected, with the reason.
	Refused []string
	// Taken and Sent are the numbers of accepted and sent events of the tenant. Changes and Commits count changes of its
	// pools and applied commits.
	Taken, Sent, Changes, Commits int64
}

// Median returns the median of the times of a phase.
func Median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[(len(all)-1)/2]
}

// Run runs the story. Every job of the neighbor must succeed.
func (s *Story) Run(ctx context.Context) (r Result, err error) {
	if s.Say == nil {
		s.Say = func(string, ...any) {}
	}
	defer func() {
		if s.controller != nil {
			err = errors.Join(err, s.controller.Stop())
		}
	}()
	if err := s.settle(ctx); err != nil {
		return r, fmt.Errorf("the neighbour: %w", err)
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	go s.sample(sampling)
	if r.Alone, err = s.phases(ctx, &r, nil); err != nil {
		return r, fmt.Errorf("alone: %w", err)
	}
	r.AloneMemory = s.take()
	if err := s.declare(ctx); err != nil {
		return r, fmt.Errorf("the maximal tenant: %w", err)
	}
	if r.Beside, err = s.phases(ctx, &r, map[string]action{PhaseCommit: s.push, PhaseChanges: s.change, PhaseEvents: s.send}); err != nil {
		return r, fmt.Errorf("next to the maximal tenant: %w", err)
	}
	r.BesideMemory = s.take()
	_, r.Refused, err = s.look(ctx)
	return r, err
}

// settle creates the neighbor and starts the controller.
func (s *Story) settle(ctx context.Context) (err error) {
	if s.address, err = world.FreeAddress(); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.account(ctx, neighbour); err != nil {
		return err
	}
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour, Name: neighbourPool}}
	p.Spec.ConnectionRef.Name, p.Spec.RunnerLabels = connectionName, []string{neighbourPool}
	p.Spec.Template = runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`)}
	if err := s.World.Client.Create(ctx, p); err != nil {
		return fmt.Errorf("creating the pool: %w", err)
	}
	_, err = s.jobs(ctx, 1) // warm-up
	return err
}

// account creates an organization with a webhook, and a namespace with a connection to it.
func (s *Story) account(ctx context.Context, name string) error {
	if _, err := s.World.ConnectHook(ctx, name, connectionName, name, s.address); err != nil {
		return err
	}
	if err := s.World.GitHub.AddRepository(githubsim.Repository{FullName: name + "/app"}); err != nil {
		return fmt.Errorf("making a repository: %w", err)
	}
	return nil
}

func (s *Story) start(ctx context.Context) (err error) {
	s.controller, err = s.World.RunControllerAs(ctx, "corral-0", s.Binary, append([]string{"--webhook-addr=" + s.address}, s.Args...)...)
	return err
}

// declare creates the maximal tenant, and waits until the controller has reconciled each of its pools.
func (s *Story) declare(ctx context.Context) error {
	began := time.Now()
	if err := s.account(ctx, tenantSpace); err != nil {
		return err
	}
	tenant := Tenant{
		Namespace: tenantSpace, Connection: connectionName, Pools: s.Pools, Wide: s.Wide, URL: s.World.GitHub.ConfigURL(tenantSpace), Secret: connectionName,
		Source: "file://" + s.World.Dir + "/nothing.git",
		Accepts: func(object map[string]any) bool {
			return s.World.Client.Create(ctx, &unstructured.Unstructured{Object: clone(object)}, client.DryRunAll) == nil
		},
	}
	objects, err := tenant.Objects()
	if err != nil {
		return err
	}
	pools, err := tenant.PoolObjects()
	if err != nil {
		return err
	}
	s.Say("the tenant's %d objects are made up after %s", len(objects)+len(pools), time.Since(began).Round(time.Millisecond))
	made := time.Now()
	for _, pool := range pools {
		s.pools = append(s.pools, pool.GetName())
	}
	if s.repository, err = newRepository(ctx, filepath.Join(s.World.Dir, "maximal-pools"), pools); err != nil {
		return err
	}
	if err := s.create(ctx, objects); err != nil {
		return err
	}
	if err := s.applyFirst(ctx); err != nil {
		return err
	}
	s.Say("the first commit is applied after %s more", time.Since(made).Round(time.Millisecond))
	err = s.until(ctx, func(ctx context.Context) error {
		waiting, _, err := s.look(ctx)
		if err == nil && waiting > 0 {
			err = fmt.Errorf("%d pools were not looked at", waiting)
		}
		return err
	})
	s.Say("the controller has looked at all pools %s after they were made up", time.Since(made).Round(time.Millisecond))
	return err
}

func (s *Story) create(ctx context.Context, objects []*unstructured.Unstructured) error {
	var g errgroup.Group
	g.SetLimit(writers)
	for _, object := range objects {
		g.Go(func() error {
			if err := s.World.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// applyFirst commits the pools and creates a PoolSource for each folder of the repository.
func (s *Story) applyFirst(ctx context.Context) error {
	commit, err := s.repository.commit(ctx, 0)
	if err != nil {
		return err
	}
	for _, folder := range s.repository.folders() {
		source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: tenantSpace, Name: folder}}
		source.Spec.Interval.Duration, source.Spec.Path = sourceInterval, folder
		source.Spec.Git = &v1alpha1.GitSource{URL: s.repository.url(), Ref: &v1alpha1.GitReference{Branch: "main"}}
		if err := s.World.Client.Create(ctx, source); err != nil {
			return fmt.Errorf("creating a PoolSource: %w", err)
		}
	}
	return s.untilApplied(ctx, commit)
}

// untilApplied waits until the pools are as a commit declares them.
func (s *Story) untilApplied(ctx context.Context, commit string) error {
	for _, folder := range s.repository.folders() {
		err := s.until(ctx, func(ctx context.Context) error {
			source := &v1alpha1.PoolSource{}
			if err := s.World.Client.Get(ctx, client.ObjectKey{Namespace: tenantSpace, Name: folder}, source); err != nil {
				return fmt.Errorf("reading the PoolSource: %w", err)
			}
			if strings.HasSuffix(source.Status.LastAppliedRevision, commit) {
				return nil
			}
			return fmt.Errorf("commit %s is not applied: %s", commit, conditions.GetMessage(source, v1alpha1.ReadyCondition))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// look returns how many of the tenant's pools the controller has not reconciled yet, and the reasons for which other
// pools are refused. All pools must be valid.
func (s *Story) look(ctx context.Context) (waiting int, refused []string, err error) {
	pools := &v1alpha1.RunnerPoolList{}
	if err := s.World.Client.List(ctx, pools, client.InNamespace(tenantSpace)); err != nil {
		return 0, nil, fmt.Errorf("listing pools: %w", err)
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		if len(p.Status.Conditions) == 0 {
			waiting++
		}
		if reason := conditions.GetReason(p, v1alpha1.ReadyCondition); reason == v1alpha1.InvalidSpecReason || reason == v1alpha1.TemplateInvalidReason {
			refused = append(refused, p.Name+": "+conditions.GetMessage(p, v1alpha1.ReadyCondition))
		}
	}
	return waiting, refused, nil
}

// action is something that happens during a phase. It ends when it is done, or soon after its context.
type action func(context.Context, *Result) error

// phases goes through all of them, and returns how long the neighbour's jobs waited in each. Some have an action.
func (s *Story) phases(ctx context.Context, r *Result, actions map[string]action) (map[string][]time.Duration, error) {
	found := map[string][]time.Duration{}
	for _, phase := range Phases {
		var err error
		switch phase {
		case PhaseStart:
			found[phase], err = s.restarts(ctx, s.controllerStops)
		case PhaseKill:
			found[phase], err = s.restarts(ctx, s.controllerIsKilled)
		case PhaseCommit:
			found[phase], err = s.throughout(ctx, r, actions[phase])
		default:
			found[phase], err = s.during(ctx, r, actions[phase])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", phase, err)
		}
		s.Say("%s: %v", phase, found[phase])
	}
	return found, nil
}

func (s *Story) controllerStops() error { return s.controller.Stop() }

func (s *Story) controllerIsKilled() error {
	s.controller.Kill()
	return nil
}

// restarts stops and starts the controller as often as configured. Each time, it queues a job of the neighbor in
// between; its wait counts from the start of the controller.
func (s *Story) restarts(ctx context.Context, end func() error) (all []time.Duration, err error) {
	for range s.Starts {
		if err := errors.Join(s.untilQuiet(ctx), end()); err != nil {
			return nil, err
		}
		id, err := s.addJob()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		started, err := s.await(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, started.Sub(began))
	}
	slices.Sort(all)
	return all, nil
}

// during has the neighbour's jobs come and go while something happens.
func (s *Story) during(ctx context.Context, r *Result, do action) ([]time.Duration, error) {
	happening, stop := context.WithCancel(ctx)
	defer stop()
	done := s.begin(happening, r, do)
	all, err := s.jobs(ctx, s.Jobs)
	stop()
	return all, errors.Join(err, <-done)
}

// throughout is during for something that ends. The neighbour's jobs come and go until then.
func (s *Story) throughout(ctx context.Context, r *Result, do action) (all []time.Duration, err error) {
	done := s.begin(ctx, r, do)
	for isDone := false; !isDone || len(all) < s.Jobs; {
		select {
		case err := <-done:
			if err != nil {
				return nil, err
			}
			isDone, done = true, nil
		default:
			more, err := s.jobs(ctx, 1)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	slices.Sort(all)
	return all, nil
}

// begin starts an action, if there is one. Its end is sent.
func (s *Story) begin(ctx context.Context, r *Result, do action) <-chan error {
	done := make(chan error, 1)
	if do == nil {
		done <- nil
		return done
	}
	go func() { done <- do(ctx, r) }()
	return done
}

// jobs adds jobs for the neighbour's pool, one after the other, and waits for each. It returns how long each waited for its start, sorted.
func (s *Story) jobs(ctx context.Context, n int) (all []time.Duration, err error) {
	for range n {
		if err := s.untilQuiet(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		id, err := s.addJob()
		if err != nil {
			return nil, err
		}
		started, err := s.await(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, started.Sub(began))
	}
	slices.Sort(all)
	return all, nil
}

// addJob adds a job for the neighbor's pool.
func (s *Story) addJob() (id string, err error) {
	if id, err = s.World.GitHub.AddJob(githubsim.Job{Repository: neighbour + "/app", Labels: []string{neighbourPool}, Duration: time.Millisecond}); err != nil {
		return "", fmt.Errorf("adding a job: %w", err)
	}
	return id, nil
}

// until waits until check returns nil, as long as the controller is running.
func (s *Story) until(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := s.controller.Ended()
	go func() {
		select {
		case <-ended:
			cancel(errors.New("the controller ended"))
		case <-ctx.Done():
		}
	}()
	return world.Until(ctx, longestWait+time.Duration(s.Pools)*longestWaitPerPool, check)
}

// untilQuiet waits until the neighbor has no pod, so that its next job needs a new one.
func (s *Story) untilQuiet(ctx context.Context) error {
	return s.until(ctx, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := s.World.Client.List(ctx, pods, client.InNamespace(neighbour)); err != nil || len(pods.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d pods are left", len(pods.Items))
	})
}

// await waits until a job is done, and returns when it started.
func (s *Story) await(ctx context.Context, id string) (started time.Time, err error) {
	err = s.until(ctx, func(context.Context) error {
		jobs := s.World.GitHub.Jobs()
		at := slices.IndexFunc(jobs, func(j githubsim.JobTimeline) bool { return j.ID == id })
		if at < 0 || jobs[at].State != githubsim.JobCompleted {
			return errors.New("it is not done")
		}
		if started = jobs[at].Started; jobs[at].Result != githubsim.ResultSucceeded || jobs[at].Starts != 1 {
			return fmt.Errorf("it ended as %s after %d starts", jobs[at].Result, jobs[at].Starts)
		}
		return nil
	})
	return started, err
}

// each calls do at regular intervals with increasing numbers until ctx ends. It does not wait for earlier calls.
func each(ctx context.Context, pause time.Duration, do func(n int) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var g errgroup.Group
	g.SetLimit(writers)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-tick.C:
		}
		g.Go(func() error {
			if err := do(n); ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
}

// push commits a change of all of the tenant's pools, and waits until the controller has applied it.
func (s *Story) push(ctx context.Context, r *Result) error {
	commit, err := s.repository.commit(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.untilApplied(ctx, commit); err != nil {
		return err
	}
	r.Commits++
	return nil
}

// change changes one pool of the tenant after the other, until ctx ends.
func (s *Story) change(ctx context.Context, r *Result) error {
	return each(ctx, changeEach, func(n int) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"change":"%d"}},"spec":{"runnerLabels":[%q,"change-%[1]d"]}}`, n, Shared)
		pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: tenantSpace, Name: s.pools[n%len(s.pools)]}}
		if err := s.World.Client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			return fmt.Errorf("changing a pool: %w", err)
		}
		atomic.AddInt64(&r.Changes, 1)
		return nil
	})
}

// send sends signed events of the tenant until ctx ends. An event whose connection is lost, because the machine is too busy
// to send it in time, is not taken. GitHub would send it again.
func (s *Story) send(ctx context.Context, r *Result) error {
	return each(ctx, eventEach, func(n int) error {
		status, _ := s.post(ctx, n)
		atomic.AddInt64(&r.Sent, 1)
		if status == http.StatusAccepted {
			atomic.AddInt64(&r.Taken, 1)
		}
		return nil
	})
}

func (s *Story) post(ctx context.Context, n int) (status int, err error) {
	name, body := event(n)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, world.WebhookURL(s.address, tenantSpace, connectionName), strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", name)
	request.Header.Set("X-GitHub-Delivery", fmt.Sprint("maximal-", n))
	request.Header.Set("X-Hub-Signature-256", webhook.Sign([]byte(world.WebhookSecret), []byte(body)))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// event returns a job that matches all of the tenant's pools, or an event for their triggers, with names as long as
// GitHub allows.
func event(n int) (name, body string) {
	repository := fmt.Sprintf(`"repository":{"id":1,"full_name":"%[1]s/%[2]s","owner":{"type":"Organization"}},"organization":{"login":%[1]q}`, tenantSpace, strings.Repeat("a", 100))
	switch long := strings.Repeat("a", 255); n % 3 {
	case 0:
		return webhook.WorkflowJobEvent, fmt.Sprintf(`{"action":"queued","workflow_job":{"id":%d,"status":"queued","labels":[%q]},%s}`, 1_000_000+n, Shared, repository)
	case 1:
		return webhook.CheckRunEvent, fmt.Sprintf(`{"action":"created","check_run":{"id":%d,"name":%q,"status":"queued"},%s}`, 1+n, long, repository)
	default:
		return webhook.PushEvent, fmt.Sprintf(`{"ref":"refs/heads/%s","after":"%040d",%s}`, long, n, repository)
	}
}

// sample records the memory of the controller and its children until ctx ends.
func (s *Story) sample(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if s.controller == nil {
			continue
		}
		leader, err := s.controller.Memory()
		if err != nil {
			continue // it is being restarted
		}
		children := 0.0
		for _, pid := range world.Children(s.controller.PID()) {
			if m, err := world.MemoryOf(pid); err == nil { // an error means that it has ended
				children += m.Resident
			}
		}
		s.mu.Lock()
		s.memory.Leader, s.memory.Children = max(s.memory.Leader, leader.Resident), max(s.memory.Children, children)
		s.memory.Both = max(s.memory.Both, leader.Resident+children)
		s.mu.Unlock()
	}
}

// take returns the peak memory since the last call.
func (s *Story) take() Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memory
	s.memory = Memory{}
	return m
}
