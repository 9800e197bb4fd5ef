// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const place = `"repository":{"id":7,"full_name":"acme/shop","owner":{"type":"Organization","login":"acme"}},"organization":{"login":"acme"},"enterprise":{"slug":"works"},"sender":{"login":"hubot"}`

func TestFieldsThatAreUsedAreDecoded(t *testing.T) {
	at := Delivery{Repository: Repository{ID: 7, FullName: "acme/shop", OwnerType: "Organization"}, Organization: "acme", Enterprise: "works"}
	with := func(change func(*Delivery)) Delivery {
		d := at
		change(&d)
		return d
	}
	for name, tc := range map[string]struct {
		event, body string
		want        Delivery
	}{
		"queued job": {
			WorkflowJobEvent, `{"action":"queued","workflow_job":{"id":29679449526,"run_id":5,"status":"queued","conclusion":null,"created_at":"2026-03-01T10:00:00Z","started_at":"2026-03-01T10:00:00Z","completed_at":null,
				"name":"build (1)","workflow_name":"CI","head_branch":"main","labels":["self-hosted","Linux"],"runner_id":null,"runner_name":null,"runner_group_id":null,"runner_group_name":null,"steps":[]},` + place + `}`,
			with(func(d *Delivery) {
				d.Event, d.Action = WorkflowJobEvent, "queued"
				d.Job = &WorkflowJob{
					ID: 29679449526, RunID: 5, Status: "queued", Name: "build (1)", Workflow: "CI", Branch: "main", Labels: []string{"self-hosted", "Linux"},
					CreatedAt: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), StartedAt: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
				}
			}),
		},
		"completed job": {
			WorkflowJobEvent, `{"action":"completed","workflow_job":{"id":1,"status":"completed","conclusion":"success","runner_id":4,"runner_name":"r-1","runner_group_id":2,"runner_group_name":"Default","completed_at":"2026-03-01T10:05:00Z"},` + place + `}`,
			with(func(d *Delivery) {
				d.Event, d.Action = WorkflowJobEvent, "completed"
				d.Job = &WorkflowJob{ID: 1, Status: "completed", Conclusion: "success", RunnerID: 4, RunnerName: "r-1", RunnerGroupID: 2, RunnerGroup: "Default", CompletedAt: time.Date(2026, 3, 1, 10, 5, 0, 0, time.UTC)}
			}),
		},
		"check run": {
			CheckRunEvent, `{"action":"created","check_run":{"name":"lint","status":"queued"},` + place + `}`,
			with(func(d *Delivery) {
				d.Event, d.Action, d.CheckRun = CheckRunEvent, "created", &CheckRun{Name: "lint", Status: "queued"}
			}),
		},
		"pull request": {
			PullRequestEvent, `{"action":"opened","pull_request":{"head":{"ref":"topic"},"base":{"ref":"main"}},` + place + `}`,
			with(func(d *Delivery) { d.Event, d.Action, d.Branch = PullRequestEvent, "opened", "main" }),
		},
		"push": {
			PushEvent, `{"ref":"refs/heads/release/1","deleted":false,"commits":[{"id":"x"}],` + place + `}`,
			with(func(d *Delivery) { d.Event, d.Branch = PushEvent, "release/1" }),
		},
		"push of a tag":         {PushEvent, `{"ref":"refs/tags/v1",` + place + `}`, with(func(d *Delivery) { d.Event = PushEvent })},
		"deletion of a branch":  {PushEvent, `{"ref":"refs/heads/main","deleted":true,` + place + `}`, with(func(d *Delivery) { d.Event = PushEvent })},
		"repository of no org.": {PushEvent, `{"ref":"refs/heads/main","repository":{"id":7,"full_name":"me/shop","owner":{"type":"User"}}}`, Delivery{Event: PushEvent, Branch: "main", Repository: Repository{ID: 7, FullName: "me/shop", OwnerType: "User"}}},
		"long name that people wrote": {
			CheckRunEvent, `{"check_run":{"name":"` + strings.Repeat("x", 1023) + `ü"},` + place + `}`,
			with(func(d *Delivery) {
				d.Event, d.CheckRun = CheckRunEvent, &CheckRun{Name: strings.Repeat("x", 1023)}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.event, []byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The same event has the same identity under any GUID and in any encoding, and other events have a different one.
func TestEventsAreIdentified(t *testing.T) {
	const repository = `"repository":{"id":7,"full_name":"acme/shop","pushed_at":1772359200}`
	for name, tc := range map[string]struct {
		event, body, identity string
		happened              time.Time
	}{
		"push": {
			PushEvent, `{"ref":"refs/heads/main","before":"a1","after":"b2",` + repository + `}`,
			"push  7 [refs/heads/main a1 b2 1772359200]", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		},
		"push, not told enough": {PushEvent, `{"ref":"refs/heads/main",` + repository + `}`, "", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)},
		"pull request": {
			PullRequestEvent, `{"action":"opened","pull_request":{"id":5,"updated_at":"2026-03-01T11:00:00+01:00","base":{"ref":"main"}},` + repository + `}`,
			"pull_request opened 7 [5 1772359200]", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		},
		"pull request, not told when": {PullRequestEvent, `{"pull_request":{"id":5,"updated_at":"soon","base":{"ref":"main"}},` + repository + `}`, "", time.Time{}},
		"check run": {
			CheckRunEvent, `{"action":"completed","check_run":{"id":9,"status":"completed","started_at":"2026-03-01T09:00:00Z","completed_at":"2026-03-01T10:00:00Z"},` + repository + `}`,
			"check_run completed 7 [9 1772359200]", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		},
		"check run that goes on": {
			CheckRunEvent, `{"action":"created","check_run":{"id":9,"status":"queued","started_at":"2026-03-01T10:00:00Z","completed_at":null},` + repository + `}`,
			"check_run created 7 [9 1772359200]", time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC),
		},
		"check run that is asked for again": {
			CheckRunEvent, `{"action":"rerequested","check_run":{"id":9,"status":"completed","started_at":"2026-03-01T10:00:00Z","completed_at":"2026-03-01T10:00:00Z"},` + repository + `}`, "", time.Time{},
		},
		"job": {WorkflowJobEvent, `{"action":"queued","workflow_job":{"id":9},` + repository + `}`, "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Parse(tc.event, []byte(tc.body))
			if err != nil || d.Identity != tc.identity || !d.Happened.Equal(tc.happened) {
				t.Errorf("got %q at %s, %v; want %q at %s", d.Identity, d.Happened, err, tc.identity, tc.happened)
			}
		})
	}
}

func TestBadEventsAreRefusedWithWhatIsWrong(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for name, tc := range map[string]struct{ event, body, want string }{
		"no JSON":           {PushEvent, `secret!`, "bad event: the body isn't JSON, at byte 1"},
		"cut off":           {PushEvent, `{"ref":"refs`, "bad event: the body isn't JSON, at byte 12"},
		"empty":             {PushEvent, ``, "bad event: the body isn't JSON, at byte 0"},
		"a list":            {PushEvent, `[]`, "bad event: the body isn't an object"},
		"no repository":     {PushEvent, `{}`, "bad event: repository is missing"},
		"no owner":          {PushEvent, `{"repository":{"full_name":"shop"}}`, "bad event: repository.full_name isn't OWNER/NAME"},
		"a path":            {PushEvent, `{"repository":{"full_name":"a/b/c"}}`, "bad event: repository.full_name isn't OWNER/NAME"},
		"long repository":   {PushEvent, `{"repository":{"full_name":"a/` + long + `"}}`, `bad event: "FullName" has more than 140 bytes`},
		"long ref":          {PushEvent, `{"ref":"refs/heads/` + long + `",` + place + `}`, `bad event: "Branch" has more than 255 bytes`},
		"no job":            {WorkflowJobEvent, `{` + place + `}`, "bad event: workflow_job.id is missing"},
		"no job id":         {WorkflowJobEvent, `{"workflow_job":{},` + place + `}`, "bad event: workflow_job.id is missing"},
		"negative id":       {WorkflowJobEvent, `{"workflow_job":{"id":-1},` + place + `}`, "bad event: workflow_job.id is missing"},
		"huge id":           {WorkflowJobEvent, `{"workflow_job":{"id":99999999999999999999},` + place + `}`, "bad event: workflow_job.id is of another kind"},
		"text for labels":   {WorkflowJobEvent, `{"workflow_job":{"id":1,"labels":"x"},` + place + `}`, "bad event: workflow_job.labels is of another kind"},
		"time that is none": {WorkflowJobEvent, `{"workflow_job":{"id":1,"created_at":"soon"},` + place + `}`, "bad event: the body doesn't have GitHub's format"},
		"many labels":       {WorkflowJobEvent, `{"workflow_job":{"id":1,"labels":["x"` + strings.Repeat(`,"x"`, MaxLabels) + `]},` + place + `}`, "bad event: workflow_job.labels has 101 entries, above 100"},
		"long label":        {WorkflowJobEvent, `{"workflow_job":{"id":1,"labels":["x","` + long + `"]},` + place + `}`, `bad event: "Labels" has more than 256 bytes`},
		"long runner":       {WorkflowJobEvent, `{"workflow_job":{"id":1,"runner_name":"` + long + `"},` + place + `}`, `bad event: "RunnerName" has more than 256 bytes`},
		"no check run":      {CheckRunEvent, `{` + place + `}`, "bad event: check_run is missing"},
		"no pull request":   {PullRequestEvent, `{` + place + `}`, "bad event: pull_request.base.ref is missing"},
		"deep":              {PushEvent, strings.Repeat("[", 20000), "bad event: the JSON has more than 32 levels"},
		"another event":     {"issues", `{}`, "bad event: events of this name aren't used"},
		"too large":         {PushEvent, strings.Repeat(" ", MaxBody+1), fmt.Sprintf("bad event: the JSON has more than %d bytes", MaxBody)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.event, []byte(tc.body))
			if !errors.Is(err, ErrBadEvent) || err.Error() != tc.want {
				t.Errorf("got %q; want %q", err, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(WorkflowJobEvent, []byte(`{"action":"queued","workflow_job":{"id":1,"labels":["x"]},`+place+`}`))
	f.Add(PushEvent, []byte(`{"ref":"refs/heads/main",`+place+`}`))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		d, err := Parse(event, body)
		if err != nil && !errors.Is(err, ErrBadEvent) {
			t.Errorf("error %v", err)
		}
		if err == nil && (len(d.Repository.FullName) > 140 || d.Job != nil && (len(d.Job.Labels) > MaxLabels || d.Job.ID <= 0)) {
			t.Errorf("%+v", d)
		}
	})
}
