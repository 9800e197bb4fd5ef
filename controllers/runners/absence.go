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
	// goneAfter is the minimum time between two 404 answers that together prove that a registration is gone.
	goneAfter = 10 * time.Second
	// absentFor is how long GitHub must answer 404, without interruption, before a running container counts as having no job.
	// GitHub fails the job of a runner that it has not heard from for about 9.5 minutes, and a runner without a registration
	// cannot renew its job. So after ten minutes no job can still be running.
	absentFor = 10 * time.Minute
	// absentLook is the interval between checks during absentFor. A gap between two checks that is longer than absentGap
	// restarts the ten minutes.
	absentLook, absentGap = time.Minute, 3 * time.Minute
)

// absence records an uninterrupted series of 404 answers from GitHub about a runner. A restart of the controller loses it,
// and the waiting times then start again.
type absence struct {
	since, last time.Time // the first and the last 404
	removal     time.Time // the first 404 answer to the call that removes the registration; zero if there was none
	next        time.Time // time of the next check; zero if there is nothing to wait for
	works       bool      // the runner may have a job
	why         error     // outcome until the next check, if registrar.check failed; nil otherwise
}

// isAbsent reports whether GitHub has no registration that can belong to the runner. A runner that registers through the
// REST API may own a registration with its name even if the labels differ.
func (p pass) isAbsent(known *registered) bool {
	return known == nil || known.foreign != "" && p.runner.Spec.REST == nil
}

// runs reports whether the runner's container may be running: it has not ended, and it has either started or has a job.
// GitHub can assign a job before the node reports that the container started.
func (p pass) runs() bool {
	s := &p.runner.Status
	return (s.StartedAt != nil || p.hasOpenJob()) && s.EndedAt == nil && !isDown(p.pod)
}

// hasOpenJob reports whether the runner's pod exists and nothing shows that the runner's job is over.
func (p pass) hasOpenJob() bool {
	if p.pod == nil || poolstatus.HasEnded(p.pod) {
		return false
	}
	job := poolstatus.LastJob(p.runner, p.pod)
	return job != nil && !job.IsOver()
}

// isJobReported reports whether GitHub reported the result of an ephemeral runner's job.
func (p pass) isJobReported() bool {
	job := p.runner.Status.Job
	return !p.runner.Persists() && (p.completion().result != "" || job.IsOver() && job.Result != "")
}

// absent records another 404 answer. It returns nil once the answers prove that the registration is gone, and until then an
// outcome that waits for the next check. Set works if the runner may have a job.
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
		return nil // the registration ID is unknown everywhere, so nothing can use a registration
	default:
		again = busyRetry // the runner may still register itself
	}
	if now.Sub(a.since) >= need && (a.removal.IsZero() || now.Sub(a.removal) >= goneAfter) {
		return nil
	}
	a.next = now.Add(again)
	return p.awaitLook()
}

// awaitLook returns the outcome that waits for the next check of a runner that GitHub does not know, or nil if the check is
// due.
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

// awaitAbsence decides when to stop waiting for a registration that GitHub does not know. A 404 alone proves little:
// another call must succeed to show that this is the GitHub instance that registered the runner. If GitHub reported that
// the job completed, no further proof is needed.
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
