// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance finds out how a real GitHub behaves where Corral relies on it. It makes a scale set and a runner of its own, takes no jobs, and removes
// both.
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

// Verdict of a check.
type Verdict string

// Verdicts.
const (
	// AsExpected is what Corral relies on.
	AsExpected Verdict = "as expected"
	// Differs is what it doesn't; the finding says what follows.
	Differs Verdict = "differs"
	// NotShown is what couldn't be found out.
	NotShown Verdict = "not shown"
	// Noted is what Corral works with either way.
	Noted Verdict = "noted"
)

// Finding is what one check found.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Means is what follows for Corral if it differs.
	Means string `json:"means,omitempty"`
}

// Config says with what to find out.
type Config struct {
	Credentials github.Credentials
	Options     github.Options
	// Group is the runner group's name; the default one if empty.
	Group string
	// Name of the scale set and the runner that are made: no other may have it.
	Name string
	// HookID of a webhook whose deliveries are listed; 0 is an App's own.
	HookID int64
	// Retry is the time between two attempts at a session that blocks; Patience bounds a held poll and those attempts. A poll without a
	// message is to be held for LeastHold at least.
	Retry, Patience, LeastHold time.Duration
	// OnFinding gets each finding as it is made.
	OnFinding func(Finding)
}

// run is what has been made so far.
type run struct {
	Config
	// sets and others are clients of the same credentials, as two processes have them.
	sets, others *scaleset.Client
	rest         *rest.Client
	findings     []Finding
	groupID      int64
	set          *scaleset.Set
	// making is true once a scale set was asked for: it may be there although GitHub didn't say so.
	making bool
	// session is open; nil if none is.
	session *scaleset.Session
}

const owner, another = "corral-conformance", "corral-conformance-2"

// Run makes the checks, one after the other, and cleans up, also when ctx ends. An error is of credentials or a URL that can't work.
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
	defer r.cleanUp(context.WithoutCancel(ctx)) // again, should a check panic
	if r.prepare(ctx) {
		r.labels(ctx)
		r.runner(ctx)
		r.sessions(ctx)
	}
	r.surroundings(ctx)
	r.cleanUp(context.WithoutCancel(ctx))
	return r.findings, nil
}

// tell records a finding: what is expected if err is nil.
func (r *run) tell(check, found string, err error, means string) bool {
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

// note records what Corral works with either way.
func (r *run) note(check, found string) { r.add(Finding{Check: check, Verdict: Noted, Found: found}) }

func (r *run) add(f Finding) {
	r.findings = append(r.findings, f)
	r.OnFinding(f)
}

// isAway says whether an error tells nothing of how GitHub behaves.
func isAway(err error) bool {
	if e := new(rest.Error); errors.As(err, &e) {
		return e.Reason == v1alpha1.GitHubUnavailableReason
	}
	_, away := github.ComeBack(err)
	return away || errors.Is(err, context.Canceled)
}

// refusal turns the answer to what must be refused around: nil if it was refused in that way.
func refusal(err error, kind github.Kind) error {
	switch {
	case github.KindOf(err) == kind:
		return nil
	case err == nil:
		return errors.New("it was not refused")
	}
	return err
}

// answerOf is what GitHub answered when it refused.
func answerOf(err error) string {
	if e := new(github.Error); errors.As(err, &e) {
		return fmt.Sprintf("%d: %s", e.Status, e.Message)
	}
	return ""
}

// prepare finds out who we are, and makes the scale set.
func (r *run) prepare(ctx context.Context) bool {
	who, err := rest.Verify(ctx, r.Credentials, r.Options)
	if !r.tell("credentials", strings.TrimSpace(fmt.Sprintf("may register runners of the %s %s", who.Scope, who.ServerVersion)), err, "a connection with these credentials is not Ready") {
		return false
	}
	r.groupID, err = r.sets.RunnerGroupID(ctx, r.Group)
	if !r.tell("runner group", "it is there", err, "its pools are Stalled, RunnerGroupNotFound") {
		return false
	}
	r.making = true
	want := scaleset.Set{Name: r.Name, GroupID: r.groupID, Labels: []string{r.Name, r.Name + "-more"}}
	r.set, err = r.sets.Create(ctx, want)
	if !r.tell("scale set made", r.Name+" was made", err, "no pool with a scale set works") {
		return false
	}
	_, err = r.sets.Create(ctx, want)
	r.tell("name taken", "refused", refusal(err, github.KindExists), "a scale set whose making was not answered isn't found again")
	return true
}

// labels finds out what GitHub makes of labels and statistics.
func (r *run) labels(ctx context.Context) {
	got, err := r.sets.Get(ctx, r.set.ID)
	if err == nil && len(got.Labels) != 2 {
		err = fmt.Errorf("%d of 2 labels are there", len(got.Labels))
	}
	r.tell("several labels", "all are there", err, "a pool is found by one label alone, and says LabelsDropped")
	if got != nil {
		r.tell("statistics without a session", "present", present(got.Statistics), "a pool that is refused a session knows of no jobs")
	}
	changed := scaleset.Set{Name: r.Name, GroupID: r.groupID, Labels: []string{r.Name, r.Name + "-other"}}
	if _, err = r.sets.Update(ctx, r.set.ID, changed); err == nil {
		got, err = r.sets.Get(ctx, r.set.ID)
	}
	if err == nil && !slices.Contains(got.Labels, r.Name+"-other") {
		err = errors.New("the former labels are kept")
	}
	r.tell("labels changed in place", "they changed", err, "to change a pool's labels, give it another scaleSetName; until then it says LabelsKept")
}

func present(s *scaleset.Statistics) error {
	if s == nil {
		return errors.New("absent")
	}
	return nil
}

// runner registers one, looks it up, and removes it.
func (r *run) runner(ctx context.Context) {
	jit, err := r.sets.GenerateJIT(ctx, r.set.ID, r.Name)
	if !r.tell("runner registered", "registered", err, "no runner starts") {
		return
	}
	_, err = r.sets.GenerateJIT(ctx, r.set.ID, r.Name)
	r.tell("runner's name taken", "refused", refusal(err, github.KindRunnerExists), "a registration whose answer was lost blocks its runner until its deadline")
	known, err := r.sets.Runner(ctx, jit.RunnerID)
	switch {
	case err != nil:
	case known == nil:
		err = errors.New("it isn't found by its id")
	case known.Name != r.Name || known.Status == "":
		err = fmt.Errorf("name %q, status %q", known.Name, known.Status)
	}
	known = cmp.Or(known, &scaleset.Runner{})
	r.tell("runner by its id", "found, "+known.Status, err, "runners that GitHub's counts miss are not looked at: they end by their deadlines")
	same, err := r.rest.Runner(ctx, jit.RunnerID)
	if err == nil && (same == nil || same.Name != r.Name) {
		err = errors.New("the REST API knows another runner, or none, by that id")
	}
	r.tell("runner by the REST API", "the same id", err, "versions of runners aren't known, so that a pool doesn't say when GitHub will refuse them")
	if err = pollOutdated(ctx, r.Options.WithDefaults(turns.First).For(r.Credentials).Transport, jit.Encoded); errors.Is(err, errNotBroker) {
		r.note("outdated runner", err.Error())
	} else {
		r.tell("outdated runner", "refused with "+answerOf(err), refusal(err, github.KindForbidden), "a pool says that GitHub will refuse its runners' version, and it doesn't")
	}
	r.tell("runner removed", "removed", r.sets.RemoveRunner(ctx, jit.RunnerID), "registrations stay until GitHub removes them, after a day")
	again := r.sets.RemoveRunner(ctx, jit.RunnerID)
	if github.IsNotFound(again) {
		again = nil
	}
	r.tell("runner removed twice", "nothing to remove", again, "a Runner whose removal was not answered stays")
}

// sessions finds out how message sessions block each other.
func (r *run) sessions(ctx context.Context) {
	statistics, err := r.open(ctx, r.sets, owner)
	if !r.tell("session opened", "opened", err, "no pool with a scale set gets jobs") {
		return
	}
	r.tell("statistics with a session", "present", present(statistics), "a pool asks for them by another call")
	other, _, err := r.others.OpenSession(ctx, r.set.ID, another)
	if !r.tell("second session", "refused with "+answerOf(err), refusal(err, github.KindSessionConflict), "two clusters with one scaleSetName take each other's jobs") && err == nil {
		_ = other.Close(ctx) // it goes with the scale set
	}
	resumed, _, err := r.others.ResumeSession(ctx, r.set.ID, owner, r.session.ID())
	if r.tell("session of another process resumed", "it goes on", err, "after a crash, a pool lives by statistics until the former session expires") {
		r.session = resumed
	}
	r.poll(ctx)
	r.tell("session closed", "closed", r.close(ctx), "the next leader waits until the session expires")
	if _, err = r.open(ctx, r.sets, owner); r.tell("session after a close", "opened at once", err, "a new leader waits") {
		r.abandoned(ctx)
	}
}

// poll waits for a message that never comes.
func (r *run) poll(ctx context.Context) {
	began := time.Now()
	err := r.session.Poll(ctx, r.Patience)
	took := time.Since(began)
	if err == nil && took < r.LeastHold {
		err = fmt.Errorf("answered after %s", took.Round(time.Millisecond))
	}
	r.tell("held poll", "answered after "+took.Round(time.Second).String(), err, "polls that aren't held cost the rate limit, and those held for minutes look like a GitHub that doesn't answer")
}

// abandoned finds out how long a session blocks that nobody closes.
func (r *run) abandoned(ctx context.Context) {
	began := time.Now()
	r.session = nil
	refusals, err := r.untilFree(ctx)
	took := time.Since(began)
	switch {
	case err != nil:
	case refusals == 0:
		err = errors.New("it blocks nobody")
	case took > scaleset.SessionLife:
		err = fmt.Errorf("blocks for %s", took.Round(time.Second))
	}
	r.tell("session that nobody closed", "blocks for "+took.Round(time.Second).String(), err,
		fmt.Sprintf("after a crash, Corral waits for a former session for %s at most, and takes it for another's then", scaleset.SessionLife))
	if r.session != nil {
		r.tell("session of a former owner", "closed", r.close(ctx), "the next leader waits until the session expires")
	}
}

// untilFree opens a session as soon as the former one lets it, and counts the refusals before.
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

// surroundings finds out what else the credentials reach.
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
		r.tell("oldest connected runner", "", err, "leaked registrations aren't found")
	case oldest == nil:
		r.note("oldest connected runner", "none is connected, or GitHub tells no version")
	default:
		r.note("oldest connected runner", oldest.String())
	}
	if releases, err := r.rest.Releases(ctx); github.IsNotFound(err) || github.IsForbidden(err) {
		r.note("releases of the runner", "not reached: pools don't say when GitHub will refuse their runners")
	} else {
		r.tell("releases of the runner", fmt.Sprintf("%d are listed", len(releases)), err, "pools don't say when GitHub will refuse their runners")
	}
	if r.HookID != 0 || r.Credentials.App != nil {
		page, _, err := r.rest.Deliveries(ctx, r.HookID, "")
		r.tell("deliveries of the webhook", fmt.Sprintf("%d in a page", len(page)), err, "lost events aren't asked for again")
	}
	if limit, left := r.rest.Budget(); limit > 0 {
		r.note("rate limit", fmt.Sprintf("%d of %d calls an hour are left", left, limit))
	}
}

// cleanUp removes what was made, also what GitHub didn't say that it made.
func (r *run) cleanUp(ctx context.Context) {
	if !r.making {
		return
	}
	r.making = false
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if known, err := r.sets.RunnerByName(ctx, r.Name); err == nil && known != nil {
		_ = r.sets.RemoveRunner(ctx, known.ID) // it has no job, and goes with its scale set
	}
	if r.session != nil {
		_ = r.close(ctx) // it goes with its scale set, too
	}
	err := r.removeSets(ctx)
	if err != nil {
		err = errors.New(err.Error()) // also where GitHub didn't answer, somebody has to look
	}
	r.tell("cleaned up", "nothing is left", err, "if scale set "+r.Name+" is there, delete it")
}

// removeSets removes the scale sets of our name: two, if GitHub takes a name twice.
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
	return errors.New("scale sets of that name stay")
}
