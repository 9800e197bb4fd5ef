// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// runKey identifies a workflow run; the ids come from callers that add jobs.
type runKey struct {
	repo *repository
	id   int64
}

type workflowRun struct {
	id   int64
	jobs []*job
}

// addToRun adds a job to its workflow run.
func (x *jobIndex) addToRun(j *job) {
	key := runKey{j.repo, j.RunID}
	run := x.runs[key]
	if run == nil {
		run = &workflowRun{id: j.RunID}
		x.runs[key] = run
		x.runsOf[j.repo] = append(x.runsOf[j.repo], run)
	}
	run.jobs = append(run.jobs, j)
}

// status returns GitHub's status of a run, derived from its jobs. A run with a job that is done or running is in
// progress, even if other jobs are queued.
func (run *workflowRun) status() string {
	count := map[string]int{}
	for _, j := range run.jobs {
		count[j.status()]++
	}
	switch {
	case count["completed"] == len(run.jobs):
		return "completed"
	case count["in_progress"] > 0 || count["completed"] > 0 && count["queued"] > 0:
		return "in_progress"
	case count["queued"] > 0:
		return "queued"
	default:
		return "waiting"
	}
}

func (run *workflowRun) conclusion() any {
	conclusion := "success"
	for _, j := range run.jobs {
		switch {
		case j.State != JobCompleted:
			return nil
		case j.Result != ResultSucceeded:
			conclusion = conclusions[j.Result]
		}
	}
	return conclusion
}

func (s *Server) restRun(repo *repository, run *workflowRun) object {
	first, at, shown := run.jobs[0], s.api("/repos/%s", repo.FullName), s.repository(repo)
	return linked(fmt.Sprintf("%s/actions/runs/%d", at, run.id), "jobs logs cancel rerun artifacts").with(object{
		"id": run.id, "node_id": fmt.Sprintf("WFR_%d", run.id), "name": first.Workflow, "path": ".github/workflows/" + first.Workflow,
		"run_number": run.id, "run_attempt": 1, "event": first.spec.Event, "status": run.status(), "conclusion": run.conclusion(),
		"head_branch": "main", "head_sha": sha(run.id), "head_commit": headCommit(sha(run.id), first.Queued), "display_title": first.Workflow,
		"workflow_id": 1, "workflow_url": at + "/actions/workflows/1", "check_suite_url": fmt.Sprintf("%s/check-suites/%d", at, run.id),
		"html_url":   fmt.Sprintf("%s/%s/actions/runs/%d", s.home(), repo.FullName, run.id),
		"created_at": stamp(first.Queued), "run_started_at": stamp(first.Queued), "updated_at": stamp(first.Queued),
		"repository": shown, "head_repository": shown, "pull_requests": []any{}, "referenced_workflows": []any{},
		"actor": s.account(userLogin), "triggering_actor": s.account(userLogin), "previous_attempt_url": nil, "check_suite_id": run.id,
	})
}

// workflowRepository returns the repository in the path, if the identity may read its workflows.
func (s *Server) workflowRepository(r *http.Request, id *identity) (*repository, answer) {
	sc := s.restScope(r)
	if refusal, granted := id.permitted(sc, permActions, "read"); !granted {
		return nil, refusal
	}
	repo := s.world.repos[strings.ToLower(sc.name)]
	if repo == nil {
		return nil, restError(http.StatusNotFound, "Not Found")
	}
	return repo, answer{}
}

func (s *Server) listRuns(r *http.Request, id *identity) answer {
	repo, refusal := s.workflowRepository(r, id)
	if repo == nil {
		return refusal
	}
	status := r.URL.Query().Get("status")
	found := []*workflowRun{}
	for _, run := range slices.Backward(s.jobs.runsOf[repo]) {
		if status == "" || status == run.status() || status == run.conclusion() {
			found = append(found, run)
		}
	}
	page, link := paginate(r, found)
	runs := make([]object, 0, len(page))
	for _, run := range page {
		runs = append(runs, s.restRun(repo, run))
	}
	return withLink(ok(map[string]any{"total_count": len(found), "workflow_runs": runs}), link)
}

func (s *Server) listRunJobs(r *http.Request, id *identity) answer {
	repo, refusal := s.workflowRepository(r, id)
	if repo == nil {
		return refusal
	}
	run := s.jobs.runs[runKey{repo, int64(pathID(r, "run"))}]
	if run == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	page, link := paginate(r, run.jobs)
	jobs := make([]object, 0, len(page))
	for _, j := range page {
		jobs = append(jobs, s.restJob(j))
	}
	return withLink(ok(map[string]any{"total_count": len(run.jobs), "jobs": jobs}), link)
}

func (s *Server) getWorkflowJob(r *http.Request, id *identity) answer {
	repo, refusal := s.workflowRepository(r, id)
	if repo == nil {
		return refusal
	}
	at := pathID(r, "job") - firstJobNumber
	if at < 0 || at >= len(s.jobs.ordered) || s.jobs.ordered[at].repo != repo {
		return restError(http.StatusNotFound, "Not Found")
	}
	return ok(s.restJob(s.jobs.ordered[at]))
}

// repositories lists the matching repositories, by name.
func (s *Server) repositories(fits func(*repository) bool) []object {
	var found []*repository
	for _, repo := range s.world.repos {
		if fits(repo) {
			found = append(found, repo)
		}
	}
	slices.SortFunc(found, func(a, b *repository) int { return strings.Compare(a.FullName, b.FullName) })
	out := make([]object, 0, len(found))
	for _, repo := range found {
		out = append(out, s.repository(repo))
	}
	return out
}

func (s *Server) listOrgRepositories(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if sc == nil || !id.reaches(sc) {
		return restError(http.StatusNotFound, "Not Found")
	}
	page, link := paginate(r, s.repositories(func(repo *repository) bool { return strings.EqualFold(repo.owner, sc.name) }))
	return withLink(ok(page), link)
}

// listInstallationRepositories lists the repositories of an App's installation.
func (s *Server) listInstallationRepositories(r *http.Request, id *identity) answer {
	if id.app == nil {
		return restError(http.StatusForbidden, "You must authenticate with an installation access token in order to list repositories for an installation.")
	}
	all := s.repositories(func(repo *repository) bool { return strings.EqualFold(repo.owner, id.app.Account) })
	page, link := paginate(r, all)
	return withLink(ok(map[string]any{"total_count": len(all), "repository_selection": "all", "repositories": page}), link)
}

// listGroupRepositories lists the repositories of a runner group with the visibility "selected".
func (s *Server) listGroupRepositories(r *http.Request, id *identity) answer {
	sc := s.restScope(r)
	if refusal, granted := id.require(sc, "read"); !granted {
		return refusal
	}
	g := sc.group(pathID(r, "id"))
	if g == nil {
		return restError(http.StatusNotFound, "Not Found")
	}
	all := s.repositories(func(repo *repository) bool {
		return g.Visibility == "selected" && strings.EqualFold(repo.owner, sc.name) &&
			slices.ContainsFunc(g.Repositories, func(name string) bool { return strings.EqualFold(name, repo.FullName) })
	})
	page, link := paginate(r, all)
	return withLink(ok(map[string]any{"total_count": len(all), "repositories": page}), link)
}

func (s *Server) getRateLimit(_ *http.Request, id *identity) answer {
	limit, used, resets := s.budget(id)
	core := object{"limit": limit, "used": used, "remaining": limit - used, "reset": resets.Unix()}
	search := object{"limit": 30, "used": 0, "remaining": 30, "reset": resets.Unix()}
	return ok(object{"resources": object{"core": core, "search": search}, "rate": core})
}
