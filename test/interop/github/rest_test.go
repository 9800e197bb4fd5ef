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

// Each answer of the simulated GitHub is one that GitHub publishes, and so is each question that Corral asks.
func TestRESTIsAsPublished(t *testing.T) {
	for mode, names := range products {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			w.work(t)
			unpublished := w.make(t, map[githubsim.Mode]string{githubsim.Acquire: "/api/v3"}[mode])
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

// work makes four jobs: one is done, one runs, one waits for an approval, and one is queued.
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

// checkRoutes fails for what the simulated GitHub serves and no call asks for, and for what Corral asks for and no call does.
func (w *world) checkRoutes(t *testing.T, calls, asked []exchange) {
	t.Helper()
	covered := map[string]bool{}
	for _, e := range calls {
		covered[e.route] = covered[e.route] || e.status < http.StatusMultipleChoices
	}
	for _, route := range w.Routes() {
		if !covered[route] {
			t.Errorf("the simulated GitHub serves %s: add a call of it", route)
		}
	}
	for _, e := range asked {
		if !covered[e.route] {
			t.Errorf("Corral asks for %s %s: add it to the simulated GitHub, and a call of it", e.method, e.url.Path)
		}
	}
}

// reasons are why answers are right that GitHub doesn't publish, by their keys.
type reasons map[string]string

// key names an answer by its route and status.
func (e exchange) key() string { return fmt.Sprintf("%s: %d", e.route, e.status) }

// comparison is one of exchanges with descriptions.
type comparison struct {
	exchanges   []exchange
	unpublished reasons
	// needed are the keys of those reasons that a description makes necessary, described the routes that a description has.
	needed, described map[string]bool
}

// with fails for each exchange that a description has otherwise.
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

// judge says what is wrong with an exchange; nothing if the description doesn't have its route.
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

// isError says what is wrong with an error of no description: it has to look as others do.
func (d description) isError(answer []byte) error {
	return d.Components.Schemas["basic-error"].Value.VisitJSON(decoded(answer), openapi3.MultiErrors())
}

// conclude fails for exchanges of no description, and for reasons that no description makes necessary.
func (c comparison) conclude(t *testing.T) {
	t.Helper()
	for _, e := range c.exchanges {
		if !c.described[e.route] {
			c.needed[e.key()] = true
			if c.unpublished[e.key()] == "" {
				t.Errorf("GitHub publishes nothing of %s", e.route)
			}
		}
	}
	for key, reason := range c.unpublished {
		if !c.needed[key] {
			t.Errorf("%s is published: drop the reason %q", key, strings.TrimSpace(reason))
		}
	}
}
