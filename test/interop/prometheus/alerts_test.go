// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package prometheus evaluates the chart's alerts and dashboard queries with Prometheus's own engine, over metrics
// of a real controller while failures of every kind occur. It takes minutes; `make interop` runs it.
package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/sim/world"
)

var (
	must    = harness.Must
	newPool = harness.NewPool
)

var w *harness.World

// queue is the queue length that the simulated Prometheus reports to pools.
var queue atomic.Int32

func TestMain(m *testing.M) {
	if os.Getenv("CORRAL_INTEROP") == "" {
		fmt.Fprintln(os.Stderr, "skipped: it takes minutes; make interop runs this")
		return
	}
	os.Exit(harness.Run(m, world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}}, func(made *harness.World) (func() error, error) {
		w = made
		return nil, nil
	}))
}

// trouble is a failure that is staged in a namespace of its own.
type trouble struct {
	// begin creates the healthy state, worsen causes the failure, and recovery fixes it.
	begin, worsen, recovery func(s *fixture)
	// sign is text that appears in the metrics once the failure has occurred.
	sign string
	// alerts lists the alerts that must fire, each followed by its labels. For an alert whose entry ends in a
	// comma, the namespace label is not checked.
	alerts []string
}

// fixture is the environment of one trouble.
type fixture struct {
	*testing.T
	namespace string
	github    *githubsim.Running
	ownWorld  *world.World // a world with its own GitHub; nil if the fixture uses the shared one
	hooks     string       // address of the controller's webhook receiver
	values    map[string]any
}

func (s *fixture) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		must(s.T, w.Client.Create(s.Context(), o))
	}
}

func (s *fixture) remove(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		must(s.T, client.IgnoreNotFound(w.Client.Delete(s.Context(), o)))
	}
}

func (s *fixture) patch(o client.Object, patch string) {
	s.Helper()
	must(s.T, w.Client.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

func (s *fixture) pool(name string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	return newPool(s.namespace, name, "acme", change...)
}

func (s *fixture) jobs(label string, n int, duration time.Duration) {
	s.Helper()
	harness.AddJobs(s.T, s.github, s.namespace+"-org", label, n, duration)
}

// end cancels all unfinished jobs of the fixture.
func (s *fixture) end() {
	for _, j := range s.github.Jobs() {
		if strings.HasPrefix(j.Repository, s.namespace+"-org/") && j.Result == "" {
			s.github.CancelJob(j.ID)
		}
	}
}

// own gives the fixture its own simulated GitHub.
func (s *fixture) own(o githubsim.Options) {
	s.Helper()
	other, end, err := w.WithGitHub(o)
	must(s.T, err)
	s.Cleanup(end)
	s.ownWorld, s.github = other, other.GitHub
}

// on gives the fixture its own simulated GitHub and connects to it.
func (s *fixture) on(o githubsim.Options) {
	s.Helper()
	s.own(o)
	must(s.T, s.ownWorld.Connect(s.Context(), s.namespace, "acme", s.namespace+"-org"))
}

// connect connects the fixture to the shared simulated GitHub.
func (s *fixture) connect() {
	s.Helper()
	must(s.T, w.Connect(s.Context(), s.namespace, "acme", s.namespace+"-org"))
}

// inject makes the fixture's pods fail until clear is called.
func (s *fixture) inject(kind nodeplay.FaultKind) {
	s.values["clear"] = w.Node.Inject(nodeplay.Fault{Kind: kind, Namespace: s.namespace})
}

func (s *fixture) clear() { s.values["clear"].(func())() }

func setMax(n int32) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = &n }
}

func setIdle(n int32) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = &n }
}

// policy returns a RunnerPolicy with one module.
func (s *fixture) policy(module string) *v1alpha1.RunnerPolicy {
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "own"}}
	p.Spec.Modules = map[string]string{"own.rego": "package corral.scaling\n\n" + module}
	return p
}

func (s *fixture) source(url string) *v1alpha1.PoolSource {
	return &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pools"},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: url}, Interval: metav1.Duration{Duration: 2 * time.Second}},
	}
}

// call uses up one request of the identity's hourly budget, as another client of the same identity would.
func (s *fixture) call() {
	base := strings.TrimSuffix(s.github.ConfigURL(s.namespace+"-org"), "/"+s.namespace+"-org")
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, base+"/api/v3/orgs/"+s.namespace+"-org/actions/runners", http.NoBody)
	must(s.T, err)
	r.Header.Set("Authorization", "Bearer "+world.Token)
	answer, err := http.DefaultClient.Do(r)
	must(s.T, err)
	must(s.T, answer.Body.Close())
}

// post sends a webhook with an invalid signature.
func (s *fixture) post() {
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, world.WebhookURL(s.hooks, s.namespace, "acme"), strings.NewReader(`{"action":"queued"}`))
	must(s.T, err)
	r.Header.Set("X-GitHub-Event", "workflow_job")
	r.Header.Set("X-GitHub-Delivery", "forged")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
	answer, err := http.DefaultClient.Do(r)
	must(s.T, err)
	must(s.T, answer.Body.Close())
}

const definition = "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\npools: declared: spec: {\n\tconnectionRef: name: \"acme\"\n\tscale: max: 2\n\trunnerLabels: [\"declared\"]\n\ttemplate: spec: containers: [{name: \"runner\", image: \"runner:1\"}]\n}\n"

// troubles contains a failure for every alert, by namespace.
var troubles = map[string]trouble{
	"full": {
		begin:    func(s *fixture) { s.connect(); s.create(s.pool("linux", setMax(1))) },
		worsen:   func(s *fixture) { s.jobs("linux", 4, time.Hour) },
		recovery: (*fixture).end,
		sign:     `corral_pool_saturated{namespace="full",pool="linux"} 1`,
		alerts:   []string{"CorralPoolFull"},
	},
	"waits": {
		begin:    func(s *fixture) { s.connect(); s.create(s.pool("linux")) },
		worsen:   func(s *fixture) { s.inject(nodeplay.Unschedulable); s.jobs("linux", 2, time.Millisecond) },
		recovery: (*fixture).clear,
		sign:     `corral_pool_jobs{namespace="waits",pool="linux"} 2`,
		alerts:   []string{"CorralJobsWait"},
	},
	"suspended": {
		begin: func(s *fixture) { s.connect(); s.create(s.pool("linux")) },
		worsen: func(s *fixture) { // jobs then wait intentionally
			s.patch(s.pool("linux"), `{"spec":{"stopPolicy":"Drain"}}`)
			must(s.T, s.github.WaitUntil(s.Context(), func() bool {
				return slices.ContainsFunc(s.github.Report().ScaleSets, func(set githubsim.ScaleSetReport) bool {
					return set.Scope == "orgs/"+s.namespace+"-org" && set.Capacity == 0
				})
			}))
			s.jobs("linux", 2, time.Millisecond)
		},
		recovery: func(s *fixture) { s.patch(s.pool("linux"), `{"spec":{"stopPolicy":"None"}}`) },
		sign:     `corral_pool_jobs_waiting{namespace="suspended",pool="linux"} 2`, // as of a check of the scale set in the past five minutes
		alerts:   []string{"CorralPoolTakesNoJobs"},
	},
	"fails": {
		begin:    func(s *fixture) { s.connect(); s.create(s.pool("linux")) },
		worsen:   func(s *fixture) { s.inject(nodeplay.CrashBeforeConnecting); s.jobs("linux", 1, time.Millisecond) },
		recovery: (*fixture).clear,
		sign:     `corral_pool_healthy{namespace="fails",pool="linux"} 0`,
		alerts:   []string{"CorralJobsWait", "CorralRunnersFail"},
	},
	"queue": {
		begin: func(s *fixture) {
			s.connect()
			s.create(s.pool("linux", func(p *v1alpha1.RunnerPool) {
				p.Spec.Demand.Metrics = []v1alpha1.MetricSource{{Name: "queue", Interval: &metav1.Duration{Duration: 10 * time.Second}, Prometheus: &v1alpha1.PrometheusMetric{Server: "main", Query: "queue"}}}
			}))
		},
		worsen:   func(s *fixture) { s.inject(nodeplay.CrashBeforeConnecting); queue.Store(2) },
		recovery: (*fixture).clear,
		sign:     `corral_pool_healthy{namespace="queue",pool="linux"} 0`,
		alerts:   []string{"CorralJobsWait", "CorralRunnersFail"},
	},
	"old": {
		begin: func(s *fixture) {
			published := time.Now().Add(-20 * 24 * time.Hour)
			s.on(githubsim.Options{SessionExpiry: 3 * time.Second, RunnerVersion: "2.330.0", Releases: []githubsim.Release{
				{Version: "2.331.0", Published: published}, {Version: "2.330.0", Published: published.Add(-24 * time.Hour)},
			}})
		},
		worsen:   func(s *fixture) { s.create(s.pool("linux", setIdle(1))) },
		recovery: func(s *fixture) { s.remove(s.pool("linux")) },
		sign:     `corral_pool_runner_update_by_timestamp_seconds{namespace="old",pool="linux",version="2.330.0"}`,
		alerts:   []string{"CorralRunnerOutdated"},
	},
	"broken": {
		begin:    func(s *fixture) { s.connect() },
		worsen:   func(s *fixture) { s.create(s.policy("limit contains {")) },
		recovery: func(s *fixture) { s.remove(s.policy("")) },
		sign:     `corral_policies{kind="RunnerPolicy",state="broken"} 1`,
		alerts:   []string{"CorralPoliciesUnready kind=RunnerPolicy,"},
	},
	"undecided": {
		begin: func(s *fixture) {
			s.connect()
			s.create(s.policy("limit contains {\"field\": \"max\", \"atMost\": 8, \"reason\": \"for now\"}\n"), s.pool("linux"))
		},
		worsen: func(s *fixture) {
			s.patch(s.policy(""), `{"spec":{"modules":{"own.rego":"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": n, \"reason\": \"for now\"} if n := to_number(input.pool.name)\n"}}}`)
			s.jobs("linux", 1, time.Millisecond)
		},
		recovery: func(s *fixture) { s.remove(s.policy("")) },
		sign:     `corral_policy_decisions_total{decision="scaling",outcome="failed"}`,
		alerts:   []string{"CorralPolicyDecisionsFail decision=scaling,"},
	},
	"undeclared": {
		begin: func(s *fixture) {
			s.connect()
			r := harness.NewRepository(s.T)
			s.values["repository"] = r
			r.Write("pools.cue", definition)
			r.Push("A pool")
			s.create(s.source(r.URL()))
		},
		worsen: func(s *fixture) {
			r := s.values["repository"].(*harness.Repository)
			r.Write("pools.cue", strings.Replace(definition, "max: 2", "max: -2", 1))
			r.Push("A negative max")
		},
		recovery: func(s *fixture) {
			r := s.values["repository"].(*harness.Repository)
			r.Write("pools.cue", definition)
			r.Push("A pool again")
		},
		sign:   `corral_source_ready{namespace="undeclared",reason="BuildFailed",source="pools"} 0`,
		alerts: []string{"CorralSourceUnready"},
	},
	"refused": {
		begin: func(s *fixture) {
			s.on(githubsim.Options{SessionExpiry: 3 * time.Second})
			for i := range 8 {
				s.create(s.pool(fmt.Sprintf("linux-%d", i)))
			}
		},
		worsen: func(s *fixture) {
			s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusInternalServerError})
		},
		recovery: func(s *fixture) { s.github.ClearFaults() },
		sign:     `corral_github_requests_total{code="500",endpoint="message_poll"}`,
		alerts:   []string{"CorralGitHubRefuses code=500 endpoint=message_poll,"},
	},
	"spent": {
		begin: func(*fixture) {},
		worsen: func(s *fixture) {
			later := new(atomic.Int64)
			s.values["later"] = later
			s.own(githubsim.Options{RateLimit: 560, Clock: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
			s.github.AddOrg(s.namespace + "-org")
			for range 100 {
				s.call()
			}
			must(s.T, s.ownWorld.Connect(s.Context(), s.namespace, "acme", s.namespace+"-org"))
		},
		recovery: func(s *fixture) { // an hour later, with a reverified connection
			s.values["later"].(*atomic.Int64).Store(int64(2 * time.Hour))
			c := &v1alpha1.GitHubConnection{}
			must(s.T, w.Client.Get(s.Context(), harness.Key(s.namespace, "acme"), c))
			s.remove(c)
			time.Sleep(3 * time.Second)
			s.create(&v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"}, Spec: c.Spec})
		},
		sign:   `corral_github_rest_remaining{connection="spent/acme"} 4`,
		alerts: []string{"CorralGitHubBudgetLow connection=spent/acme,"},
	},
	"contested": {
		begin: func(s *fixture) {
			s.on(githubsim.Options{SessionExpiry: time.Hour})
			s.create(s.pool("linux"))
		},
		worsen:   func(s *fixture) { s.github.StealSession(s.github.Report().ScaleSets[0].ID, "another/pool") },
		recovery: func(s *fixture) { s.github.ExpireSession(s.github.Report().ScaleSets[0].ID) },
		sign:     `corral_github_sessions_total{result="conflict"}`,
		alerts:   []string{"CorralSessionsContested,"},
	},
	"left": {
		begin: func(s *fixture) { s.on(githubsim.Options{}); s.create(s.pool("linux")) },
		worsen: func(s *fixture) {
			s.github.RevokeToken(world.Token)
			s.github.ExpireAdminTokens() // which the connection could otherwise keep using
			for _, e := range []githubsim.Endpoint{githubsim.EndpointGetMessage, githubsim.EndpointRefreshSession, githubsim.EndpointCreateSession} {
				s.github.AddFault(githubsim.Fault{Endpoint: e, Status: http.StatusUnauthorized})
			}
			s.remove(s.pool("linux"))
		},
		recovery: func(*fixture) {},
		sign:     "corral_orphaned_scale_sets_total 1",
		alerts:   []string{"CorralOrphanedOnGitHub,", "CorralGitHubRefuses code=401 endpoint=registration_token,"},
	},
	"forged": {
		begin: func(s *fixture) {
			_, err := w.ConnectHook(s.Context(), s.namespace, "acme", s.namespace+"-org", s.hooks)
			must(s.T, err)
			s.create(s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Webhook = &v1alpha1.WebhookDemand{} }))
			s.jobs("linux", 2, time.Millisecond)
		},
		worsen:   (*fixture).post,
		recovery: func(s *fixture) { s.jobs("linux", 2, time.Millisecond) },
		sign:     `corral_webhook_requests_total{result="forged"}`,
		alerts:   []string{"CorralWebhooksForged,"},
	},
}

// evaluated is the engine's answer. Both tests share it.
type evaluated struct {
	Alerts []firing
	Values []int
	Errors []string
}

type firing struct {
	Alert    string
	Labels   map[string]string
	From, To float64
	Resolved bool
}

// phase is part of a request to the engine, which continues counters at the rate that it observed between the
// first and last scrape.
type phase struct {
	Minutes int
	Seconds float64
	First   string
	Scrapes []string
}

// Simulated duration of each phase in minutes. Each is longer than any alert's "for" duration and look-back
// window.
const (
	goodMinutes      = 30
	badMinutes       = 100
	recoveredMinutes = 120
	downMinutes      = 20
)

// Each alert fires during its own failure, never during another one or in the healthy state, and resolves
// afterwards. Every dashboard query returns data.
func TestEveryAlertFiresAndEveryQueryHasData(t *testing.T) {
	queries, names := queriesOfTheDashboard(t)
	main, slow := play(t)
	got := evaluate(t, queries, main)
	behind := evaluate(t, nil, slow)
	for _, err := range slices.Concat(got.Errors, behind.Errors) {
		t.Error(err)
	}
	for i, n := range got.Values {
		if n == 0 {
			t.Errorf("the dashboard's query has no data: %s: %s", names[i], queries[i])
		}
	}
	want := map[string]bool{"CorralNoLeader": true}
	for namespace, x := range troubles {
		for _, alert := range x.alerts {
			if _, without := strings.CutSuffix(alert, ","); !without {
				alert += " namespace=" + namespace
			}
			want[strings.TrimSuffix(alert, ",")] = true
		}
	}
	fired := map[string]bool{}
	for _, a := range got.Alerts {
		name := a.Alert
		for _, label := range []string{"call", "code", "connection", "decision", "endpoint", "kind", "namespace"} {
			if v := a.Labels[label]; v != "" {
				name += " " + label + "=" + v
			}
		}
		fired[name] = true
		if a.From < goodMinutes {
			t.Errorf("%s fires at minute %v, in the healthy state", name, a.From)
		}
		if limit := float64(goodMinutes + badMinutes + recoveredMinutes); !a.Resolved && a.Alert != "CorralNoLeader" || a.Alert == "CorralNoLeader" && a.From < limit {
			t.Errorf("%s fires from minute %v to %v: it did not resolve", name, a.From, a.To)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(fired))); diff != "" {
		t.Errorf("alerts that fired (-want +got):\n%s", diff)
	}
	if len(behind.Alerts) == 0 || !slices.ContainsFunc(behind.Alerts, isBehind) {
		t.Errorf("no alert fired for a controller with one worker that is behind: %+v", behind.Alerts)
	}
	for _, a := range behind.Alerts {
		if a.Alert == "CorralControllerBehind" && !a.Resolved {
			t.Errorf("%+v did not resolve", a)
		}
	}
}

func isBehind(a firing) bool { return a.Alert == "CorralControllerBehind" }

// queriesOfTheDashboard returns the queries that Grafana sends for all namespaces and pools, and the titles of
// their panels.
func queriesOfTheDashboard(t *testing.T) (queries, titles []string) {
	t.Helper()
	text, err := os.ReadFile("../../../charts/corral/files/dashboard.json")
	must(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &board))
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries = append(queries, strings.NewReplacer("$namespace", ".*", "$pool", ".*", "$__rate_interval", "5m").Replace(target.Expr))
			titles = append(titles, p.Title)
		}
	}
	if len(queries) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return queries, titles
}

// evaluate has Prometheus's engine evaluate the chart's alerts and the given queries.
func evaluate(t *testing.T, queries []string, phases []phase) evaluated {
	t.Helper()
	rules, err := os.ReadFile("../../../charts/corral/files/alerts.yaml")
	must(t, err)
	request, err := json.Marshal(map[string]any{"Rules": string(rules), "Queries": queries, "Begin": time.Now(), "Phases": phases})
	must(t, err)
	if folder := os.Getenv("CORRAL_INTEROP_KEEP"); folder != "" {
		must(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("request-%d.json", len(queries))), request, 0o600))
	}
	engine := exec.CommandContext(t.Context(), "go", "run", ".")
	engine.Dir, engine.Stdin, engine.Stderr = "engine", bytes.NewReader(request), os.Stderr
	answer, err := engine.Output()
	must(t, err)
	var e evaluated
	must(t, json.Unmarshal(answer, &e))
	return e
}

// scrape returns a controller's metrics.
func scrape(t *testing.T, c *world.Controller) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.MetricsURL, http.NoBody)
	must(t, err)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(text)
}

// recording is a phase that is still being scraped.
type recording struct {
	*testing.T
	controller *world.Controller
	began      time.Time
	first      string
}

func record(t *testing.T, c *world.Controller) *recording {
	return &recording{t, c, time.Now(), scrape(t, c)}
}

// end scrapes for 20 seconds, and returns the phase.
func (r *recording) end(minutes int) phase {
	p := phase{Minutes: minutes, First: r.first}
	for range 10 {
		time.Sleep(2 * time.Second)
		p.Scrapes = append(p.Scrapes, scrape(r.T, r.controller))
	}
	p.Seconds = time.Since(r.began).Seconds()
	return p
}

// shows waits until the metrics contain a line, or no longer contain it.
func shows(t *testing.T, c *world.Controller, line string, want bool) {
	t.Helper()
	err := world.Until(t.Context(), 8*time.Minute, func(context.Context) error {
		if strings.Contains(scrape(t, c), line) != want {
			return fmt.Errorf("the metrics contain %s: want %t", line, want)
		}
		return nil
	})
	must(t, err)
}

// play stages all failures. It returns the phases of the controller that handles them, and of a second controller
// with too few workers.
func play(t *testing.T) (main, slow []phase) {
	t.Helper()
	prometheus := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(rw, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,"%d"]}]}}`, time.Now().Unix(), queue.Load())
	}))
	t.Cleanup(prometheus.Close)
	hooks, err := world.FreeAddress()
	must(t, err)
	if os.Getenv("QUICK") != "" {
		delete(troubles, "left")
	}
	namespaces := slices.Sorted(maps.Keys(troubles))
	c := w.Controller(t, "--webhook-addr="+hooks, "--prometheus-server=main="+prometheus.URL, "--watch-namespaces="+strings.Join(namespaces, ","), "--job-metric-labels=repository,workflow")
	b := newBacklog(t)
	fixtures := map[string]*fixture{}
	for _, namespace := range namespaces {
		s := &fixture{T: t, namespace: namespace, github: w.GitHub, hooks: hooks, values: map[string]any{}}
		fixtures[namespace] = s
		troubles[namespace].begin(s)
	}
	pools := 18
	if os.Getenv("QUICK") != "" {
		pools = 17
	}
	shows(t, c, `corral_source_ready{namespace="undeclared",reason="Succeeded",source="pools"} 1`, true)
	shows(t, c, `corral_objects{kind="RunnerPool",reason="Succeeded",status="True"} `+strconv.Itoa(pools), true)
	shows(t, c, `corral_workflow_jobs_started_total{namespace="forged"`, true)
	main = append(main, record(t, c).end(goodMinutes))
	slow = append(slow, record(t, b.controller).end(goodMinutes))

	bad, late := record(t, c), record(t, b.controller)
	b.grow()
	for _, namespace := range namespaces {
		troubles[namespace].worsen(fixtures[namespace])
	}
	for _, namespace := range namespaces {
		shows(t, c, troubles[namespace].sign, true)
		t.Logf("the failure in %s is visible after %s", namespace, time.Since(bad.began).Round(time.Second))
	}
	main, slow = append(main, bad.end(badMinutes)), append(slow, late.end(badMinutes))

	b.shrink()
	for _, namespace := range namespaces {
		troubles[namespace].recovery(fixtures[namespace])
	}
	for _, gauge := range []string{
		troubles["full"].sign, troubles["suspended"].sign, troubles["fails"].sign, troubles["queue"].sign, troubles["old"].sign, troubles["broken"].sign,
		troubles["undeclared"].sign, troubles["spent"].sign, `corral_pool_jobs{namespace="waits",pool="linux"} 2`, `corral_pool_jobs{namespace="waits",pool="linux"} 1`,
	} {
		shows(t, c, gauge, false)
	}
	time.Sleep(35 * time.Second) // the longest back-off after a rejected request
	main, slow = append(main, record(t, c).end(recoveredMinutes)), append(slow, record(t, b.controller).end(recoveredMinutes))
	return append(main, phase{Minutes: downMinutes}), slow
}

// backlog is a controller with one worker per kind, and sources whose server never answers and so keep that worker
// busy.
type backlog struct {
	*fixture
	controller *world.Controller
	port       int
}

func newBacklog(t *testing.T) *backlog {
	t.Helper()
	l, err := net.Listen("tcp4", ":0")
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	const namespace = "behind"
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace))
	c := w.Controller(t, "--watch-namespaces="+namespace, "--leader-elect=false", "--concurrent=1")
	return &backlog{&fixture{T: t, namespace: namespace}, c, l.Addr().(*net.TCPAddr).Port}
}

func (b *backlog) sources() []client.Object {
	var all []client.Object
	for i := range 20 { // the worker waits 10 s for each
		s := b.source(fmt.Sprintf("https://127.0.0.%d:%d/pools.git", i+1, b.port)) // each has its own address, because Corral sends few requests to a server that is known not to answer
		s.Name = fmt.Sprintf("pools-%d", i)
		all = append(all, s)
	}
	return all
}

func (b *backlog) grow()   { b.create(b.sources()...) }
func (b *backlog) shrink() { b.remove(b.sources()...) }
