// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/corral-dev/corral/sim/githubsim"
)

// Every answer of the simulated GitHub, and every request that Corral sends, matches GitHub's published
// description.
func TestRESTIsAsPublished(t *testing.T) {
	for mode, names := range products {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			w.work(t)
			unpublished := w.makeCalls(t, map[githubsim.Mode]string{githubsim.Acquire: "/api/v3"}[mode])
			calls := len(w.seen)
			w.letCorralAsk(t)
			w.checkRoutes(t, w.seen[:calls], w.seen[calls:])

			c := comparison{exchanges: w.seen, unpublished: unpublished, needed: map[string]bool{}, described: map[string]bool{}}
			for _, name := range names {
				t.Run(name, func(t *testing.T) { c.with(t, describe(t, "rest", name)) })
			}
			c.conclude(t)
		})
	}
}

// work adds four jobs: one completed, one running, one waiting for approval and one queued.
func (w *world) work(t *testing.T) {
	t.Helper()
	for i, job := range []githubsim.Job{{Result: githubsim.ResultFailed, Duration: time.Millisecond}, {Duration: time.Hour}, {Waiting: true}, {}} {
		job.Repository, job.Labels = "acme/app", []string{"linux"}
		if job.Duration == 0 {
			_, err := w.AddJob(job)
			must(t, err)
			continue
		}
		body := fmt.Sprintf(`{"name":"worker-%d","runner_group_id":2,"labels":["linux"]}`, i)
		e := w.ask(t, call{method: "POST", body: body}, "/api/v3/orgs/acme/actions/runners/generate-jitconfig", "Bearer "+token)
		w.runJob(t, jitOf(t, e), job)
	}
	must(t, w.WaitDelivered(t.Context()))
}

// checkRoutes fails for routes of the simulated GitHub that no test call covers, and for routes that Corral uses
// and no test call covers.
func (w *world) checkRoutes(t *testing.T, calls, asked []exchange) {
	t.Helper()
	covered := map[string]bool{}
	for _, e := range calls {
		covered[e.route] = covered[e.route] || e.status < http.StatusMultipleChoices
	}
	for _, route := range w.Routes() {
		if !covered[route] {
			t.Errorf("the simulated GitHub serves %s: add a call", route)
		}
	}
	for _, e := range asked {
		if !covered[e.route] {
			t.Errorf("Corral uses %s %s: add it to the simulated GitHub, and add a call", e.method, e.url.Path)
		}
	}
}

// reasons maps the key of an exchange to an explanation of an answer that GitHub does not publish.
type reasons map[string]string

// key identifies an answer by its route and status.
func (e exchange) key() string { return fmt.Sprintf("%s: %d", e.route, e.status) }

// comparison compares exchanges with descriptions.
type comparison struct {
	exchanges   []exchange
	unpublished reasons
	// needed has the keys of the explanations that at least one description requires. described has the routes
	// that at least one description contains.
	needed, described map[string]bool
}

// with fails for each exchange that contradicts a description.
func (c comparison) with(t *testing.T, d description) {
	wrong := map[string]bool{}
	for _, e := range c.exchanges {
		if err := c.judge(d, e); err != nil {
			wrong[e.key()+": "+err.Error()] = true
		}
	}
	for _, text := range slices.Sorted(maps.Keys(wrong)) {
		t.Error(text)
	}
}

// judge returns what is wrong with an exchange. It returns nil if the description does not contain the route.
func (c comparison) judge(d description, e exchange) error {
	route, parameters, err := d.router.FindRoute(e.request())
	if err != nil {
		return nil
	}
	c.described[e.route] = true
	input := &openapi3filter.RequestValidationInput{Request: e.request(), PathParams: parameters, Route: route, Options: checks()}
	if !e.isWrong {
		err = validateRequest(input)
	}
	if route.Operation.Responses.Status(e.status) == nil && c.unpublished[e.key()] != "" {
		c.needed[e.key()] = true
		return errors.Join(err, d.isError(e.answer))
	}
	return errors.Join(err, openapi3filter.ValidateResponse(input.Request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: e.status, Header: e.answerHeader, Body: reader(e.answer), Options: input.Options,
	}))
}

// isError returns an error unless an unpublished error answer has the shape of GitHub's basic-error schema.
func (d description) isError(answer []byte) error {
	return d.Components.Schemas["basic-error"].Value.VisitJSON(decoded(answer), openapi3.MultiErrors())
}

// conclude fails for exchanges that no description covers, and for explanations that no description requires.
func (c comparison) conclude(t *testing.T) {
	t.Helper()
	for _, e := range c.exchanges {
		if !c.described[e.route] {
			c.needed[e.key()] = true
			if c.unpublished[e.key()] == "" {
				t.Errorf("GitHub publishes no description of %s", e.route)
			}
		}
	}
	for key, reason := range c.unpublished {
		if !c.needed[key] {
			t.Errorf("GitHub publishes %s: remove the explanation %q", key, strings.TrimSpace(reason))
		}
	}
}
