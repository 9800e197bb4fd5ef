// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package claims decides which claim of its pool's cache a runner uses, whether the claim is kept when the runner ends,
// and which claims Corral deletes. It is pure.
package claims

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// BlameFor is how long a claim is blamed after a runner with the claim failed to start.
const BlameFor = 10 * time.Minute

// maxProved is the number of claims that must be proved guilty before Choose also distrusts the claims that were last
// taken before the latest proof: their zone may have no nodes.
const maxProved = 3

// probeInterval is the minimum time between two attempts with claims that are proved guilty or distrusted.
const probeInterval = time.Minute

// Claim is one claim of a cache.
type Claim struct {
	Name string
	// Number is the number in the claim's name, or -1 if the name is not one of the pool's claims.
	Number int
	// Holder is the runner that uses the claim, or used it last. Taken is when that runner took the claim.
	Holder types.UID
	Taken  time.Time
	// InUse is true unless the holder and the holder's pod are gone.
	InUse bool
	// Leaving is true if the claim is in use and its holder is being removed.
	Leaving bool
	// LeavesBy is when the claim should be free again, because its holder has ended. It is zero if the holder has not
	// ended.
	LeavesBy time.Time
	// FailedAt is the time when a runner with the claim last failed to start; zero if none did. Proved is true if the
	// scheduler reported that the claim's volume prevented scheduling of the pod. Otherwise the runner only missed its
	// startup deadline, which also happens in a slow cluster, so such a claim is only tried after others.
	FailedAt time.Time
	Proved   bool
	// Ending is true if the claim is being deleted, Unbound if it has no volume yet, and Lost if its volume is gone.
	Ending, Unbound, Lost bool
	// Orphan is true if no pool owns the claim. Kubernetes then does not delete it with a pool.
	Orphan bool
	// Unlike is true if the claim's storage class, size or access mode differs from the pool's declaration.
	Unlike bool
}

// Choice is the result of Choose: an existing claim, a new claim, or no claim.
type Choice struct {
	// Use is the name of the claim to use, or "". Own is true if the runner already has this claim.
	Use string
	Own bool
	// Make is the number of a new claim to create, or -1.
	Make int
	// Missing is the reason why the runner gets no claim, or "". Soon is true if a runner can get a claim soon, because a
	// claim is being deleted or its runner is being removed.
	Missing string
	Soon    bool
	// Ended is true if the runner of a usable claim has ended, so that the claim should be free within seconds.
	Ended bool
}

// Choose returns the claim for a runner. In order of preference, this is the claim that the runner already has; the
// free claim that was used last, because its contents are the newest; a new claim, if the pool may have one more; and a
// blamed claim, if runners must not start without a claim. So blame can delay the runners of such a pool, but not stop
// them.
//
// While at least maxProved claims are proved guilty, Choose reuses only claims that were taken after the last proof. It
// prefers a new claim to an older one, because the volume of a new claim is created in a zone with nodes. While new
// claims get no volume and runners may start without a claim, Choose creates no claim, and one runner at a time tries a
// failed claim again.
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

// reusable returns a function that reports whether Choose may use a claim again before it considers a new one.
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

// chooseAtBound chooses a blamed claim if no other claim is free and no claim may be created. If there is none, it
// returns the reason.
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

// lastResort returns the index of the blamed or distrusted claim to try if runners must not start without a claim; -1
// if there is none. It prefers suspects, which may be tried at once, beginning with the oldest blame. Claims that are
// proved guilty or distrusted follow, with one attempt per probeInterval.
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

// lastProbe returns the last time when a runner took a blamed claim that it still uses, or when a claim was proved
// guilty.
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

// isBlamed reports whether the last runner with the claim failed to start within the last BlameFor.
func (c Claim) isBlamed(now time.Time) bool {
	return !c.FailedAt.IsZero() && !c.Taken.After(c.FailedAt) && now.Before(c.FailedAt.Add(BlameFor))
}

// wasProbe reports whether the claim was blamed when its holder took it.
func (c Claim) wasProbe() bool {
	return c.Taken.After(c.FailedAt) && c.Taken.Before(c.FailedAt.Add(BlameFor))
}

// isProved reports whether the claim is blamed because the scheduler reported its volume as the reason.
func (c Claim) isProved(now time.Time) bool { return c.Proved && c.isBlamed(now) }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// provedAt returns the time when the last claim was proved guilty, if at least maxProved claims are; zero otherwise.
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

// lastProved returns the time when the last claim was proved guilty; zero if no claim is.
func lastProved(all []Claim, now time.Time) (last time.Time) {
	for _, c := range all {
		if !c.Ending && c.isProved(now) {
			last = later(last, c.FailedAt)
		}
	}
	return last
}

// lacksVolumes reports whether Choose must expect that new claims get no volume. If runners must wait for a claim, it
// returns false, because such a runner loses nothing by trying a new claim.
func lacksVolumes(spec *v1alpha1.CacheSpec, all []Claim) bool {
	return spec.GetOnMissing() == v1alpha1.StartWithout && slices.ContainsFunc(all, Claim.lacksVolume)
}

// lacksVolume reports whether a runner failed to start with the claim, and the claim still has no volume. A new claim
// would probably get none either.
func (c Claim) lacksVolume() bool { return c.Unbound && !c.FailedAt.IsZero() && !c.Ending }

// isTried reports whether a runner is currently trying such a claim again.
func (c Claim) isTried() bool { return c.lacksVolume() && c.InUse }

func isFree(spec *v1alpha1.CacheSpec, c Claim, now time.Time) bool {
	return fits(spec, c) && !c.Ending && !c.InUse && !c.isBlamed(now)
}

// fits reports whether the claim matches the pool's declaration, is owned by the pool, and has not lost its volume.
func fits(spec *v1alpha1.CacheSpec, c Claim) bool {
	return c.Number >= 0 && c.Number < int(spec.MaxClaims) && !c.Lost && !c.Orphan && !c.Unlike
}

func newer(a, b Claim) bool {
	return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.Number, b.Number)) < 0
}

// missing describes why no claim is free, with the number of claims for each reason.
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

// Removal names a claim to delete, with the reason.
type Removal struct{ Name, Reason string }

// Remove returns the unused claims to delete: claims that the pool no longer declares or does not own, that have lost
// their volume, or that no runner took for the cache's time to live. spec is nil if the pool declares no cache.
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
