// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// podEnd is a fault that ends a pool's pods, with the expected reports.
type podEnd struct {
	fault nodeplay.Fault
	// spec and container are JSON fields for the pod's spec and its container. Each field is preceded by a comma.
	spec, container string
	// actor, reason and cause are the expected ones of each runner. health is the expected reason of the pool's
	// Healthy condition; "" if it stays True.
	actor  v1alpha1.RunnerActor
	reason string
	cause  v1alpha1.RunnerCause
	health string
}

// endings are the stories of one namespace, with one pool each.
type endings struct {
	*story
	namespace string
	q         question
}

func newEndings(t *testing.T, namespace string) *endings {
	t.Helper()
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	w.controller(t)
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace+"-asked"))
	return &endings{story: w, namespace: namespace, q: newQuestion(t, namespace)}
}

// template returns the pod template of a version.
func (end podEnd) template(version string) runtime.RawExtension {
	const text = `{"metadata":{"labels":{"version":%q}},"spec":{"containers":[{"name":"runner","image":"runner:%s"%s}],"terminationGracePeriodSeconds":1%s}}`
	return runtime.RawExtension{Raw: fmt.Appendf(nil, text, version, version, end.container, end.spec)}
}

// strike creates a pool and injects the fault that ends its runners. heal removes the fault.
func (e *endings) strike(t *testing.T, name string, end podEnd, idle int32) (pool *v1alpha1.RunnerPool, heal func()) {
	t.Helper()
	heal = func() {}
	if end.fault.Kind != "" {
		end.fault.Namespace = e.namespace
		end.fault.Labels = map[string]string{v1alpha1.PoolLabel: name}
		heal = e.Node.Inject(end.fault)
		t.Cleanup(heal)
	}
	pool = newPool(e.namespace, name, "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Idle = &idle
		p.Spec.Template = end.template("1")
	})
	must(t, e.Client.Create(t.Context(), pool))
	return pool, heal
}

// says checks that the given number of runners ended as expected, according to the pool's status and corral
// explain. It first waits until the Healthy condition has the expected reason.
func (e *endings) says(t *testing.T, name string, end podEnd, least int) {
	t.Helper()
	isIt := func(f v1alpha1.RunnerFailure) bool {
		if f.Cause != end.cause || f.Exit == nil || f.Exit.Reason != end.reason {
			return false
		}
		return f.Exit.Actor == end.actor || end.actor == v1alpha1.ActorUnknown && f.Exit.Actor == v1alpha1.ActorOutsider // if the controller saw the deletion in time
	}
	count := func(list []v1alpha1.RunnerFailure) (n int) {
		for _, f := range list {
			if isIt(f) {
				n++
			}
		}
		return n
	}
	waitPool(t, key(e.namespace, name), func(p *v1alpha1.RunnerPool) error {
		healthy := conditions.Get(p, v1alpha1.HealthyCondition)
		if count(p.Status.Failures) < least || end.health != "" && healthy.Reason != end.health {
			return fmt.Errorf("%+v; its failures: %+v", healthy, p.Status.Failures)
		}
		return nil
	})
	answer, complaint, code := e.q.ask("pool/"+name, "-n", e.namespace, "-o", "json")
	said := explain.PoolAnswer{}
	if err := json.Unmarshal([]byte(answer), &said); err != nil || code != 0 || count(said.Failures) == 0 {
		t.Errorf("corral explain: exit code %d: %s\n%s", code, complaint, answer)
	}
	if end.health == "" {
		return
	}
	if c := conditionText(said.Held); !slices.Contains(c, end.health) {
		t.Errorf("corral explain: %v is held, want %s", c, end.health)
	}
	e.statusSays(t, name, end)
}

// conditionText returns the reasons for which a pool is held back.
func conditionText(held []explain.Held) (reasons []string) {
	for _, h := range held {
		var reason string
		if _, err := fmt.Sscanf(h.Reason, "%s", &reason); err == nil {
			reasons = append(reasons, reason[:len(reason)-1]) // without the colon
		}
	}
	return reasons
}

// statusSays checks that a finding of corral status names the pool and has the cause of a failed runner. If
// several pools share the finding, the runner may belong to another pool.
func (e *endings) statusSays(t *testing.T, name string, end podEnd) {
	t.Helper()
	c := exec.CommandContext(t.Context(), shared.Binary, "status", "--kubeconfig", e.Cluster.Kubeconfig(), "-n", e.namespace, "-o", "json")
	out, _ := c.Output() // it exits with 1 if it finds problems
	page := explain.Page{}
	must(t, json.Unmarshal(out, &page))
	if !slices.ContainsFunc(page.Findings, func(f explain.Finding) bool {
		return f.Reason == end.health && slices.Contains(f.Objects, "RunnerPool/"+e.namespace+"/"+name) && f.LastFailure != nil && f.LastFailure.Cause == end.cause
	}) {
		t.Errorf("corral status does not name %s for %s, by %s:\n%s", name, end.health, end.actor, out)
	}
}

// warned lists the pools with an event of one of the given reasons.
func (e *endings) warned(t *testing.T, reasons ...string) (pools []string) {
	t.Helper()
	list := &eventsv1.EventList{}
	must(t, e.Client.List(t.Context(), list, client.InNamespace(e.namespace)))
	for _, event := range list.Items {
		if event.Regarding.Kind == "RunnerPool" && slices.Contains(reasons, event.Reason) {
			pools = append(pools, event.Regarding.Name+": "+event.Reason+": "+event.Note)
		}
	}
	return pools
}

// goesOn checks that a pool was never held back, and that it runs jobs.
func (e *endings) goesOn(t *testing.T, name string) {
	t.Helper()
	waitPool(t, key(e.namespace, name), func(p *v1alpha1.RunnerPool) error {
		if d := p.Status.Decision; !conditions.IsReady(p) || d == nil || d.Announced != 10 {
			return fmt.Errorf("it says %+v and announces %+v", conditions.Get(p, v1alpha1.ReadyCondition), d)
		}
		return nil
	})
	e.allDone(t, e.addJobs(t, e.namespace+"-org", name, 1, time.Millisecond))
}

// each runs stories in parallel, and returns when all have finished.
func each[T any](t *testing.T, stories map[string]T, tell func(t *testing.T, name string, of T)) {
	t.Helper()
	t.Run("stories", func(t *testing.T) {
		for name, of := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tell(t, name, of)
			})
		}
	})
}

const (
	nodes   = v1alpha1.NodesFailingReason
	deleted = v1alpha1.PodsDeletedReason
)

func refusal(reason string) podEnd {
	return podEnd{
		fault: nodeplay.Fault{Kind: nodeplay.Refused, Reason: reason, Times: 4},
		actor: v1alpha1.ActorNode, reason: reason, cause: v1alpha1.CauseNode, health: nodes,
	}
}

func ofNode(kind nodeplay.FaultKind, reason string) podEnd {
	return podEnd{fault: nodeplay.Fault{Kind: kind, Times: 4}, actor: v1alpha1.ActorNode, reason: reason, cause: v1alpha1.CauseNode, health: nodes}
}

func ofOthers(kind nodeplay.FaultKind, actor v1alpha1.RunnerActor, reason string) podEnd {
	return podEnd{fault: nodeplay.Fault{Kind: kind, Times: 4}, actor: actor, reason: reason, cause: v1alpha1.CauseRemoved, health: deleted}
}

// If a node or an external actor ends idle runners, the actor and reason are reported, and the pool is not held
// back.
func TestEndsByNodesAndOthersAreNamedAndBlameNoTemplate(t *testing.T) {
	e := newEndings(t, "ends")
	stories := map[string]podEnd{
		"evicted":        ofNode(nodeplay.NodeEvicts, "Evicted"),
		"shutdown":       ofNode(nodeplay.NodeShutsDown, "Terminated"),
		"critical":       ofNode(nodeplay.CriticalPodComes, "Preempting"),
		"lost":           ofNode(nodeplay.ContainerLost, "ContainerStatusUnknown"),
		"node-memory":    ofNode(nodeplay.OutOfMemory, "OOMKilled"), // its container has no memory limit
		"tainted":        ofNode(nodeplay.NodeTainted, "DeletionByTaintManager"),
		"gpu":            refusal("UnexpectedAdmissionError"),
		"out-of-cpu":     refusal("OutOfcpu"),
		"affinity":       refusal("NodeAffinity"),
		"topology":       refusal("TopologyAffinityError"),
		"shutting-down":  refusal("NodeShutdown"),
		"under-pressure": refusal("Evicted"),
		"preempted":      ofOthers(nodeplay.SchedulerPreempts, v1alpha1.ActorScheduler, "PreemptionByScheduler"),
		"drained":        ofOthers(nodeplay.EvictedByAPI, v1alpha1.ActorOutsider, "EvictionByEvictionAPI"),
		"deleted":        ofOthers(nodeplay.Evicted, v1alpha1.ActorOutsider, poolstatus.ReasonDeleted),
		"forced":         ofOthers(nodeplay.ForceDeleted, v1alpha1.ActorUnknown, poolstatus.ReasonDeleted),
		"at-once":        ofOthers(nodeplay.DeletedAtOnce, v1alpha1.ActorUnknown, poolstatus.ReasonDeleted),
		"deadline": {
			spec: `,"activeDeadlineSeconds":80`, actor: v1alpha1.ActorNode, reason: "DeadlineExceeded", cause: v1alpha1.CauseDeadline,
		},
	}
	each(t, stories, func(t *testing.T, name string, end podEnd) {
		end.fault.Times = 0 // the fault lasts until all reports were checked, because a pool could recover between two commands on a slow machine
		_, heal := e.strike(t, name, end, 3)
		e.says(t, name, end, 3)
		heal()
		e.annotate(t, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}, v1alpha1.RetryAnnotation, "healed")
		e.goesOn(t, name)
	})
	if got := e.warned(t, v1alpha1.RunnersFailingReason, v1alpha1.RolledBackReason); len(got) > 0 {
		t.Errorf("pools are held back: %v", got)
	}
	reported := e.warned(t, nodes, deleted)
	if len(reported) < len(stories)-1 {
		t.Errorf("of %d pools, these have an event: %v", len(stories), reported)
	}
	e.cleanUp(t, e.namespace)
}

// If a runner ends during a job, GitHub fails the job. The actor and reason are reported as well.
func TestEndsByNodesAndOthersWithAJobAreNamed(t *testing.T) {
	e := newEndings(t, "joblost")
	stories := map[string]podEnd{
		"evicted":  ofNode(nodeplay.NodeEvicts, "Evicted"),
		"shutdown": ofNode(nodeplay.NodeShutsDown, "Terminated"),
		"critical": ofNode(nodeplay.CriticalPodComes, "Preempting"),
		"lost":     ofNode(nodeplay.ContainerLost, "ContainerStatusUnknown"),
		"storage":  {fault: nodeplay.Fault{Kind: nodeplay.StorageExceeded, Times: 4}, actor: v1alpha1.ActorContainer, reason: "Evicted"},
		"memory":   {fault: nodeplay.Fault{Kind: nodeplay.KilledInJob, Times: 4}, actor: v1alpha1.ActorNode, reason: "OOMKilled"},
	}
	each(t, stories, func(t *testing.T, name string, end podEnd) {
		end.fault.InJob, end.fault.Times, end.cause, end.health = true, 3, "", ""
		end.fault.After = 5 * time.Second // by then, the controller knows the job
		e.strike(t, name, end, 0)
		jobs := e.addJobs(t, e.namespace+"-org", name, 3, harness.LongJob)
		e.says(t, name, end, 3)
		eventually(t, func(context.Context) error {
			for _, j := range e.GitHub.Jobs() {
				if slices.Contains(jobs, j.ID) && j.State != githubsim.JobCompleted {
					return fmt.Errorf("job %s is %s", j.ID, j.State)
				}
			}
			return nil
		})
		e.goesOn(t, name)
	})
	if got := e.warned(t, v1alpha1.RunnersFailingReason, v1alpha1.RolledBackReason, nodes, deleted); len(got) > 0 {
		t.Errorf("pools are held back: %v", got)
	}
	e.cleanUp(t, e.namespace)
}

// Failures that the template causes still open the circuit breaker after three runners.
func TestEndsThatTheTemplateCausesHoldThePoolBack(t *testing.T) {
	e := newEndings(t, "blamed")
	limited := `,"resources":{"limits":{"memory":"1Gi"}}`
	stories := map[string]podEnd{
		"crash":   {fault: nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting}, actor: v1alpha1.ActorRunner, reason: "Error", cause: v1alpha1.CauseCrash},
		"memory":  {fault: nodeplay.Fault{Kind: nodeplay.OutOfMemory}, container: limited, actor: v1alpha1.ActorContainer, reason: "OOMKilled", cause: v1alpha1.CauseCrash},
		"storage": {fault: nodeplay.Fault{Kind: nodeplay.StorageExceeded}, actor: v1alpha1.ActorContainer, reason: "Evicted", cause: v1alpha1.CauseCrash},
		"sysctl":  {fault: nodeplay.Fault{Kind: nodeplay.Refused, Reason: "SysctlForbidden"}, actor: v1alpha1.ActorNode, reason: "SysctlForbidden", cause: v1alpha1.CauseConfig},
		"short":   {spec: `,"activeDeadlineSeconds":3`, actor: v1alpha1.ActorNode, reason: "DeadlineExceeded", cause: v1alpha1.CauseConfig},
	}
	each(t, stories, func(t *testing.T, name string, end podEnd) {
		end.health = v1alpha1.RunnersFailingReason
		e.strike(t, name, end, 1)
		e.says(t, name, end, 3)
		waitPool(t, key(e.namespace, name), func(p *v1alpha1.RunnerPool) error {
			if d := p.Status.Decision; d.Announced > 1 {
				return fmt.Errorf("it announces %d", d.Announced)
			}
			return nil
		})
	})
	if got := e.warned(t, nodes, deleted); len(got) > 0 {
		t.Errorf("nodes or others are blamed: %v", got)
	}
	e.cleanUp(t, e.namespace)
}

// If nodes and external actors end the new runners of an update, the update waits and then continues. It is not
// rolled back.
func TestAnUpdateOutlivesEndsByNodesAndOthers(t *testing.T) {
	e := newEndings(t, "updates-end")
	stories := map[string]nodeplay.Fault{
		"evicted":   {Kind: nodeplay.NodeEvicts},
		"shutdown":  {Kind: nodeplay.NodeShutsDown},
		"refused":   {Kind: nodeplay.Refused, Reason: "OutOfcpu"},
		"preempted": {Kind: nodeplay.SchedulerPreempts},
		"at-once":   {Kind: nodeplay.DeletedAtOnce},
	}
	isFree := func(version string) func(p *v1alpha1.RunnerPool) error {
		return func(p *v1alpha1.RunnerPool) error {
			list := &v1alpha1.RunnerList{}
			must(t, e.Client.List(t.Context(), list, client.InNamespace(e.namespace), client.MatchingLabels{v1alpha1.PoolLabel: p.Name}))
			free := 0
			for _, r := range list.Items {
				if r.Status.State == v1alpha1.RunnerIdle && r.Spec.Revision == p.Status.Revision && r.DeletionTimestamp.IsZero() {
					free++
				}
			}
			if !conditions.IsTrue(p, v1alpha1.UpdatedCondition) || free != 3 || p.Generation != p.Status.ObservedGeneration {
				return fmt.Errorf("%d runners of version %s are free; %+v", free, version, p.Status.Update)
			}
			return nil
		}
	}
	each(t, stories, func(t *testing.T, name string, fault nodeplay.Fault) {
		pool, _ := e.strike(t, name, podEnd{}, 3)
		waitPool(t, key(e.namespace, name), isFree("1"))
		fault.Namespace, fault.Times, fault.Labels = e.namespace, 5, map[string]string{v1alpha1.PoolLabel: name, "version": "2"}
		t.Cleanup(e.Node.Inject(fault))
		patch := fmt.Appendf(nil, `{"spec":{"template":%s}}`, podEnd{}.template("2").Raw)
		must(t, e.Client.Patch(t.Context(), pool, client.RawPatch(client.Merge.Type(), patch)))
		waitPool(t, key(e.namespace, name), func(p *v1alpha1.RunnerPool) error {
			external := slices.ContainsFunc(p.Status.Failures, func(f v1alpha1.RunnerFailure) bool { return f.Cause.IsExternal() && f.Revision == p.Status.Revision })
			if !external {
				return fmt.Errorf("no new runner was struck: %+v", p.Status.Failures)
			}
			return isFree("2")(p)
		})
	})
	if got := e.warned(t, v1alpha1.RunnersFailingReason, v1alpha1.RolledBackReason); len(got) > 0 {
		t.Errorf("updates are rolled back: %v", got)
	}
	e.cleanUp(t, e.namespace)
}
