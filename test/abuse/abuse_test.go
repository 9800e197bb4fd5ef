// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package abuse treats the controller badly in every way we know, one test a way: each shows
// what a user reads then, and that other pools go on. docs/faults.md lists them all.
package abuse

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

var (
	w       *harness.World    // shared by the tests, which have namespaces and accounts of their own
	process *world.Controller // one for all tests: whatever one of them does, it serves the others
	hooks   string            // where it takes webhooks in
)

// Words of the harness.
var (
	must       = harness.Must
	eventually = harness.Eventually
	newPool    = harness.NewPool
	key        = harness.Key
)

func TestMain(m *testing.M) {
	flag.Parse()
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		must(flag.Set("test.parallel", "8")) // tests wait much and work little
	}
	options := world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}}
	os.Exit(harness.Run(m, options, func(made *harness.World) (func() error, error) {
		w = made
		var err error
		if hooks, err = world.FreeAddress(); err != nil {
			return nil, err
		}
		if process, err = w.RunController(context.Background(), w.Binary, "--webhook-addr="+hooks, "--post-status"); err != nil {
			return nil, err
		}
		beside, err := newTenant(context.Background())
		if err != nil {
			return process.Stop, err
		}
		return func() error {
			return errors.Join(beside.end(), process.Stop()) // that errs if the controller has ended before
		}, nil
	}))
}

// fixture is a test's part of the world: a namespace with the connection acme to an account of
// its own, and a bystander, a pool on another connection that must go on whatever happens.
type fixture struct {
	*testing.T
	// namespace is also the account's name.
	namespace string
	// github is where the account is.
	github *githubsim.Running
	// token is nobody else's: a GitHub may have the address of an earlier one, where an earlier fixture's scale sets are to be deleted still.
	token string
	// record of what is wrong; nil until the first look.
	record *recorder.Recorder
	looked bool // enough: it is written
}

const bystander = "bystander"

// newFixture makes the fixture of a test, which runs beside the others from here on.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return makeFixture(t, w.GitHub)
}

// newFixtureOnOwnGitHub makes a fixture whose account is on a GitHub that no other test uses, so that
// faults of its endpoints are this test's alone.
func newFixtureOnOwnGitHub(t *testing.T, options githubsim.Options) *fixture {
	t.Helper()
	t.Parallel()
	github, err := githubsim.Start(options)
	must(t, err)
	t.Cleanup(github.Close)
	return makeFixture(t, github)
}

func makeFixture(t *testing.T, github *githubsim.Running) *fixture {
	t.Helper()
	s := &fixture{T: t, namespace: kebab(strings.TrimPrefix(t.Name(), "Test")), github: github}
	s.token = world.Token + "_" + s.namespace
	github.AddToken(s.token)
	must(t, w.Connect(t.Context(), s.namespace, bystander, s.namespace+"-bystander"))
	github.AddOrg(s.namespace)
	secret := w.CredentialsSecret(s.namespace, "acme")
	secret.StringData[v1alpha1.TokenKey] = s.token
	s.create(secret)
	s.create(&v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: github.ConfigURL(s.namespace), SecretRef: &v1alpha1.LocalObjectReference{Name: "acme"}},
	})
	s.create(newPool(s.namespace, bystander, bystander))
	t.Cleanup(s.leave)
	return s
}

// look records what is wrong now, which is worth so many Warnings. Each answer names the cause.
func (s *fixture) look(cause string, warnings int, questions ...string) {
	s.Helper()
	s.watch(warnings)
	s.record.Cause = cause
	s.record.Look(strings.TrimSuffix("now: "+cause, ": "), func(context.Context) error { return nil }, questions...)
}

// watch records, when the test ends, what is wrong then and the Warnings so far, at most so many.
func (s *fixture) watch(warnings int) {
	s.Helper()
	if s.record == nil {
		s.record = s.recorder("")
		s.record.Open(s.T, w.World)
		s.Cleanup(s.lookedEnough)
	}
	s.record.Warnings += warnings
}

// checkMessages compares, when the test ends, what went wrong with all that may go wrong, and so many Warnings: for a fault that shows
// differently each time.
func (s *fixture) checkMessages(warnings int) {
	r := s.recorder(".said")
	r.Warnings = warnings
	s.Cleanup(func() {
		if !s.Failed() {
			r.Said(context.WithoutCancel(s.Context()), s.T, w.World)
		}
	})
}

func (s *fixture) recorder(suffix string) *recorder.Recorder {
	return &recorder.Recorder{
		Namespace: s.namespace, Archive: "testdata/faults.txtar", Story: strings.ReplaceAll(s.Name(), "/", "-") + suffix, LeaseNamespace: world.SystemNamespace,
		Logs: []*world.Controller{process}, Aside: bystander,
	}
}

// lookedEnough writes down what is to be seen in the end.
func (s *fixture) lookedEnough() {
	s.Helper()
	if !s.Failed() && !s.looked {
		s.looked = true
		s.record.End(context.WithoutCancel(s.Context()), "in the end")
		s.record.Close()
	}
}

// leave takes away what keeps the controller busy. Nobody waits for it.
func (s *fixture) leave() {
	ctx := context.WithoutCancel(s.Context())
	for _, kind := range []client.Object{&v1alpha1.PoolSource{}, &v1alpha1.RunnerPool{}} {
		if err := w.Client.DeleteAllOf(ctx, kind, client.InNamespace(s.namespace)); err != nil {
			s.Error(err)
		}
	}
	if s.Failed() {
		s.showLog()
	}
}

// showLog shows the last of the controller's words about the fixture.
func (s *fixture) showLog() {
	text, err := os.ReadFile(process.LogPath)
	must(s.T, err)
	var mine []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"`+s.namespace+`"`) {
			mine = append(mine, line)
		}
	}
	s.Logf("the controller's log about %s ends with:\n%s", s.namespace, strings.Join(mine[max(0, len(mine)-30):], ""))
}

// othersGoOn fails the test unless a job of the bystander's is done now.
func (s *fixture) othersGoOn() {
	s.Helper()
	harness.AllDone(s.T, w.GitHub, harness.AddJobs(s.T, w.GitHub, s.namespace+"-bystander", bystander, 1, time.Millisecond))
}

// addJobs adds jobs to the fixture's account and returns their ids.
func (s *fixture) addJobs(label string, n int, duration time.Duration) []string {
	s.Helper()
	return harness.AddJobs(s.T, s.github, s.namespace, label, n, duration)
}

// allDone waits until all jobs succeeded.
func (s *fixture) allDone(ids []string) {
	s.Helper()
	harness.AllDone(s.T, s.github, ids)
}

// memoryLimit is far above what the controller needs, and below what choking on a repository takes.
const memoryLimit = 256 << 20

// processIsWell fails the test if the controller's process has grown out of all proportion.
func (s *fixture) processIsWell() {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, process.MetricsURL, http.NoBody)
	must(s.T, err)
	answer, err := http.DefaultClient.Do(request)
	must(s.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.T, err)
	_, rest, _ := strings.Cut(string(text), "\nprocess_resident_memory_bytes ")
	var resident float64
	if _, err := fmt.Sscan(rest, &resident); err != nil {
		s.Fatalf("the controller tells no process_resident_memory_bytes: %v", err)
	}
	if resident > memoryLimit {
		s.Errorf("the controller takes %.0f MiB of memory", resident/(1<<20))
	}
}

func (s *fixture) create(obj client.Object) {
	s.Helper()
	must(s.T, w.Client.Create(s.Context(), obj))
}

// pool makes a pool on the connection acme.
func (s *fixture) pool(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.Helper()
	p := newPool(s.namespace, name, "acme", change...)
	s.create(p)
	return p
}

// connection is the one that the fixture's account is reached with.
func (s *fixture) connection() *v1alpha1.GitHubConnection {
	return &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"}}
}

// patch merges JSON into an object.
func (s *fixture) patch(obj client.Object, json string) {
	s.Helper()
	must(s.T, w.Client.Patch(s.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(json))))
}

// request asks for a reconciliation now, as `flux reconcile` does.
func (s *fixture) request(obj client.Object) {
	s.Helper()
	s.patch(obj, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, meta.ReconcileRequestAnnotation, time.Now().UnixNano()))
}

// verdict is what an object's conditions tell its owner.
type verdict struct {
	Ready           metav1.ConditionStatus
	Reason, Message string
	Stalled         bool
}

// says waits until an object's conditions tell so, word for word. Texts come in pairs: what
// can't be known beforehand, and what stands for it in the verdict. Runners are RUNNER in it.
func (s *fixture) says(obj kube.Object, want verdict, texts ...string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if diff := cmp.Diff(want, verdictOf(obj, texts...)); diff != "" {
			return fmt.Errorf("%T %s (-want +got):\n%s", obj, obj.GetName(), diff)
		}
		return nil
	})
}

// runnerName matches the names that pools give.
var runnerName = regexp.MustCompile(`\b[a-z][a-z-]*-[a-v0-9]{5}-\d+\b`)

func verdictOf(obj kube.Object, texts ...string) verdict {
	ready := conditions.Get(obj, v1alpha1.ReadyCondition)
	if ready == nil {
		return verdict{}
	}
	return verdict{
		Ready: ready.Status, Reason: ready.Reason, Message: runnerName.ReplaceAllString(strings.NewReplacer(texts...).Replace(ready.Message), "RUNNER"),
		Stalled: conditions.IsTrue(obj, v1alpha1.StalledCondition),
	}
}

// has waits until a condition has a status, a reason and, word for word, a message.
func (s *fixture) has(obj kube.Object, want metav1.Condition) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		got := conditions.Get(obj, want.Type)
		if got == nil || got.Status != want.Status || got.Reason != want.Reason || got.Message != want.Message {
			return fmt.Errorf("%T %s: %s is %+v", obj, obj.GetName(), want.Type, got)
		}
		return nil
	})
}

// ready waits until an object is.
func (s *fixture) ready(obj kube.Object) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if !conditions.IsReady(obj) || obj.GetGeneration() != conditions.Get(obj, v1alpha1.ReadyCondition).ObservedGeneration {
			return fmt.Errorf("%T %s is not ready: %+v", obj, obj.GetName(), conditions.Get(obj, v1alpha1.ReadyCondition))
		}
		return nil
	})
}

// pods lists the fixture's runner pods of a pool.
func (s *fixture) pods(ctx context.Context, pool string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := w.Client.List(ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool})
	return pods.Items, err
}

// runners lists the fixture's runners of a pool.
func (s *fixture) runners(ctx context.Context, pool string) ([]v1alpha1.Runner, error) {
	runners := &v1alpha1.RunnerList{}
	err := w.Client.List(ctx, runners, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool})
	return runners.Items, err
}

// kebab writes a test's name so that it can name a namespace.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '/' || r == '_':
			r = '-'
		case unicode.IsUpper(r) && i > 0:
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Trim(b.String()[:min(b.Len(), 40)], "-")
}
