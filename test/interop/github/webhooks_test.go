// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/corral-dev/corral/sim/githubsim"
)

// Every webhook that the simulated GitHub sends matches GitHub's published description.
func TestWebhooksAreAsPublished(t *testing.T) {
	for mode, names := range products {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			_, err := w.AddHook(githubsim.Hook{Owner: "enterprises/corp", URL: w.receiver(t), Secret: secret})
			must(t, err)
			w.work(t)
			w.triggerWebhooks(t)
			for _, name := range names {
				t.Run(name, func(t *testing.T) { describe(t, "webhooks", name).checkWebhooks(t, w.delivered) })
			}
		})
	}
}

// triggerWebhooks triggers the webhooks that work does not trigger.
func (w *world) triggerWebhooks(t *testing.T) {
	t.Helper()
	for _, job := range w.Jobs() {
		switch job.State {
		case githubsim.JobWaiting:
			w.ApproveJob(job.ID)
		case githubsim.JobQueued:
			w.CancelJob(job.ID)
		}
	}
	for _, e := range []githubsim.Event{
		{Event: "check_run", Action: "created", Name: "lint", Status: "queued"},
		{Event: "check_run", Action: "completed", Name: "lint"},
		{Event: "check_run", Action: "rerequested", Name: "lint"},
		{Event: "pull_request", Action: "opened"},
		{Event: "pull_request", Action: "synchronize"},
		{Event: "pull_request", Action: "ready_for_review"},
		{Event: "pull_request", Action: "closed"},
		{Event: "pull_request", Action: "reopened"},
		{Event: "push", Branch: "topic"},
		{Event: "push", Tag: "v1"},
	} {
		for _, e.Repository = range []string{"acme/app", "acme/site"} {
			must(t, w.Send(e))
		}
	}
	for _, id := range []int64{1, 2, 3, 4} {
		if !w.Ping(id) {
			t.Errorf("there is no webhook %d", id)
		}
	}
	must(t, w.WaitDelivered(t.Context()))
}

// name returns the name of a webhook in a description, such as check-run-created.
func (d delivery) name(t *testing.T) string {
	t.Helper()
	var body struct{ Action string }
	must(t, json.Unmarshal(d.body, &body))
	return strings.ReplaceAll(strings.TrimSuffix(d.header.Get("X-GitHub-Event")+"-"+body.Action, "-"), "_", "-")
}

// checkWebhooks fails for each webhook that contradicts a description, and for described job webhooks that the
// simulated GitHub did not send.
func (d description) checkWebhooks(t *testing.T, delivered []delivery) {
	t.Helper()
	sent, wrong := map[string]bool{}, map[string]bool{}
	for _, got := range delivered {
		name := got.name(t)
		sent[name] = true
		item := d.Webhooks[name]
		if item == nil {
			t.Errorf("GitHub publishes no webhook %s", name)
			continue
		}
		request := exchange{method: http.MethodPost, url: &url.URL{Path: "/"}, header: got.header, body: got.body}.request()
		if err := openapi3filter.ValidateRequest(t.Context(), &openapi3filter.RequestValidationInput{
			Request: request, Route: &routers.Route{Spec: d.T, PathItem: item, Operation: item.Post}, Options: checks(),
		}); err != nil {
			wrong[name+": "+err.Error()] = true
		}
	}
	for _, text := range slices.Sorted(maps.Keys(wrong)) {
		t.Error(text)
	}
	for name := range d.Webhooks {
		if strings.HasPrefix(name, "workflow-job-") && !sent[name] {
			t.Errorf("the simulated GitHub sent no %s", name)
		}
	}
}
