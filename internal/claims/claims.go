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

// BlameFor is how long a claim stays blamed after a runner with it did not start.
const BlameFor = 10 * time.Minute

// maxProved is how many claims may be proved guilty before claims that were last used before them are distrusted too: their zone may
// have no nodes.
const maxProved = 3

// probeInterval is the time between attempts with claims that are proved guilty or distrusted.
const probeInterval = time.Minute

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
	// FailedAt is when a runner with the claim last failed to start; zero if none did. Proved is true if the scheduler named the claim's
	// volume as what kept the pod from a node. Otherwise the runner only missed its startup deadline: a slow cluster looks the same, so such
	// a claim is merely tried last.
	FailedAt time.Time
	Proved   bool
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

// Choose returns the claim for a runner. In order of preference: the claim that the runner already has, the free claim that was used last,
// as its contents are the newest, a new claim within the bound, and then, if runners must not start without a claim, one that is blamed.
// Blame therefore delays a pool, but never leaves it without runners.
//
// While several claims are proved guilty, only claims that were taken since are reused: a new claim gets its volume where there are nodes.
// While new claims get no volume and runners may start without one, Choose makes none, and one runner at a time tries one that failed before.
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

// reusable reports which claims may be used again without a second thought.
func reusable(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) func(Claim) bool {
	since, noVolumes, isTried := provedAt(all, now), lacksVolumes(spec, all), slices.ContainsFunc(all, Claim.isTried)
	return func(c Claim) bool {
		return isFree(spec, c, now) && !c.Taken.Before(since) && (!c.Unbound || !noVolumes || !c.FailedAt.IsZero() && !isTried)
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

// chooseAtBound chooses when no claim is free without blame and no more may be made.
func chooseAtBound(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) Choice {
	if last := lastResort(spec, all, now); last >= 0 {
		return Choice{Use: all[last].Name, Make: -1}
	}
	left := func(c Claim) bool { return c.Ending || c.InUse && c.Leaving }
	ended := func(c Claim) bool {
		return now.Before(c.LeavesBy) && fits(spec, c) && !c.Ending && !c.isBlamed(now)
	}
	return Choice{
		Make: -1, Missing: missing(spec, all, now), Soon: slices.ContainsFunc(all, left), Ended: slices.ContainsFunc(all, ended),
	}
}

// lastResort returns the blamed claim to try where runners must not start without one; -1 for none. Suspects come first, at once and
// the one with the oldest blame first. Claims that are proved guilty or distrusted follow, one attempt each probeInterval.
func lastResort(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) int {
	if spec.GetOnMissing() != v1alpha1.WaitForClaim {
		return -1
	}
	since := provedAt(all, now)
	mayTry := func(c Claim) bool { return fits(spec, c) && !c.Ending && !c.InUse }
	suspect := oldestBlame(all, func(c Claim) bool { return mayTry(c) && !c.isProved(now) && !c.Taken.Before(since) })
	if suspect >= 0 || now.Sub(lastProbe(all, now)) < probeInterval {
		return suspect
	}
	return oldestBlame(all, mayTry)
}

// lastProbe is when a blamed claim was last tried, or last proved guilty.
func lastProbe(all []Claim, now time.Time) time.Time {
	last := lastProved(all, now)
	for _, c := range all {
		if c.InUse && c.wasProbe() {
			last = later(last, c.Taken)
		}
	}
	return last
}

// oldestBlame returns which of some claims to try first; -1 for none.
func oldestBlame(all []Claim, isCandidate func(Claim) bool) int {
	first := -1
	for i, c := range all {
		if isCandidate(c) && (first < 0 || triedBefore(c, all[first])) {
			first = i
		}
	}
	return first
}

// triedBefore reports whether a is tried before b: the older blame first, then the newer contents.
func triedBefore(a, b Claim) bool {
	return cmp.Or(a.FailedAt.Compare(b.FailedAt), b.Taken.Compare(a.Taken)) < 0
}

// isBlamed reports whether the last runner with the claim failed to start, not long ago.
func (c Claim) isBlamed(now time.Time) bool {
	return !c.FailedAt.IsZero() && !c.Taken.After(c.FailedAt) && now.Before(c.FailedAt.Add(BlameFor))
}

// wasProbe reports whether the claim was blamed when its holder took it.
func (c Claim) wasProbe() bool {
	return c.Taken.After(c.FailedAt) && c.Taken.Before(c.FailedAt.Add(BlameFor))
}

// isProved reports whether the scheduler named the claim as what kept a runner from starting.
func (c Claim) isProved(now time.Time) bool { return c.Proved && c.isBlamed(now) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// provedAt is when the last claim was proved guilty, if several are; zero otherwise.
func provedAt(all []Claim, now time.Time) time.Time {
	proved := 0
	for _, c := range all {
		if !c.Ending && c.isProved(now) {
			proved++
		}
	}
	if proved < maxProved {
		return time.Time{}
	}
	return lastProved(all, now)
}

// lastProved is when the last claim was proved guilty; zero if none is.
func lastProved(all []Claim, now time.Time) (last time.Time) {
	for _, c := range all {
		if !c.Ending && c.isProved(now) {
			last = later(last, c.FailedAt)
		}
	}
	return last
}

// lacksVolumes reports whether new claims are of no use. Who waits for one all the same loses nothing by trying.
func lacksVolumes(spec *v1alpha1.CacheSpec, all []Claim) bool {
	return spec.GetOnMissing() == v1alpha1.StartWithout && slices.ContainsFunc(all, Claim.lacksVolume)
}

// lacksVolume reports whether the claim kept a runner from starting and has no volume still: another new one would, too.
func (c Claim) lacksVolume() bool { return c.Unbound && !c.FailedAt.IsZero() && !c.Ending }

// isTried reports whether a runner tries such a claim again.
func (c Claim) isTried() bool { return c.lacksVolume() && c.InUse }

func isFree(spec *v1alpha1.CacheSpec, c Claim, now time.Time) bool {
	return fits(spec, c) && !c.Ending && !c.InUse && !c.isBlamed(now)
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
	var inUse, blamed, ending, free int
	for _, c := range all {
		switch {
		case c.Ending:
			ending++
		case c.InUse:
			inUse++
		case c.isBlamed(now):
			blamed++
		case isFree(spec, c, now):
			free++
		}
	}
	text := fmt.Sprintf("none of at most %d claims is free: %d in use, %d kept a runner from starting lately, %d being deleted",
		spec.MaxClaims, inUse, blamed, ending)
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
