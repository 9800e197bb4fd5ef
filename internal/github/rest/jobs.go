// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v89/github"
	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/jobmatch"
)

const (
	// mostRuns is the maximum number of unfinished runs of a repository whose jobs are read. If there are more, the
	// list is incomplete.
	mostRuns = 300
	// mostJobs is the maximum number of jobs of a repository that are returned. mostListed limits their size.
	mostJobs = 20_000
	// runsAtOnce is how many runs are read concurrently.
	runsAtOnce = 4
	// reposAge is how long a listing of an organization's repositories is cached for each of its pages, and reposMost
	// is the maximum for all of them.
	reposAge, reposMost = time.Minute, 10 * time.Minute
)

// Job is a job of a workflow run.
type Job struct {
	ID, RunID      int64
	Name, Workflow string `cut:"1024"`
	// Status is queued, waiting, pending, in_progress or completed.
	Status string
	// Conclusion is set if the job is completed.
	Conclusion string
	Labels     []string
	// RunnerID, RunnerName and RunnerGroup describe the runner that runs the job; 0 and empty for none.
	RunnerID    int64
	RunnerName  string
	RunnerGroup string
	CreatedAt   time.Time
	StartedAt   time.Time
	CompletedAt time.Time
}

// JobList holds the unfinished jobs of a repository.
type JobList struct {
	Jobs []Job
	// Complete is false if the list may be incomplete: there are more than 300 runs, 20,000 jobs or 8 MB of jobs.
	Complete bool
	// At is the time when the listing began.
	At time.Time
}

func jobOf(j *gogithub.WorkflowJob) Job {
	if j == nil {
		return Job{}
	}
	return Job{
		ID: j.GetID(), RunID: j.GetRunID(), Name: j.GetName(), Workflow: j.GetWorkflowName(), Status: j.GetStatus(), Conclusion: j.GetConclusion(),
		Labels: j.Labels, RunnerID: j.GetRunnerID(), RunnerName: j.GetRunnerName(), RunnerGroup: j.GetRunnerGroupName(),
		CreatedAt: j.GetCreatedAt().Time, StartedAt: j.GetStartedAt().Time, CompletedAt: j.GetCompletedAt().Time,
	}
}

// Job returns a job of OWNER/NAME, or nil if it does not exist.
func (c *Client) Job(ctx context.Context, repository string, id int64) (*Job, error) {
	owner, name, err := splitRepository(repository)
	if err != nil {
		return nil, err
	}
	doing := fmt.Sprintf("looking for job %d of %s", id, repository)
	found, err := ask(ctx, c, kindJob, doing, func(ctx context.Context, gh *gogithub.Client) (*gogithub.WorkflowJob, *gogithub.Response, error) {
		return something(gh.Actions.GetWorkflowJobByID(ctx, owner, name, id))
	})
	if github.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	job, err := fitting(doing, jobOf(found), &room{})
	return &job, err
}

// unfinished are the states of runs that may have unfinished jobs, in the order in which a run passes through them. A
// run that changes its state during the listing is found in its next state.
var unfinished = []string{"waiting", "queued", "in_progress"}

// Jobs lists the unfinished jobs of a repository's unfinished runs. Callers share a listing that is no older than
// maxAge, or 15 s if maxAge is shorter. Unchanged pages do not count towards GitHub's limit.
func (c *Client) Jobs(ctx context.Context, repository string, maxAge time.Duration) (JobList, error) {
	owner, name, err := splitRepository(repository)
	if err != nil {
		return JobList{}, err
	}
	return c.jobs.get(ctx, c.options.Now, strings.ToLower(repository), max(maxAge, leastAge), func(ctx context.Context) (JobList, error) {
		list := JobList{At: c.options.Now()}
		of := map[string][]int64{}
		for _, status := range unfinished {
			var err error
			if of[status], err = c.runs(ctx, owner, name, status); err != nil {
				return JobList{}, err
			}
		}
		runs, all := choose(of["queued"], of["in_progress"], of["waiting"])
		r := &room{}
		list.Jobs, err = c.jobsOf(ctx, owner, name, runs, r)
		list.Complete = all && !r.isFull()
		if len(list.Jobs) > mostJobs {
			list.Jobs, list.Complete = slices.Clone(list.Jobs[:mostJobs]), false
		}
		return list, err
	})
}

// choose returns the runs whose jobs are read, at most mostRuns, and reports whether these are all runs. Runs that only
// wait for an approval come last, because their jobs need no runners yet. A repository may have many of them for weeks.
func choose(queued, running, waiting []int64) (runs []int64, all bool) {
	seen := map[int64]bool{}
	for _, id := range slices.Concat(queued, running, waiting) {
		if seen[id] { // its state changed during the listing
			continue
		}
		if len(runs) == mostRuns {
			return runs, false
		}
		seen[id] = true
		runs = append(runs, id)
	}
	return runs, true
}

// runs lists the runs in a state, the newest first, as GitHub does. It returns at most one more than mostRuns.
func (c *Client) runs(ctx context.Context, owner, name, status string) ([]int64, error) {
	var ids []int64
	doing := fmt.Sprintf("listing the runs of %s/%s", owner, name)
	all := elements(ctx, c, kindRuns, doing, &room{}, (*gogithub.WorkflowRuns).GetWorkflowRuns, (*gogithub.WorkflowRun).GetID, func(ctx context.Context, gh *gogithub.Client, page gogithub.ListOptions) (*gogithub.WorkflowRuns, *gogithub.Response, error) {
		o := &gogithub.ListWorkflowRunsOptions{Status: status, ExcludePullRequests: true, ListOptions: page}
		return something(gh.Actions.ListRepositoryWorkflowRuns(ctx, owner, name, o))
	})
	for id, err := range all {
		if err != nil {
			return nil, err
		}
		if ids = append(ids, id); len(ids) > mostRuns {
			break
		}
	}
	return ids, nil
}

func (c *Client) jobsOf(ctx context.Context, owner, name string, runs []int64, r *room) ([]Job, error) {
	perRun := make([][]Job, len(runs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runsAtOnce)
	for i, id := range runs {
		g.Go(func() (err error) {
			perRun[i], err = c.jobsOfRun(ctx, owner, name, id, r)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(perRun...), nil
}

// jobsOfRun lists the unfinished jobs of a run until the room is full.
func (c *Client) jobsOfRun(ctx context.Context, owner, name string, run int64, r *room) ([]Job, error) {
	var jobs []Job
	doing := fmt.Sprintf("listing the jobs of %s/%s", owner, name)
	all := elements(ctx, c, kindJobs, doing, r, (*gogithub.Jobs).GetJobs, jobOf, func(ctx context.Context, gh *gogithub.Client, page gogithub.ListOptions) (*gogithub.Jobs, *gogithub.Response, error) {
		return something(gh.Actions.ListWorkflowJobs(ctx, owner, name, run, &gogithub.ListWorkflowJobsOptions{Filter: "latest", ListOptions: page}))
	})
	for j, err := range all {
		if r.isFull() {
			break
		}
		if github.IsNotFound(err) {
			// GitHub has just listed the run. If it was deleted since, the next listing does not contain it. Until
			// then, nothing proves that its jobs have ended, so this listing fails.
			return nil, github.NewError(github.KindUnexpected, doing, 0, 0, "GitHub lists a workflow run and does not know its jobs", err)
		}
		if err != nil {
			return nil, err
		}
		if j.Status != "completed" {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// Repositories returns the repositories, as OWNER/NAME, that match patterns. A pattern is OWNER/NAME, or NAME in the
// connection's organization; * matches any characters but /. Only a NAME with a * needs a listing. A listing is cached
// for a minute per page of a hundred repositories, and for ten minutes at most.
func (c *Client) Repositories(ctx context.Context, patterns []string) ([]string, error) {
	var found []string
	for _, pattern := range patterns {
		owner, name, ok := strings.Cut(pattern, "/")
		if !ok {
			owner, name = c.target.Owner, pattern
		}
		if !strings.Contains(name, "*") {
			if _, _, err := splitRepository(owner + "/" + name); err != nil {
				return nil, err
			}
			found = append(found, owner+"/"+name)
			continue
		}
		some, err := c.matching(ctx, owner, name)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func (c *Client) matching(ctx context.Context, owner, pattern string) ([]string, error) {
	if !github.IsName(owner) {
		return nil, github.NewError(github.KindUnexpected, "listing repositories", 0, 0, fmt.Sprintf("%q is no owner of repositories: say OWNER/NAME", owner), nil)
	}
	all := []string{c.target.Name}
	if c.target.Scope != github.Repository {
		var err error
		if all, err = c.repositoriesOf(ctx, owner); err != nil {
			return nil, err
		}
	} else if !strings.EqualFold(owner, c.target.Owner) {
		return nil, nil
	}
	var found []string
	matches := jobmatch.CompileRepositories([]string{pattern})
	for _, name := range all {
		if matches.AnyRepository(name) {
			found = append(found, owner+"/"+name)
		}
	}
	return found, nil
}

// repositoryList holds the repositories of an organization.
type repositoryList struct {
	Names []string
	At    time.Time
}

func (c *Client) repositoriesOf(ctx context.Context, owner string) ([]string, error) {
	get := func(maxAge time.Duration) (repositoryList, error) {
		return c.repos.get(ctx, c.options.Now, strings.ToLower(owner), maxAge, func(ctx context.Context) (repositoryList, error) {
			at := c.options.Now()
			names, err := c.listRepositories(ctx, owner)
			return repositoryList{Names: names, At: at}, err
		})
	}
	list, err := get(reposMost)
	age := min(reposMost, reposAge*time.Duration(1+len(list.Names)/pageSize))
	if err == nil && c.options.Now().Sub(list.At) > age {
		list, err = get(age)
	}
	return list.Names, err
}

func (c *Client) listRepositories(ctx context.Context, owner string) ([]string, error) {
	var names []string
	named := func(r *gogithub.Repository) string {
		if r.GetArchived() || r.GetDisabled() {
			return ""
		}
		return r.GetName()
	}
	all := elements(ctx, c, kindRepos, "listing the repositories of "+owner, &room{}, slices.Clone[[]*gogithub.Repository], named, func(ctx context.Context, gh *gogithub.Client, page gogithub.ListOptions) ([]*gogithub.Repository, *gogithub.Response, error) {
		return listed(gh.Repositories.ListByOrg(ctx, owner, &gogithub.RepositoryListByOrgOptions{ListOptions: page}))
	})
	for name, err := range all {
		if err != nil {
			return nil, err
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

func splitRepository(repository string) (owner, name string, err error) {
	owner, name, ok := strings.Cut(repository, "/")
	if !ok || !github.IsName(owner) || !github.IsName(name) {
		return "", "", github.NewError(github.KindUnexpected, "looking for a repository", 0, 0, fmt.Sprintf("%q is no OWNER/NAME", repository), nil)
	}
	return owner, name, nil
}
