// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hook is a webhook.
type Hook struct {
	// Owner is an organization ("acme"), a repository ("acme/app"), an enterprise ("enterprises/corp") or an App by its
	// id ("apps/7"). An App receives the events of all accounts on which it is installed.
	Owner string `json:"owner"`
	// URL receives the deliveries.
	URL string `json:"url"`
	// Secret signs them; empty for no signature.
	Secret string `json:"secret,omitempty"`
	// Events are the subscribed events; empty means all.
	Events []string `json:"events,omitempty"`
	// Form sends application/x-www-form-urlencoded instead of JSON.
	Form bool `json:"form,omitempty"`
	// InsecureSSL accepts any certificate of the receiver.
	InsecureSSL bool `json:"insecureSSL,omitempty"`
	// Parallel is the number of concurrent deliveries; 0 means 1, which keeps them in order. GitHub's deliveries arrive
	// in any order.
	Parallel int `json:"parallel,omitempty"`
}

// DeliveryFault is a fault in deliveries of webhooks. Empty fields match everything.
type DeliveryFault struct {
	Hook       int64  `json:"hook,omitempty"`
	Event      string `json:"event,omitempty"`
	Action     string `json:"action,omitempty"`
	Repository string `json:"repository,omitempty"`
	// Probability of the fault, 0 to 1; 0 means always. See [Options.Seed].
	Probability float64 `json:"probability,omitempty"`
	// Skip is how many deliveries succeed first.
	Skip int `json:"skip,omitempty"`
	// Times is how many deliveries are affected; 0 means all until the fault is removed.
	Times int `json:"times,omitempty"`

	// Lose does not send the delivery, and records that the receiver was unreachable.
	Lose bool `json:"lose,omitempty"`
	// Swallow does not send the delivery, and records that the receiver accepted it.
	Swallow bool `json:"swallow,omitempty"`
	// Duplicate is how many more times it is sent, with the same GUID.
	Duplicate int `json:"duplicate,omitempty"`
	// Behind is how many later deliveries of the hook overtake it. If fewer follow within one second, it is sent then.
	Behind int `json:"behind,omitempty"`
	// Delay before it is sent, in real time.
	Delay time.Duration `json:"-"`
}

// delivery is one attempt to deliver an event. Its id is the id in the log.
type delivery struct {
	id           int64
	guid         string
	event        string
	action       string
	payload      []byte
	repository   string
	repositoryID int
	installation int64
	redelivery   bool
	behind       int // the number of deliveries that will overtake it
	unlogged     bool

	at       time.Time
	took     time.Duration
	code     int
	status   string
	sent     http.Header
	received http.Header
	answer   string
}

type hook struct {
	Hook
	id      int64
	created time.Time
	kind    scopeKind // appScope for an App's webhook
	name    string
	active  int
	pending []*delivery
	held    []*delivery
	log     []*delivery // by id
	gone    bool
}

const appScope scopeKind = "apps"

// hookIndex holds the webhooks and their current deliveries.
type hookIndex struct {
	list        []*hook
	faults      []*DeliveryFault
	last        int64
	lastID      int64
	lastEvent   int // of events that are not about a job
	outstanding int
}

// AddHook adds a webhook and returns its id. It returns an error for an invalid owner.
func (s *Server) AddHook(h Hook) (int64, error) {
	kind, name := orgScope, h.Owner
	switch before, after, found := strings.Cut(h.Owner, "/"); {
	case found && (before == string(appScope) || before == string(enterpriseScope)):
		kind, name = scopeKind(before), after
	case found:
		kind = repoScope
	}
	if name == "" || h.URL == "" {
		return 0, errors.New("a webhook needs an owner and a URL")
	}
	if h.Parallel <= 0 {
		h.Parallel = 1
	}
	s.lock()
	defer s.unlock()
	if kind != appScope && s.world.scopes[scopeKey(kind, name)] == nil {
		return 0, fmt.Errorf("there is no %q for a webhook", h.Owner)
	}
	s.hooks.last++
	s.hooks.list = append(s.hooks.list, &hook{Hook: h, id: s.hooks.last, created: s.now(), kind: kind, name: name})
	return s.hooks.last, nil
}

// ChangeHook changes a webhook, for example its secret or URL. It returns false if there is no such webhook. Pending
// deliveries use the new settings.
func (s *Server) ChangeHook(id int64, change func(*Hook)) bool {
	s.lock()
	defer s.unlock()
	h := s.hooks.find(id)
	if h != nil {
		change(&h.Hook)
	}
	return h != nil
}

// RemoveHook removes a webhook.
func (s *Server) RemoveHook(id int64) {
	s.lock()
	defer s.unlock()
	if h := s.hooks.find(id); h != nil {
		h.gone = true
		s.hooks.outstanding -= len(h.pending) + len(h.held)
		h.pending, h.held = nil, nil
		s.hooks.list = slices.DeleteFunc(s.hooks.list, func(other *hook) bool { return other == h })
	}
}

func (x *hookIndex) find(id int64) *hook {
	for _, h := range x.list {
		if h.id == id {
			return h
		}
	}
	return nil
}

// AddDeliveryFault adds a fault from the next delivery on, until the returned function is called.
func (s *Server) AddDeliveryFault(f DeliveryFault) (remove func()) {
	s.lock()
	defer s.unlock()
	s.hooks.faults = append(s.hooks.faults, &f)
	return func() {
		s.lock()
		defer s.unlock()
		s.hooks.faults = slices.DeleteFunc(s.hooks.faults, func(other *DeliveryFault) bool { return other == &f })
	}
}

// ClearDeliveryFaults removes all delivery faults.
func (s *Server) ClearDeliveryFaults() {
	s.lock()
	defer s.unlock()
	s.hooks.faults = nil
}

// fits reports whether the fault matches the delivery.
func (f *DeliveryFault) fits(h *hook, d *delivery) bool {
	is := func(wanted, got string) bool { return wanted == "" || strings.EqualFold(wanted, got) }
	return (f.Hook == 0 || f.Hook == h.id) && is(f.Event, d.event) && is(f.Action, d.action) && is(f.Repository, d.repository)
}

// useDeliveryFault uses one hit of the oldest fault that matches the delivery.
func (s *Server) useDeliveryFault(h *hook, d *delivery) DeliveryFault {
	for at, f := range s.hooks.faults {
		if !f.fits(h, d) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			return DeliveryFault{}
		}
		if f.Probability > 0 && s.faults.random.Float64() >= f.Probability {
			continue
		}
		hit := *f
		if f.Times == 1 {
			s.hooks.faults = slices.Delete(s.hooks.faults, at, at+1)
		} else if f.Times > 1 {
			f.Times--
		}
		return hit
	}
	return DeliveryFault{}
}

// wants reports whether the hook subscribes to an event of the repository and, for an App's hook, through which of its
// installations.
func (s *Server) wants(h *hook, event string, repo *repository) (installation int64, wanted bool) {
	if len(h.Events) > 0 && !slices.Contains(h.Events, event) {
		return 0, false
	}
	switch h.kind {
	case repoScope:
		return 0, strings.EqualFold(h.name, repo.FullName)
	case orgScope:
		return 0, strings.EqualFold(h.name, repo.owner)
	case enterpriseScope:
		return 0, strings.EqualFold(h.name, s.world.enterprises[strings.ToLower(repo.owner)])
	}
	for id, app := range s.identities.apps {
		if strconv.FormatInt(app.ID, 10) == h.name && strings.EqualFold(app.Account, repo.owner) && !app.Suspended {
			return id, true
		}
	}
	return 0, false
}

// emit sends an event of a repository to every webhook that subscribes to it.
func (s *Server) emit(event, action string, repo *repository, payload object) {
	for _, h := range s.hooks.list {
		installation, wanted := s.wants(h, event, repo)
		if !wanted {
			continue
		}
		delete(payload, "installation")
		if installation != 0 {
			payload["installation"] = object{"id": installation, "node_id": fmt.Sprintf("I_%d", installation)}
		}
		s.post(h, &delivery{
			guid: s.newID(), event: event, action: action, payload: encode(payload), installation: installation,
			repository: repo.FullName, repositoryID: repo.id,
		})
	}
}

// encode encodes an object as JSON.
func encode(o object) []byte {
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err) // cannot fail for strings and numbers
	}
	return encoded
}

// WaitDelivered waits until there is no delivery in progress.
func (s *Server) WaitDelivered(ctx context.Context) error {
	return s.WaitUntil(ctx, func() bool {
		s.rlock()
		defer s.mu.Unlock()
		return s.hooks.outstanding == 0
	})
}

// DeliveryReport is an attempt to deliver an event.
type DeliveryReport struct {
	ID         int64     `json:"id"`
	GUID       string    `json:"guid"`
	Hook       int64     `json:"hook"`
	Event      string    `json:"event"`
	Action     string    `json:"action,omitempty"`
	Repository string    `json:"repository,omitempty"`
	At         time.Time `json:"at"`
	// Took is the receiver's time to answer; in nanoseconds in JSON.
	Took       time.Duration `json:"took"`
	Code       int           `json:"code"`
	Status     string        `json:"status"`
	Redelivery bool          `json:"redelivery,omitempty"`
}

// Deliveries returns the finished attempts of one hook, or of all (0), by id.
func (s *Server) Deliveries(hookID int64) []DeliveryReport {
	s.rlock()
	defer s.mu.Unlock()
	var out []DeliveryReport
	for _, h := range s.hooks.list {
		if hookID != 0 && hookID != h.id {
			continue
		}
		for _, d := range h.log {
			out = append(out, DeliveryReport{
				ID: d.id, GUID: d.guid, Hook: h.id, Event: d.event, Action: d.action, Repository: d.repository, At: d.at,
				Took: d.took, Code: d.code, Status: d.status, Redelivery: d.redelivery,
			})
		}
	}
	slices.SortFunc(out, func(a, b DeliveryReport) int { return int(a.ID - b.ID) })
	return out
}

// Redeliver repeats an attempt, as a user of GitHub may request. It returns false if there is no such attempt.
func (s *Server) Redeliver(id int64) bool {
	s.lock()
	defer s.unlock()
	for _, h := range s.hooks.list {
		if d := h.find(id); d != nil {
			s.redeliver(h, d)
			return true
		}
	}
	return false
}

func (h *hook) find(id int64) *delivery {
	at, found := slices.BinarySearchFunc(h.log, id, func(d *delivery, id int64) int { return int(d.id - id) })
	if !found {
		return nil
	}
	return h.log[at]
}

func (s *Server) redeliver(h *hook, d *delivery) {
	s.post(h, &delivery{
		guid: d.guid, event: d.event, action: d.action, payload: d.payload, installation: d.installation,
		repository: d.repository, repositoryID: d.repositoryID, redelivery: true,
	})
}
