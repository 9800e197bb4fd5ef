// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// greedy is the namespace whose policies are hostile. It has greedyPools pools.
	greedy      = "greedy"
	greedyPools = 8
	// tenants is the number of other namespaces. Each has tenantPools pools with jobs, and one pool that the guard rail denies.
	tenants, tenantPools = 4, 2
	// hostileRounds is the number of quiet and of hostile phases, and hostileTime the time for which jobs arrive in each. The
	// phases alternate, so that other load on the machine affects both kinds.
	hostileRounds = 4
	hostileTime   = 25 * time.Second
	// hostileRate is the number of jobs per second for all other namespaces together, and hostileJob the duration of
	// each job.
	hostileRate = 8
	hostileJob  = 300 * time.Millisecond
	// editEach is the time between two edits of hostile policies. Corral loads each edited policy again, which keeps a child
	// process busy. If edits were more frequent, the edits alone would load the API server and the leader, whatever the
	// rules contain.
	editEach = time.Second
	// subside is the pause after the hostile policies are deleted. Their rules can run that long, because Corral may still be
	// loading some of the policies, or have them in a queue.
	subside = 15 * time.Second
	// sampleEach is the time between two samples of the processes' memory.
	sampleEach = 200 * time.Millisecond
)

// hostileBed is a bed with several tenants, one of which takes all resources that it can get. The keys of its maps of type
// map[bool] are true for hostile phases and false for quiet ones.
type hostileBed struct {
	*bed
	jobs     map[bool][]string        // IDs of the jobs that arrived in the phases
	memory   map[bool]float64         // peak resident memory of the leader, in MiB
	children float64                  // peak resident memory of all child processes together, in MiB
	edited   map[bool][]time.Duration // times from an edit of another tenant's policy until the edit is in force
	rules    map[string]string        // the hostile rules of this phase, by policy
	edits    int
	blame    *blame
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%d", i+1) }

// runHostile measures how one namespace, whose rules use as much memory, CPU and time as they can, affects the other
// namespaces.
func runHostile(ctx context.Context, o *options, latency time.Duration) (f figures, err error) {
	inner, err := makeBed(ctx, o, latency, 0)
	if err != nil {
		return nil, err
	}
	b := &hostileBed{bed: inner, jobs: map[bool][]string{}, memory: map[bool]float64{}, edited: map[bool][]time.Duration{}}
	defer func() {
		b.failed = err != nil
		if b.blame != nil {
			b.blame.stop()
		}
		err = errors.Join(err, b.remove())
	}()
	if err := b.settleTenants(ctx); err != nil {
		return nil, err
	}
	if err := b.addJobs(ctx, o.seed, nil); err != nil { // the first jobs take longer and are not counted
		return nil, fmt.Errorf("warming up: %w", err)
	}
	for round := range hostileRounds {
		for _, hostile := range []bool{false, true} {
			b.rules = hostileRules[round%len(hostileRules)]
			if err := b.phase(ctx, o.seed+uint64(round)+1, hostile); err != nil { //nolint:gosec // a few
				return nil, fmt.Errorf("round %d, hostile %t: %w", round+1, hostile, err)
			}
		}
	}
	if err := b.finish(ctx); err != nil {
		return nil, err
	}
	if err := b.checkGuard(ctx); err != nil {
		return nil, fmt.Errorf("the guard rail: %w", err)
	}
	return b.figures()
}

// settleTenants creates the namespaces, the guard rail and the pools, and waits until the pools listen.
func (b *hostileBed) settleTenants(ctx context.Context) error {
	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	guard.Spec.Modules = costlyGuard
	if err := b.client.Create(ctx, guard); err != nil {
		return fmt.Errorf("creating the guard rail: %w", err)
	}
	for i := range tenants {
		name := tenantName(i)
		if err := b.Connect(ctx, name, connection, name+"-org"); err != nil {
			return err
		}
		own := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "own"}}
		own.Spec.Modules = map[string]string{"own.rego": teamModules["own.rego"]}
		if err := b.client.Create(ctx, own); err != nil {
			return fmt.Errorf("creating a policy: %w", err)
		}
		if err := b.createPools(ctx, name, connection, poolNames(tenantPools)); err != nil {
			return err
		}
		if err := b.createDenied(ctx, name, "denied"); err != nil {
			return err
		}
	}
	if err := b.Connect(ctx, greedy, connection, greedy+"-org"); err != nil {
		return err
	}
	if err := b.createPools(ctx, greedy, connection, poolNames(greedyPools)); err != nil {
		return err
	}
	if err := listen(ctx, b.GitHub, tenants*tenantPools+greedyPools); err != nil {
		return err
	}
	var err error
	b.blame, err = recordBlame(ctx, b.eyes)
	return err
}

func poolNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("pool-%d", i+1))
	}
	return names
}

// createDenied creates a pool whose template the guard rail denies.
func (b *hostileBed) createDenied(ctx context.Context, namespace, name string) error {
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	pool.Spec.ConnectionRef.Name, pool.Spec.RunnerLabels = connection, []string{name}
	pool.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:forbidden"}]}}`)
	if err := b.client.Create(ctx, pool); err != nil {
		return fmt.Errorf("creating a pool: %w", err)
	}
	return nil
}

// phase adds jobs for the other namespaces while the hostile policies exist (hostile is true) or do not exist.
func (b *hostileBed) phase(ctx context.Context, seed uint64, hostile bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var attack sync.WaitGroup
	defer attack.Wait()
	defer cancel()
	var attackErr error
	if hostile {
		if err := b.push(ctx); err != nil {
			return err
		}
		attack.Go(func() { attackErr = b.edit(ctx) })
	}
	var samples sync.WaitGroup
	samples.Go(func() { b.sample(ctx, hostile) })
	var others errgroup.Group
	others.Go(func() error { return b.addJobs(ctx, seed, &hostile) })
	others.Go(func() error { return b.editOwn(ctx, hostile) })
	if err := others.Wait(); err != nil {
		return err
	}
	if hostile {
		if err := b.waitForBlame(ctx); err != nil {
			return err
		}
	}
	cancel()
	samples.Wait()
	attack.Wait()
	if !hostile {
		return nil
	}
	return errors.Join(attackErr, b.withdraw(context.WithoutCancel(ctx)))
}

// addJobs adds jobs one after another, and waits until all are done. It records their IDs under the kind of the phase,
// unless hostile is nil.
func (b *hostileBed) addJobs(ctx context.Context, seed uint64, hostile *bool) error {
	var targets []string
	for i := range tenants {
		for _, pool := range poolNames(tenantPools) {
			targets = append(targets, tenantName(i)+"/"+pool)
		}
	}
	began := time.Now()
	for _, a := range steady(targets, seed, hostileTime, hostileRate) {
		if err := pause(ctx, a.after-time.Since(began)); err != nil {
			return err
		}
		tenant, pool, _ := strings.Cut(a.pool, "/")
		id, err := b.GitHub.AddJob(githubsim.Job{Repository: tenant + "-org/app", Labels: []string{pool}, Duration: hostileJob})
		if err != nil {
			return fmt.Errorf("adding a job: %w", err)
		}
		if hostile != nil {
			b.jobs[*hostile] = append(b.jobs[*hostile], id)
		}
	}
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	if err := b.GitHub.WaitIdle(limited); err != nil {
		return fmt.Errorf("waiting for the jobs: %w: %v", err, b.GitHub.Report().Jobs)
	}
	return nil
}

// editOwn edits a policy of each other namespace, one namespace after another, and records how long it takes until the
// edit is in force.
func (b *hostileBed) editOwn(ctx context.Context, hostile bool) error {
	for i := range tenants {
		if err := pause(ctx, hostileTime/(tenants+1)); err != nil {
			return err
		}
		began := time.Now()
		p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: "own"}}
		patch := fmt.Sprintf(`{"spec":{"modules":{"own.rego":%q}}}`, fmt.Sprintf("%s# %d\n", teamModules["own.rego"], began.UnixNano()))
		if err := b.client.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			return fmt.Errorf("editing a policy: %w", err)
		}
		err := world.Until(ctx, readyLimit, func(ctx context.Context) error {
			if err := b.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return fmt.Errorf("getting a policy: %w", err)
			}
			if !conditions.IsReady(p) || conditions.GetObservedGeneration(p, v1alpha1.ReadyCondition) != p.Generation {
				return fmt.Errorf("policy %s/%s is not in force", p.Namespace, p.Name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.edited[hostile] = append(b.edited[hostile], time.Since(began))
	}
	return nil
}

// push creates the hostile policies, and labels the pools of their namespace so that the guard rail's rules become
// expensive for them.
func (b *hostileBed) push(ctx context.Context) error {
	for name, body := range b.rules {
		p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: name}}
		p.Spec.Modules = map[string]string{"limits.rego": hostileModule(body, 0)}
		if err := b.client.Create(ctx, p); err != nil {
			return fmt.Errorf("creating a hostile policy: %w", err)
		}
	}
	for _, name := range poolNames(greedyPools) {
		pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: name}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"rounds":"60000"}}}`))
		if err := b.client.Patch(ctx, pool, patch); err != nil {
			return fmt.Errorf("labelling a pool: %w", err)
		}
	}
	return nil
}

// edit edits the hostile policies in turn until ctx ends, so that Corral loads them again.
func (b *hostileBed) edit(ctx context.Context) error {
	var names []string
	for name := range b.rules {
		names = append(names, name)
	}
	slices.Sort(names)
	for {
		for _, name := range names {
			if pause(ctx, editEach) != nil {
				return nil
			}
			b.edits++
			p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: name}}
			patch := fmt.Sprintf(`{"spec":{"modules":{"limits.rego":%q}}}`, hostileModule(b.rules[name], b.edits))
			if err := b.client.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil && ctx.Err() == nil {
				return fmt.Errorf("editing a hostile policy: %w", err)
			}
		}
	}
}

// withdraw deletes the hostile policies, and waits until none of their rules should be running any more.
func (b *hostileBed) withdraw(ctx context.Context) error {
	if err := b.client.DeleteAllOf(ctx, &v1alpha1.RunnerPolicy{}, client.InNamespace(greedy)); err != nil {
		return fmt.Errorf("deleting the hostile policies: %w", err)
	}
	return pause(ctx, subside)
}

// sample records the memory of the leader and of its children until ctx ends.
func (b *hostileBed) sample(ctx context.Context, hostile bool) {
	for pause(ctx, sampleEach) == nil {
		if memory, err := b.controller.Memory(); err == nil {
			b.memory[hostile] = max(b.memory[hostile], memory.Resident)
		}
		sum := 0.0
		for _, pid := range world.Children(b.controller.PID()) {
			if memory, err := world.MemoryOf(pid); err == nil { // an error means that the process has ended
				sum += memory.Resident
			}
		}
		b.children = max(b.children, sum)
	}
}

// waitForBlame waits until each pool of the greedy namespace reports that policies could not be evaluated.
func (b *hostileBed) waitForBlame(ctx context.Context) error {
	return world.Until(ctx, readyLimit, func(ctx context.Context) error {
		pools := &v1alpha1.RunnerPoolList{}
		if err := b.client.List(ctx, pools, client.InNamespace(greedy)); err != nil {
			return fmt.Errorf("listing pools: %w", err)
		}
		for i := range pools.Items {
			p := &pools.Items[i]
			if !blames(p) {
				return fmt.Errorf("pool %s reports no failed policy: %q", p.Name, conditions.GetMessage(p, v1alpha1.PolicyCondition))
			}
		}
		return nil
	})
}

// checkGuard returns an error unless Corral has put the guard rail into quarantine for the greedy namespace only, and the
// guard rail still denies pods in every other namespace.
func (b *hostileBed) checkGuard(ctx context.Context) error {
	for i := range tenants {
		if err := b.createDenied(ctx, tenantName(i), "late"); err != nil {
			return err
		}
	}
	return world.Until(ctx, readyLimit, func(ctx context.Context) error {
		for i := range tenants {
			for _, name := range []string{"denied", "late"} {
				p := &v1alpha1.RunnerPool{}
				if err := b.client.Get(ctx, client.ObjectKey{Namespace: tenantName(i), Name: name}, p); err != nil {
					return fmt.Errorf("getting a pool: %w", err)
				}
				if reason := conditions.GetReason(p, v1alpha1.ReadyCondition); reason != v1alpha1.PolicyDeniedReason {
					return fmt.Errorf("pool %s/%s is %s, not denied", p.Namespace, name, reason)
				}
			}
		}
		guard := &v1alpha1.ClusterRunnerPolicy{}
		if err := b.client.Get(ctx, client.ObjectKey{Name: "guard"}, guard); err != nil {
			return fmt.Errorf("getting the guard rail: %w", err)
		}
		if message := conditions.GetMessage(guard, v1alpha1.ReadyCondition); !strings.HasSuffix(message, "and is evaluated for them only periodically: "+greedy) {
			return fmt.Errorf("it is not in quarantine for the namespace %s only; it reports %q", greedy, message)
		}
		return nil
	})
}

func (b *hostileBed) figures() (figures, error) {
	f := figures{
		"hostile_edits": float64(b.edits), "leader_mib": b.memory[false], "leader_growth_mib": b.memory[true] - b.memory[false],
		"evaluators_mib": b.children,
	}
	times := map[string]time.Duration{}
	for _, j := range b.GitHub.Jobs() {
		times[j.ID] = j.Started.Sub(j.Queued)
	}
	for hostile, prefix := range map[bool]string{false: "quiet", true: "hostile"} {
		var all []time.Duration
		for _, id := range b.jobs[hostile] {
			all = append(all, times[id])
		}
		f.latencies(prefix, all)
		f[prefix+"_jobs"] = float64(len(all))
		f.latencies(prefix+"_edit", b.edited[hostile])
	}
	f["p99_to_quiet"] = f["hostile_p99_ms"] / f["quiet_p99_ms"]
	var err error
	f["others_blamed"], err = b.blame.others()
	return f, err
}

// blame records the pools that report that policies could not be evaluated.
type blame struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	err      error
	messages map[string]string // the last such message of each pool
}

// blames reports whether a pool's condition states that policies could not be evaluated.
func blames(p *v1alpha1.RunnerPool) bool {
	reason := conditions.GetReason(p, v1alpha1.PolicyCondition)
	return reason == v1alpha1.PolicyFailedReason || reason == v1alpha1.PolicyPendingReason
}

// recordBlame watches the pools of all namespaces until stop is called.
func recordBlame(ctx context.Context, c client.WithWatch) (*blame, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &blame{cancel: cancel, messages: map[string]string{}}
	f := &follower{
		client: c, kind: "RunnerPools", all: true, newList: func() client.ObjectList { return &v1alpha1.RunnerPoolList{} }, note: b.note, cut: func() {},
	}
	list := f.newList()
	if err := c.List(ctx, list); err != nil {
		cancel()
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	f.version = list.GetResourceVersion()
	events, err := f.watch(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	b.running.Go(func() {
		if err := f.follow(ctx, events); err != nil && ctx.Err() == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.err = err
		}
	})
	return b, nil
}

func (b *blame) note(_ watch.EventType, obj client.Object) {
	p, ok := obj.(*v1alpha1.RunnerPool)
	if !ok || !blames(p) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[client.ObjectKeyFromObject(p).String()] = conditions.GetMessage(p, v1alpha1.PolicyCondition)
}

func (b *blame) stop() {
	b.cancel()
	b.running.Wait()
}

// others counts the pools of other namespaces that ever reported that policies could not be evaluated.
func (b *blame) others() (n float64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pool, message := range b.messages {
		if !strings.HasPrefix(pool, greedy+"/") {
			say("%s reported: %s", pool, message)
			n++
		}
	}
	return n, b.err
}

// costlyGuard is a guard rail that denies an image. A label of the pool determines how expensive its other rule is.
var costlyGuard = map[string]string{
	"limits.rego": `package corral.scaling

limit contains {"field": "max", "atMost": 150, "reason": "the cluster has room for 150 each"} if {
	rounds := to_number(object.get(input.pool.labels, "rounds", "1"))
	count([i | some i in numbers.range(1, rounds); some j in numbers.range(1, rounds); i + j == 0]) == 0
}
`,
	"images.rego": `package corral.template

deny contains sprintf("image %s is forbidden", [container.image]) if {
	some container in input.pod.spec.containers
	endswith(container.image, ":forbidden")
}
`,
}

// longText is a text of one million bytes.
const longText = `s := concat("", ["xxxxxxxxxxxxxxxxxxxx" | some _ in numbers.range(1, 50000)])` + "\n\t"

// hostileRules has two sets of rules, by policy name. The rounds use them alternately. Rules of the first set take too much
// memory, CPU or time when they are evaluated, and rules of the second set when they are loaded.
var hostileRules = func() [2]map[string]string {
	evaluated := map[string]string{
		"memory-text":   longText + `replace(s, "x", s) != ""`,
		"memory-list":   `count([[i, "x"] | some i in numbers.range(1, 50000000)]) > 0`,
		"memory-number": `units.parse("1e999999999") > 0`,
		"cpu-loop":      "some i in numbers.range(1, 60000)\n\tsome j in numbers.range(1, 60000)\n\ti * j == -1",
		"cpu-pattern":   longText + `regex.match("((x{1,30}){1,30})*y", s)`,
	}
	for i := range 12 {
		evaluated[fmt.Sprintf("time-%02d", i)] = fmt.Sprintf("some i in numbers.range(1, 4000)\n\tsome j in numbers.range(1, 4000)\n\ti * j == -%d", i+1)
	}
	loaded := map[string]string{}
	for i := range 40 {
		loaded[fmt.Sprintf("deep-%02d", i)] = fmt.Sprintf("x := %s%d%s\n\tx == 1", strings.Repeat("[y | y := ", 24), i, strings.Repeat("]", 24))
	}
	return [2]map[string]string{evaluated, loaded}
}()

// hostileModule returns a module with one of the hostileRules. The number n distinguishes edits: another n gives another
// module with the same cost.
func hostileModule(body string, n int) string {
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"hostile\"} if {\n\t%s\n}\n", n, body)
}
