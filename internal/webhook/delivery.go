// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook receives GitHub's events. It limits them, verifies their signatures, decodes the few fields that
// Corral uses, and passes them to the leader's job tracker. It writes nothing to Kubernetes, and remembers nothing
// about unverified events.
//
// The protocol is described at https://docs.github.com/en/webhooks. An event is a POST request. The header
// X-Hub-Signature-256 contains an HMAC SHA-256 of the body, X-GitHub-Event the name of the event, and X-GitHub-Delivery
// its GUID. GitHub gives up after 10 seconds, and does not repeat an event unless asked to.
package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/github"
)

// Names of the events that are decoded. The server accepts other events and drops them.
const (
	// WorkflowJobEvent is about a job that is queued, waiting, in_progress or completed.
	WorkflowJobEvent = "workflow_job"
	// CheckRunEvent is about a check run.
	CheckRunEvent = "check_run"
	// PullRequestEvent is about a pull request.
	PullRequestEvent = "pull_request"
	// PushEvent is about commits that were pushed to a branch or tag.
	PushEvent = "push"
)

// Limits of decoded events.
const (
	// MaxBody is the maximum size of a body in bytes. GitHub sends none that is larger.
	MaxBody = 25 << 20
	// MaxLabels is the maximum number of a job's labels.
	MaxLabels = 100
)

// bounds are the limits of a body. A push has at most 2,048 commits, with the names of their files.
var bounds = github.Bounds{Bytes: MaxBody, List: 10_000, Inner: 10_000, Values: 1_000_000, Text: MaxBody}

// Delivery is the part of an event that Corral uses.
type Delivery struct {
	// GUID is GitHub's id of the event (X-GitHub-Delivery). It does not change when the event is sent again.
	GUID string
	// Connection is the connection in the URL of the request.
	Connection types.NamespacedName
	// Event is one of the decoded events.
	Event string
	// Action is the event's action, such as queued; "" for a push.
	Action string
	// Identity identifies the event by its content. The GUID is not signed, so the same event may arrive under another
	// GUID. Identity is "" for workflow_job, whose jobs have ids, and if the event contains too little to identify it.
	Identity string `most:"1024"`
	// Happened is the time of the event, if GitHub sends it; zero for workflow_job.
	Happened time.Time
	// At is the time when the event was received, or its delivery time if it was read through the API.
	At time.Time
	// Repository is the repository of the event.
	Repository Repository
	// Organization is the login of the repository's organization, and Enterprise the slug of its enterprise; "" for
	// none.
	Organization string `most:"39"`
	Enterprise   string
	// Job is set for workflow_job.
	Job *WorkflowJob
	// CheckRun is set for check_run.
	CheckRun *CheckRun
	// Branch is the pushed branch ("" for tags and deletions), or the target branch of a pull request.
	Branch string `most:"255"`
}

// Repository is a repository on GitHub.
type Repository struct {
	ID int64
	// FullName is OWNER/NAME.
	FullName string `most:"140"`
	// OwnerType is User or Organization.
	OwnerType string
}

// WorkflowJob is a job in an event. Fields that GitHub does not know yet are null in the event, and zero here.
type WorkflowJob struct {
	ID    int64 `json:"id"`
	RunID int64 `json:"run_id"`
	// Status is queued, waiting, in_progress or completed. Conclusion is "" until the job is completed.
	Status     string `json:"status"`
	Conclusion string `json:"conclusion"`
	// Name, Workflow and Branch are for display.
	Name     string `json:"name" cut:"1024"`
	Workflow string `json:"workflow_name" cut:"1024"`
	Branch   string `json:"head_branch" cut:"255"`
	// Labels are the requested labels, at most MaxLabels.
	Labels []string `json:"labels"`
	// RunnerID and the following fields describe the runner that has the job; 0 and "" for none.
	RunnerID      int64  `json:"runner_id"`
	RunnerName    string `json:"runner_name"`
	RunnerGroupID int64  `json:"runner_group_id"`
	RunnerGroup   string `json:"runner_group_name"`
	// CreatedAt, StartedAt and CompletedAt are zero if GitHub sends none.
	CreatedAt   time.Time `json:"created_at"`
	StartedAt   time.Time `json:"started_at"`
	CompletedAt time.Time `json:"completed_at"`
}

// CheckRun is a check run in an event.
type CheckRun struct {
	Name string `cut:"1024"`
	// Status is queued, in_progress or completed.
	Status string
}

// ErrNotReady is the error of a job tracker that cannot accept events yet, because it is loading its state or its
// process is not the leader. The server then answers 503. GitHub does not repeat the event by itself, so Corral
// requests it again later.
var ErrNotReady = errors.New("not ready to take events")

// ErrBadEvent is wrapped by all errors of Parse.
var ErrBadEvent = errors.New("bad event")

// payload has the decoded fields of all events.
type payload struct {
	Action     string `json:"action"`
	Repository *struct {
		ID       int64  `json:"id"`
		FullName string `json:"full_name"`
		PushedAt moment `json:"pushed_at"`
		Owner    struct {
			Type string `json:"type"`
		} `json:"owner"`
	} `json:"repository"`
	Organization *struct {
		Login string `json:"login"`
	} `json:"organization"`
	Enterprise *struct {
		Slug string `json:"slug"`
	} `json:"enterprise"`
	WorkflowJob *WorkflowJob `json:"workflow_job"`
	CheckRun    *struct {
		ID          int64  `json:"id"`
		Name        string `json:"name"`
		Status      string `json:"status"`
		StartedAt   moment `json:"started_at"`
		CompletedAt moment `json:"completed_at"`
	} `json:"check_run"`
	PullRequest *struct {
		ID        int64  `json:"id"`
		UpdatedAt moment `json:"updated_at"`
		Base      struct {
			Ref string `json:"ref"`
		} `json:"base"`
	} `json:"pull_request"`
	Ref     string `json:"ref"`
	Before  string `json:"before"`
	After   string `json:"after"`
	Deleted bool   `json:"deleted"`
}

// moment is a time as text or, in some places of a push, in seconds since 1970. Any other value decodes to the zero
// time.
type moment struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(text []byte) error {
	if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		m.Time = time.Unix(seconds, 0).UTC()
	} else if err := m.Time.UnmarshalJSON(text); err != nil {
		m.Time = time.Time{}
	}
	return nil
}

// IsDecoded reports whether Corral uses events of this name.
func IsDecoded(event string) bool {
	switch event {
	case WorkflowJobEvent, CheckRunEvent, PullRequestEvent, PushEvent:
		return true
	}
	return false
}

// Parse decodes the JSON body of an event. The caller sets GUID, Connection and At. Its errors wrap ErrBadEvent and
// contain nothing from the body.
func Parse(event string, body []byte) (Delivery, error) {
	if !IsDecoded(event) {
		return Delivery{}, fmt.Errorf("%w: events of this name aren't used", ErrBadEvent)
	}
	if err := bounds.Check(body); err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	p := payload{}
	if err := json.Unmarshal(body, &p); err != nil {
		return Delivery{}, fmt.Errorf("%w: %s", ErrBadEvent, explainJSON(err))
	}
	d := Delivery{Event: event, Action: p.Action}
	if err := d.setPlace(&p); err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	if err := d.setSubject(&p); err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	if _, err := github.Fit(&d); err != nil {
		return Delivery{}, fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	return d, nil
}

// setPlace sets the repository, the organization and the enterprise.
func (d *Delivery) setPlace(p *payload) error {
	if p.Repository == nil {
		return errors.New("repository is missing")
	}
	d.Repository = Repository{ID: p.Repository.ID, FullName: p.Repository.FullName, OwnerType: p.Repository.Owner.Type}
	if owner, name, ok := strings.Cut(d.Repository.FullName, "/"); !ok || owner == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("repository.full_name isn't OWNER/NAME")
	}
	if p.Organization != nil {
		d.Organization = p.Organization.Login
	}
	if p.Enterprise != nil {
		d.Enterprise = p.Enterprise.Slug
	}
	return nil
}

// setSubject sets the fields that exist only for events of this name.
func (d *Delivery) setSubject(p *payload) error {
	switch d.Event {
	case WorkflowJobEvent:
		return d.setJob(p.WorkflowJob)
	case CheckRunEvent:
		return d.setCheckRun(p)
	case PullRequestEvent:
		return d.setPullRequest(p)
	default:
		d.setPush(p)
		return nil
	}
}

func (d *Delivery) setCheckRun(p *payload) error {
	c := p.CheckRun
	if c == nil {
		return errors.New("check_run is missing")
	}
	d.CheckRun = &CheckRun{Name: c.Name, Status: c.Status}
	// Only these two actions happen once per check run. GitHub sends no time for other actions, such as rerequested.
	switch d.Action {
	case "created":
		d.Happened = c.StartedAt.Time
	case "completed":
		d.Happened = c.CompletedAt.Time
	}
	d.identify(c.ID != 0 && !d.Happened.IsZero(), c.ID, d.Happened.Unix())
	return nil
}

func (d *Delivery) setPullRequest(p *payload) error {
	r := p.PullRequest
	if r == nil || r.Base.Ref == "" {
		return errors.New("pull_request.base.ref is missing")
	}
	d.Branch, d.Happened = r.Base.Ref, r.UpdatedAt.Time
	d.identify(r.ID != 0 && !d.Happened.IsZero(), r.ID, d.Happened.Unix())
	return nil
}

func (d *Delivery) setPush(p *payload) {
	if branch, ok := strings.CutPrefix(p.Ref, "refs/heads/"); ok && !p.Deleted {
		d.Branch = branch
	}
	d.Happened = p.Repository.PushedAt.Time
	d.identify(p.After != "" && !d.Happened.IsZero(), p.Ref, p.Before, p.After, d.Happened.Unix())
}

// identify sets the identity if its parts are known.
func (d *Delivery) identify(known bool, parts ...any) {
	if known {
		d.Identity = fmt.Sprintf("%s %s %d %v", d.Event, d.Action, d.Repository.ID, parts)
	}
}

func (d *Delivery) setJob(j *WorkflowJob) error {
	if j == nil || j.ID <= 0 {
		return errors.New("workflow_job.id is missing")
	}
	if len(j.Labels) > MaxLabels {
		return fmt.Errorf("workflow_job.labels has %d entries, above %d", len(j.Labels), MaxLabels)
	}
	d.Job = j
	return nil
}

// explainJSON describes an error in a body without repeating any of it.
func explainJSON(err error) string {
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return fmt.Sprintf("the body isn't JSON, at byte %d", syntax.Offset)
	}
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
		if kind.Field == "" {
			return "the body isn't an object"
		}
		return fmt.Sprintf("%s is of another kind", kind.Field)
	}
	return "the body doesn't have GitHub's format"
}
