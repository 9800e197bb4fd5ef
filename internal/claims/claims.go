// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims decides which claim of its pool's cache a runner takes, whether the claim is kept when the runner ends, and which
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
	// Number is the number in the claim's name, or -1 if the name is not one of the pool's claims.
	Number int
	// Holder is the current or last runner with the claim. Taken is the time when that runner took it.
	Holder types.UID
	Taken  time.Time
	// InUse is true unless the holder and the holder's pod are gone.
	InUse bool
	// Leaving is true if the claim is in use and its holder is being removed.
	Leaving bool
	// LeavesBy is when the claim should be free because its holder has ended. It is zero if the holder has not ended.
	LeavesBy time.Time
	// FailedAt is the time when a runner with the claim last failed to start; zero if none did. Proved is true if the scheduler reported
	// that the claim's volume kept the pod from a node. Otherwise the runner only missed its startup deadline: a slow cluster looks the same, so such
	// a claim is merely tried last.
	FailedAt time.Time
	Proved   bool
	// Ending is true if the claim is being deleted, Unbound if it has no volume yet, and Lost if its volume is gone.
	Ending, Unbound, Lost bool
	// Orphan is true if no pool owns the claim, so that Kubernetes does not delete it with a pool.
	Orphan bool
	// Unlike is true if the claim has another class, size or access mode than the pool declares.
	Unlike bool
}

// Choice is the result of Choose: how a runner gets a claim.
type Choice struct {
	// Use is the name of the claim to use. Own is true if the runner already has it.
	Use string
	Own bool
	// Make is the number of a new claim to create, or -1.
	Make int
	// Missing is the reason why there is no claim, or "". Soon is true if a claim will be free soon, because its runner is ending or a claim is being deleted.
	Missing string
	Soon    bool
	// Ended is true if the runner of a claim has ended, so that the claim is free within seconds.
	Ended bool
}

// Choose returns the claim for a runner. In order of preference: the claim that the runner already has, the free claim that was used last,
// because its contents are the newest, a new claim within the bound, and then, if runners must not start without a claim, a blamed claim.
// Blame therefore delays a pool, but never leaves it without runners.
//
// While several claims are proved guilty, only claims that were taken since are reused: a new claim gets its volume where there are nodes.
// While new claims get no volume and runners may start without a claim, Choose creates none, and one runner at a time tries a failed claim.
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

// reusable returns the claims that may be used again without restriction.
func reusable(spec *v1alpha1.CacheSpec, all []Claim, now time.Time) func(Claim) bool {
	since, noVolumes, isTried := provedAt(all, now), lacksVolumes(spec, all), slices.ContainsFunc(all, Claim.isTried)
	return func(c Claim) bool {
		return isFree(spec, c, now) && !c.Taken.Before(since) && (!c.Unbound || !noVolumes || !c.FailedAt.IsZero() && !isTried)
	}
}

// firstFree returns the smallest unused number of a claim, or -1 if the pool has the maximum number of claims.
func firstFree(spec *v1alpha1.CacheSpec, made map[int]bool) int {
	for number := range int(spec.MaxClaims) {
		if !made[number] {
			return number
		}
	}
	return -1
}

// chooseAtBound chooses a claim if none is free without blame and no more may be created.
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

// lastProbe returns the time when a blamed claim was last tried or last proved guilty.
func lastProbe(all []Claim, now time.Time) time.Time {
	last := lastProved(all, now)
	for _, c := range all {
		if c.InUse && c.wasProbe() {
			last = later(last, c.Taken)
		}
	}
	return last
}

// oldestBlame returns the index of the claim to try first, or -1.
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

// isBlamed reports whether the last runner with the claim recently failed to start.
func (c Claim) isBlamed(now time.Time) bool {
	return !c.FailedAt.IsZero() && !c.Taken.After(c.FailedAt) && now.Before(c.FailedAt.Add(BlameFor))
}

// wasProbe reports whether the claim was blamed when its holder took it.
func (c Claim) wasProbe() bool {
	return c.Taken.After(c.FailedAt) && c.Taken.Before(c.FailedAt.Add(BlameFor))
}

// isProved reports whether the scheduler reported that the claim kept a runner from starting.
func (c Claim) isProved(now time.Time) bool { return c.Proved && c.isBlamed(now) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// provedAt returns the time when the last claim was proved guilty, if several are; zero otherwise.
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

// lastProved returns the time when the last claim was proved guilty; zero if none is.
func lastProved(all []Claim, now time.Time) (last time.Time) {
	for _, c := range all {
		if !c.Ending && c.isProved(now) {
			last = later(last, c.FailedAt)
		}
	}
	return last
}

// lacksVolumes reports whether new claims get no volume. A runner that must wait for a claim anyway loses nothing by trying.
func lacksVolumes(spec *v1alpha1.CacheSpec, all []Claim) bool {
	return spec.GetOnMissing() == v1alpha1.StartWithout && slices.ContainsFunc(all, Claim.lacksVolume)
}

// lacksVolume reports whether the claim kept a runner from starting and still has no volume. Another new claim would have this problem too.
func (c Claim) lacksVolume() bool { return c.Unbound && !c.FailedAt.IsZero() && !c.Ending }

// isTried reports whether a runner is trying a claim without a volume again.
func (c Claim) isTried() bool { return c.lacksVolume() && c.InUse }

func isFree(spec *v1alpha1.CacheSpec, c Claim, now time.Time) bool {
	return fits(spec, c) && !c.Ending && !c.InUse && !c.isBlamed(now)
}

// fits reports whether the pool declares and owns the claim, and the claim has a volume.
func fits(spec *v1alpha1.CacheSpec, c Claim) bool {
	return c.Number >= 0 && c.Number < int(spec.MaxClaims) && !c.Lost && !c.Orphan && !c.Unlike
}

func newer(a, b Claim) bool {
	return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.Number, b.Number)) < 0
}

// missing counts the reasons why claims are not free.
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
		text += fmt.Sprintf("; %d are not tried, for the same reason", free)
	}
	return text
}

// Removal is a claim to delete, with the reason.
type Removal struct{ Name, Reason string }

// Remove lists the unused claims to delete: claims that the pool no longer declares, that have lost their volume, or that were not used
// for too long. Spec is nil if the pool declares no cache.
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
