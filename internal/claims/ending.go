// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package claims

import "github.com/corral-dev/corral/apis/v1alpha1"

// Ending is what is known of a runner that ends, and of its container, which alone writes to the claim.
type Ending struct {
	// Known is true if its pod or its status tells of the container, or it surely never had a pod.
	Known bool
	// Started and Ended are of the container; Clean is true if it ended with exit code 0.
	Started, Ended, Clean bool
	// Crashed is true if it ended with another exit code the last time; it may run again since.
	Crashed bool
	// HasJob is true if it had a job, JobOver if that is known to be over.
	HasJob, JobOver bool
	// LetGo is true if GitHub removed its registration, which it doesn't while the runner has a job.
	LetGo bool
	// Cause that keeps it from starting.
	Cause v1alpha1.RunnerCause
}

// Fate is what becomes of the claim of a runner that ends.
type Fate string

const (
	// Keep leaves the claim for the next runner.
	Keep Fate = "Keep"
	// Condemn leaves it, and lets no runner have it for a while: the scheduler named its volume as what kept the runner from a node.
	Condemn Fate = "Condemn"
	// Suspect leaves it, to be tried last for a while: the runner missed its startup deadline, and nothing says why.
	Suspect Fate = "Suspect"
	// Delete deletes it: what a job left half done must not reach the next.
	Delete Fate = "Delete"
)

// FateOf returns what becomes of the claim, and why. A claim is left to the next runner only if it is known that no job was
// cut off: one too many that is deleted costs time, one too few costs a job.
func FateOf(e Ending) (Fate, string) {
	switch {
	case !e.Known:
		return Delete, "nothing tells how its runner ended"
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

// isUnused reports whether the runner never had the claim: a job begins before the node tells of the container, which a lost node never does.
func (e Ending) isUnused() bool { return !e.Started && !e.HasJob && !e.JobOver }

// fateOfUnused is of the claim of a runner that never started.
func fateOfUnused(cause v1alpha1.RunnerCause) (Fate, string) {
	switch cause {
	case v1alpha1.CauseCache:
		return Condemn, "its volume kept its runner from a node"
	case v1alpha1.CauseSlow, v1alpha1.CauseUnschedulable:
		return Suspect, "its runner didn't start in time"
	}
	return Keep, "its runner never started"
}
