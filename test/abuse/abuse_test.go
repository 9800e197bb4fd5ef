// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package abuse attacks the controller in every known way, with one test per fault. Each test shows what a user
// sees, and that other pools keep working. docs/faults.md lists all faults.
package abuse

import (
	"context"
	"errors"
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
	w       *harness.World    // shared by the tests, which have separate namespaces and accounts
	process *world.Controller // shared by all tests, so it must keep serving the others
	hooks   string            // address of its webhook receiver
)

// Aliases for functions of the harness.
var (
	must       = harness.Must
	eventually = harness.Eventually
	newPool    = harness.NewPool
	key        = harness.Key
)

func TestMain(m *testing.M) {
	harness.Parallel()
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
			return errors.Join(beside.end(), process.Stop()) // returns an error if the controller exited earlier
		}, nil
	}))
}

// fixture is a test's part of the world. It has a namespace with the connection acme to its own account. A bystander pool on
// another connection must keep working in every case.
type fixture struct {
	*testing.T
	// namespace is also the name of the account.
	namespace string
	// github is the simulated GitHub that has the account.
	github *githubsim.Running
	// token is unique. A simulated GitHub may reuse the address of an earlier one, while the controller still
	// deletes scale sets of an earlier fixture there.
	token string
	// record records the problems in the namespace. It is nil until the first look.
	record *recorder.Recorder
	looked bool // the recording is complete
}

const bystander = "bystander"

// newFixture creates the fixture of a test, and lets the test run in parallel with others.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return makeFixture(t, w.GitHub)
}

// newFixtureOnOwnGitHub creates a fixture with its own simulated GitHub, so that faults of its endpoints do not
// affect other tests.
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

// look records the current problems, and allows the given number of Warnings. Each answer contains the cause: a code or a
// parameter.
func (s *fixture) look(cause string, warnings int, questions ...string) {
	s.Helper()
	s.watch(warnings)
	s.record.Cause = cause
	s.record.Look("now", func(context.Context) error { return nil }, questions...)
}

// watch records the remaining problems when the test ends, and allows the given number of Warnings.
func (s *fixture) watch(warnings int) {
	s.Helper()
	if s.record == nil {
		s.record = s.recorder("")
		s.record.Open(s.T, w.World)
		s.Cleanup(s.lookedEnough)
	}
	s.record.Warnings += warnings
}

// checkMessages compares the problems at the end of the test with a list of possible ones, and allows the given
// number of Warnings. It is for faults whose symptoms vary.
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

// lookedEnough records the final state.
func (s *fixture) lookedEnough() {
	s.Helper()
	if !s.Failed() && !s.looked {
		s.looked = true
		s.record.End(context.WithoutCancel(s.Context()), "in the end")
		s.record.Close()
	}
}

// leave deletes the sources and pools, so that they do not keep the controller busy. It does not wait for the
// deletion.
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

// showLog prints the controller's last log lines about the fixture.
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

// othersGoOn fails the test unless the bystander's pool runs a job.
func (s *fixture) othersGoOn() {
	s.Helper()
	harness.AllDone(s.T, w.GitHub, harness.AddJobs(s.T, w.GitHub, s.namespace+"-bystander", bystander, 1, time.Millisecond))
}

// addJobs adds jobs to the fixture's account and returns their IDs.
func (s *fixture) addJobs(label string, n int, duration time.Duration) []string {
	s.Helper()
	return harness.AddJobs(s.T, s.github, s.namespace, label, n, duration)
}

// allDone waits until all jobs have succeeded.
func (s *fixture) allDone(ids []string) {
	s.Helper()
	harness.AllDone(s.T, s.github, ids)
}

// memoryLimit is far above the memory that the controller needs, and below what it would use if it loaded a huge
// repository.
const memoryLimit = 256 << 20

// processIsWell fails the test if the controller's memory exceeds memoryLimit.
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

// pool creates a pool on the connection acme.
func (s *fixture) pool(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.Helper()
	p := newPool(s.namespace, name, "acme", change...)
	s.create(p)
	return p
}

// connection returns the connection to the fixture's account.
func (s *fixture) connection() *v1alpha1.GitHubConnection {
	return &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"}}
}

// patch applies a JSON merge patch to an object.
func (s *fixture) patch(obj client.Object, json string) {
	s.Helper()
	must(s.T, w.Client.Patch(s.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(json))))
}

// request triggers a reconciliation, as `flux reconcile` does.
func (s *fixture) request(obj client.Object) {
	s.Helper()
	s.patch(obj, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, meta.ReconcileRequestAnnotation, time.Now().UnixNano()))
}

// verdict is what an object's conditions report to its owner.
type verdict struct {
	Ready   metav1.ConditionStatus
	Reason  string
	Stalled bool
	// Causes of the condition Ready, as recorder.Causes writes them.
	Causes string
	// Details are values in the details of the causes, such as a path or an amount.
	Details []string
}

// says waits until an object's conditions report the verdict. Texts come in pairs: a value that the test cannot know in
// advance, and its placeholder in the verdict. The placeholder of a runner's name is RUNNER.
func (s *fixture) says(obj kube.Object, want verdict, texts ...string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		got, details := verdictOf(obj, texts...)
		for _, value := range want.Details {
			if strings.Contains(details, value) {
				got.Details = append(got.Details, value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%T %s (-want +got):\n%sdetails: %s", obj, obj.GetName(), diff, details)
		}
		return nil
	})
}

// runnerName matches the names of runners.
var runnerName = regexp.MustCompile(`\b[a-z][a-z-]*-[a-v0-9]{5}-\d+\b`)

// verdictOf returns an object's verdict, and the details of the causes of its condition Ready.
func verdictOf(obj kube.Object, texts ...string) (v verdict, details string) {
	ready := conditions.Get(obj, v1alpha1.ReadyCondition)
	if ready == nil {
		return verdict{}, ""
	}
	settle := func(text string) string {
		return runnerName.ReplaceAllString(strings.NewReplacer(texts...).Replace(text), "RUNNER")
	}
	causes, details := recorder.Causes(obj, ready.Type)
	return verdict{Ready: ready.Status, Reason: ready.Reason, Stalled: conditions.IsTrue(obj, v1alpha1.StalledCondition), Causes: settle(causes)}, settle(details)
}

// has waits until a condition has a status and a reason.
func (s *fixture) has(obj kube.Object, want metav1.Condition) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		got := conditions.Get(obj, want.Type)
		if got == nil || got.Status != want.Status || got.Reason != want.Reason {
			return fmt.Errorf("%T %s: %s is %+v", obj, obj.GetName(), want.Type, got)
		}
		return nil
	})
}

// ready waits until an object is ready.
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

// pods lists a pool's runner pods in the fixture's namespace.
func (s *fixture) pods(ctx context.Context, pool string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := w.Client.List(ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool})
	return pods.Items, err
}

// runners lists a pool's runners in the fixture's namespace.
func (s *fixture) runners(ctx context.Context, pool string) ([]v1alpha1.Runner, error) {
	runners := &v1alpha1.RunnerList{}
	err := w.Client.List(ctx, runners, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool})
	return runners.Items, err
}

// kebab converts a test's name to a valid name for a namespace.
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
