// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// demandWorld is a namespace whose pools have an organization of their own.
type demandWorld struct {
	w         *story
	t         *testing.T
	namespace string
	org       string
	hook      int64
}

// listen runs a controller with a webhook receiver, and returns its address.
func (w *story) listen(t *testing.T, args ...string) string {
	t.Helper()
	address, err := world.FreeAddress()
	must(t, err)
	w.controller(t, append([]string{"--webhook-addr=" + address}, args...)...)
	return address
}

// newDemandWorld creates a namespace with the connection acme and a webhook of its organization.
func (w *story) newDemandWorld(t *testing.T, namespace, address string) *demandWorld {
	t.Helper()
	d := &demandWorld{w: w, t: t, namespace: namespace, org: namespace + "-org"}
	hook, err := w.ConnectHook(t.Context(), namespace, "acme", d.org, address)
	must(t, err)
	d.hook = hook
	return d
}

// example applies the pools of an example, as `corral build | kubectl apply` does. It uses the world's
// organization, and replaces texts according to pairs.
func (d *demandWorld) example(name string, pairs ...string) {
	d.t.Helper()
	built := d.w.Corral(d.t, "build", filepath.Join("..", "..", "examples", name))
	var pools []string
	for document := range strings.SplitSeq(built, "---\n") {
		if strings.Contains(document, "\nkind: RunnerPool\n") {
			pools = append(pools, document)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(built, pairs[i]) {
			d.t.Fatalf("examples/%s has no %q", name, pairs[i])
		}
	}
	replace := strings.NewReplacer(append([]string{"acme/", d.org + "/", "name: infra", "name: acme"}, pairs...)...)
	d.apply(replace.Replace(strings.Join(pools, "---\n")))
}

func (d *demandWorld) apply(manifest string) {
	d.t.Helper()
	if out, err := kubectl(d.t, manifest, "apply", "-n", d.namespace, "-f", "-"); err != nil {
		d.t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// jobs adds short jobs in a repository of the organization.
func (d *demandWorld) jobs(n int, repository string, labels ...string) []string {
	d.t.Helper()
	return d.long(n, 200*time.Millisecond, repository, labels...)
}

// long adds jobs of a given duration.
func (d *demandWorld) long(n int, each time.Duration, repository string, labels ...string) []string {
	d.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		id, err := d.w.GitHub.AddJob(githubsim.Job{Repository: d.org + "/" + repository, Labels: labels, Duration: each})
		must(d.t, err)
		ids[i] = id
	}
	return ids
}

// registered returns how many of the organization's runners were registered with the REST API, and how many of these are
// online.
func (d *demandWorld) registered() (all, online int) {
	for _, r := range d.w.GitHub.Report().Runners {
		if r.Scope == "orgs/"+d.org {
			all++
			if r.Online {
				online++
			}
		}
	}
	return all, online
}

func (d *demandWorld) pool(name string) *v1alpha1.RunnerPool {
	d.t.Helper()
	p := &v1alpha1.RunnerPool{}
	must(d.t, d.w.Client.Get(d.t.Context(), key(d.namespace, name), p))
	return p
}

// until waits until a pool passes a check.
func (d *demandWorld) until(name string, check func(*v1alpha1.RunnerPool) bool) {
	d.t.Helper()
	eventually(d.t, func(context.Context) error {
		if p := d.pool(name); !check(p) {
			return fmt.Errorf("%s has %+v, decided %+v, demand %+v, schedule %+v, observed %+v, conditions %+v",
				name, p.Status.Runners, p.Status.Decision, p.Status.Demand, p.Status.Schedule, p.Status.Observation, p.Status.Conditions)
		}
		return nil
	})
}

// ready reports whether a pool is ready.
func ready(p *v1alpha1.RunnerPool) bool { return conditions.IsReady(p) }

// idle waits until a pool has the given number of idle runners, and no others.
func (d *demandWorld) idle(name string, n int32) {
	d.t.Helper()
	d.until(name, func(p *v1alpha1.RunnerPool) bool {
		return p.Status.Runners.Idle == n && p.Status.Runners.Total == n
	})
}

// end deletes the pools, and checks that nothing of the organization is left.
func (d *demandWorld) end() {
	d.t.Helper()
	must(d.t, d.w.Client.DeleteAllOf(d.t.Context(), &v1alpha1.RunnerPool{}, client.InNamespace(d.namespace)))
	eventually(d.t, func(ctx context.Context) error {
		if all, _ := d.registered(); all > 0 {
			return fmt.Errorf("%d runners are still registered", all)
		}
		return d.w.Left(ctx, d.namespace)
	})
}

// All subtests share one controller, and each has its own namespace.
func TestDemand(t *testing.T) {
	w := newStory(t, "webhooks", "approval", "unkind", "looking", "observe", "windows", "unreadable", "rotation", "metrics")
	prom := newPrometheus(t)
	address := w.listen(t, "--prometheus-server=main="+prom.URL)
	for name, tell := range map[string]func(*testing.T, string){
		"webhooks scale a pool without a scale set from zero to zero": w.webhooksScaleAPool,
		"what waits for an approval is no demand yet":                 w.whatWaitsForAnApproval,
		"deliveries get lost, late, double and out of order":          w.deliveriesGoWrong,
		"a queue of jobs is found by looking":                         w.queueIsFoundByLooking,
		"a pool that observes acts on nothing":                        w.observingActsOnNothing,
		"a schedule's window opens and closes":                        w.windowOpensAndCloses,
		"a schedule that cannot be read changes nothing":              w.unreadableSchedule,
		"a secret of a webhook is changed and no event lost":          w.secretChanges,
		"metrics are demand":                                          func(t *testing.T, address string) { w.metricsAreDemand(t, address, prom) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, address)
		})
	}
}

func (w *story) webhooksScaleAPool(t *testing.T, address string) {
	d := w.newDemandWorld(t, "webhooks", address)
	d.example("webhooks", "5m", "30s")
	d.until("linux-web", ready)
	foreign := d.jobs(1, "elsewhere", "self-hosted", "linux", "web")
	must(t, w.GitHub.WaitDelivered(t.Context()))
	if all, _ := d.registered(); all != 0 {
		t.Errorf("%d runners for a repository that the pool is not for", all)
	}
	w.GitHub.CancelJob(foreign[0])
	w.allDone(t, d.jobs(12, "web-shop", "Self-Hosted", "linux", "web"))
	d.idle("linux-web", 0)
	for _, set := range w.GitHub.Report().ScaleSets {
		if set.Name == "linux-web" {
			t.Errorf("it has a scale set: %+v", set)
		}
	}

	t.Run("an event adds free runners for a while", func(t *testing.T) {
		d.t = t
		must(t, w.GitHub.Send(githubsim.Event{Event: "pull_request", Action: "opened", Repository: d.org + "/web-shop", Branch: "release/1"}))
		must(t, w.GitHub.Send(githubsim.Event{Event: "pull_request", Action: "closed", Repository: d.org + "/web-shop"}))
		must(t, w.GitHub.Send(githubsim.Event{Event: "push", Repository: d.org + "/web-shop", Branch: "topic"}))
		d.idle("review", 3)
		d.idle("review", 0)
	})
	d.t = t
	d.end()
}

func (w *story) whatWaitsForAnApproval(t *testing.T, address string) {
	d := w.newDemandWorld(t, "approval", address)
	d.example("webhooks")
	id, err := w.GitHub.AddJob(githubsim.Job{Repository: d.org + "/shop", Labels: []string{"web"}, Waiting: true})
	must(t, err)
	must(t, w.GitHub.WaitDelivered(t.Context()))
	d.until("linux-web", ready)
	if all, _ := d.registered(); all != 0 {
		t.Errorf("%d runners for a job that waits for an approval", all)
	}
	w.GitHub.ApproveJob(id)
	w.allDone(t, []string{id})
	d.idle("linux-web", 0)
	d.end()
}

// lost injects every kind of delivery fault, each with a probability.
func lost(d *demandWorld) (clear func()) {
	var remove []func()
	for _, f := range []githubsim.DeliveryFault{
		{Probability: 0.1, Lose: true}, {Probability: 0.1, Duplicate: 2}, {Probability: 0.1, Behind: 5},
		{Probability: 0.1, Delay: 500 * time.Millisecond},
	} {
		f.Hook = d.hook
		remove = append(remove, d.w.GitHub.AddDeliveryFault(f))
	}
	return func() {
		for _, r := range remove {
			r()
		}
	}
}

func (w *story) deliveriesGoWrong(t *testing.T, address string) {
	d := w.newDemandWorld(t, "unkind", address)
	d.example("webhooks", "max: 50", "max: 8")
	clear := lost(d)
	ids := d.jobs(60, "web-shop", "linux", "web")
	w.allDone(t, ids)
	clear()
	d.idle("linux-web", 0)
	d.end()
}

func TestAnOutageIsCaughtUpThroughTheListOfDeliveries(t *testing.T) {
	w := newStory(t, "outage")
	address, err := world.FreeAddress()
	must(t, err)
	d := w.newDemandWorld(t, "outage", address)
	first := w.start(t, "--webhook-addr="+address)
	d.example("webhooks", "max: 50", "max: 10")
	w.allDone(t, d.jobs(5, "web-shop", "linux", "web"))
	d.idle("linux-web", 0)
	first.Kill()
	ids := d.jobs(40, "web-shop", "linux", "web")
	must(t, w.GitHub.WaitDelivered(t.Context()))
	before := w.GitHub.Report().Requests
	w.start(t, "--webhook-addr="+address)
	w.allDone(t, ids)
	after := w.GitHub.Report().Requests
	if polls := after[githubsim.EndpointWorkflowRuns] - before[githubsim.EndpointWorkflowRuns]; polls > 5 {
		t.Errorf("repositories were looked at %d times", polls)
	}
	d.idle("linux-web", 0)
	d.end()
}

func (w *story) queueIsFoundByLooking(t *testing.T, address string) {
	d := w.newDemandWorld(t, "looking", address)
	w.GitHub.AddRunnerGroup(d.org, githubsim.Group{Name: "builders"})
	for _, name := range []string{"tools-x", "infra"} { // the controller lists repositories once a minute
		must(t, w.GitHub.AddRepository(githubsim.Repository{FullName: d.org + "/" + name}))
	}
	d.example("rest-runners", "jobs:\n", "interval: 10s\n      jobs:\n")
	w.GitHub.RemoveHook(d.hook)
	d.idle("deploy", 2)
	w.allDone(t, append(d.jobs(6, "tools-x", "linux", "build"), d.jobs(3, "infra", "deploy")...))
	d.idle("build", 0)
	d.idle("deploy", 2)
	d.end()
}

func (w *story) observingActsOnNothing(t *testing.T, address string) {
	d := w.newDemandWorld(t, "observe", address)
	d.example("observe", "interval: 2m", "interval: 10s")
	ids := d.jobs(3, "app", "self-hosted", "linux")
	d.until("linux", func(p *v1alpha1.RunnerPool) bool {
		o := p.Status.Observation
		return o != nil && o.Desired == 5 && o.Actual != nil && *o.Actual == 0 && o.Difference != ""
	})
	runners := &v1alpha1.RunnerList{}
	must(t, w.Client.List(t.Context(), runners, client.InNamespace(d.namespace)))
	if all, _ := d.registered(); all != 0 || len(runners.Items) != 0 {
		t.Errorf("it has %d registrations and %d Runners", all, len(runners.Items))
	}
	for _, id := range ids {
		if !w.GitHub.CancelJob(id) {
			t.Error(errors.New("a job is gone"))
		}
	}
	d.until("linux", func(p *v1alpha1.RunnerPool) bool {
		return p.Status.Observation != nil && p.Status.Observation.Desired == 2
	})
	d.end()
}

// plain is a pool to which tests append fields of its spec.
const plain = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec:
  connectionRef: {name: acme}
  scale: {max: 5}
  template: {spec: {containers: [{name: runner, image: "runner:1"}]}}
`

func (w *story) windowOpensAndCloses(t *testing.T, address string) {
	d := w.newDemandWorld(t, "windows", address)
	d.apply(plain)
	d.until("linux", ready)
	window := func(until time.Duration) {
		now := time.Now()
		d.apply(strings.Replace(plain, "max: 5", fmt.Sprintf("max: 5, schedules: [{name: now, once: {from: %q, to: %q}, scale: {idle: 2}}]",
			now.Add(-time.Hour).Format(time.RFC3339), now.Add(until).Format(time.RFC3339)), 1))
	}
	window(time.Hour)
	d.until("linux", func(p *v1alpha1.RunnerPool) bool {
		s := p.Status.Schedule
		return s != nil && s.Next != nil && len(s.Active) == 1 && p.Status.Runners.Idle == 2
	})
	window(3 * time.Second)
	d.idle("linux", 0)
	d.end()
}

func (w *story) unreadableSchedule(t *testing.T, address string) {
	d := w.newDemandWorld(t, "unreadable", address)
	one := strings.Replace(plain, "max: 5", "idle: 1, max: 5", 1)
	d.apply(one)
	d.idle("linux", 1)
	for text, schedule := range map[string]string{
		"Mars/Olympus": "{name: s, timeZone: Mars/Olympus, weekly: {from: '00:00', to: '24:00'}, scale: {idle: 0}}",
		"(61)":         "{name: s, cron: {schedule: '61 * * * *', duration: 1h}, scale: {idle: 0}}",
	} {
		d.apply(strings.Replace(one, "max: 5", "max: 5, schedules: ["+schedule+"]", 1))
		d.until("linux", func(p *v1alpha1.RunnerPool) bool {
			c := conditions.Get(p, v1alpha1.ReadyCondition)
			return conditions.IsStalled(p) && c.Reason == v1alpha1.InvalidSpecReason && strings.Contains(recorder.Facts(p, v1alpha1.ReadyCondition), text)
		})
		w.allDone(t, d.long(2, 200*time.Millisecond, "app", "linux"))
		d.idle("linux", 1)
	}
	d.apply(one)
	d.until("linux", ready)
	d.end()
}

func (w *story) secretChanges(t *testing.T, address string) {
	d := w.newDemandWorld(t, "rotation", address)
	d.example("webhooks")
	d.until("linux-web", ready)
	w.allDone(t, d.jobs(2, "shop", "web"))
	both := fmt.Sprintf(`{"stringData":{"secret":"new","previous":%q}}`, world.WebhookSecret)
	must(t, w.Client.Patch(t.Context(), world.HookSecret(d.namespace, "acme-webhook"), client.RawPatch("application/merge-patch+json", []byte(both))))
	w.allDone(t, d.jobs(2, "shop", "web"))
	w.GitHub.ChangeHook(d.hook, func(h *githubsim.Hook) { h.Secret = "new" })
	w.allDone(t, d.jobs(2, "shop", "web")) // includes events that arrived before the Secret was read again
	d.end()
	for _, delivery := range w.GitHub.Deliveries(d.hook) {
		if delivery.Code != http.StatusAccepted && delivery.Code != http.StatusUnauthorized {
			t.Errorf("%+v", delivery)
		}
	}
}
