// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package claims

import "github.com/corral-dev/corral/apis/v1alpha1"

// Ending contains the known facts about a runner that ends and about its container, which is the only process that
// writes to the claim.
type Ending struct {
	// Known is true if the pod or the runner's status contains the state of the container, or if the runner certainly
	// never had a pod.
	Known bool
	// Started and Ended describe the container. Clean is true if it exited with code 0.
	Started, Ended, Clean bool
	// Crashed is true if the container's last exit was not with code 0. The container may have restarted since.
	Crashed bool
	// HasJob is true if the runner had a job. JobOver is true if the job is known to be over.
	HasJob, JobOver bool
	// LetGo is true if GitHub removed the registration. GitHub refuses to do so while the runner has a job.
	LetGo bool
	// Cause is the reason why the runner did not start.
	Cause v1alpha1.RunnerCause
}

// Fate says what happens to the claim of a runner that ends.
type Fate string

const (
	// Keep leaves the claim for the next runner.
	Keep Fate = "Keep"
	// Condemn keeps the claim, but runners use it only as a last resort for BlameFor, because the scheduler reported that
	// the claim's volume prevented scheduling of the pod.
	Condemn Fate = "Condemn"
	// Suspect keeps the claim, but runners prefer other claims for BlameFor, because the runner missed its startup
	// deadline and the volume may be the reason.
	Suspect Fate = "Suspect"
	// Delete deletes the claim, because the next job must not see the unfinished files of an interrupted job.
	Delete Fate = "Delete"
)

// FateOf returns the fate of the claim and the reason. A claim is kept only if it is certain that no job was
// interrupted: an unnecessary deletion costs only time, but a claim with unfinished files can make a job fail.
func FateOf(e Ending) (Fate, string) {
	switch {
	case !e.Known:
		return Delete, "it is unknown how its runner ended"
	case e.isUnused():
		return fateOfUnused(e.Cause)
	case e.HasJob && !e.JobOver:
		return Delete, "its runner died with its job"
	case e.Crashed:
		return Delete, "its container ended with an error"
	case e.Ended && e.Clean && e.JobOver:
		return Keep, "its runner ended well"
	case !e.Ended && !e.JobOver && e.LetGo:
		return Keep, "its runner had no job"
	}
	return Delete, "its runner didn't end well"
}

// isUnused reports whether the runner never used the claim. It also considers the job, because a job can start before
// the node reports the container, and a lost node never reports it.
func (e Ending) isUnused() bool { return !e.Started && !e.HasJob && !e.JobOver }

// fateOfUnused returns the fate of the claim of a runner that never started.
func fateOfUnused(cause v1alpha1.RunnerCause) (Fate, string) {
	switch cause {
	case v1alpha1.CauseCache:
		return Condemn, "its volume kept its runner from a node"
	case v1alpha1.CauseSlow, v1alpha1.CauseUnschedulable:
		return Suspect, "its runner didn't start in time"
	}
	return Keep, "its runner never started"
}
