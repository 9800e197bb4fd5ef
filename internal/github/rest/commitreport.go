// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"context"
	"fmt"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/internal/wording"
)

// CommitState is the state of a commit.
type CommitState string

// States of a commit, by GitHub's names.
const (
	CommitSuccess CommitState = "success"
	CommitFailure CommitState = "failure"
	// CommitError is for a problem that a retry may fix.
	CommitError CommitState = "error"
)

// Limits of GitHub's REST API (docs.github.com/rest/commits/statuses and /rest/checks/runs).
const (
	mostDescription    = 140    // of a status, in characters
	mostSummary        = 65_535 // of a check run, in characters
	mostMessage        = 16_000 // of an annotation, in characters; GitHub's limit of 64 kB is too much to read
	annotationsAtOnce  = 50     // in a request
	mostAnnotations    = 100    // in a check run; Corral's own limit
	maxAnnotationTitle = 255
)

// CommitReport is the content of a commit status and a check run.
type CommitReport struct {
	// Name is the context of the status and the name of the check run.
	Name string
	// ID distinguishes this report from other reports with the same name and commit. If GitHub already has the report,
	// it is not created again. ID has at most 64 characters.
	ID    string
	State CommitState
	// Title is one line. A status truncates it at 140 characters.
	Title string
	// Summary is the summary of the check run, in Markdown.
	Summary string
	// Annotations are the annotations of the check run. Only the first 100 are reported.
	Annotations []Annotation
}

// Annotation is one problem in a file.
type Annotation struct {
	// Path is the file's path in the repository.
	Path string
	// Line and Column start at 1; 0 if unknown.
	Line, Column int
	// Title is optional.
	Title, Message string
}

var (
	kindReports = kind{name: "reports", rank: turns.Listing, keep: true}
	kindReport  = kind{name: "report", rank: turns.Listing, writes: true}
)

// ReportCommit reports the state of a commit of OWNER/NAME to GitHub. It sets a commit status and, with an App, creates
// a check run with annotations. It is idempotent: it skips the parts that GitHub already has, and resumes an
// interrupted report. It needs write permission for statuses and, with an App, for checks. An error is permanent if
// neither github.IsUnavailable nor github.IsRateLimited is true for it.
func (c *Client) ReportCommit(ctx context.Context, repository, sha string, report CommitReport) error {
	owner, name, err := splitRepository(repository)
	if err != nil {
		return err
	}
	r := reporting{Client: c, owner: owner, repo: name, sha: sha, CommitReport: report}
	r.Annotations = r.Annotations[:min(len(r.Annotations), mostAnnotations)]
	if c.creds.App != nil {
		if err := r.checkRun(ctx); err != nil {
			return err
		}
	}
	return r.status(ctx)
}

// reporting is a report in progress.
type reporting struct {
	*Client
	owner, repo, sha string
	CommitReport
}

func (r *reporting) doing(what string) string {
	return fmt.Sprintf("%s commit %.7s of %s/%s", what, r.sha, r.owner, r.repo)
}

func (r *reporting) status(ctx context.Context) error {
	want := gogithub.RepoStatus{State: gogithub.Ptr(string(r.State)), Context: &r.Name, Description: gogithub.Ptr(wording.TruncateRunes(r.Title, mostDescription))}
	known, err := ask(ctx, r.Client, kindReports, r.doing("reading the statuses of"), func(ctx context.Context, gh *gogithub.Client) (*gogithub.CombinedStatus, *gogithub.Response, error) {
		return something(gh.Repositories.GetCombinedStatus(ctx, r.owner, r.repo, r.sha, &gogithub.ListOptions{PerPage: pageSize}))
	})
	if err != nil {
		return lacking(err, "commit statuses", "statuses")
	}
	for _, status := range known.Statuses {
		if status.GetContext() == r.Name && status.GetState() == want.GetState() && status.GetDescription() == want.GetDescription() {
			return nil
		}
	}
	err = r.do(ctx, kindReport, r.doing("setting the status of"), func(ctx context.Context, gh *gogithub.Client) (*gogithub.Response, error) {
		_, resp, err := gh.Repositories.CreateStatus(ctx, r.owner, r.repo, r.sha, want)
		return resp, err
	})
	return lacking(err, "commit statuses", "statuses")
}

// checkRun finds the check run of an interrupted report, or creates one, and adds the missing annotations.
func (r *reporting) checkRun(ctx context.Context) error {
	found, err := ask(ctx, r.Client, kindReports, r.doing("reading the check runs of"), func(ctx context.Context, gh *gogithub.Client) (*gogithub.ListCheckRunsResults, *gogithub.Response, error) {
		return something(gh.Checks.ListCheckRunsForRef(ctx, r.owner, r.repo, r.sha, &gogithub.ListCheckRunsOptions{
			CheckName: &r.Name, Filter: gogithub.Ptr("all"), ListOptions: gogithub.ListOptions{PerPage: pageSize},
		}))
	})
	if err != nil {
		return lacking(err, "check runs", "checks")
	}
	// Only the newest run counts. A newer run with another outcome supersedes an older run with this outcome.
	newest := &gogithub.CheckRun{}
	for _, run := range found.CheckRuns {
		if run.GetID() > newest.GetID() {
			newest = run
		}
	}
	id, sent := newest.GetID(), newest.GetOutput().GetAnnotationsCount()
	if newest.GetExternalID() != r.ID {
		if id, err = r.createCheckRun(ctx); err != nil {
			return lacking(err, "check runs", "checks")
		}
		sent = min(len(r.Annotations), annotationsAtOnce)
	}
	for sent < len(r.Annotations) {
		end := min(len(r.Annotations), sent+annotationsAtOnce)
		if err := r.annotate(ctx, id, sent, end); err != nil {
			return lacking(err, "check runs", "checks")
		}
		sent = end
	}
	return nil
}

func (r *reporting) createCheckRun(ctx context.Context) (int64, error) {
	options := gogithub.CreateCheckRunOptions{
		Name: r.Name, HeadSHA: r.sha, ExternalID: &r.ID, Output: r.output(0, min(len(r.Annotations), annotationsAtOnce)),
		Status: gogithub.Ptr("completed"), Conclusion: gogithub.Ptr(r.conclusion()),
	}
	made, err := ask(ctx, r.Client, kindReport, r.doing("making a check run of"), func(ctx context.Context, gh *gogithub.Client) (*gogithub.CheckRun, *gogithub.Response, error) {
		return something(gh.Checks.CreateCheckRun(ctx, r.owner, r.repo, options))
	})
	return made.GetID(), err
}

// annotate adds annotations to a check run. GitHub appends the annotations of each request to the existing ones.
func (r *reporting) annotate(ctx context.Context, id int64, from, to int) error {
	return r.do(ctx, kindReport, r.doing("annotating a check run of"), func(ctx context.Context, gh *gogithub.Client) (*gogithub.Response, error) {
		_, resp, err := gh.Checks.UpdateCheckRun(ctx, r.owner, r.repo, id, gogithub.UpdateCheckRunOptions{Name: r.Name, Output: r.output(from, to)})
		return resp, err
	})
}

// conclusion returns the check run's conclusion. Check runs have no conclusion for CommitError, so it becomes
// "failure".
func (r *reporting) conclusion() string {
	if r.State == CommitSuccess {
		return "success"
	}
	return "failure"
}

func (r *reporting) output(from, to int) *gogithub.CheckRunOutput {
	out := &gogithub.CheckRunOutput{Title: gogithub.Ptr(wording.TruncateRunes(r.Title, maxAnnotationTitle)), Summary: gogithub.Ptr(wording.TruncateRunes(r.Summary, mostSummary))}
	for _, a := range r.Annotations[from:to] {
		line := max(1, a.Line)
		made := &gogithub.CheckRunAnnotation{
			Path: gogithub.Ptr(a.Path), StartLine: &line, EndLine: &line, AnnotationLevel: gogithub.Ptr("failure"),
			Message: gogithub.Ptr(wording.TruncateRunes(cmp.Or(a.Message, "wrong"), mostMessage)),
		}
		if a.Title != "" {
			made.Title = gogithub.Ptr(wording.TruncateRunes(a.Title, maxAnnotationTitle))
		}
		if a.Line > 0 && a.Column > 0 {
			made.StartColumn, made.EndColumn = gogithub.Ptr(a.Column), gogithub.Ptr(a.Column)
		}
		out.Annotations = append(out.Annotations, made)
	}
	return out
}

// lacking adds the required permission to a 403 or 404. GitHub also answers 404 if the client may not see the object.
func lacking(err error, what, permission string) error {
	if github.IsForbidden(err) || github.IsNotFound(err) {
		return fmt.Errorf("the credentials may not write %s: let the App have the permission %q with write access, and among its repositories this one: %w", what, permission, err)
	}
	return err
}
