// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
)

// staying returns a pool with at most one persistent runner, with a version in its template and additional fields
// in its spec.
func staying(version, more string) string {
	return fmt.Sprintf(`
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec:
  connectionRef: {name: acme}
  registration: REST
  lifetime: Persistent
  runnerLabels: [stay]
  demand: {webhook: {}}
  template: {metadata: {labels: {version: %q}}, spec: {containers: [{name: runner, image: "runner:1"}]}}
  %s
`, version, more)
}

const (
	atMostOne = "scale: {max: 1}"
	always    = "scale: {min: 1, max: 1}"
)

// only waits until the pool has exactly one runner, which passes a check.
func (d *demandWorld) only(what string, check func(*v1alpha1.Runner) bool) *v1alpha1.Runner {
	d.t.Helper()
	var only *v1alpha1.Runner
	eventually(d.t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		must(d.t, d.w.Client.List(ctx, list, client.InNamespace(d.namespace)))
		if len(list.Items) != 1 || !check(&list.Items[0]) {
			return fmt.Errorf("no runner is %s: %+v", what, list.Items)
		}
		only = &list.Items[0]
		return nil
	})
	return only
}

func (d *demandWorld) pod(name string) *corev1.Pod {
	d.t.Helper()
	pod := &corev1.Pod{}
	must(d.t, d.w.Client.Get(d.t.Context(), key(d.namespace, name), pod))
	return pod
}

// worked returns the runner that ran a job.
func (d *demandWorld) worked(id string) string {
	for _, j := range d.w.GitHub.Jobs() {
		if j.ID == id {
			return j.Runner
		}
	}
	return ""
}

// begun adds a job and waits until a runner has it.
func (d *demandWorld) begun(each time.Duration) (id, runner string) {
	d.t.Helper()
	id = d.long(1, each, "app", "stay")[0]
	eventually(d.t, func(context.Context) error {
		if runner = d.worked(id); runner == "" {
			return errors.New("nobody has the job")
		}
		return nil
	})
	return id, runner
}

func idleAfter(jobs int32) func(*v1alpha1.Runner) bool {
	return func(r *v1alpha1.Runner) bool {
		return r.Status.State == v1alpha1.RunnerIdle && r.Status.JobsDone == jobs && r.DeletionTimestamp.IsZero()
	}
}

// A persistent runner runs several jobs, survives a restart of its process, and is replaced only between jobs.
func TestPersistentRunners(t *testing.T) {
	w := newStory(t, "persistent")
	d := w.newDemandWorld(t, "persistent", w.listen(t))
	d.apply(staying("1", atMostOne))
	d.until("linux", ready)
	if all, _ := d.registered(); all != 0 {
		t.Errorf("%d runners without a job", all)
	}
	first := d.threeJobsOnOne()
	d.apply(staying("1", always))
	d.killed(first)
	second := d.updated(first)
	d.denied(second)
	d.retired()

	d.apply(staying("2", atMostOne))
	d.idle("linux", 0)
	last, _ := d.begun(4 * time.Second)
	d.end()
	w.allDone(t, []string{last})
}

func (d *demandWorld) threeJobsOnOne() *v1alpha1.Runner {
	d.t.Helper()
	ids := d.jobs(3, "app", "self-hosted", "stay")
	d.w.allDone(d.t, ids)
	r := d.only("idle after three jobs", idleAfter(3))
	for _, id := range ids {
		if d.worked(id) != r.Name {
			d.t.Errorf("job %s was done by %q", id, d.worked(id))
		}
	}
	if pod := d.pod(r.Name); pod.Labels[v1alpha1.JobIDLabel] != "" || pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] != "true" {
		d.t.Errorf("an idle runner's pod bears %v, %v", pod.Labels, pod.Annotations)
	}
	return r
}

// killed kills a runner's process, once while it is idle and once during a job. Its container restarts with the
// same registration.
func (d *demandWorld) killed(r *v1alpha1.Runner) {
	d.t.Helper()
	before, id := d.pod(r.Name), d.registrationOf(r.Name)
	for restarts := range int32(2) {
		var job string
		if restarts == 1 {
			job, _ = d.begun(time.Hour)
		}
		if !d.w.Node.Kill(d.namespace, r.Name) {
			d.t.Fatal("it has no process")
		}
		eventually(d.t, func(context.Context) error {
			pod := d.pod(r.Name)
			if pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount != restarts+1 || d.registrationOf(r.Name) != id {
				return fmt.Errorf("its pod is %s, registration %d, %+v", pod.UID, d.registrationOf(r.Name), pod.Status.ContainerStatuses)
			}
			return nil
		})
		if job != "" {
			d.only("free of the job that its process lost", idleAfter(5))
		}
		d.w.allDone(d.t, d.jobs(1, "app", "stay"))
		d.only("idle again", idleAfter(4+2*restarts))
	}
	if d.registrationOf(r.Name) != id || d.pod(r.Name).UID != before.UID {
		d.t.Error("it isn't the same runner any more")
	}
}

func (d *demandWorld) registrationOf(name string) int {
	for _, r := range d.w.GitHub.Report().Runners {
		if r.Name == name {
			return r.ID
		}
	}
	return 0
}

// updated changes the template while the runner has a job. The runner finishes the job and is then replaced.
func (d *demandWorld) updated(old *v1alpha1.Runner) *v1alpha1.Runner {
	d.t.Helper()
	job, runner := d.begun(harness.LongJob)
	d.apply(staying("2", always))
	d.until("linux", func(p *v1alpha1.RunnerPool) bool {
		return p.Status.Revision != old.Spec.Revision && !conditions.IsTrue(p, v1alpha1.UpdatedCondition)
	})
	harness.CutShort(d.t, d.w.GitHub, job)
	if runner != old.Name {
		d.t.Errorf("the job was on %s", runner)
	}
	d.until("linux", func(p *v1alpha1.RunnerPool) bool { return conditions.IsTrue(p, v1alpha1.UpdatedCondition) })
	young := d.only("idle and new", idleAfter(0))
	if version := d.pod(young.Name).Labels["version"]; version != "2" {
		d.t.Errorf("the new runner is of version %q", version)
	}
	return young
}

// denied adds a policy that denies the template while the runner has a job. The job continues, and the runner is
// removed afterwards.
func (d *demandWorld) denied(r *v1alpha1.Runner) {
	d.t.Helper()
	job, runner := d.begun(harness.LongJob)
	policy := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "no"}}
	policy.Spec.Modules = map[string]string{"no.rego": `package corral.template
deny contains {"msg": "no runner stays here"} if input.pool.lifetime == "Persistent"
`}
	must(d.t, d.w.Client.Create(d.t.Context(), policy))
	d.until("linux", func(p *v1alpha1.RunnerPool) bool {
		return conditions.GetReason(p, v1alpha1.ReadyCondition) == v1alpha1.PolicyDeniedReason
	})
	harness.CutShort(d.t, d.w.GitHub, job)
	if runner != r.Name {
		d.t.Errorf("the job was on %s", runner)
	}
	d.idle("linux", 0)
	must(d.t, d.w.Client.Delete(d.t.Context(), policy))
	d.only("idle", idleAfter(0))
}

// retired checks that a runner is replaced after its maximum number of jobs.
func (d *demandWorld) retired() {
	d.t.Helper()
	d.apply(staying("2", always+"\n  persistent: {maxJobs: 2}"))
	before := d.only("idle", idleAfter(0))
	d.w.allDone(d.t, d.jobs(2, "app", "stay"))
	after := d.only("another", func(r *v1alpha1.Runner) bool { return r.Name != before.Name && idleAfter(0)(r) })
	d.w.allDone(d.t, d.jobs(1, "app", "stay"))
	if r := d.only("idle after one job", idleAfter(1)); r.Name != after.Name {
		d.t.Errorf("%s took the place of %s too early", r.Name, after.Name)
	}
}
