// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance checks whether a real GitHub behaves as Corral expects. It creates its own scale set and runner,
// takes no jobs, and deletes both.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/turns"
)

// Verdict is the result of a check.
type Verdict string

// Verdicts.
const (
	// AsExpected means that Corral can rely on the behavior.
	AsExpected Verdict = "as expected"
	// Differs means that Corral cannot rely on the behavior. Finding.Means describes the consequence.
	Differs Verdict = "differs"
	// NotShown means that the check could not be completed.
	NotShown Verdict = "not shown"
	// Noted means that Corral works with either behavior.
	Noted Verdict = "noted"
)

// Finding is the result of one check with details.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Means describes the consequence for Corral if the behavior differs.
	Means string `json:"means,omitempty"`
}

// Config configures a run.
type Config struct {
	Credentials github.Credentials
	Options     github.Options
	// Group is the name of the runner group; empty for the default group.
	Group string
	// Name is the name of the scale set and of the runner to create. It must be unused.
	Name string
	// HookID is the webhook whose deliveries are listed; 0 is the App's own.
	HookID int64
	// Retry is the time between two attempts to open a session while another session blocks it. Patience is the maximum
	// time for these attempts, and for a poll. LeastHold is how long GitHub should at least hold a poll if there is no
	// message.
	Retry, Patience, LeastHold time.Duration
	// OnFinding is called with each finding.
	OnFinding func(Finding)
}

// run is the state of one run of all checks.
type run struct {
	Config
	// sets and others are clients with the same credentials. They behave like two processes.
	sets, others *scaleset.Client
	rest         *rest.Client
	findings     []Finding
	groupID      int64
	set          *scaleset.Set
	// making is true once the creation of a scale set was requested. It may exist even if GitHub's answer was lost.
	making bool
	// session is the open session, or nil.
	session *scaleset.Session
}

const owner, another = "corral-conformance", "corral-conformance-2"

// Run runs the checks one after another and cleans up, even if ctx ends. It returns an error for invalid credentials or
// an invalid URL.
func Run(ctx context.Context, c Config) (_ []Finding, err error) {
	r := &run{Config: c}
	if r.sets, err = scaleset.NewClient(c.Credentials, c.Options); err != nil {
		return nil, err
	}
	if r.others, err = scaleset.NewClient(c.Credentials, c.Options); err != nil {
		return nil, err
	}
	if r.rest, err = rest.NewClient(c.Credentials, c.Options); err != nil {
		return nil, err
	}
	defer r.cleanUp(context.WithoutCancel(ctx)) // also if a check panics
	if r.prepare(ctx) {
		r.labels(ctx)
		r.runner(ctx)
		r.sessions(ctx)
	}
	r.surroundings(ctx)
	r.cleanUp(context.WithoutCancel(ctx))
	return r.findings, nil
}

// addFinding records a finding, and reports whether the behavior is as expected. It is as expected if err is nil.
func (r *run) addFinding(check, found string, err error, means string) bool {
	f := Finding{Check: check, Verdict: AsExpected, Found: found}
	if err != nil {
		f.Verdict, f.Found, f.Means = Differs, err.Error(), means
		if e := new(github.Error); errors.As(err, &e) && e.Status != 0 {
			f.Found = fmt.Sprintf("%d %s: %s", e.Status, e.Kind, e.Message)
		}
		if isAway(err) {
			f.Verdict, f.Means = NotShown, ""
		}
	}
	r.add(f)
	return err == nil
}

// note records a behavior that does not matter to Corral.
func (r *run) note(check, found string) { r.add(Finding{Check: check, Verdict: Noted, Found: found}) }

func (r *run) add(f Finding) {
	r.findings = append(r.findings, f)
	r.OnFinding(f)
}

// isAway reports whether an error reveals nothing about GitHub's behavior, because GitHub is unavailable or the run was
// canceled.
func isAway(err error) bool {
	if e := new(rest.Error); errors.As(err, &e) {
		return e.Reason == v1alpha1.GitHubUnavailableReason
	}
	_, away := github.ComeBack(err)
	return away || errors.Is(err, context.Canceled)
}

// refusal returns nil if a call was refused with the expected kind of error.
func refusal(err error, kind github.Kind) error {
	switch {
	case github.KindOf(err) == kind:
		return nil
	case err == nil:
		return errors.New("it was not refused")
	}
	return err
}

// answerOf returns GitHub's answer from an error.
func answerOf(err error) string {
	if e := new(github.Error); errors.As(err, &e) {
		return fmt.Sprintf("%d: %s", e.Status, e.Message)
	}
	return ""
}

// prepare verifies the credentials and creates the scale set.
func (r *run) prepare(ctx context.Context) bool {
	who, err := rest.Verify(ctx, r.Credentials, r.Options)
	if !r.addFinding("credentials", strings.TrimSpace(fmt.Sprintf("may register runners of the %s %s", who.Scope, who.ServerVersion)), err, "a connection with these credentials is not Ready") {
		return false
	}
	r.groupID, err = r.sets.RunnerGroupID(ctx, r.Group)
	if !r.addFinding("runner group", "exists", err, "its pools are Stalled, RunnerGroupNotFound") {
		return false
	}
	r.making = true
	want := scaleset.Set{Name: r.Name, GroupID: r.groupID, Labels: []string{r.Name, r.Name + "-more"}}
	r.set, err = r.sets.Create(ctx, want)
	if !r.addFinding("scale set created", r.Name+" was created", err, "no pool with a scale set works") {
		return false
	}
	_, err = r.sets.Create(ctx, want)
	r.addFinding("duplicate name", "refused", refusal(err, github.KindExists), "if the answer to a creation is lost, Corral does not find the scale set again")
	return true
}

// labels checks labels and statistics.
func (r *run) labels(ctx context.Context) {
	got, err := r.sets.Get(ctx, r.set.ID)
	if err == nil && len(got.Labels) != 2 {
		err = fmt.Errorf("the scale set has %d of 2 labels", len(got.Labels))
	}
	r.addFinding("several labels", "all are stored", err, "jobs find a pool by only one label, and the pool reports LabelsDropped")
	if got != nil {
		r.addFinding("statistics without a session", "present", present(got.Statistics), "a pool without a session does not know about its jobs")
	}
	changed := scaleset.Set{Name: r.Name, GroupID: r.groupID, Labels: []string{r.Name, r.Name + "-other"}}
	if _, err = r.sets.Update(ctx, r.set.ID, changed); err == nil {
		got, err = r.sets.Get(ctx, r.set.ID)
	}
	if err == nil && !slices.Contains(got.Labels, r.Name+"-other") {
		err = errors.New("GitHub kept the previous labels")
	}
	r.addFinding("labels changed in place", "changed", err, "to change a pool's labels, use another scaleSetName; until then the pool reports LabelsKept")
}

func present(s *scaleset.Statistics) error {
	if s == nil {
		return errors.New("absent")
	}
	return nil
}

// runner registers a runner, looks it up, and removes it.
func (r *run) runner(ctx context.Context) {
	jit, err := r.sets.GenerateJIT(ctx, r.set.ID, r.Name)
	if !r.addFinding("runner registered", "registered", err, "no runner can start") {
		return
	}
	_, err = r.sets.GenerateJIT(ctx, r.set.ID, r.Name)
	r.addFinding("duplicate runner name", "refused", refusal(err, github.KindRunnerExists), "a registration whose answer was lost blocks its runner until its deadline")
	known, err := r.sets.Runner(ctx, jit.RunnerID)
	switch {
	case err != nil:
	case known == nil:
		err = errors.New("GitHub does not find the runner by its id")
	case known.Name != r.Name || known.Status == "":
		err = fmt.Errorf("name %q, status %q", known.Name, known.Status)
	}
	known = cmp.Or(known, &scaleset.Runner{})
	r.addFinding("runner by its id", "found, "+known.Status, err, "Corral cannot look up runners that are missing in GitHub's counts, and replaces them only after their deadlines")
	same, err := r.rest.Runner(ctx, jit.RunnerID)
	if err == nil && (same == nil || same.Name != r.Name) {
		err = errors.New("the REST API knows another runner, or none, by that id")
	}
	r.addFinding("runner by the REST API", "the same id", err, "the versions of runners are unknown, so pools do not report when GitHub will refuse them")
	if err = pollOutdated(ctx, r.Options.WithDefaults(turns.First).For(r.Credentials).Transport, jit.Encoded); errors.Is(err, errNotBroker) {
		r.note("outdated runner", err.Error())
	} else {
		r.addFinding("outdated runner", "refused with "+answerOf(err), refusal(err, github.KindForbidden), "a pool reports that GitHub will refuse its runners' version although GitHub does not")
	}
	r.addFinding("runner removed", "removed", r.sets.RemoveRunner(ctx, jit.RunnerID), "registrations remain until GitHub removes them after a day")
	again := r.sets.RemoveRunner(ctx, jit.RunnerID)
	if github.IsNotFound(again) {
		again = nil
	}
	r.addFinding("runner removed twice", "nothing to remove", again, "if the answer to a removal is lost, the Runner object remains")
}

// sessions checks how message sessions block each other.
func (r *run) sessions(ctx context.Context) {
	statistics, err := r.open(ctx, r.sets, owner)
	if !r.addFinding("session opened", "opened", err, "no pool with a scale set gets jobs") {
		return
	}
	r.addFinding("statistics with a session", "present", present(statistics), "a pool needs another call to read them")
	other, _, err := r.others.OpenSession(ctx, r.set.ID, another)
	if !r.addFinding("second session", "refused with "+answerOf(err), refusal(err, github.KindSessionConflict), "two clusters with one scaleSetName take each other's jobs") && err == nil {
		_ = other.Close(ctx) // it is deleted with the scale set
	}
	resumed, _, err := r.others.ResumeSession(ctx, r.set.ID, owner, r.session.ID())
	if r.addFinding("session of another process resumed", "it continues", err, "after a crash, a pool relies on statistics until the previous session expires") {
		r.session = resumed
	}
	r.poll(ctx)
	r.addFinding("session closed", "closed", r.close(ctx), "the next leader waits until the session expires")
	if _, err = r.open(ctx, r.sets, owner); r.addFinding("session after a close", "opened at once", err, "a new leader waits") {
		r.abandoned(ctx)
	}
}

// poll measures how long GitHub holds a poll if there is no message.
func (r *run) poll(ctx context.Context) {
	began := time.Now()
	err := r.session.Poll(ctx, r.Patience)
	took := time.Since(began)
	if err == nil && took < r.LeastHold {
		err = fmt.Errorf("answered after %s", took.Round(time.Millisecond))
	}
	r.addFinding("held poll", "answered after "+took.Round(time.Second).String(), err, "if GitHub answers at once, polling uses up the rate limit; if it takes minutes, Corral treats it as not answering")
}

// abandoned measures how long an unclosed session blocks the next one.
func (r *run) abandoned(ctx context.Context) {
	began := time.Now()
	r.session = nil
	refusals, err := r.untilFree(ctx)
	took := time.Since(began)
	switch {
	case err != nil:
	case refusals == 0:
		err = errors.New("it does not block a new session")
	case took > scaleset.SessionLife:
		err = fmt.Errorf("blocks for %s", took.Round(time.Second))
	}
	r.addFinding("session that was not closed", "blocks for "+took.Round(time.Second).String(), err,
		fmt.Sprintf("after a crash, Corral waits up to %s for a previous session, and then assumes that it belongs to another process", scaleset.SessionLife))
	if r.session != nil {
		r.addFinding("session of a previous owner", "closed", r.close(ctx), "the next leader waits until the session expires")
	}
}

// untilFree tries to open a session until the previous session does not block it any more, or Patience has passed. It
// returns the number of refusals.
func (r *run) untilFree(ctx context.Context) (refusals int, err error) {
	for end := time.Now().Add(r.Patience); ; refusals++ {
		if _, err = r.open(ctx, r.others, another); github.KindOf(err) != github.KindSessionConflict || time.Now().After(end) {
			return refusals, err
		}
		select {
		case <-time.After(r.Retry):
		case <-ctx.Done():
			return refusals, ctx.Err()
		}
	}
}

func (r *run) open(ctx context.Context, c *scaleset.Client, owner string) (*scaleset.Statistics, error) {
	s, statistics, err := c.OpenSession(ctx, r.set.ID, owner)
	if err == nil {
		r.session = s
	}
	return statistics, err
}

func (r *run) close(ctx context.Context) error {
	s := r.session
	r.session = nil
	return s.Close(ctx)
}

// surroundings checks what else the credentials can access.
func (r *run) surroundings(ctx context.Context) {
	list, err := r.rest.Runners(ctx, 0)
	var oldest *semver.Version
	for _, known := range list.Runners {
		if v, err := semver.NewVersion(known.Version); err == nil && known.Online && (oldest == nil || v.LessThan(oldest)) {
			oldest = v
		}
	}
	switch {
	case err != nil:
		r.addFinding("oldest connected runner", "", err, "Corral does not find leaked registrations")
	case oldest == nil:
		r.note("oldest connected runner", "no runner is connected, or GitHub does not report versions")
	default:
		r.note("oldest connected runner", oldest.String())
	}
	if releases, err := r.rest.Releases(ctx); github.IsNotFound(err) || github.IsForbidden(err) {
		r.note("releases of the runner", "not reachable: pools do not report when GitHub will refuse their runners")
	} else {
		r.addFinding("releases of the runner", fmt.Sprintf("%d are listed", len(releases)), err, "pools do not report when GitHub will refuse their runners")
	}
	if r.HookID != 0 || r.Credentials.App != nil {
		page, _, err := r.rest.Deliveries(ctx, r.HookID, "")
		r.addFinding("deliveries of the webhook", fmt.Sprintf("%d in a page", len(page)), err, "Corral does not request lost events again")
	}
	if limit, left := r.rest.Budget(); limit > 0 {
		r.note("rate limit", fmt.Sprintf("%d of %d calls per hour remain", left, limit))
	}
}

// cleanUp deletes everything that was created, even if GitHub's answer was lost.
func (r *run) cleanUp(ctx context.Context) {
	if !r.making {
		return
	}
	r.making = false
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if known, err := r.sets.RunnerByName(ctx, r.Name); err == nil && known != nil {
		_ = r.sets.RemoveRunner(ctx, known.ID) // it has no job, and is deleted with its scale set
	}
	if r.session != nil {
		_ = r.close(ctx) // it is deleted with its scale set, too
	}
	err := r.removeSets(ctx)
	if err != nil {
		err = errors.New(err.Error()) // drops the type, so that a missing answer is also reported as a difference
	}
	r.addFinding("cleaned up", "nothing is left", err, "if the scale set "+r.Name+" still exists, delete it")
}

// removeSets deletes the scale sets with our name: two, if GitHub allowed the name twice.
func (r *run) removeSets(ctx context.Context) error {
	for range 3 {
		found, err := r.sets.Find(ctx, r.groupID, r.Name)
		if err != nil || found == nil {
			return err
		}
		if err := r.sets.Delete(ctx, found.ID); err != nil {
			return err
		}
	}
	return errors.New("scale sets with that name remain")
}
