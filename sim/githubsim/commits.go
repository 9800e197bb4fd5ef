// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// GitHub's limits for statuses and check runs: https://docs.github.com/en/rest/commits/statuses and
// https://docs.github.com/en/rest/checks/runs.
const (
	mostStatuses    = 1000
	mostDescription = 140
	mostAnnotations = 50
)

// Permissions for statuses and check runs.
const (
	permStatuses = "statuses"
	permChecks   = "checks"
)

// CommitStatus is a status of a commit.
type CommitStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url,omitempty"`
}

// CheckRun is a check run of an App.
type CheckRun struct {
	ID         int64          `json:"id"`
	Name       string         `json:"name"`
	HeadSHA    string         `json:"head_sha"`
	ExternalID string         `json:"external_id"`
	Status     string         `json:"status"`
	Conclusion string         `json:"conclusion,omitempty"`
	Output     CheckRunOutput `json:"output"`
}

// CheckRunOutput is the content of a check run.
type CheckRunOutput struct {
	Title            string            `json:"title"`
	Summary          string            `json:"summary"`
	AnnotationsCount int               `json:"annotations_count"`
	Annotations      []CheckAnnotation `json:"annotations,omitempty"`
}

// CheckAnnotation is displayed next to a line of a file.
type CheckAnnotation struct {
	Path        string `json:"path"`
	StartLine   int    `json:"start_line"`
	EndLine     int    `json:"end_line"`
	StartColumn int    `json:"start_column,omitempty"`
	EndColumn   int    `json:"end_column,omitempty"`
	Level       string `json:"annotation_level"`
	Title       string `json:"title,omitempty"`
	Message     string `json:"message"`
}

// commits holds the reports about commits, by "owner/name@sha" in lower case.
type commits struct {
	statuses map[string][]commitStatus
	runs     map[string][]*checkRun
	last     int64 // id
}

// commitStatus is a status with GitHub's own data.
type commitStatus struct {
	CommitStatus
	id      int64
	creator string
	at      time.Time
}

// checkRun is a check run with GitHub's own data.
type checkRun struct {
	CheckRun
	repository string
	app        *App
	at         time.Time
}

func newCommits() commits {
	return commits{statuses: map[string][]commitStatus{}, runs: map[string][]*checkRun{}}
}

var shaPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

func commitKey(repository, sha string) string { return strings.ToLower(repository) + "@" + sha }

// CommitStatuses returns all statuses of a commit, oldest first.
func (s *Server) CommitStatuses(repository, sha string) []CommitStatus {
	s.rlock()
	defer s.mu.Unlock()
	var statuses []CommitStatus
	for _, status := range s.commits.statuses[commitKey(repository, sha)] {
		statuses = append(statuses, status.CommitStatus)
	}
	return statuses
}

// CheckRuns returns all check runs of a commit, oldest first.
func (s *Server) CheckRuns(repository, sha string) []CheckRun {
	s.rlock()
	defer s.mu.Unlock()
	var runs []CheckRun
	for _, run := range s.commits.runs[commitKey(repository, sha)] {
		runs = append(runs, run.CheckRun)
	}
	return runs
}

func (s *Server) commitRoutes(mux *http.ServeMux) {
	repo := "/repos/{owner}/{repo}"
	s.route(mux, "GET "+repo+"/commits/{sha}/status", EndpointCombinedStatus, s.rest(s.getCombinedStatus))
	s.route(mux, "POST "+repo+"/statuses/{sha}", EndpointCreateStatus, s.rest(s.createStatus))
	s.route(mux, "GET "+repo+"/commits/{sha}/check-runs", EndpointCheckRuns, s.rest(s.listCheckRuns))
	s.route(mux, "POST "+repo+"/check-runs", EndpointCreateCheckRun, s.rest(s.createCheckRun))
	s.route(mux, "PATCH "+repo+"/check-runs/{id}", EndpointUpdateCheckRun, s.rest(s.updateCheckRun))
}

// commitOf returns the key of the call's commit, or the answer for a refused call.
func (s *Server) commitOf(r *http.Request, id *identity, sha, permission, level string) (string, answer, bool) {
	name := r.PathValue("owner") + "/" + r.PathValue("repo")
	if refusal, granted := id.permitted(s.restScope(r), permission, level); !granted {
		return "", refusal, false
	}
	if !shaPattern.MatchString(sha) {
		return "", unprocessable("No commit found for SHA: " + sha), false
	}
	return commitKey(name, sha), answer{}, true
}

func unprocessable(message string) answer {
	return restError(http.StatusUnprocessableEntity, message)
}

func (s *Server) getCombinedStatus(r *http.Request, id *identity) answer {
	key, refusal, found := s.commitOf(r, id, r.PathValue("sha"), permStatuses, "read")
	if !found {
		return refusal
	}
	commit, latest := r.PathValue("sha"), []object{}
	states, seen := map[string]bool{}, map[string]bool{}
	for _, status := range slices.Backward(s.commits.statuses[key]) {
		if !seen[status.Context] {
			seen[status.Context], states[status.State] = true, true
			latest = append(latest, s.restStatus(r, commit, status))
		}
	}
	state := "success"
	switch {
	case states["failure"] || states["error"]:
		state = "failure"
	case states["pending"] || len(latest) == 0:
		state = "pending"
	}
	page, link := paginate(r, latest)
	at := s.api("/repos/%s/%s/commits/%s", r.PathValue("owner"), r.PathValue("repo"), commit)
	return withLink(ok(object{
		"sha": commit, "state": state, "total_count": len(latest), "statuses": page, "url": at + "/status", "commit_url": at,
		"repository": s.repository(s.repositoryOf(r)),
	}), link)
}

// restStatus returns a commit status without its creator, as in lists.
func (s *Server) restStatus(r *http.Request, commit string, status commitStatus) object {
	return object{
		"id": status.id, "node_id": fmt.Sprintf("SC_%d", status.id), "state": status.State, "context": status.Context,
		"description": orNull(status.Description), "target_url": orNull(status.TargetURL), "avatar_url": s.home() + "/avatars/" + status.creator,
		"url":        s.api("/repos/%s/%s/statuses/%s", r.PathValue("owner"), r.PathValue("repo"), commit),
		"created_at": stamp(status.at), "updated_at": stamp(status.at),
	}
}

func (s *Server) createStatus(r *http.Request, id *identity) answer {
	key, refusal, found := s.commitOf(r, id, r.PathValue("sha"), permStatuses, "write")
	if !found {
		return refusal
	}
	status := commitStatus{creator: id.login, at: s.now()}
	if decode(r, &status.CommitStatus) != nil {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	known := s.commits.statuses[key]
	switch {
	case !slices.Contains([]string{"success", "failure", "error", "pending"}, status.State):
		return unprocessable("Validation Failed: state")
	case utf8.RuneCountInString(status.Description) > mostDescription:
		return unprocessable("Validation Failed: description is too long (maximum is 140 characters)")
	case len(known) >= mostStatuses:
		return unprocessable("Validation Failed: This SHA and context has reached the maximum number of statuses.")
	}
	s.commits.last++
	status.id = s.commits.last
	s.commits.statuses[key] = append(known, status)
	return created(s.restStatus(r, r.PathValue("sha"), status).with(object{"creator": s.account(id.login)}))
}

func (s *Server) listCheckRuns(r *http.Request, id *identity) answer {
	key, refusal, found := s.commitOf(r, id, r.PathValue("sha"), permChecks, "read")
	if !found {
		return refusal
	}
	name, all := r.URL.Query().Get("check_name"), r.URL.Query().Get("filter") == "all"
	runs, seen := []object{}, map[string]bool{}
	for _, run := range slices.Backward(s.commits.runs[key]) {
		if seen[run.Name] && !all || name != "" && run.Name != name {
			continue
		}
		seen[run.Name] = true
		runs = append(runs, s.restCheckRun(run))
	}
	page, link := paginate(r, runs)
	return withLink(ok(map[string]any{"total_count": len(runs), "check_runs": page}), link)
}

// mayCheck allows Apps only.
func (s *Server) mayCheck(id *identity) (answer, bool) {
	return restError(http.StatusForbidden, "You must authenticate via a GitHub App."), id.app != nil
}

func (s *Server) createCheckRun(r *http.Request, id *identity) answer {
	if refusal, may := s.mayCheck(id); !may {
		return refusal
	}
	run := &checkRun{repository: r.PathValue("owner") + "/" + r.PathValue("repo"), app: id.app, at: s.now()}
	if decode(r, &run.CheckRun) != nil {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	key, refusal, found := s.commitOf(r, id, run.HeadSHA, permChecks, "write")
	switch {
	case !found:
		return refusal
	case run.Name == "", run.Status == "completed" && run.Conclusion == "":
		return unprocessable("Invalid request: name, or a conclusion of what is completed, is missing")
	}
	if problem := run.Output.problem(); problem != "" {
		return unprocessable(problem)
	}
	s.commits.last++
	run.ID, run.Output.AnnotationsCount = s.commits.last, len(run.Output.Annotations)
	s.commits.runs[key] = append(s.commits.runs[key], run)
	return created(s.restCheckRun(run))
}

// restCheckRun returns a check run. Its annotations are listed separately.
func (s *Server) restCheckRun(run *checkRun) object {
	at := s.api("/repos/%s/check-runs/%d", run.repository, run.ID)
	page := fmt.Sprintf("%s/%s/runs/%d", s.home(), run.repository, run.ID)
	o := object{
		"id": run.ID, "node_id": fmt.Sprintf("CR_%d", run.ID), "name": run.Name, "head_sha": run.HeadSHA, "external_id": run.ExternalID,
		"status": run.Status, "conclusion": orNull(run.Conclusion), "started_at": stamp(run.at), "completed_at": nil,
		"url": at, "html_url": page, "details_url": page, "check_suite": object{"id": run.ID}, "app": s.restApp(run.app), "pull_requests": []any{},
		"output": object{
			"title": orNull(run.Output.Title), "summary": orNull(run.Output.Summary), "text": nil,
			"annotations_count": run.Output.AnnotationsCount, "annotations_url": at + "/annotations",
		},
	}
	if run.Status == "completed" {
		o["completed_at"] = stamp(run.at)
	}
	return o
}

func (s *Server) updateCheckRun(r *http.Request, id *identity) answer {
	if refusal, may := s.mayCheck(id); !may {
		return refusal
	}
	if refusal, granted := id.permitted(s.restScope(r), permChecks, "write"); !granted {
		return refusal
	}
	run := s.checkRun(r.PathValue("owner")+"/"+r.PathValue("repo"), r.PathValue("id"))
	if run == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	var change CheckRun
	if decode(r, &change) != nil {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	if problem := change.Output.problem(); problem != "" {
		return unprocessable(problem)
	}
	run.Output.Title, run.Output.Summary = change.Output.Title, change.Output.Summary
	run.Output.Annotations = append(run.Output.Annotations, change.Output.Annotations...)
	run.Output.AnnotationsCount = len(run.Output.Annotations)
	return ok(s.restCheckRun(run))
}

func (s *Server) checkRun(repository, id string) *checkRun {
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return nil
	}
	for key, runs := range s.commits.runs {
		if !strings.HasPrefix(key, strings.ToLower(repository)+"@") {
			continue
		}
		for _, run := range runs {
			if run.ID == number {
				return run
			}
		}
	}
	return nil
}

func (o CheckRunOutput) problem() string {
	if o.Title == "" || o.Summary == "" {
		return "Invalid request: title and summary of the output weren't supplied."
	}
	if len(o.Annotations) > mostAnnotations {
		return "Invalid request: no more than 50 items are allowed in annotations."
	}
	for _, a := range o.Annotations {
		if a.Path == "" || a.StartLine < 1 || a.EndLine < a.StartLine || a.Message == "" || !slices.Contains([]string{"notice", "warning", "failure"}, a.Level) {
			return "Invalid request: an annotation wants path, start_line, end_line, annotation_level and message."
		}
		if a.StartColumn > 0 && a.StartLine != a.EndLine {
			return "Invalid request: columns are for annotations of one line."
		}
	}
	return ""
}
