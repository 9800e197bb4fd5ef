// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/internal/webhook"
)

// example is a published webhook body.
type example struct {
	event string
	body  json.RawMessage
	// from is the file that contains the example. It appears in test names and messages.
	from string
}

// examples returns all examples that GitHub publishes, for github.com and for each server version.
func examples(t *testing.T) (all []example) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(published, "examples", "*", "index.json"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var events []struct {
			Name     string
			Examples []json.RawMessage
		}
		must(t, json.Unmarshal(text, &events))
		for _, e := range events {
			for i, body := range e.Examples {
				all = append(all, example{event: e.Name, body: body, from: fmt.Sprintf("%s/%s/%d", filepath.Base(filepath.Dir(file)), e.Name, i)})
			}
		}
	}
	return all
}

// Corral decodes each example of an event that it uses correctly, and rejects examples of other events.
func TestExamplesAreReadAsMeant(t *testing.T) {
	read, awaitingApproval := map[string]int{}, 0
	for _, e := range examples(t) {
		t.Run(e.from, func(t *testing.T) {
			got, err := webhook.Parse(e.event, e.body)
			if !webhook.IsDecoded(e.event) {
				if !errors.Is(err, webhook.ErrBadEvent) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			must(t, err)
			read[e.event]++
			if diff := cmp.Diff(e.delivery(t), got, cmpopts.IgnoreFields(webhook.Delivery{}, "Identity")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.Identity == "" != got.Happened.IsZero() {
				t.Errorf("it happened at %s, and its identity is %q", got.Happened, got.Identity)
			}
			// GitHub sends the action "queued" for a job that still waits for approval. controllers/jobs therefore
			// relies on the status.
			if got.Action == "queued" && got.Job != nil && got.Job.Status == "waiting" {
				awaitingApproval++
			}
		})
	}
	if total := read[webhook.WorkflowJobEvent] + read[webhook.CheckRunEvent] + read[webhook.PullRequestEvent] + read[webhook.PushEvent]; total < 89 || len(read) != 4 {
		t.Errorf("parsed %v examples; version 7.6.1 has 89", read)
	}
	if awaitingApproval == 0 {
		t.Error("no example has a queued job that waits for an approval")
	}
}

// Parsing any body under any event name either succeeds or returns ErrBadEvent. It never panics.
func TestExamplesUnderOtherNamesDoNoHarm(t *testing.T) {
	for _, e := range examples(t) {
		for _, event := range []string{webhook.WorkflowJobEvent, webhook.CheckRunEvent, webhook.PullRequestEvent, webhook.PushEvent} {
			if _, err := webhook.Parse(event, e.body); err != nil && !errors.Is(err, webhook.ErrBadEvent) {
				t.Errorf("%s as %s: %v", e.from, event, err)
			}
		}
	}
}

// delivery returns the expected result of parsing the example, read field by field.
func (e example) delivery(t *testing.T) webhook.Delivery {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(e.body))
	decoder.UseNumber()
	var f field
	must(t, decoder.Decode(&f.value))
	d := webhook.Delivery{
		Event: e.event, Action: f.text("action"), Organization: f.text("organization.login"), Enterprise: f.text("enterprise.slug"),
		Repository: webhook.Repository{
			ID: f.number("repository.id"), FullName: f.text("repository.full_name"), OwnerType: f.text("repository.owner.type"),
		},
	}
	switch e.event {
	case webhook.WorkflowJobEvent:
		j := f.at("workflow_job")
		d.Job = &webhook.WorkflowJob{
			ID: j.number("id"), RunID: j.number("run_id"), Status: j.text("status"), Conclusion: j.text("conclusion"),
			Name: j.text("name"), Workflow: j.text("workflow_name"), Branch: j.text("head_branch"), Labels: j.texts("labels"),
			RunnerID: j.number("runner_id"), RunnerName: j.text("runner_name"),
			RunnerGroupID: j.number("runner_group_id"), RunnerGroup: j.text("runner_group_name"),
			CreatedAt: j.moment(t, "created_at"), StartedAt: j.moment(t, "started_at"), CompletedAt: j.moment(t, "completed_at"),
		}
	case webhook.CheckRunEvent:
		d.CheckRun = &webhook.CheckRun{Name: f.text("check_run.name"), Status: f.text("check_run.status")}
		if field := map[string]string{"created": "started_at", "completed": "completed_at"}[d.Action]; field != "" {
			d.Happened = f.moment(t, "check_run."+field)
		}
	case webhook.PullRequestEvent:
		d.Branch, d.Happened = f.text("pull_request.base.ref"), f.moment(t, "pull_request.updated_at")
	case webhook.PushEvent:
		d.Happened = f.moment(t, "repository.pushed_at")
		if branch, is := strings.CutPrefix(f.text("ref"), "refs/heads/"); is && f.at("deleted").value != true {
			d.Branch = branch
		}
	}
	return d
}

// field is a value inside a JSON document, or nil if the document has no such field.
type field struct{ value any }

// at returns the field at a dotted path.
func (f field) at(path string) field {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := f.value.(map[string]any)
		f = field{object[name]}
	}
	return f
}

func (f field) text(path string) string {
	text, _ := f.at(path).value.(string)
	return text
}

func (f field) texts(path string) (texts []string) {
	list, _ := f.at(path).value.([]any)
	for _, text := range list {
		texts = append(texts, text.(string))
	}
	return texts
}

func (f field) number(path string) int64 {
	number, _ := f.at(path).value.(json.Number)
	n, _ := number.Int64() // 0 if the field is missing
	return n
}

// moment reads a time that is given as text or as Unix seconds.
func (f field) moment(t *testing.T, path string) time.Time {
	t.Helper()
	if seconds := f.number(path); seconds != 0 {
		return time.Unix(seconds, 0).UTC()
	}
	if f.text(path) == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, f.text(path))
	must(t, err)
	return at
}
