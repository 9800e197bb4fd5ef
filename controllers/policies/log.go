// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/share"
)

const (
	// maxQueued is the maximum number of decisions that wait to be written. At most a quarter of them are from one
	// namespace. If the queue is full, decisions are dropped.
	maxQueued = 1024
	// maxLoggedMembers is the maximum number of members of a group that are written. Larger groups are written without
	// members.
	maxLoggedMembers = 32
	// maxSubjects is the maximum number of outcomes that are remembered for a pool: one for each decision and revision.
	maxSubjects = 16
	// mask replaces values that are not written.
	mask = "**REDACTED**"
)

// DecisionLog writes decisions with the fields of OPA's decision log: decisions whose outcome differs from the previous
// one for the same pool, and a sample of the others. A decision never waits for the log: if the log is too slow, it
// drops decisions and counts them in a metric.
type DecisionLog struct {
	logger logr.Logger
	sample int

	mu    sync.Mutex
	last  map[types.NamespacedName]map[string]uint64 // hash of the outcome by decision and revision
	same  int                                        // number of decisions since the last sampled one
	queue *share.Map[*decisionEvent, struct{}]
	busy  bool // a goroutine is writing
}

// NewDecisionLog returns a log of the decisions whose outcome changed, and of every sample-th of the others. If sample
// is 0, it logs none of the others.
func NewDecisionLog(logger logr.Logger, sample int) *DecisionLog {
	return &DecisionLog{
		logger: logger, sample: sample, last: map[types.NamespacedName]map[string]uint64{},
		queue: share.New[*decisionEvent, struct{}](maxQueued, func(string, *decisionEvent) { unloggedTotal.Inc() }),
	}
}

// decisionEvent is a line of the log. Expensive work, such as redaction, is delayed until the line is written.
type decisionEvent struct {
	id       string
	decision string
	labels   map[string]string
	bundles  map[string]bundle
	input    any // ScalingInput, TemplateInput or UpdateInput
	result   json.RawMessage
	at       time.Time // when the evaluation began
	took     time.Duration
}

// bundle is a policy that was evaluated.
type bundle struct {
	Revision string              `json:"revision"`
	Mode     v1alpha1.PolicyMode `json:"mode"`
}

// outcome is the part of a decision that is compared with the previous decision. It is written as the result.
type outcome struct {
	Outcome      string                   `json:"outcome"`
	Limits       *policy.Scale            `json:"limits,omitempty"`
	AssignedJobs v1alpha1.AssignedJobs    `json:"assignedJobs,omitempty"`
	Bounds       []v1alpha1.LimitBound    `json:"bounds,omitempty"`
	Conflicts    []string                 `json:"conflicts,omitempty"`
	Denials      []v1alpha1.PolicyFinding `json:"deny,omitempty"`
	Warnings     []v1alpha1.PolicyFinding `json:"warn,omitempty"`
	Rollout      *rollout                 `json:"rollout,omitempty"`
	Failures     []policy.Failure         `json:"failures,omitempty"`
	Audit        []policy.Audit           `json:"audit,omitempty"`
}

type rollout struct {
	Hold           bool                    `json:"hold"`
	Strategy       v1alpha1.UpdateStrategy `json:"strategy"`
	MaxSurge       int32                   `json:"maxSurge"`
	MaxUnavailable int32                   `json:"maxUnavailable"`
	Canary         int32                   `json:"canary"`
	Reasons        []string                `json:"reasons,omitempty"`
}

// recordScaling counts and logs a decision on limits.
func (e *Engine) recordScaling(b *policy.Bound, in policy.ScalingInput, answer *policy.Scaling, began time.Time) {
	o := outcome{Failures: answer.Failures, Audit: answer.Audit}
	if len(answer.Bounds) > 0 || answer.AssignedJobs == v1alpha1.AssignedJobsWait {
		o.Outcome = bounded
	}
	if len(answer.Failures) == 0 {
		o.Limits, o.AssignedJobs, o.Bounds, o.Conflicts = &answer.Scale, answer.AssignedJobs, answer.Bounds, answer.Conflicts
	}
	e.record(b, in.Pool, "", decisionEvent{id: answer.ID, decision: policy.DecisionScaling, input: in, at: began}, &o)
}

// recordTemplate counts and logs a decision on the template of a revision.
func (e *Engine) recordTemplate(b *policy.Bound, revision string, in policy.TemplateInput, answer *policy.Template, began time.Time) {
	o := outcome{Denials: answer.Denials, Warnings: answer.Warnings, Failures: answer.Failures, Audit: answer.Audit}
	if len(answer.Denials) > 0 {
		o.Outcome = denied
	}
	e.record(b, in.Pool, revision, decisionEvent{id: answer.ID, decision: policy.DecisionTemplate, input: in, at: began}, &o)
}

// recordUpdate counts and logs a decision on an update.
func (e *Engine) recordUpdate(b *policy.Bound, in policy.UpdateInput, answer *policy.Update, began time.Time) {
	o := outcome{Failures: answer.Failures, Audit: answer.Audit}
	switch {
	case answer.Hold:
		o.Outcome = held
	case len(answer.Reasons) > 0:
		o.Outcome = bounded
	}
	if len(answer.Failures) == 0 {
		o.Rollout = &rollout{
			Hold: answer.Hold, Strategy: answer.Strategy, MaxSurge: answer.MaxSurge, MaxUnavailable: answer.MaxUnavailable, Canary: answer.Canary,
		}
		for _, r := range answer.Reasons {
			o.Rollout.Reasons = append(o.Rollout.Reasons, r.Message)
		}
	}
	e.record(b, in.Pool, in.Change.To, decisionEvent{id: answer.ID, decision: policy.DecisionUpdate, input: in, at: began}, &o)
}

// record counts a decision about a pool that policies bind, and logs it if there is a log. The caller sets o.Outcome if
// the decision changes anything; record sets the final outcome.
func (e *Engine) record(b *policy.Bound, pool policy.Pool, revision string, event decisionEvent, o *outcome) {
	if b.Digest() == "" {
		return
	}
	o.Outcome = outcomeOf(b, event.decision, o.Failures, o.Outcome)
	event.took = e.Now().Sub(event.at)
	e.count(b, event.decision, o.Outcome, event.took)
	if e.Log != nil {
		e.Log.record(b, pool, revision, event, o)
	}
}

// record queues a decision for writing if its outcome differs from the last one for the same pool, decision and
// revision, or if it belongs to the sample.
func (l *DecisionLog) record(b *policy.Bound, pool policy.Pool, revision string, event decisionEvent, o *outcome) {
	text, _ := json.Marshal(o) // JSON can represent all of its values
	quiet := o.Outcome == abstained && len(o.Audit) == 0
	if !l.isDue(keyOf(pool), event.decision+"/"+revision, text, quiet) {
		return
	}
	event.result, event.bundles = text, map[string]bundle{}
	event.labels = map[string]string{"app": "corral", "namespace": pool.Namespace, "pool": pool.Name}
	if revision != "" {
		event.labels["revision"] = revision
	}
	for _, p := range b.Policies() {
		event.bundles[p.Ref()] = bundle{Revision: p.Digest(), Mode: p.Mode()}
	}
	l.add(&event)
}

// isDue reports whether a decision should be written, and remembers its outcome. The first decision of a subject is not
// written if quiet is true, because no policy took part in it.
func (l *DecisionLog) isDue(pool types.NamespacedName, subject string, text []byte, quiet bool) bool {
	h := fnv.New64a()
	_, _ = h.Write(text) // never fails
	sum := h.Sum64()
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.last[pool]
	last, before := known[subject]
	if before && last == sum {
		l.same++
		if l.sample == 0 || l.same < l.sample {
			return false
		}
		l.same = 0
		return true
	}
	if known == nil || len(known) >= maxSubjects {
		known = map[string]uint64{}
		l.last[pool] = known
	}
	known[subject] = sum
	return before || !quiet
}

// forget drops the remembered outcomes of a deleted pool.
func (l *DecisionLog) forget(pool types.NamespacedName) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, pool)
}

// add queues an event, and starts writing the queue if no goroutine does.
func (l *DecisionLog) add(event *decisionEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.queue.Put(event.labels["namespace"], event, struct{}{}) {
		unloggedTotal.Inc()
		return
	}
	if !l.busy {
		l.busy = true
		go l.drain()
	}
}

// drain writes until the queue is empty, with namespaces taking turns.
func (l *DecisionLog) drain() {
	for event := l.next(); event != nil; event = l.next() {
		event.write(l.logger)
	}
}

// next takes the next event to write from the queue; nil if the queue is empty.
func (l *DecisionLog) next() *decisionEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var event *decisionEvent
	event, _, l.busy = l.queue.Take()
	return event
}

// write writes one line.
func (d *decisionEvent) write(logger logr.Logger) {
	input, erased, masked := redact(d.input)
	logger.Info("Decision",
		"decision_id", d.id, "labels", d.labels, "bundles", d.bundles, "path", "corral/"+d.decision,
		"input", input, "result", d.result, "erased", erased, "masked", masked,
		"timestamp", d.at.UTC().Format(time.RFC3339Nano), "metrics", map[string]int64{"timer_rego_query_eval_ns": d.took.Nanoseconds()})
}

// secret matches the JSON pointers of values that may be secret: annotations and environment variables.
var secret = regexp.MustCompile(`^/input/(pool|pod/metadata)/annotations/[^/]+$|^/input/pod/spec/(c|initC|ephemeralC)ontainers/\d+/env/\d+/value$`)

// redact masks values of an input that may be secret, and erases values that are too large. It returns the JSON
// pointers of both.
func redact(in any) (input any, erased, masked []string) {
	r := redaction{erased: []string{}, masked: []string{}}
	if scaling, ok := in.(policy.ScalingInput); ok {
		r.usage(&scaling.Usage)
		in = scaling
	}
	text, err := json.Marshal(in)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err != nil || decoder.Decode(&input) != nil {
		return nil, []string{"/input"}, r.masked
	}
	r.mask("/input", input)
	slices.Sort(r.erased)
	slices.Sort(r.masked)
	return input, r.erased, r.masked
}

// redaction contains the JSON pointers of erased and masked values.
type redaction struct{ erased, masked []string }

// mask masks the secret values within a value.
func (r *redaction) mask(at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			path := at + "/" + token(key)
			if secret.MatchString(path) && value != nil {
				v[key] = mask
				r.masked = append(r.masked, path)
				continue
			}
			r.mask(path, value)
		}
	case []any:
		for i, value := range v {
			r.mask(fmt.Sprintf("%s/%d", at, i), value)
		}
	}
}

// usage removes the members of large groups.
func (r *redaction) usage(u *policy.Usage) {
	short := func(g policy.Group, at string) policy.Group {
		if len(g.Members) > maxLoggedMembers {
			g.Members = nil
			r.erased = append(r.erased, "/input/usage/"+at+"/members")
		}
		return g
	}
	u.All, u.Namespace, u.Connection = short(u.All, "all"), short(u.Namespace, "namespace"), short(u.Connection, "connection")
	u.Labels = maps.Clone(u.Labels)
	for key, g := range u.Labels {
		u.Labels[key] = short(g, "labels/"+token(key))
	}
}

// token escapes a name for use in a JSON pointer.
func token(name string) string { return pointers.Replace(name) }

var pointers = strings.NewReplacer("~", "~0", "/", "~1")
