// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook takes in events that GitHub sends: it bounds them, shows that they are
// GitHub's, decodes the few fields that are used, and hands them to the leader's job tracker. It
// writes nothing to Kubernetes and remembers nothing of events that aren't shown to be GitHub's.
//
// The protocol is https://docs.github.com/en/webhooks: a POST whose body is signed by HMAC SHA-256
// in the header X-Hub-Signature-256, named by X-GitHub-Event and X-GitHub-Delivery, that is never sent again
// unless asked for, and is given up after 10 seconds.
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

// Events that are decoded. Others are answered and dropped.
const (
	// WorkflowJobEvent tells of a job: queued, waiting, in_progress or completed.
	WorkflowJobEvent = "workflow_job"
	// CheckRunEvent tells of a check run.
	CheckRunEvent = "check_run"
	// PullRequestEvent tells of a pull request.
	PullRequestEvent = "pull_request"
	// PushEvent tells of commits that were pushed to a branch or tag.
	PushEvent = "push"
)

// Bounds of what is decoded.
const (
	// MaxBody is the size of the largest body, in bytes: GitHub sends none that is larger.
	MaxBody = 25 << 20
	// MaxLabels is how many labels a job may have.
	MaxLabels = 100
)

// bounds of a body. A push has at most 2,048 commits, with the names of their files.
var bounds = github.Bounds{Bytes: MaxBody, List: 10_000, Inner: 10_000, Values: 1_000_000, Text: MaxBody}

// Delivery is an event of GitHub as far as it is used.
type Delivery struct {
	// GUID that GitHub gave the event (X-GitHub-Delivery). It stays when the event is sent again.
	GUID string
	// Connection that the event came in for.
	Connection types.NamespacedName
	// Event is one of those that are decoded.
	Event string
	// Action of the event, such as queued; "" for a push.
	Action string
	// Identity says which event it is, by what it is about: the GUID isn't signed, so the same event may come under another one. "" for
	// workflow_job, whose jobs have ids, and where GitHub doesn't tell enough.
	Identity string `most:"1024"`
	// Happened is when it did, as far as GitHub tells; not of a workflow_job.
	Happened time.Time
	// At is when it was received, or delivered where it was read through the API.
	At time.Time
	// Repository that it is about.
	Repository Repository
	// Organization by its login and Enterprise by its slug that the repository is in; "" if it isn't.
	Organization string `most:"39"`
	Enterprise   string
	// Job of a workflow_job.
	Job *WorkflowJob
	// CheckRun of a check_run.
	CheckRun *CheckRun
	// Branch that is pushed to, "" for tags and deletions; or that a pull request is to be merged into.
	Branch string `most:"255"`
}

// Repository is one on GitHub.
type Repository struct {
	ID int64
	// FullName is OWNER/NAME.
	FullName string `most:"140"`
	// OwnerType is User or Organization.
	OwnerType string
}

// WorkflowJob is a job as GitHub describes it in an event. What GitHub does not know yet is null there, and zero here.
type WorkflowJob struct {
	ID    int64 `json:"id"`
	RunID int64 `json:"run_id"`
	// Status is queued, waiting, in_progress or completed; Conclusion is "" until then.
	Status     string `json:"status"`
	Conclusion string `json:"conclusion"`
	// Name, Workflow and Branch identify the job for people.
	Name     string `json:"name" cut:"1024"`
	Workflow string `json:"workflow_name" cut:"1024"`
	Branch   string `json:"head_branch" cut:"255"`
	// Labels that it requests: at most MaxLabels.
	Labels []string `json:"labels"`
	// Runner that has the job; 0 and "" while none has.
	RunnerID      int64  `json:"runner_id"`
	RunnerName    string `json:"runner_name"`
	RunnerGroupID int64  `json:"runner_group_id"`
	RunnerGroup   string `json:"runner_group_name"`
	// Times are zero where GitHub sends none.
	CreatedAt   time.Time `json:"created_at"`
	StartedAt   time.Time `json:"started_at"`
	CompletedAt time.Time `json:"completed_at"`
}

// CheckRun is a check run as an event tells of it.
type CheckRun struct {
	Name string `cut:"1024"`
	// Status is queued, in_progress or completed.
	Status string
}

// ErrNotReady says that a job tracker can't take events yet: it is loading what it knows, or isn't
// the leader's. GitHub is told to try later, and the event is asked for again.
var ErrNotReady = errors.New("not ready to take events")

// ErrBadEvent is what errors of Parse are.
var ErrBadEvent = errors.New("bad event")

// payload has the fields that are decoded, of all events.
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

// moment is a time as text or, in some places of a push, in seconds since 1970. What is neither is no time.
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

// IsDecoded reports whether events of a name are used; others are answered and dropped.
func IsDecoded(event string) bool {
	switch event {
	case WorkflowJobEvent, CheckRunEvent, PullRequestEvent, PushEvent:
		return true
	}
	return false
}

// Parse decodes the body of an event, JSON. GUID, Connection and At are left to the caller. Its
// errors are ErrBadEvent and say what is wrong, without anything of the body.
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

// setPlace says where it happened.
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

// setSubject says what happened to what.
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
	// Only these two happen once; of others, such as rerequested, GitHub doesn't tell when.
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

// identify sets the identity, if what it is made of is known.
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

// explainJSON says what is wrong with a body without repeating any of it.
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
	return "the body isn't as GitHub sends it"
}
