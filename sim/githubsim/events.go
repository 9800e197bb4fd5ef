// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// conclusions are the results of jobs in the format of the REST API and webhooks.
var conclusions = map[string]string{ResultSucceeded: "success", ResultFailed: "failure", ResultCanceled: "cancelled"}

// status returns the status of a job in the format of the REST API and webhooks.
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

// restTime returns a time for JSON: null for the zero time.
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

// restJob returns a job in the format of the REST API and webhooks.
func (s *Server) restJob(j *job) object {
	repo := s.api("/repos/%s", j.repo.FullName)
	started := j.Started
	if started.IsZero() {
		started = j.Queued // as on GitHub for a job that waits
	}
	body := object{
		"id": j.Number, "run_id": j.RunID, "run_attempt": 1, "workflow_name": j.Workflow, "name": j.Name,
		"node_id": fmt.Sprintf("CR_%d", j.Number), "head_branch": "main", "head_sha": sha(j.RunID),
		"url": fmt.Sprintf("%s/actions/jobs/%d", repo, j.Number), "run_url": fmt.Sprintf("%s/actions/runs/%d", repo, j.RunID),
		"html_url":      fmt.Sprintf("%s/%s/actions/runs/%d/job/%d", s.home(), j.repo.FullName, j.RunID, j.Number),
		"check_run_url": fmt.Sprintf("%s/check-runs/%d", repo, j.Number),
		"status":        j.status(), "conclusion": orNull(conclusions[j.Result]), "labels": j.Labels, "steps": []any{},
		"created_at": stamp(j.Queued), "started_at": restTime(started), "completed_at": restTime(j.Finished),
		"runner_id": orNull(j.RunnerID), "runner_name": orNull(j.Runner), "runner_group_id": nil, "runner_group_name": nil,
	}
	if j.RunnerID != 0 && j.scaleSet != nil {
		body["runner_group_id"], body["runner_group_name"] = j.scaleSet.group.id, j.scaleSet.group.Name
	}
	return body
}

// payload returns the common part of all events of a repository.
func (s *Server) payload(repo *repository, action string) object {
	body := object{"repository": s.repository(repo), "organization": s.organization(repo.owner), "sender": s.account(userLogin)}
	if action != "" {
		body["action"] = action
	}
	if enterprise := s.world.enterprises[strings.ToLower(repo.owner)]; enterprise != "" {
		body["enterprise"] = s.enterprise(enterprise)
	}
	return body
}

// emitJob sends a job's new state to webhooks.
func (s *Server) emitJob(j *job, action string) {
	if len(s.hooks.list) == 0 {
		return
	}
	body := s.payload(j.repo, action)
	body["workflow_job"] = s.restJob(j)
	s.emit("workflow_job", action, j.repo, body)
}

// Event is an event that is not about one of the server's jobs.
type Event struct {
	// Event is check_run, pull_request, push, or any other with a Payload.
	Event string `json:"event"`
	// Repository is "owner/name". A missing repository is created, as a private one.
	Repository string `json:"repository"`
	// Action, such as created (check_run) or opened (pull_request); push has none.
	Action string `json:"action,omitempty"`
	// Name and Status (queued, in_progress, completed) of a check run.
	Name   string `json:"name,omitempty"`
	Status string `json:"status,omitempty"`
	// Branch is the pushed branch, the target branch of a pull request, or the branch of a check run; "main" if empty.
	Branch string `json:"branch,omitempty"`
	// Tag is pushed instead of a branch.
	Tag string `json:"tag,omitempty"`
	// Head is the head branch of a pull request; "topic" if empty.
	Head string `json:"head,omitempty"`
	// Payload contains additional or replacing fields of the event.
	Payload map[string]any `json:"payload,omitempty"`
}

// Send delivers an event to the webhooks that subscribe to it.
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
	s.hooks.lastEvent++
	switch e.Event {
	case "check_run":
		body["check_run"] = s.sentCheckRun(repo, e)
	case "pull_request":
		body["number"], body["pull_request"] = s.hooks.lastEvent, s.sentPullRequest(repo, e)
		if e.Action == "synchronize" {
			body["before"], body["after"] = sha(s.hooks.lastEvent-1), sha(s.hooks.lastEvent)
		}
	case "push":
		body.with(s.sentPush(repo, e))
	}
	for key, value := range e.Payload {
		body[key] = value
	}
	s.emit(e.Event, e.Action, repo, body)
	return nil
}

// sentCheckRun returns the check run of an event.
func (s *Server) sentCheckRun(repo *repository, e Event) object {
	id := int64(s.hooks.lastEvent)
	run := &checkRun{
		CheckRun:   CheckRun{ID: id, Name: e.Name, HeadSHA: sha(id), Status: cmp.Or(e.Status, "completed")},
		repository: repo.FullName, app: &App{ID: 1, Account: repo.owner}, at: s.now(),
	}
	if run.Status == "completed" {
		run.Conclusion = "success"
	}
	shown := s.restCheckRun(run)
	shown["check_suite"] = s.stamped().with(object{
		"id": id, "node_id": fmt.Sprintf("CS_%d", id), "head_branch": e.Branch, "head_sha": sha(id), "before": sha(id - 1), "after": sha(id),
		"status": run.Status, "conclusion": shown["conclusion"], "app": shown["app"], "pull_requests": []any{},
		"url": s.api("/repos/%s/check-suites/%d", repo.FullName, id),
	})
	return shown
}

// sentPush returns the fields of a push event. Unlike in other events, some of its times are in seconds.
func (s *Server) sentPush(repo *repository, e Event) object {
	ref := "refs/heads/" + e.Branch
	if e.Tag != "" {
		ref = "refs/tags/" + e.Tag
	}
	now, after := s.now(), sha(s.hooks.lastEvent)
	commit := headCommit(after, now).with(object{
		"distinct": true, "url": s.home() + "/" + repo.FullName + "/commit/" + after, "added": []string{}, "removed": []string{}, "modified": []string{"README.md"},
	})
	return object{
		"ref": ref, "base_ref": nil, "before": sha(s.hooks.lastEvent - 1), "after": after, "created": false, "deleted": false, "forced": false,
		"compare": s.home() + "/" + repo.FullName + "/compare/main", "commits": []any{commit}, "head_commit": commit,
		"pusher":     object{"name": userLogin, "email": "octocat@example.com"},
		"repository": s.repository(repo).with(object{"created_at": s.began.Unix(), "pushed_at": now.Unix()}),
	}
}

// sentPullRequest returns the pull request of an event.
func (s *Server) sentPullRequest(repo *repository, e Event) object {
	number, now, user := s.hooks.lastEvent, s.now(), s.account(userLogin)
	page, state, closed := fmt.Sprintf("%s/%s/pull/%d", s.home(), repo.FullName, number), "open", any(nil)
	if e.Action == "closed" {
		state, closed = "closed", stamp(now)
	}
	branch := func(ref string) object {
		return object{"label": repo.owner + ":" + ref, "ref": ref, "sha": sha(number), "user": s.account(repo.owner), "repo": s.repository(repo).with(mergeSettings)}
	}
	pull := linked(s.api("/repos/%s/pulls/%d", repo.FullName, number), "comments commits issue review_comment=comments review_comments=comments statuses")
	links := object{"html": object{"href": page}, "self": object{"href": pull["url"]}}
	for _, name := range []string{"comments", "commits", "issue", "review_comment", "review_comments", "statuses"} {
		links[name] = object{"href": pull[name+"_url"]}
	}
	return pull.with(object{
		"id": number, "node_id": fmt.Sprintf("PR_%d", number), "number": number, "state": state, "locked": false, "title": "A change", "body": nil,
		"base": branch(e.Branch), "head": branch(e.Head), "_links": links, "html_url": page, "diff_url": page + ".diff", "patch_url": page + ".patch",
		"user": user, "author_association": "MEMBER", "assignee": nil, "assignees": []any{}, "requested_reviewers": []any{}, "requested_teams": []any{},
		"labels": []any{}, "milestone": nil, "draft": false, "created_at": stamp(s.began), "updated_at": stamp(now), "closed_at": closed,
		"merged": false, "merged_at": nil, "merged_by": nil, "merge_commit_sha": nil, "mergeable": nil, "mergeable_state": "unknown", "rebaseable": nil,
		"auto_merge": nil, "active_lock_reason": nil, "maintainer_can_modify": false,
		"comments": 0, "review_comments": 0, "commits": 1, "additions": 1, "deletions": 0, "changed_files": 1,
	})
}

// mergeSettings are the repository settings in events about pull requests.
var mergeSettings = object{
	"allow_auto_merge": false, "allow_merge_commit": true, "allow_rebase_merge": true, "allow_squash_merge": true, "allow_update_branch": false,
	"delete_branch_on_merge": false, "use_squash_pr_title_as_default": false, "merge_commit_message": "PR_TITLE", "merge_commit_title": "MERGE_MESSAGE",
	"squash_merge_commit_message": "PR_BODY", "squash_merge_commit_title": "PR_TITLE",
}

// Ping sends GitHub's event for a new webhook. It returns false if there is no such webhook.
func (s *Server) Ping(hookID int64) bool {
	s.lock()
	defer s.unlock()
	h := s.hooks.find(hookID)
	if h == nil {
		return false
	}
	body := object{"zen": "Anything added dilutes everything else.", "hook_id": h.id, "hook": s.restHook(h), "sender": s.account(userLogin)}
	switch h.kind {
	case repoScope:
		body["repository"] = s.repository(s.world.repos[strings.ToLower(h.name)])
	case orgScope:
		body["organization"] = s.organization(h.name)
	}
	s.post(h, &delivery{guid: s.newID(), event: "ping", payload: encode(body)})
	return true
}

// SendRaw delivers any body to one webhook, signed like its other deliveries. It returns false if there is no such
// webhook.
func (s *Server) SendRaw(hookID int64, event string, body []byte) bool {
	s.lock()
	defer s.unlock()
	h := s.hooks.find(hookID)
	if h != nil {
		s.post(h, &delivery{guid: s.newID(), event: event, payload: body})
	}
	return h != nil
}
