// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of what is told of a commit, as https://docs.github.com/en/rest/commits/statuses and
// https://docs.github.com/en/rest/checks/runs have them.
const (
	mostStatuses    = 1000
	mostDescription = 140
	mostAnnotations = 50
)

// Permissions to tell of commits.
const (
	permStatuses = "statuses"
	permChecks   = "checks"
)

// CommitStatus is one that somebody set.
type CommitStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url,omitempty"`
}

// CheckRun is one that an App made.
type CheckRun struct {
	ID         int64          `json:"id"`
	Name       string         `json:"name"`
	HeadSHA    string         `json:"head_sha"`
	ExternalID string         `json:"external_id"`
	Status     string         `json:"status"`
	Conclusion string         `json:"conclusion,omitempty"`
	Output     CheckRunOutput `json:"output"`
}

// CheckRunOutput is what a check run shows.
type CheckRunOutput struct {
	Title            string            `json:"title"`
	Summary          string            `json:"summary"`
	AnnotationsCount int               `json:"annotations_count"`
	Annotations      []CheckAnnotation `json:"annotations,omitempty"`
}

// CheckAnnotation is shown beside a line of a file.
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

// commits is what was told of commits, by "owner/name@sha" in lower case.
type commits struct {
	statuses map[string][]CommitStatus
	runs     map[string][]*CheckRun
	lastRun  int64
}

func newCommits() commits {
	return commits{statuses: map[string][]CommitStatus{}, runs: map[string][]*CheckRun{}}
}

var shaPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

func commitKey(repository, sha string) string { return strings.ToLower(repository) + "@" + sha }

// CommitStatuses returns all statuses that were set of a commit, the oldest first.
func (s *Server) CommitStatuses(repository, sha string) []CommitStatus {
	s.rlock()
	defer s.mu.Unlock()
	return slices.Clone(s.commits.statuses[commitKey(repository, sha)])
}

// CheckRuns returns all check runs of a commit, the oldest first.
func (s *Server) CheckRuns(repository, sha string) []CheckRun {
	s.rlock()
	defer s.mu.Unlock()
	var runs []CheckRun
	for _, run := range s.commits.runs[commitKey(repository, sha)] {
		runs = append(runs, *run)
	}
	return runs
}

func (s *Server) commitRoutes(mux *http.ServeMux) {
	repo := "/repos/{owner}/{repo}"
	mux.Handle("GET "+repo+"/commits/{sha}/status", s.serve(EndpointCombinedStatus, s.rest(s.getCombinedStatus)))
	mux.Handle("POST "+repo+"/statuses/{sha}", s.serve(EndpointCreateStatus, s.rest(s.createStatus)))
	mux.Handle("GET "+repo+"/commits/{sha}/check-runs", s.serve(EndpointCheckRuns, s.rest(s.listCheckRuns)))
	mux.Handle("POST "+repo+"/check-runs", s.serve(EndpointCreateCheckRun, s.rest(s.createCheckRun)))
	mux.Handle("PATCH "+repo+"/check-runs/{id}", s.serve(EndpointUpdateCheckRun, s.rest(s.updateCheckRun)))
}

// commitOf is the key of the commit that a call is about, or the answer to give instead.
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
	latest := []CommitStatus{}
	for _, status := range slices.Backward(s.commits.statuses[key]) {
		if !slices.ContainsFunc(latest, func(known CommitStatus) bool { return known.Context == status.Context }) {
			latest = append(latest, status)
		}
	}
	page, link := paginate(r, latest)
	return withLink(ok(map[string]any{"sha": r.PathValue("sha"), "total_count": len(latest), "statuses": page}), link)
}

func (s *Server) createStatus(r *http.Request, id *identity) answer {
	key, refusal, found := s.commitOf(r, id, r.PathValue("sha"), permStatuses, "write")
	if !found {
		return refusal
	}
	var status CommitStatus
	if decode(r, &status) != nil {
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
	s.commits.statuses[key] = append(known, status)
	return created(status)
}

func (s *Server) listCheckRuns(r *http.Request, id *identity) answer {
	key, refusal, found := s.commitOf(r, id, r.PathValue("sha"), permChecks, "read")
	if !found {
		return refusal
	}
	name, all := r.URL.Query().Get("check_name"), r.URL.Query().Get("filter") == "all"
	runs := []CheckRun{}
	for _, run := range slices.Backward(s.commits.runs[key]) {
		older := !all && slices.ContainsFunc(runs, func(known CheckRun) bool { return known.Name == run.Name })
		if older || name != "" && run.Name != name {
			continue
		}
		listed := *run
		listed.Output.Annotations = nil // they have a list of their own
		runs = append(runs, listed)
	}
	page, link := paginate(r, runs)
	return withLink(ok(map[string]any{"total_count": len(runs), "check_runs": page}), link)
}

// mayCheck lets in Apps alone.
func (s *Server) mayCheck(id *identity) (answer, bool) {
	return restError(http.StatusForbidden, "You must authenticate via a GitHub App."), id.app != nil
}

func (s *Server) createCheckRun(r *http.Request, id *identity) answer {
	if refusal, may := s.mayCheck(id); !may {
		return refusal
	}
	run := &CheckRun{}
	if decode(r, run) != nil {
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
	s.commits.lastRun++
	run.ID, run.Output.AnnotationsCount = s.commits.lastRun, len(run.Output.Annotations)
	s.commits.runs[key] = append(s.commits.runs[key], run)
	return created(*run)
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
	return ok(*run)
}

func (s *Server) checkRun(repository, id string) *CheckRun {
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
