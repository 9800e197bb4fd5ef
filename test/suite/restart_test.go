// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// settledWorld is a namespace in which nothing changes on its own.
type settledWorld struct {
	*gitops
	running *world.Controller
	asked   int
}

// begin runs the controller as it runs in a container.
func (s *settledWorld) begin(args ...string) {
	s.T.Helper()
	c, err := s.w.RunControllerAs(s.T.Context(), "corral-0", s.w.Binary, slices.Concat(s.w.flags, args)...)
	must(s.T, err)
	s.T.Cleanup(func() {
		c.Kill()
		harness.ShowLog(s.T, c)
	})
	s.running = c
}

// each calls a function for each of Corral's objects.
func (s *settledWorld) each(ctx context.Context, do func(kind string, o kube.Object) error) error {
	for _, list := range []client.ObjectList{
		&v1alpha1.PoolSourceList{}, &v1alpha1.GitHubConnectionList{}, &v1alpha1.RunnerPolicyList{}, &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerScaleSetList{}, &v1alpha1.RunnerList{},
	} {
		if err := s.w.Client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if err := eachItem(list, func(o kube.Object) error { return do(fmt.Sprintf("%T", o), o) }); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until all sessions are open, and each object has been reconciled since.
func (s *settledWorld) settled() {
	s.T.Helper()
	s.w.listens(s.T, s.namespace, 3)
	s.asked++
	request := fmt.Sprint(s.asked)
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, request))
	must(s.T, s.each(s.T.Context(), func(_ string, o kube.Object) error { return s.w.Client.Patch(s.T.Context(), o, patch) }))
	eventually(s.T, func(ctx context.Context) error {
		return s.each(ctx, func(kind string, o kube.Object) error {
			handled := request
			switch o := o.(type) {
			case *v1alpha1.PoolSource:
				handled = o.Status.LastHandledReconcileAt
			case *v1alpha1.GitHubConnection:
				handled = o.Status.LastHandledReconcileAt
			case *v1alpha1.RunnerPolicy:
				handled = o.Status.LastHandledReconcileAt
			case *v1alpha1.RunnerPool:
				handled = o.Status.LastHandledReconcileAt
			}
			if handled != request {
				return fmt.Errorf("%s %s handled request %q, not %q", kind, o.GetName(), handled, request)
			}
			return nil
		})
	})
}

// listens waits until the given number of scale sets of a namespace have an open session on GitHub.
func (w *story) listens(t *testing.T, namespace string, n int) {
	t.Helper()
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool {
		open := 0
		for _, s := range w.GitHub.Report().ScaleSets {
			if s.SessionOwner != "" && strings.Contains(s.Scope, namespace+"-org") {
				open++
			}
		}
		return open == n
	}))
}

// reported returns the conditions of all objects, including the times of their last transitions, and all events.
func (s *settledWorld) reported() (conditions map[string][]metav1.Condition, events []string) {
	s.T.Helper()
	conditions = map[string][]metav1.Condition{}
	must(s.T, s.each(s.T.Context(), func(kind string, o kube.Object) error {
		conditions[kind+" "+o.GetName()] = o.GetConditions()
		return nil
	}))
	list := &eventsv1.EventList{}
	must(s.T, s.w.Client.List(s.T.Context(), list, client.InNamespace(s.namespace)))
	for _, e := range list.Items {
		if e.ReportingController == "corral" {
			events = append(events, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
	}
	slices.Sort(events)
	return conditions, events
}

// logged is a line of the controller's log.
type logged struct {
	Level, Msg, Message, Caller, Version, Deleted, Revision, Reason, Watches, From, To string

	Flags map[string]string
}

func (s *settledWorld) log() (lines []logged) {
	s.T.Helper()
	text, err := os.ReadFile(s.running.LogPath)
	must(s.T, err)
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		var l logged
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			s.T.Errorf("a line of the log is %q: %v", scan.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines
}

func (s *settledWorld) metrics() string {
	s.T.Helper()
	answer, err := http.Get(s.running.MetricsURL)
	must(s.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.T, err)
	return string(text)
}

// A controller that is stopped or killed and starts again changes no condition and emits no event. Its log
// contains its flags and no warnings. It names deleted objects, and follows a deleted pool until its job is over.
func TestARestartDoesNotLookLikeAnOutage(t *testing.T) {
	const namespace = "restart"
	t.Parallel()
	w := newStoryOn(t, githubsim.Options{Hold: 5 * time.Second}, "--watch-namespaces="+namespace, "--events-addr=")
	w.elect(t, "restart-lease")
	s := &settledWorld{gitops: w.newGitops(t, namespace, time.Hour)}
	s.Write("policies/limits.rego", strings.ReplaceAll(teamLimits, "60", "2"))
	commit := s.Push("A policy")
	must(t, w.Client.Create(t.Context(), newPool(namespace, "full", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = new(int32(1)) })))
	s.begin()
	s.applied(commit)
	working := s.job("full", time.Hour)
	runner := s.runnerOf(working)
	waiting := s.job("full", time.Hour)
	s.isFull()
	must(t, s.each(t.Context(), func(kind string, o kube.Object) error {
		eventually(t, func(ctx context.Context) error {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || !conditions.IsReady(o) {
				return fmt.Errorf("%s %s: %w, %+v", kind, o.GetName(), err, o.GetConditions())
			}
			return nil
		})
		return nil
	}))
	s.settled()

	for name, end := range map[string]func(*world.Controller) error{
		"stopped": (*world.Controller).Stop,
		"killed":  func(c *world.Controller) error { c.Kill(); return nil },
	} {
		before, eventsBefore := s.reported()
		must(t, end(s.running))
		s.begin()
		s.settled()
		after, eventsAfter := s.reported()
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: conditions changed (-before +after):\n%s", name, diff)
		}
		if diff := cmp.Diff(eventsBefore, eventsAfter); diff != "" {
			t.Errorf("%s: events came (-before +after):\n%s", name, diff)
		}
		s.isCalm(name)
		s.isFull()
	}
	if !w.GitHub.CancelJob(waiting) {
		t.Errorf("job %s can't be cancelled", waiting)
	}
	s.levelIsTold()
	s.deletionsAreTold(runner, working)
	w.cleanUp(t, namespace)
}

// isFull waits until the pool full reports that a job is waiting because max is reached.
func (s *settledWorld) isFull() {
	s.T.Helper()
	eventually(s.T, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := s.w.Client.Get(ctx, key(s.namespace, "full"), p); err != nil || p.Status.JobsWaiting != 1 || !conditions.IsTrue(p, v1alpha1.SaturatedCondition) {
			return fmt.Errorf("%w: %d wait, %+v", err, p.Status.JobsWaiting, p.Status.Conditions)
		}
		return nil
	})
}

// isCalm checks the log of a controller that found everything unchanged.
func (s *settledWorld) isCalm(when string) {
	s.T.Helper()
	lines := s.log()
	if l := lines[0]; l.Msg != "Starting" || l.Version == "" || l.Watches != "namespaces "+s.namespace || l.Flags["watch-namespaces"] == "" || l.Flags["events-addr"] != "(not shown)" {
		s.T.Errorf("%s: the log begins with %+v", when, l)
	}
	for _, l := range lines {
		if l.Level != "info" || strings.Contains(l.Caller, "controller-runtime") || strings.Contains(l.Caller, "client-go") {
			s.T.Errorf("%s: the log has %+v", when, l)
		}
	}
}

// levelIsTold checks that a change of the log level is logged, and that the level debug logs reconciliations.
func (s *settledWorld) levelIsTold() {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodPut, strings.TrimSuffix(s.running.MetricsURL, "metrics")+"loglevel", strings.NewReader(`{"level":"debug"}`))
	must(s.T, err)
	answer, err := http.DefaultClient.Do(request)
	must(s.T, err)
	must(s.T, answer.Body.Close())
	s.settled()
	has := map[string]bool{}
	for _, l := range s.log() {
		has[l.Level+" "+l.Msg+" "+l.From+l.To] = true
	}
	for _, want := range []string{"info Log level changed infodebug", "debug Reconciled ", "debug Seen "} {
		if !has[want] {
			s.T.Errorf("the log lacks %q", want)
		}
	}
}

var (
	instant    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	commitHash = regexp.MustCompile(`sha1:[0-9a-f]{8,40}`)
)

// deletionsAreTold removes a pool from the source, and deletes a pool whose runner has a job.
func (s *settledWorld) deletionsAreTold(runner, working string) {
	t := s.T
	t.Helper()
	s.Write("pools.cue", definitions(3, "linux", "runner:1", false))
	commit := s.Push("Remove a pool")
	s.request()
	s.applied(commit)
	must(t, s.w.Client.Delete(t.Context(), newPool(s.namespace, "full", "acme")))
	metric := fmt.Sprintf(`corral_deleted_pool_runners{namespace=%q,pool="full"} 1`, s.namespace)
	eventually(t, func(context.Context) error {
		if text := s.metrics(); !strings.Contains(text, metric) || strings.Contains(text, "2147483647") || strings.Contains(text, "2.147483647e+09") {
			return fmt.Errorf("the metrics lack %s, or have 2147483647", metric)
		}
		if text := s.w.Corral(t, "explain", "pool/full", "-n", s.namespace); !strings.HasPrefix(text, "RunnerPool restart/full is gone: deleted at ") || !strings.Contains(text, "; 1 runner finishes its job\n") {
			return fmt.Errorf("explain says %s", text)
		}
		set := &v1alpha1.RunnerScaleSet{}
		if err := s.w.Client.Get(t.Context(), key(s.namespace, "full"), set); err != nil || conditions.GetReason(set, v1alpha1.ReadyCondition) != v1alpha1.DrainingReason {
			return fmt.Errorf("%w: %+v", err, set.Status.Conditions)
		}
		return nil
	})
	_, events := s.reported()
	var told []string
	for _, e := range events {
		if strings.HasPrefix(e, corev1.EventTypeWarning) {
			t.Errorf("a Warning without trouble: %s", e)
		}
		if strings.Contains(e, " Pruned ") || strings.Contains(e, " Deleted ") || strings.Contains(e, " Draining ") {
			told = append(told, commitHash.ReplaceAllString(instant.ReplaceAllString(e, "TIME"), "sha1:COMMIT"))
		}
	}
	want := []string{
		"Normal Deleted RunnerPool/full: deleted at TIME; 1 runner finishes its job: " + runner,
		"Normal Pruned PoolSource/pools: Revision main@sha1:COMMIT removed 1 of 2 pools: RunnerPool extra",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	isLogged := slices.ContainsFunc(s.log(), func(l logged) bool {
		return l.Msg == "Deleted" && l.Deleted == "RunnerPool restart/extra" && strings.HasSuffix(l.Revision, commit) && l.Reason == "removed from the source"
	})
	if !isLogged {
		t.Error("the log doesn't name what was deleted")
	}
	if !s.w.GitHub.CancelJob(working) {
		t.Errorf("job %s can't be cancelled", working)
	}
}
