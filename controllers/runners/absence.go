// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// goneAfter is the least time between two answers of 404 that prove that a registration is gone.
	goneAfter = 10 * time.Second
	// absentFor is how long GitHub must answer 404, without interruption, before a container that runs counts as one without a job. GitHub
	// fails the job of a runner that it has not heard from for about 9.5 minutes, and a runner without a registration cannot renew its job.
	// So no job can run any more after ten minutes.
	absentFor = 10 * time.Minute
	// absentLook is the time between two looks meanwhile. If there was none for longer than absentGap, the ten minutes begin again.
	absentLook, absentGap = time.Minute, 3 * time.Minute
)

// absence records that GitHub has answered 404 about a runner, and nothing else in between. A restart of the controller loses it, and the
// waiting times begin again.
type absence struct {
	since, last time.Time // the first and the last 404
	removal     time.Time // the first 404 to the call that removes the registration; zero before
	next        time.Time // the next look; zero if there is nothing to wait for
	works       bool      // the runner may have a job
	why         error     // what the next look waits for, if it isn't the runner
}

// isAbsent reports whether GitHub has no registration that can be the runner's. The name of a runner that registers by the REST API can be
// its own even if the labels are not.
func (p pass) isAbsent(known *registered) bool {
	return known == nil || known.foreign != "" && p.runner.Spec.REST == nil
}

// runs reports whether the runner's container may run: it has started, or the runner has a job, which begins before the node reports the start, and
// it has not ended.
func (p pass) runs() bool {
	s := &p.runner.Status
	return (s.StartedAt != nil || p.hasOpenJob()) && s.EndedAt == nil && !isDown(p.pod)
}

// hasOpenJob reports whether the runner's pod is there and nothing shows that the runner's job is over.
func (p pass) hasOpenJob() bool {
	if p.pod == nil || poolstatus.HasEnded(p.pod) {
		return false
	}
	job := poolstatus.LastJob(p.runner, p.pod)
	return job != nil && !job.IsOver()
}

// isJobReported reports whether GitHub reported how the runner's only job ended.
func (p pass) isJobReported() bool {
	job := p.runner.Status.Job
	return !p.runner.Persists() && (p.completion().result != "" || job.IsOver() && job.Result != "")
}

// absent records one more 404. It returns nil once that proves that the runner is gone, and until then the time of the next look. A runner
// that works may have a job.
func (p pass) absent(works bool) error {
	a, now := &p.memory.absence, p.Now()
	need, again := goneAfter, goneAfter
	if works {
		need, again = absentFor, absentLook
	}
	since := a.since
	if since.IsZero() || works && now.Sub(a.last) > absentGap {
		since = now
	}
	*a = absence{since: since, last: now, removal: a.removal, works: works}
	switch isKnown := p.runner.Status.RunnerID != 0; {
	case isKnown:
	case !p.runs():
		return nil // nothing can use a registration that nobody has the id of
	default:
		again = busyRetry // it may register itself yet
	}
	if now.Sub(a.since) >= need && (a.removal.IsZero() || now.Sub(a.removal) >= goneAfter) {
		return nil
	}
	a.next = now.Add(again)
	return p.awaitLook()
}

// awaitLook returns why a runner that GitHub does not know is left alone, if it is to be looked at again later.
func (p pass) awaitLook() error {
	left := p.memory.absence.next.Sub(p.Now())
	switch id := p.runner.Status.RunnerID; {
	case left <= 0:
		return nil
	case p.memory.absence.why != nil:
		return p.memory.absence.why
	case id == 0:
		return kube.Progress(left, catalog.RunnerUnknownRunning.With())
	case p.memory.absence.works:
		return kube.Progress(left, catalog.RunnerUnknownEnding.With(id))
	default:
		return kube.Progress(left, catalog.RunnerUnknown.With(id))
	}
}

// awaitAbsence ends the wait for a registration that GitHub does not know. A 404 alone says little: another call must succeed that shows that
// this is the GitHub which registered the runner. A job that GitHub reported as completed needs no further proof.
func (p pass) awaitAbsence(ctx context.Context, gh registrar, state poolstatus.Assessment) error {
	if !p.isJobReported() {
		err := gh.check(ctx)
		isSetGone := github.IsNotFound(err)
		if err != nil && (!isSetGone || p.runs()) {
			if isSetGone {
				err = p.giveUp(state, catalog.RunnerAndScaleSetUnknown.With())
			} else {
				err = p.withoutRights(state, err)
			}
			p.memory.absence = absence{next: p.Now().Add(absentLook), why: err}
			return err
		}
		if err := p.absent(p.runs()); err != nil {
			return err
		}
	}
	p.recordOver()
	if p.runner.Status.RunnerID != 0 {
		p.setDeregistered()
	}
	return nil
}

// setDeregistered records that the registration is gone.
func (p pass) setDeregistered() {
	p.memory.end.deregistered = true
	p.runner.Status.DeregisteredAt = &metav1.Time{Time: p.Now()}
}
