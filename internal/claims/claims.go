// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims decides which claim of its pool's cache a runner takes, what becomes of it when the runner ends, and which
// claims are deleted. It is pure.
package claims

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// AvoidFor is how long a claim is left alone that kept a runner from starting: other claims have their turn.
const AvoidFor = 10 * time.Minute

// maxAvoided is how many claims that kept runners from starting lately tell of the others: no zone of theirs has nodes.
const maxAvoided = 3

// retryEach is the time between claims that are tried although they are left alone.
const retryEach = time.Minute

// Claim is one claim of a cache.
type Claim struct {
	Name string
	// Number is its place among the names of the pool's claims; -1 for a name that is none of them.
	Number int
	// Holder is the runner that has it or had it last, Taken when that runner took it.
	Holder types.UID
	Taken  time.Time
	// InUse is true unless its holder and its holder's pod are gone.
	InUse bool
	// Leaving is true of one in use whose holder is being ended.
	Leaving bool
	// LeavesBy is by when one in use should be free, as its holder has ended; zero if it hasn't.
	LeavesBy time.Time
	// Failed is true of one that ever kept a runner from starting; Avoid is until when no runner takes it for that.
	Failed bool
	Avoid  time.Time
	// Ending is true of one that is being deleted; Unbound of one that has no volume yet; Lost of one whose volume is gone.
	Ending, Unbound, Lost bool
	// Orphan is true of one that no pool owns: Kubernetes deletes it with none.
	Orphan bool
	// Unlike is true of one that has another class, size or access mode than the pool declares.
	Unlike bool
}

// Choice is what a runner does for a claim.
type Choice struct {
	// Use names a claim to use, or one that the runner has already if Own.
	Use string
	Own bool
	// Make is the number of a claim to make, -1 for none.
	Make int
	// Missing is why there is no claim; "" if there is one. Soon says that there will be one, as a runner with one ends or one is being deleted.
	Missing string
	Soon    bool
	// Ended says that the runner of one has ended: it is free within seconds.
	Ended bool
}

// Choose returns the claim for a runner: its own, else the free one that was used last, as its contents are the newest, else
// a new one within the bound. While many kept runners from starting, it takes none but those that were taken since: a new one has its
// volume where there are nodes. While new ones get no volume, and runners may start without, it makes none, and one runner at a time tries one that failed before.
func Choose(spec *v1alpha1.CacheSpec, all []Claim, runner types.UID, now time.Time) Choice {
	noVolumes, mayReuse := lacksVolumes(spec, all), reusable(spec, all, now)
	best, made := -1, map[int]bool{}
	for i, c := range all {
		made[c.Number] = true
		switch {
		case c.Ending:
		case c.Holder == runner:
			return Choice{Use: c.Name, Own: true, Make: -1}
		case mayReuse(c) && (best < 0 || newer(c, all[best])):
			best = i
		}
	}
	if best >= 0 {
		return Choice{Use: all[best].Name, Make: -1}
	}
	if number := firstFree(spec, made); number >= 0 && !noVolumes {
		return Choice{Make: number}
	}
	return chooseAtBound(spec, all, now)
}

// reusable reports which claims may be used again, as Choose says.
func reusable(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) func(Claim) bool {
	since, noVolumes, isTried := failedAt(all, now), lacksVolumes(spec, all), slices.ContainsFunc(all, Claim.isTried)
	return func(c Claim) bool {
		return isFree(spec, c, now) && !c.Taken.Before(since) && (!c.Unbound || !noVolumes || c.Failed && !isTried)
	}
}

// firstFree is the least number of a claim that isn't made; -1 if there are as many as may be.
func firstFree(spec *v1alpha1.CacheSpec, made map[int]bool) int {
	for number := range int(spec.MaxClaims) {
		if !made[number] {
			return number
		}
	}
	return -1
}

// chooseAtBound is for when no claim is free and no more may be made.
func chooseAtBound(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) Choice {
	if again := retry(spec, all, now); again >= 0 {
		return Choice{Use: all[again].Name, Make: -1}
	}
	left := func(c Claim) bool { return c.Ending || c.InUse && c.Leaving }
	ended := func(c Claim) bool {
		return now.Before(c.LeavesBy) && fits(spec, c) && !c.Ending && !now.Before(c.Avoid)
	}
	return Choice{
		Make: -1, Missing: missing(spec, all, now), Soon: slices.ContainsFunc(all, left), Ended: slices.ContainsFunc(all, ended),
	}
}

// retry returns one of the claims that are left alone, where runners do without none and none in use will come free: what kept runners
// from starting may be over. One is tried each retryEach, from the last failure on. -1 for none.
func retry(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) int {
	if spec.GetOnMissing() != v1alpha1.WaitForClaim {
		return -1
	}
	_, failed := failures(all, now)
	best, last := -1, failed
	for i, c := range all {
		switch {
		case c.InUse && c.Taken.Before(failed):
			return -1
		case c.InUse:
			last = later(last, c.Taken) // it was tried
		case fits(spec, c) && !c.Ending && (best < 0 || cmp.Or(c.Avoid.Compare(all[best].Avoid), all[best].Taken.Compare(c.Taken)) < 0):
			best = i
		}
	}
	if now.Sub(last) < retryEach {
		return -1
	}
	return best
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// failedAt is when a claim last kept a runner from starting, if several did lately; zero otherwise.
func failedAt(all []Claim, now time.Time) time.Time {
	if avoided, last := failures(all, now); avoided >= maxAvoided {
		return last
	}
	return time.Time{}
}

// lacksVolumes reports whether new claims are of no use. Who waits for one all the same loses nothing by trying.
func lacksVolumes(spec *v1alpha1.CacheSpec, all []Claim) bool {
	return spec.GetOnMissing() == v1alpha1.StartWithout && slices.ContainsFunc(all, Claim.lacksVolume)
}

// lacksVolume reports whether the claim kept a runner from starting and has no volume still: another new one would, too.
func (c Claim) lacksVolume() bool { return c.Unbound && c.Failed && !c.Ending }

// isTried reports whether a runner tries such a claim again.
func (c Claim) isTried() bool { return c.lacksVolume() && c.InUse }

// failures counts the claims that kept a runner from starting lately, and says when one last did.
func failures(all []Claim, now time.Time) (avoided int, last time.Time) {
	for _, c := range all {
		if !c.Ending && now.Before(c.Avoid) {
			avoided++
			last = later(last, c.Avoid.Add(-AvoidFor))
		}
	}
	return avoided, last
}

func isFree(spec *v1alpha1.CacheSpec, c Claim, now time.Time) bool {
	return fits(spec, c) && !c.Ending && !c.InUse && !now.Before(c.Avoid)
}

// fits says whether a claim is one that the pool declares and owns, and has a volume.
func fits(spec *v1alpha1.CacheSpec, c Claim) bool {
	return c.Number >= 0 && c.Number < int(spec.MaxClaims) && !c.Lost && !c.Orphan && !c.Unlike
}

func newer(a, b Claim) bool {
	return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.Number, b.Number)) < 0
}

// missing counts what keeps claims from being free.
func missing(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) string {
	var inUse, avoided, ending, free int
	for _, c := range all {
		switch {
		case c.Ending:
			ending++
		case c.InUse:
			inUse++
		case now.Before(c.Avoid):
			avoided++
		case isFree(spec, c, now):
			free++
		}
	}
	text := fmt.Sprintf("none of at most %d claims is free: %d in use, %d kept a runner from starting lately, %d being deleted",
		spec.MaxClaims, inUse, avoided, ending)
	if lacksVolumes(spec, all) {
		text += "; new ones get no volume"
	} else if free > 0 {
		text += fmt.Sprintf("; %d aren't tried, as these did", free)
	}
	return text
}

// Removal is a claim to be deleted, and why.
type Removal struct{ Name, Reason string }

// Remove lists the claims that are of no use: of those that no runner has, what the pool doesn't declare any more, has no volume, or was
// not used for too long. Spec is nil if the pool declares no cache.
func Remove(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) []Removal {
	var list []Removal
	for _, c := range all {
		if reason := useless(spec, c, now); reason != "" && !c.InUse && !c.Ending {
			list = append(list, Removal{c.Name, reason})
		}
	}
	slices.SortFunc(list, func(a, b Removal) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func useless(spec *v1alpha1.CacheSpec, c Claim, now time.Time) string {
	switch {
	case spec == nil:
		return "the pool has no cache any more"
	case c.Orphan:
		return "no pool owns it"
	case c.Lost:
		return "its volume is gone"
	case c.Unlike:
		return "the pool declares another class, size or access mode"
	case !fits(spec, c):
		return fmt.Sprintf("the pool has at most %d claims", spec.MaxClaims)
	case now.Sub(c.Taken) >= spec.GetTimeToLive():
		return fmt.Sprintf("no runner took it for %s", spec.GetTimeToLive())
	}
	return ""
}
