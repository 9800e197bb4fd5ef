// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"strings"
	"time"
)

// Conclusions of jobs, as the REST API and webhooks word them.
var conclusions = map[string]string{ResultSucceeded: "success", ResultFailed: "failure", ResultCanceled: "cancelled"}

// status of a job, as the REST API and webhooks word it.
func (j *job) status() string {
	switch j.State {
	case JobWaiting:
		return "waiting"
	case JobRunning:
		return "in_progress"
	case JobCompleted:
		return "completed"
	default:
		return "queued"
	}
}

// restTime is a time as JSON has it: null when there was none.
func restTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

func orNull[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}

// home is the address in what nobody asked for.
func (s *Server) home() string {
	if s.opts.PublicURL != "" {
		return s.opts.PublicURL
	}
	return s.address
}

// restJob is a job as the REST API and webhooks show it.
func (s *Server) restJob(j *job) map[string]any {
	run := fmt.Sprintf("%s/api/v3/repos/%s/actions/runs/%d", s.home(), j.repo.FullName, j.RunID)
	started := j.Started
	if started.IsZero() {
		started = j.Queued // as GitHub has it for a job that waits
	}
	body := map[string]any{
		"id": j.Number, "run_id": j.RunID, "run_attempt": 1, "run_url": run, "workflow_name": j.Workflow, "name": j.Name,
		"node_id": fmt.Sprintf("CR_%d", j.Number), "head_branch": "main", "head_sha": fmt.Sprintf("%040x", j.RunID),
		"url":      fmt.Sprintf("%s/api/v3/repos/%s/actions/jobs/%d", s.home(), j.repo.FullName, j.Number),
		"html_url": fmt.Sprintf("%s/%s/actions/runs/%d/job/%d", s.home(), j.repo.FullName, j.RunID, j.Number),
		"status":   j.status(), "conclusion": orNull(conclusions[j.Result]), "labels": j.Labels, "steps": []any{},
		"created_at": stamp(j.Queued), "started_at": restTime(started), "completed_at": restTime(j.Finished),
		"check_run_url": fmt.Sprintf("%s/api/v3/repos/%s/check-runs/%d", s.home(), j.repo.FullName, j.Number),
		"runner_id":     orNull(j.RunnerID), "runner_name": orNull(j.Runner), "runner_group_id": nil, "runner_group_name": nil,
	}
	if j.RunnerID != 0 && j.scaleSet != nil {
		body["runner_group_id"], body["runner_group_name"] = j.scaleSet.group.id, j.scaleSet.group.Name
	}
	return body
}

// restRepository is a repository as the REST API and webhooks show it.
func (s *Server) restRepository(repo *repository) map[string]any {
	visibility := "private"
	if repo.Public {
		visibility = "public"
	}
	return map[string]any{
		"id": repo.id, "name": repo.name, "full_name": repo.FullName, "private": !repo.Public, "visibility": visibility,
		"owner": account(repo.owner), "html_url": s.home() + "/" + repo.FullName, "default_branch": "main",
	}
}

// payload is what all events of a repository say.
func (s *Server) payload(repo *repository, action string) map[string]any {
	body := map[string]any{
		"repository": s.restRepository(repo), "organization": account(repo.owner),
		"sender": map[string]any{"login": "octocat", "id": 1, "type": "User"},
	}
	if action != "" {
		body["action"] = action
	}
	if enterprise := s.world.enterprises[strings.ToLower(repo.owner)]; enterprise != "" {
		body["enterprise"] = map[string]any{
			"id": s.world.scopes[scopeKey(enterpriseScope, enterprise)].tenant, "slug": strings.ToLower(enterprise), "name": enterprise,
		}
	}
	return body
}

// emitJob tells webhooks how far a job has come.
func (s *Server) emitJob(j *job, action string) {
	if len(s.hooks.list) == 0 {
		return
	}
	body := s.payload(j.repo, action)
	body["workflow_job"] = s.restJob(j)
	s.emit("workflow_job", action, j.repo, body)
}

// Event is one that has nothing to do with a job of the server's.
type Event struct {
	// Event is check_run, pull_request, push, or any other with a Payload.
	Event string `json:"event"`
	// Repository is "owner/name"; it is made, private, when it is not there.
	Repository string `json:"repository"`
	// Action as created (check_run) or opened (pull_request); push has none.
	Action string `json:"action,omitempty"`
	// Name and Status (queued, in_progress, completed) of a check run.
	Name   string `json:"name,omitempty"`
	Status string `json:"status,omitempty"`
	// Branch that is pushed to, or that a pull request is to be merged into, or of a
	// check run; "main" when empty.
	Branch string `json:"branch,omitempty"`
	// Tag that is pushed instead of a branch.
	Tag string `json:"tag,omitempty"`
	// Head branch of a pull request; "topic" when empty.
	Head string `json:"head,omitempty"`
	// Payload has more fields of the event, or others.
	Payload map[string]any `json:"payload,omitempty"`
}

// Send delivers an event to the webhooks that are for it.
func (s *Server) Send(e Event) error {
	s.lock()
	defer s.unlock()
	repo, err := s.world.addRepository(Repository{FullName: e.Repository})
	if known := s.world.repos[strings.ToLower(e.Repository)]; known != nil {
		repo, err = known, nil
	}
	if err != nil {
		return err
	}
	if e.Branch == "" {
		e.Branch = "main"
	}
	if e.Head == "" {
		e.Head = "topic"
	}
	body := s.payload(repo, e.Action)
	switch e.Event {
	case "check_run":
		body["check_run"] = map[string]any{
			"id": 1, "name": e.Name, "status": e.Status, "head_sha": strings.Repeat("a", 40),
			"check_suite": map[string]any{"id": 1, "head_branch": e.Branch},
		}
	case "pull_request":
		body["number"] = 1
		body["pull_request"] = map[string]any{
			"id": 1, "number": 1, "state": "open", "base": map[string]any{"ref": e.Branch}, "head": map[string]any{"ref": e.Head},
		}
	case "push":
		body["ref"] = "refs/heads/" + e.Branch
		if e.Tag != "" {
			body["ref"] = "refs/tags/" + e.Tag
		}
		body["before"], body["after"] = strings.Repeat("0", 40), strings.Repeat("a", 40)
	}
	for key, value := range e.Payload {
		body[key] = value
	}
	s.emit(e.Event, e.Action, repo, body)
	return nil
}

// SendRaw delivers any body to one webhook, signed as its others are. It says false when
// there is no webhook of that id.
func (s *Server) SendRaw(hookID int64, event string, body []byte) bool {
	s.lock()
	defer s.unlock()
	h := s.hooks.find(hookID)
	if h != nil {
		s.post(h, &delivery{guid: s.newID(), event: event, payload: body})
	}
	return h != nil
}
