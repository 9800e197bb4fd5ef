// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is the kind of a fault.
type Kind string

const (
	// Delay forwards requests after the time Fault.For, and delays each event of a watch by the same time.
	Delay Kind = "delay"
	// Refuse answers requests with Fault.Status or Fault.Answer instead of forwarding them.
	Refuse Kind = "refuse"
	// LoseAnswer forwards requests and then breaks the connection instead of returning the response: after a write, the
	// client cannot know whether it took effect.
	LoseAnswer Kind = "lose-answer"
	// FreezeWatch lets watches open and stay open, but delivers no events. Fault.Release determines what happens once
	// the fault is cleared.
	FreezeWatch Kind = "freeze-watch"
	// CutWatch ends the watches that are open when the fault is injected. client-go then resumes after the last event
	// that it received. The fault has no lasting effect.
	CutWatch Kind = "cut-watch"
	// DuplicateEvents delivers each watch event twice in a row.
	DuplicateEvents Kind = "duplicate-events"
	// ReorderEvents collects the events of a watch for the time Fault.For, and then delivers them grouped by object,
	// with the objects in reverse order. The events of one object stay in order, and no event moves past a bookmark.
	ReorderEvents Kind = "reorder-events"
	// Cut breaks all connections and closes new ones immediately, as if the process were partitioned from the API
	// server. It ignores the selection of requests; Skip, Times and Probability apply to new connections.
	Cut Kind = "cut"
)

// Release determines how a FreezeWatch ends.
type Release string

const (
	// Deliver delivers the held events. It is the default.
	Deliver Release = "deliver"
	// Resume drops the held events and ends the watch. client-go then resumes after the last event that it received.
	Resume Release = "resume"
)

// NoSubresource selects only requests for the resource itself.
const NoSubresource = "-"

// defaultWindow is how long ReorderEvents collects events if Fault.For is zero.
const defaultWindow = 200 * time.Millisecond

// Fault disturbs the selected requests, or the watches that they open.
type Fault struct {
	Kind Kind
	// Resource is the plural name of a resource, such as "pods". Empty or All selects every request, including requests
	// for no resource.
	Resource string
	// Subresource is the name of a subresource, such as "status", or NoSubresource. If it is empty, requests with and
	// without a subresource are selected.
	Subresource string
	// Verbs selects requests by verb. Empty selects all verbs.
	Verbs []Verb
	// Skip is how many times the fault is skipped first, and Times how many times it applies after that; 0 means until
	// it is cleared. They count requests, except for DuplicateEvents (events), FreezeWatch and CutWatch (watches), and
	// ReorderEvents (collections of events). A Delay counts the opening of a watch and each of its events.
	Skip, Times int
	// Probability of the fault each time, from 0 to 1; 0 means always. Equal seeds give the same sequence.
	Probability float64
	Seed        uint64
	// For is the time that Delay and ReorderEvents use.
	For time.Duration
	// Status is the HTTP status of Refuse, and Answer its body. Without Answer, the body is what the API server would
	// send with Status. Without Status, Answer.Code is the status.
	Status int
	Answer *metav1.Status
	// Release determines how a FreezeWatch ends.
	Release Release
}

// injected is a fault that has been injected.
type injected struct {
	Fault
	random *rand.Rand
	hits   int
	over   chan struct{} // closed when the fault is cleared
}

// selects reports whether the fault applies to a request.
func (f *injected) selects(r *request) bool {
	if f.Kind == Cut {
		return true
	}
	switch f.Subresource {
	case "", r.subresource:
	case NoSubresource:
		if r.subresource != "" {
			return false
		}
	default:
		return false
	}
	return (f.Resource == "" || f.Resource == All || f.Resource == r.resource) &&
		(len(f.Verbs) == 0 || slices.Contains(f.Verbs, r.verb))
}

// strikes decides whether the fault applies this time, and counts it.
func (f *injected) strikes() bool {
	switch {
	case f.Times > 0 && f.hits == f.Times:
		return false
	case f.Skip > 0:
		f.Skip--
		return false
	case f.Probability > 0 && f.random.Float64() >= f.Probability:
		return false
	}
	f.hits++
	return true
}

// isOver reports whether the fault has been cleared.
func (f *injected) isOver() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

// pause waits for the time of a Delay or until the fault is cleared. It returns false if the client disconnects.
func (f *injected) pause(ctx context.Context) bool {
	timer := time.NewTimer(f.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.over:
	case <-ctx.Done():
		return false
	}
	return true
}

// Inject starts a fault and returns a function that clears it. If several faults of one kind select a request, only the
// oldest applicable one applies. Faults of different kinds all apply. When Inject returns, the watches and
// connections that the fault cuts are closed, and the fault applies to every event that arrives later.
func (p *Proxy) Inject(f Fault) (remove func()) {
	i := &injected{Fault: f, random: rand.New(rand.NewPCG(f.Seed, f.Seed)), over: make(chan struct{})}
	p.mu.Lock()
	if f.Kind != CutWatch {
		p.faults = append(p.faults, i)
	}
	var hit []*stream
	for _, s := range p.streams {
		if (f.Kind == CutWatch || f.Kind == FreezeWatch) && i.selects(s.request) && i.strikes() {
			p.struck[f.Kind]++
			hit = append(hit, s)
			if f.Kind == FreezeWatch {
				s.frozenBy[i] = true
			}
		}
	}
	p.mu.Unlock()
	switch f.Kind {
	case CutWatch:
		cut(hit)
	case Cut:
		p.severAll()
	}
	return func() { p.remove(i) }
}

// ClearFaults clears all faults.
func (p *Proxy) ClearFaults() {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range faults {
		p.remove(f)
	}
}

// Struck returns how many times faults of a kind have been applied.
func (p *Proxy) Struck(kind Kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck[kind]
}

// remove clears a fault.
func (p *Proxy) remove(f *injected) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.faults, f)
	if at < 0 {
		return
	}
	p.faults = slices.Delete(p.faults, at, at+1)
	close(f.over)
	for _, s := range p.streams {
		if s.frozenBy[f] && f.Release == Resume {
			s.cut()
		}
		delete(s.frozenBy, f)
		s.poke()
	}
}

// strike returns the fault of a kind that applies to a request or to an event of its response, or nil if there is none.
func (p *Proxy) strike(kind Kind, r *request) *injected {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.strikeLocked(kind, r)
}

// strikeLocked is strike for callers that hold mu.
func (p *Proxy) strikeLocked(kind Kind, r *request) *injected {
	for _, f := range p.faults {
		if f.Kind == kind && f.selects(r) && f.strikes() {
			p.struck[kind]++
			return f
		}
	}
	return nil
}

// refuse responds to a request in place of the API server.
func (p *Proxy) refuse(w http.ResponseWriter, r *request, f *injected) {
	status := metav1.Status{}
	if f.Answer != nil {
		status = *f.Answer
	} else {
		status = apierrors.NewGenericServerResponse(f.Status, r.method, r.groupResource(), r.name, "refused by a test", 0, false).ErrStatus
	}
	code := f.Status
	if code == 0 {
		code = int(status.Code)
	}
	status.Kind, status.APIVersion, status.Code = "Status", "v1", int32(code) //nolint:gosec // an HTTP status
	content, err := json.Marshal(status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	p.count(r, code)
	w.WriteHeader(code)
	_, _ = w.Write(content) // the client may have disconnected
}
