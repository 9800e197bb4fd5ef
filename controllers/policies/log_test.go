// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// paper is the output of a decision log.
type paper struct {
	mu    sync.Mutex
	lines []string
	wait  chan struct{} // closed when writing may start; nil for at once
}

func (p *paper) Write(line []byte) (int, error) {
	if p.wait != nil {
		<-p.wait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}

// logged makes an engine log its decisions.
func logged(e *Engine, sample int, on io.Writer) {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(on), zapcore.InfoLevel)
	e.Log = NewDecisionLog(zapr.NewLogger(zap.New(core)).WithName("decision"), sample)
}

// read waits until everything is written, and returns it.
func (p *paper) read(t *testing.T, l *DecisionLog) []map[string]any {
	t.Helper()
	for busy := true; busy; {
		l.mu.Lock()
		busy = l.busy
		l.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var events []map[string]any
	for _, line := range p.lines {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events
}

// limits returns a policy with one rule.
func limits(rule string) policy.Source {
	return policy.Source{
		Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "limits",
		Modules: map[string]string{"l.rego": "package corral.scaling\n\n" + rule + "\n"},
	}
}

const notAbove = `limit contains {"field": "max", "atMost": 7, "reason": "seven"} if input.jobs > 2`

func TestDecisionsAreLoggedWhenTheyChange(t *testing.T) {
	for sample, want := range map[int][]string{
		0: {"allowed", "bounded", "allowed"},
		2: {"allowed", "allowed", "bounded", "bounded", "allowed"},
	} {
		t.Run(fmt.Sprintf("sample %d", sample), func(t *testing.T) {
			e, p := newEngine(), &paper{}
			logged(e, sample, p)
			pool := facts("ci", "linux", "acme", nil)
			pool.Scale.Max = 10
			ask(e, pool, 1, 0) // no policy: nothing to log
			put(t, e, limits(notAbove))
			for _, jobs := range []int32{0, 1, 2, 3, 4, 5, 1} {
				ask(e, pool, jobs, 0)
			}
			var got []string
			for _, event := range p.read(t, e.Log) {
				got = append(got, event["result"].(map[string]any)["outcome"].(string))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			e.Forget(keyOf(pool), 0)
			if len(e.Log.last) != 0 {
				t.Error("a pool that is gone is remembered")
			}
		})
	}
}

func TestThatNoPolicyHasASayIsNews(t *testing.T) {
	e, p := newEngine(), &paper{}
	logged(e, 0, p)
	other := limits("")
	other.Modules = map[string]string{"t.rego": "package corral.template\n\ndeny contains \"no\" if input.pod.spec.hostNetwork\n"}
	pool := facts("ci", "linux", "acme", nil)
	pool.Scale.Max = 10
	put(t, e, other)
	ask(e, pool, 3, 0)
	if events := p.read(t, e.Log); len(events) != 0 {
		t.Errorf("logged although nobody has a say: %v", events)
	}
	put(t, e, limits(notAbove))
	ask(e, pool, 3, 0)
	put(t, e, other)
	ask(e, pool, 3, 0)
	if events := p.read(t, e.Log); len(events) != 2 || events[1]["result"].(map[string]any)["outcome"] != "abstained" {
		t.Errorf("logged are %v", events)
	}
}

func TestALoggedDecisionHasTheFieldsOfOPA(t *testing.T) {
	e, p := newEngine(), &paper{}
	logged(e, 0, p)
	put(t, e, limits(notAbove))
	pool := facts("ci", "linux", "acme", nil)
	pool.Annotations = map[string]string{"example.com/token": "hush"}
	ask(e, pool, 3, 0)
	event := p.read(t, e.Log)[0]
	want := []string{"bundles", "decision_id", "erased", "input", "labels", "level", "logger", "masked", "metrics", "msg", "path", "result", "timestamp", "ts"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(event))); diff != "" {
		t.Error(diff)
	}
	loaded := e.Loaded("RunnerPolicy/ci/limits")
	for field, want := range map[string]any{
		"logger": "decision", "path": "corral/scaling", "timestamp": "2027-01-15T08:00:00Z",
		"labels":  map[string]any{"app": "corral", "namespace": "ci", "pool": "linux"},
		"bundles": map[string]any{"RunnerPolicy/ci/limits": map[string]any{"revision": loaded.Digest(), "mode": "Enforce"}},
		"masked":  []any{"/input/pool/annotations/example.com~1token"}, "erased": []any{},
	} {
		if diff := cmp.Diff(want, event[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	if event["decision_id"] == "" || event["input"].(map[string]any)["jobs"] != 3.0 {
		t.Errorf("decision %v on %v", event["decision_id"], event["input"])
	}
	if strings.Contains(p.lines[0], "hush") {
		t.Error("an annotation's value is written")
	}
	if pool.Annotations["example.com/token"] != "hush" {
		t.Error("what is logged is changed")
	}
}

func TestALoggedPodHasNoValues(t *testing.T) {
	e, p := newEngine(), &paper{}
	logged(e, 0, p)
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "guard", Modules: map[string]string{
		"t.rego": "package corral.template\n\ndeny contains \"no\" if input.pod.spec.hostNetwork\n",
	}})
	pool := &v1alpha1.RunnerPool{}
	pool.Namespace, pool.Name = "ci", "linux"
	template := []byte(`{"metadata": {"annotations": {"a": "hush"}}, "spec": {
		"containers": [{"name": "runner", "image": "r:1", "env": [{"name": "A", "value": "hush"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
		"initContainers": [{"name": "side", "image": "s:1", "env": [{"name": "C", "value": "hush"}]}]}}`)
	pool.Spec.Template = runtime.RawExtension{Raw: template}
	for range 2 {
		if _, err := e.Permit(t.Context(), pool, "linux-1", template, podspec.Network{}); err != nil {
			t.Fatal(err)
		}
	}
	events := p.read(t, e.Log)
	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	want := []any{"/input/pod/metadata/annotations/a", "/input/pod/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict", "/input/pod/metadata/annotations/corral.dev~1runner-uid",
		"/input/pod/spec/containers/0/env/0/value", "/input/pod/spec/containers/0/env/3/value", "/input/pod/spec/initContainers/0/env/0/value"}
	if diff := cmp.Diff(want, events[0]["masked"]); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(p.lines[0], "hush") || events[0]["path"] != "corral/template" || events[0]["labels"].(map[string]any)["revision"] != "linux-1" {
		t.Errorf("written is %s", p.lines[0])
	}
}

func TestLargeGroupsAreLeftOut(t *testing.T) {
	many := policy.Group{Members: make([]policy.Member, maxLoggedMembers+1)}
	few := policy.Group{Members: make([]policy.Member, 2)}
	in := policy.Usage{All: many, Namespace: few, Labels: map[string]policy.Group{"team/a": many, "b": few}}
	var r redaction
	out := in
	r.usage(&out)
	slices.Sort(r.erased)
	if diff := cmp.Diff([]string{"/input/usage/all/members", "/input/usage/labels/team~1a/members"}, r.erased); diff != "" {
		t.Error(diff)
	}
	if out.All.Members != nil || len(out.Namespace.Members) != 2 || len(out.Labels["b"].Members) != 2 || in.Labels["team/a"].Members == nil {
		t.Errorf("usage %+v", out)
	}
}

func TestNobodyWaitsForTheDecisionLog(t *testing.T) {
	e, p := newEngine(), &paper{wait: make(chan struct{})}
	logged(e, 0, p)
	put(t, e, limits(notAbove))
	before := testutil.ToFloat64(unloggedTotal)
	const decisions = 3 * maxQueued
	pool := facts("ci", "linux", "acme", nil)
	pool.Scale.Max = 10
	for i := range decisions {
		ask(e, pool, int32(i%2)*5, 0)
	}
	close(p.wait)
	written, lost := len(p.read(t, e.Log)), testutil.ToFloat64(unloggedTotal)-before
	if lost == 0 || written+int(lost) != decisions {
		t.Errorf("%d written and %v lost of %d", written, lost, decisions)
	}
}

// However many decisions there are about one namespace's pools, decisions about another namespace's are written, taking
// turns with them.
func TestLoggedDecisionsLeaveRoomForOthers(t *testing.T) {
	p := &paper{wait: make(chan struct{})}
	e := newEngine()
	logged(e, 0, p)
	add := func(namespace string, n int) {
		for range n {
			e.Log.add(&decisionEvent{decision: "scaling", labels: map[string]string{"namespace": namespace}})
		}
	}
	for tenant := range 5 { // four of them could use all places
		add(fmt.Sprint("greedy-", tenant), maxQueued)
	}
	before := testutil.ToFloat64(unloggedTotal)
	add("ci", 100)
	if got := testutil.ToFloat64(unloggedTotal) - before; got > 101 { // one event of another namespace makes room for each
		t.Errorf("%v are left out", got)
	}
	close(p.wait)
	written, last := 0, 0
	for i, event := range p.read(t, e.Log) {
		if event["labels"].(map[string]any)["namespace"] == "ci" {
			written, last = written+1, i
		}
	}
	if written != 100 || last > 7*100 {
		t.Errorf("of 100, %d are written, the last one as number %d", written, last)
	}
}

func TestDecisionsAreCounted(t *testing.T) {
	decisionsTotal.Reset()
	evaluationSeconds.Reset()
	policiesGauge.Reset()
	e := newEngine()
	pool := facts("ci", "linux", "acme", nil)
	pool.Scale.Max = 10
	ask(e, pool, 1, 0)
	put(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "other", Modules: map[string]string{"t.rego": "package corral.template\n\ndeny contains \"no\" if input.pod.spec.hostNetwork\n"}})
	ask(e, pool, 1, 0)
	put(t, e, limits(notAbove))
	ask(e, pool, 1, 0)
	ask(e, pool, 3, 0)
	broken := limits("")
	e.Put(policy.Broken(broken, []v1alpha1.Diagnostic{{Message: "no"}}), broken)
	ask(e, pool, 3, 0)
	registry := prometheus.NewRegistry()
	registry.MustRegister(Collectors()...)
	want := `# HELP corral_policies Policies in force, by state.
# TYPE corral_policies gauge
corral_policies{kind="ClusterRunnerPolicy",state="broken"} 0
corral_policies{kind="ClusterRunnerPolicy",state="quarantined"} 0
corral_policies{kind="ClusterRunnerPolicy",state="ready"} 1
corral_policies{kind="RunnerPolicy",state="broken"} 1
corral_policies{kind="RunnerPolicy",state="quarantined"} 0
corral_policies{kind="RunnerPolicy",state="ready"} 0
# HELP corral_policy_decisions_total Decisions of policies, by outcome.
# TYPE corral_policy_decisions_total counter
corral_policy_decisions_total{decision="scaling",outcome="abstained"} 1
corral_policy_decisions_total{decision="scaling",outcome="allowed"} 1
corral_policy_decisions_total{decision="scaling",outcome="bounded"} 1
corral_policy_decisions_total{decision="scaling",outcome="failed"} 1
corral_policy_decisions_total{decision="template",outcome="abstained"} 0
corral_policy_decisions_total{decision="template",outcome="allowed"} 0
corral_policy_decisions_total{decision="template",outcome="denied"} 0
corral_policy_decisions_total{decision="template",outcome="failed"} 0
corral_policy_decisions_total{decision="update",outcome="abstained"} 0
corral_policy_decisions_total{decision="update",outcome="allowed"} 0
corral_policy_decisions_total{decision="update",outcome="bounded"} 0
corral_policy_decisions_total{decision="update",outcome="failed"} 0
corral_policy_decisions_total{decision="update",outcome="held"} 0
`
	if err := testutil.GatherAndCompare(registry, bytes.NewReader([]byte(want)), "corral_policies", "corral_policy_decisions_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(evaluationSeconds); n != 1 {
		t.Errorf("%d series of evaluations", n)
	}
}
