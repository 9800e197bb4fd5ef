// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/world"
)

// Names in examples/demo.
const (
	organization    = "acme"
	namespace       = "runners"
	sourceName      = "pools"
	credentialsName = "github"
	hookSecretName  = "github-webhook"
	connectionName  = "acme"
	poolsFile       = "pools.cue"

	smallPool, largePool, warmPool = "linux-small", "linux-large", "warm"
	// eventsPool has no scale set: it learns of jobs from webhooks.
	eventsPool = "events"
	// maxAtFirst is the max of linux-small in examples/demo. One commit lowers it, a later one raises it.
	maxAtFirst, maxLowered, maxRaised = 20, 6, 30
	// warmIdle is the number of idle runners that the pool warm keeps.
	warmIdle = 2
)

// typo is what a commit adds to linux-small. The correct field name is runnerLabels.
const typo = "\n\t\trunnerLables: [\"linux\", \"small\"]"

const (
	// podStart is the simulated time for pulling the image and starting the container.
	podStart = 500 * time.Millisecond
	// interval is how often the repository is fetched.
	interval = 2 * time.Second
	// exploreInterval is the time between two jobs of a pool while the demo stays, and exploreDuration their duration.
	exploreInterval = 5 * time.Second
	exploreDuration = 4 * time.Second
	// Bounds on the time until a commit takes effect, and until all pools are gone. They are long enough for a machine
	// that is busy with something else.
	effectLimit  = 3 * time.Minute
	removalLimit = 3 * time.Minute
)

// story lists the steps of the demo.
var story = []struct {
	what string
	do   func(*demo, context.Context) error
}{
	{"starting the world", (*demo).startWorld},
	{"making the Git repository", (*demo).makeRepository},
	{"starting the controller", (*demo).startController},
	{"following the repository", (*demo).followRepository},
	{"letting jobs arrive", (*demo).letJobsArrive},
	{"committing a change", (*demo).commitChange},
	{"committing a typo", (*demo).commitTypo},
	{"fixing the typo", (*demo).fixTypo},
	{"waiting for the last job", (*demo).waitForJobs},
	{"staying", (*demo).explore},
	{"removing the pools", (*demo).removePools},
	{"waiting until nothing is left", (*demo).waitUntilNothingIsLeft},
}

// prepare builds the control plane if it has not been built yet.
func (d *demo) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	_, err := localcluster.Assets(ctx, d.screen)
	return err
}

func (d *demo) startWorld(ctx context.Context) (err error) {
	d.screen.Status("Starting the control plane …")
	d.world, err = world.Start(ctx, world.Options{
		GitHub: githubsim.Options{Mode: githubsim.Mode(d.github), Seed: d.seed}, Progress: d.screen, StartDelay: podStart,
	})
	if err != nil {
		return err
	}
	d.screen.Status("")
	d.world.GitHub.AddOrg(organization)
	d.screen.say("Control plane: a real API server, etcd and controller-manager; look inside with\nkubectl --kubeconfig %s -n %s get runnerpools,runners",
		d.world.Cluster.Kubeconfig(), namespace)
	d.screen.say("GitHub: simulated (%s), organization %s at %s", d.github, organization, d.world.GitHub.ConfigURL(organization))
	d.screen.say("Nodes: simulated; a pod takes %s to start", podStart)
	return nil
}

func (d *demo) makeRepository(ctx context.Context) (err error) {
	if d.repository, err = newRepository(ctx, d.world.Dir); err != nil {
		return err
	}
	const message = "Declare four pools"
	if err := d.repository.commit(ctx, message); err != nil {
		return err
	}
	d.inForce, err = d.push(ctx, message)
	return err
}

func (d *demo) startController(ctx context.Context) (err error) {
	if d.webhooks, err = world.FreeAddress(); err != nil {
		return err
	}
	if d.controller, err = d.world.RunController(ctx, d.corral, "--webhook-addr="+d.webhooks); err != nil {
		return err
	}
	d.screen.say("Controller: runs as a separate process, with the permissions of ServiceAccount %s/%s", world.SystemNamespace, world.ServiceAccount)
	d.inBackground(ctx, d.watchMemory)
	return nil
}

// followRepository creates what a user would create: a namespace, the Secret and a PoolSource.
func (d *demo) followRepository(ctx context.Context) error {
	if err := d.world.Cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	hook, err := d.world.AddHook(organization, d.webhooks, namespace, connectionName)
	if err != nil {
		return err
	}
	objects := []client.Object{d.world.CredentialsSecret(namespace, credentialsName), world.HookSecret(namespace, hookSecretName), &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sourceName},
		Spec: v1alpha1.PoolSourceSpec{
			Git: &v1alpha1.GitSource{URL: d.repository.url()}, Interval: metav1.Duration{Duration: interval},
			Tags: map[string]string{"url": d.world.GitHub.ConfigURL(organization), "hook": strconv.FormatInt(hook, 10)},
		},
	}}
	for _, object := range objects {
		if err := d.world.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T: %w", object, err)
		}
	}
	if err := world.Until(ctx, effectLimit, d.poolsListen); err != nil {
		return err
	}
	d.screen.say("Pools: %s, %s and %s have scale sets on GitHub and listen for jobs; %s keeps %d idle runners", smallPool, largePool, warmPool, warmPool, warmIdle)
	d.screen.say("Webhook: GitHub reports jobs for the pool %s to %s", eventsPool, world.WebhookURL(d.webhooks, namespace, connectionName))
	d.inBackground(ctx, d.watchPools)
	return nil
}

// poolsListen returns an error that describes the missing condition until every pool can serve jobs.
func (d *demo) poolsListen(ctx context.Context) error {
	for _, name := range []string{smallPool, largePool, warmPool} {
		p, err := d.pool(ctx, name)
		if err != nil {
			return err
		}
		if row := rowOf(p); !row.Ready || d.capacity(name) != int(row.Max) || row.Idle != p.Spec.Scale.GetIdle() {
			return fmt.Errorf("pool %s: %s; %d runners idle, %d announced to GitHub", name, row.Message, row.Idle, d.capacity(name))
		}
	}
	p, err := d.pool(ctx, eventsPool)
	if err != nil {
		return err
	}
	if row := rowOf(p); !row.Ready {
		return fmt.Errorf("pool %s: %s", eventsPool, row.Message)
	}
	return nil
}

// letJobsArrive adds the first jobs; the others are added concurrently with the story.
func (d *demo) letJobsArrive(ctx context.Context) (err error) {
	if d.usedBefore, err = readUse(ctx, d.controller.MetricsURL); err != nil {
		return err
	}
	d.askedBefore = d.world.GitHub.Report().Requests
	d.plan = planTraffic(d.seed, d.jobs, d.duration, []string{smallPool, largePool, eventsPool, warmPool})
	d.firstJob = time.Now()
	d.screen.say("Jobs: %d arrive in %d bursts over %s", d.jobs, len(d.plan), d.duration)
	d.inBackground(ctx, d.addJobs)
	return nil
}

func (d *demo) addJobs(ctx context.Context) error {
	for _, b := range d.plan {
		if err := pause(ctx, d.firstJob.Add(b.At)); err != nil {
			return err
		}
		for _, duration := range b.Jobs {
			job := githubsim.Job{Repository: organization + "/shop", Labels: []string{b.Pool}, Duration: duration}
			if _, err := d.world.GitHub.AddJob(job); err != nil {
				return fmt.Errorf("adding a job: %w", err)
			}
		}
		d.screen.say("+%s for %s", wording.Count(len(b.Jobs), "job"), b.Pool)
	}
	close(d.arrived)
	return nil
}

// at waits until the given fraction of the time over which jobs arrive has passed.
func (d *demo) at(ctx context.Context, part float64) error {
	return pause(ctx, d.firstJob.Add(time.Duration(part*float64(d.duration))))
}

func (d *demo) push(ctx context.Context, message string) (commit string, err error) {
	if commit, err = d.repository.push(ctx); err == nil {
		d.screen.say("git push: %s %q", commit[:7], message)
	}
	return commit, err
}

// propose commits the edits, prints the summary of the review, and pushes the commit regardless of the verdict.
func (d *demo) propose(ctx context.Context, message string) (commit string, err error) {
	if err := d.repository.commit(ctx, message); err != nil {
		return "", err
	}
	report, err := d.repository.review(ctx, d.corral, d.inForce)
	if err != nil {
		return "", err
	}
	d.screen.say("corral review: %s", report)
	return d.push(ctx, message)
}

// commitChange lowers a maximum and changes the image while jobs are running.
func (d *demo) commitChange(ctx context.Context) error {
	if err := d.at(ctx, 0.3); err != nil {
		return err
	}
	if err := d.repository.replace(maxIs(maxAtFirst), maxIs(maxLowered)); err != nil {
		return err
	}
	if err := d.repository.replace("actions-runner:latest", "actions-runner:2.331.0"); err != nil {
		return err
	}
	commit, err := d.propose(ctx, fmt.Sprintf("Lower %s to %d, pin the image", smallPool, maxLowered))
	if err != nil {
		return err
	}
	if err := d.waitApplied(ctx, commit); err != nil {
		return err
	}
	if err := d.waitAnnounced(ctx, maxLowered); err != nil {
		return err
	}
	if err := world.Until(ctx, effectLimit, d.noRunnerIsOutdated); err != nil {
		return err
	}
	d.screen.say("Runners: all have the new image; idle ones were replaced, busy ones finished")
	return nil
}

// maxIs returns linux-small's maximum as written in examples/demo.
func maxIs(n int) string { return fmt.Sprintf("scale: {min: 0, max: %d}", n) }

func (d *demo) waitApplied(ctx context.Context, commit string) error {
	began := time.Now()
	var message string
	err := world.Until(ctx, effectLimit, func(ctx context.Context) (err error) {
		message, err = d.applied(ctx, commit)
		return err
	})
	if err == nil {
		d.inForce = commit
		d.screen.say("PoolSource, after %s: %s", seconds(time.Since(began)), message)
	}
	return err
}

// waitAnnounced waits until a new maximum has been decided and announced to GitHub.
func (d *demo) waitAnnounced(ctx context.Context, maximum int) error {
	err := world.Until(ctx, effectLimit, func(ctx context.Context) error {
		p, err := d.pool(ctx, smallPool)
		if err != nil {
			return err
		}
		if p.Status.Decision == nil || int(p.Status.Decision.Announced) != maximum || d.capacity(smallPool) != maximum {
			return fmt.Errorf("%s decided %+v; GitHub heard of %d", smallPool, p.Status.Decision, d.capacity(smallPool))
		}
		return nil
	})
	if err == nil {
		d.screen.say("GitHub: now assigns at most %d jobs to %s", maximum, smallPool)
	}
	return err
}

// noRunnerIsOutdated returns an error while a pool has runners of an older template.
func (d *demo) noRunnerIsOutdated(ctx context.Context) error {
	for _, name := range []string{smallPool, largePool, warmPool, eventsPool} {
		p, err := d.pool(ctx, name)
		if err != nil {
			return err
		}
		if n := p.Status.Runners.Outdated; n > 0 {
			return fmt.Errorf("%s has %d runners with the old image", name, n)
		}
	}
	return nil
}

// commitTypo breaks the definitions; the last applied version stays in force.
func (d *demo) commitTypo(ctx context.Context) error {
	if err := d.at(ctx, 0.6); err != nil {
		return err
	}
	if err := d.repository.replace(maxIs(maxLowered), maxIs(maxRaised)+typo); err != nil {
		return err
	}
	commit, err := d.propose(ctx, fmt.Sprintf("Raise %s to %d", smallPool, maxRaised))
	if err != nil {
		return err
	}
	return d.waitRefused(ctx, commit, v1alpha1.BuildFailedReason)
}

func (d *demo) waitRefused(ctx context.Context, commit, reason string) error {
	var message string
	err := world.Until(ctx, effectLimit, func(ctx context.Context) (err error) {
		message, err = d.refused(ctx, commit, reason)
		return err
	})
	if err == nil {
		d.screen.say("PoolSource, %s: %s", reason, message)
	}
	return err
}

// fixTypo shows that jobs kept running, and fixes the definitions.
func (d *demo) fixTypo(ctx context.Context) error {
	before, _, _ := d.progress()
	if err := d.at(ctx, 0.75); err != nil {
		return err
	}
	after, _, _ := d.progress()
	d.screen.say("Jobs: %d more are done; the pools of the last good commit continue", after-before)
	if err := d.repository.replace(typo, ""); err != nil {
		return err
	}
	commit, err := d.propose(ctx, "Fix the typo")
	if err != nil {
		return err
	}
	if err := d.waitApplied(ctx, commit); err != nil {
		return err
	}
	return d.waitAnnounced(ctx, maxRaised)
}

// waitForJobs waits until the last job is done. The time limit of the demo bounds it.
func (d *demo) waitForJobs(ctx context.Context) error {
	select {
	case <-d.arrived:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := d.world.GitHub.WaitIdle(ctx); err != nil {
		_, running, waiting := d.progress()
		return fmt.Errorf("%w: %d jobs are running, %d waiting", context.Cause(ctx), running, waiting)
	}
	d.screen.say("Jobs: all %d are done", d.jobs)
	return d.measure(ctx)
}

// explore keeps everything running with --stay until the user ends the demo, and lets jobs arrive meanwhile.
func (d *demo) explore(ctx context.Context) error {
	if !d.stay {
		return nil
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		if kubectl, err = localcluster.Kubectl(ctx, d.screen); err != nil {
			return err
		}
	}
	d.explored = true
	d.screen.say(`Everything keeps running, and jobs continue to arrive for every pool. End with Ctrl-C. In another terminal:

export KUBECONFIG=%[2]s PATH=%[3]s:%[4]s:$PATH
# Show the pools, the problems, and the reason for every number:
kubectl -n %[5]s get runnerpools,runners.corral.dev
corral status -n %[5]s
corral explain pool/%[1]s -n %[5]s

# Change a pool in pools.cue, or add one (docs/getting-started.md shows how). See what the change would do, and push it.
# Corral applies it within seconds:
cd %[6]s
corral vet && corral review --base HEAD
git add --all && git commit -m "Try a change" && git push origin main

# Forbid new pods, look at corral status and corral explain again, and allow them again:
kubectl -n %[5]s create quota none --hard=pods=0
kubectl -n %[5]s delete quota none

# Delete all pods. Corral replaces the runners, and kubectl shows what happens to those that had a job:
kubectl -n %[5]s delete pods --all`,
		smallPool, d.world.Cluster.Kubeconfig(), filepath.Dir(d.corral), filepath.Dir(kubectl), namespace, d.repository.tree)
	for {
		if err := d.addExploreJobs(ctx); err != nil {
			return err
		}
		if err := pause(ctx, time.Now().Add(exploreInterval)); err != nil {
			return err
		}
	}
}

// addExploreJobs adds a job for each pool without a waiting job, including the pools that the user added.
func (d *demo) addExploreJobs(ctx context.Context) error {
	pools := &v1alpha1.RunnerPoolList{}
	if err := d.world.Client.List(ctx, pools, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	for _, labels := range withoutWaitingJob(pools.Items, d.world.GitHub.Jobs()) {
		if _, err := d.world.GitHub.AddJob(githubsim.Job{Repository: organization + "/shop", Labels: labels, Duration: exploreDuration}); err != nil {
			return fmt.Errorf("adding a job: %w", err)
		}
	}
	return nil
}

// withoutWaitingJob returns the labels of the pools for which no job waits. A job whose pod the user deleted is running
// until GitHub notices, so running jobs do not count.
func withoutWaitingJob(pools []v1alpha1.RunnerPool, jobs []githubsim.JobTimeline) [][]string {
	var missing [][]string
	for i := range pools {
		labels := pools[i].GetRunnerLabels()
		if !slices.ContainsFunc(jobs, func(j githubsim.JobTimeline) bool {
			return j.State != githubsim.JobCompleted && j.State != githubsim.JobRunning && slices.Equal(j.Labels, labels)
		}) {
			missing = append(missing, labels)
		}
	}
	return missing
}

// removePools removes the pools from the repository. Corral rejects that until a user allows it for exactly this
// commit.
func (d *demo) removePools(ctx context.Context) error {
	if _, err := d.repository.git(ctx, "rm", "--quiet", poolsFile); err != nil {
		return err
	}
	commit, err := d.propose(ctx, "Remove all pools")
	if err != nil {
		return err
	}
	if err := d.waitRefused(ctx, commit, v1alpha1.PruneRefusedReason); err != nil {
		return err
	}
	allow := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AllowPruneAnnotation, commit)
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sourceName}}
	if err := d.world.Client.Patch(ctx, source, client.RawPatch("application/merge-patch+json", []byte(allow))); err != nil {
		return fmt.Errorf("allowing the removal: %w", err)
	}
	d.screen.say("kubectl annotate poolsource %s %s=%s", sourceName, v1alpha1.AllowPruneAnnotation, commit[:7]+"…")
	return d.waitApplied(ctx, commit)
}

func (d *demo) waitUntilNothingIsLeft(ctx context.Context) error {
	err := world.Until(ctx, removalLimit, func(ctx context.Context) error {
		left, err := d.leftovers(ctx)
		if err == nil && len(left) > 0 {
			return fmt.Errorf("%d things are left, the first is %s", len(left), left[0])
		}
		return err
	})
	if err == nil {
		d.screen.say("Nothing is left: no runner, pod, Secret or scale set, here or on GitHub")
	}
	return err
}
