// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	gogithub "github.com/google/go-github/v89/github"
	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
)

const (
	// mostRuns bounds how many unfinished runs of a repository are looked into.
	mostRuns = 300
	// mostJobs bounds how many jobs of a repository are told of, as mostListed does.
	mostJobs = 20_000
	// runsAtOnce is how many of them at a time.
	runsAtOnce = 4
	// reposAge is how long the repositories of an organization are taken to be as they were, for each
	// page of them; reposMost bounds that.
	reposAge, reposMost = time.Minute, 10 * time.Minute
)

// Job is a job of a workflow run.
type Job struct {
	ID, RunID      int64
	Name, Workflow string `cut:"1024"`
	// Status is queued, waiting, pending, in_progress or completed.
	Status string
	// Conclusion of a completed one.
	Conclusion string
	Labels     []string
	// RunnerID, RunnerName and RunnerGroup are of the runner that has it; 0 and empty if none.
	RunnerID    int64
	RunnerName  string
	RunnerGroup string
	CreatedAt   time.Time
	StartedAt   time.Time
	CompletedAt time.Time
}

// JobList are the unfinished jobs of a repository.
type JobList struct {
	Jobs []Job
	// Complete is false when there are more runs than are looked into, 300, or more jobs than are told of,
	// 20,000 or 8 MB: then there may be more jobs.
	Complete bool
	// At is when the list was begun.
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

// Job looks a job of OWNER/NAME up; nil when there is none.
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

// unfinished are the states of runs that have jobs to come, in the order in which a run takes
// them: one that moves on meanwhile is met in the next.
var unfinished = []string{"waiting", "queued", "in_progress"}

// Jobs lists the unfinished jobs of a repository's unfinished runs. A list that is no older than
// maxAge, or than 15 s, is shared by all who ask. What didn't change since is not counted by GitHub.
func (c *Client) Jobs(ctx context.Context, repository string, maxAge time.Duration) (JobList, error) {
	owner, name, err := splitRepository(repository)
	if err != nil {
		return JobList{}, err
	}
	return c.jobs.get(ctx, c.options.Now, strings.ToLower(repository), max(maxAge, leastAge), func(ctx context.Context) (JobList, error) {
		list := JobList{Complete: true, At: c.options.Now()}
		var runs []int64
		for _, status := range unfinished {
			more, err := c.runs(ctx, owner, name, status)
			if err != nil {
				return JobList{}, err
			}
			runs = append(runs, more...)
		}
		slices.Sort(runs)
		if runs = slices.Compact(runs); len(runs) > mostRuns {
			runs, list.Complete = runs[:mostRuns], false // the oldest come first
		}
		r := &room{}
		list.Jobs, err = c.jobsOf(ctx, owner, name, runs, r)
		list.Complete = list.Complete && !r.isFull()
		if len(list.Jobs) > mostJobs {
			list.Jobs, list.Complete = slices.Clone(list.Jobs[:mostJobs]), false
		}
		return list, err
	})
}

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

// jobsOfRun lists the unfinished jobs of a run, as long as there is room.
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
			// It was listed just now. If it was deleted since, the next list does not have it; until then its jobs are not known to be over.
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

// Repositories returns the repositories, as OWNER/NAME, that patterns are for: OWNER/NAME, or NAME
// in the connection's organization, with * for any characters but /. Only patterns with a * cost
// a listing, which is shared for a minute for each hundred repositories, ten at most.
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
	for _, name := range all {
		if matches, err := path.Match(strings.ToLower(pattern), strings.ToLower(name)); err == nil && matches {
			found = append(found, owner+"/"+name)
		}
	}
	return found, nil
}

// repositoryList are the repositories of an organization.
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
