// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// claimRetry is the delay before the next search for a claim. Claims are read from the cache, so a retry costs no API
	// request.
	claimRetry = 2 * time.Second
	// claimTries is how many claims one pass tries if other runners take the chosen claims first.
	claimTries = 8
	// leavingRetry is the delay between checks for a claim that is about to become free. leavingWait is how long a runner
	// waits for such a claim: Kubernetes takes a second or two to remove an ended pod, and replacements are created before
	// that.
	leavingRetry, leavingWait = 250 * time.Millisecond, 5 * time.Second
	// leavingWithin is how long an ended Runner may take to disappear after its deletion.
	leavingWithin = 30 * time.Second
	// claimShown is how long the cache may take to show that a runner took a claim.
	claimShown = 10 * time.Second
	// claimPatience is how long after its creation a persistent runner waits at most for the claim of a runner that is
	// ending.
	claimPatience = 2 * time.Minute
	// Event reasons: a runner started without a claim, and a claim could not be deleted.
	cacheMissing, cacheKept = "CacheMissing", "CacheKept"
)

// claimMemory is what this process knows about a runner's claim.
type claimMemory struct {
	name string
	// takenAt is when this process took the claim for the runner; zero if another process did.
	takenAt time.Time
	// asked is true once this process requested a pod with the claim. settled is true once the claim was kept or deleted
	// after the runner ended.
	asked, settled bool
	// died is true if GitHub still counted the runner's job as running after the container had ended.
	died bool
	// seen is true once the cache has shown the pod. If the cache no longer shows it, the pod is gone.
	seen bool
}

// neverUsed reports whether no pod was ever created with the claim.
func (m claimMemory) neverUsed() bool { return !m.takenAt.IsZero() && !m.asked && !m.seen }

// podIsGone reports whether a pod that the cache does not show is gone, rather than not visible yet.
func (m claimMemory) podIsGone() bool { return m.seen || m.neverUsed() }

func (p pass) claims() Claims { return Claims{p.Client, p.Live, p.Memory} }

// acquireClaim finds a claim of the pool's cache for the runner, if its template mounts one. missing is the reason why the
// runner starts without a claim; it is empty if the runner has one or needs none.
func (p pass) acquireClaim(ctx context.Context, template []byte) (claim, missing string, err error) {
	if p.pool.Spec.Cache == nil || !podspec.MountsCache(template) {
		return "", "", nil
	}
	all, err := p.claims().Of(ctx, p.pool)
	if err != nil {
		return "", "", err
	}
	for range claimTries {
		choice := p.Memory.claims.choose(p.pool, all, p.runner.UID, p.Now())
		if choice.Ended && p.Now().Sub(p.runner.CreationTimestamp.Time) < leavingWait {
			return "", "", kube.Progress(leavingRetry, catalog.ClaimLeaving.With())
		}
		if choice.Missing != "" {
			return "", choice.Missing, p.waitForClaim(catalog.ClaimMissing.With(choice.Missing), choice.Soon)
		}
		name, err := p.tryClaim(ctx, all, choice)
		if err == nil {
			p.rememberClaim(name, choice.Own)
			return name, "", nil
		}
		p.Memory.claims.release(client.ObjectKey{Namespace: p.runner.Namespace, Name: name}, p.runner.UID)
		switch {
		case errors.Is(err, errTaken):
			all = without(all, p.pool.Name, name)
		case kube.IsRefused(err):
			return "", err.Error(), p.waitForClaim(refusalOf(err).With().Wrap(err), false)
		default:
			return "", "", err
		}
	}
	return "", "", kube.Wait(claimRetry, catalog.ClaimsTaken.With())
}

// rememberClaim records the runner's claim and releases the claim that it had before.
func (p pass) rememberClaim(name string, isOwn bool) {
	if before := p.memory.claim.name; before != name {
		p.Memory.claims.release(client.ObjectKey{Namespace: p.runner.Namespace, Name: before}, p.runner.UID)
	}
	if p.memory.claim.name = name; !isOwn {
		p.memory.claim.takenAt = p.Now()
	}
}

// refusalOf returns the cause to report when the API server refuses a claim.
func refusalOf(err error) *catalog.Row {
	if IsQuota(err) {
		return catalog.ClaimQuota
	}
	return catalog.ClaimRefused
}

// tryClaim takes or creates the chosen claim. It returns the claim's name even if it returns an error.
func (p pass) tryClaim(ctx context.Context, all []PoolClaim, choice claims.Choice) (string, error) {
	if choice.Use == "" {
		name := podspec.ClaimName(p.pool.Name, choice.Make)
		if awaited, err := p.isAwaited(ctx, name); awaited || err != nil {
			return name, cmp.Or(err, errTaken)
		}
		return name, p.claims().create(ctx, p.pool, choice.Make, p.runner, p.Now())
	}
	for _, x := range all {
		if x.Name == choice.Use && !choice.Own {
			return x.Name, p.claims().acquire(ctx, x, p.runner, p.Now())
		}
	}
	return choice.Use, nil
}

// isAwaited reports whether the pod of another runner waits for a claim that does not exist. This can happen because
// Kubernetes does not protect a claim before its pod has a node, so a user can delete it until then. That pod would also
// use a new claim with the same name.
func (p pass) isAwaited(ctx context.Context, claim string) (bool, error) {
	list := &corev1.PodList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: p.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking for pods that wait for claim %s: %w", claim, err)
	}
	return slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.Annotations[v1alpha1.CacheClaimAnnotation] == claim && !podspec.BelongsTo(&pod, p.runner) && !poolstatus.HasEnded(&pod)
	}), nil
}

// without returns the list with the named claim marked as in use by another runner.
func without(all []PoolClaim, pool, name string) []PoolClaim {
	list := make([]PoolClaim, 0, len(all)+1)
	for _, x := range all {
		if x.Name != name {
			list = append(list, x)
		}
	}
	return append(list, PoolClaim{Claim: claims.Claim{Name: name, Number: numberOf(pool, name), InUse: true}})
}

// waitForClaim returns nil if the runner starts without a claim, and otherwise an outcome that waits. A persistent runner
// that started without a claim would never get one, so it waits for a while if a claim will be free soon.
func (p pass) waitForClaim(why catalog.Cause, soon bool) error {
	isPatient := soon && p.runner.Persists() && p.Now().Sub(p.runner.CreationTimestamp.Time) < min(claimPatience, p.pool.Spec.Deadlines.GetStartup()/2)
	if !isPatient && p.pool.Spec.Cache.GetOnMissing() == v1alpha1.StartWithout {
		return nil
	}
	return kube.Wait(claimRetry, why)
}

// startedWithout emits an event and records that the runner started without a claim, and why. It does nothing if missing is
// empty.
func (p pass) startedWithout(missing string) {
	if missing == "" {
		return
	}
	p.Event(p.runner, corev1.EventTypeNormal, cacheMissing, "it starts without a cache: "+missing)
	p.Memory.recordMissed(p.poolKey(), v1alpha1.CacheMiss{Runner: p.runner.Name, Time: metav1.NewTime(p.Now()), Reason: missing})
}

// endPod stops the runner's pod, and deletes it unless it is kept for debugging. It first applies the fate of the claim,
// while the pod still shows how the runner ended.
func (p pass) endPod(ctx context.Context, o observation, state poolstatus.Assessment) error {
	if err := p.settleClaim(ctx, o, state); err != nil {
		return err
	}
	if p.mayKeep(state) {
		if kept, err := p.keepPod(ctx); kept || err != nil {
			return err
		}
	}
	return p.deletePod(ctx)
}

// settleClaim applies the fate of the runner's claim: depending on how the runner ended, the claim is kept, blamed or
// deleted. A kept claim is free once the runner is gone, so it needs no request, except that settleClaim renews a claim
// that the runner held for a long time.
func (p pass) settleClaim(ctx context.Context, o observation, state poolstatus.Assessment) error {
	if p.memory.claim.settled || !p.mayHaveClaim() {
		return nil
	}
	all, err := p.claims().Of(ctx, p.pool)
	if err != nil {
		return err
	}
	fate, why := claims.FateOf(p.ending(o, state))
	shown := false
	for _, x := range all {
		if x.Holder != p.runner.UID {
			continue
		}
		if shown = true; x.Ending {
			continue
		}
		if err := p.applyFate(ctx, x, fate, why); err != nil {
			if err := p.giveUpClaim(ctx, x, fate, err); err != nil {
				return err
			}
		}
	}
	if fate != claims.Keep && !shown && p.Now().Sub(p.memory.claim.takenAt) < claimShown {
		return kube.Progress(time.Second, catalog.ClaimUnseen.With(p.memory.claim.name))
	}
	p.memory.claim.settled = true
	return nil
}

// mayHaveClaim reports whether the runner has a claim, or whether this process does not know. It returns false if the pool
// is gone, because Kubernetes then deletes the claims with the pool.
func (p pass) mayHaveClaim() bool {
	if p.pool == nil {
		return false
	}
	return p.memory.claim.name != "" || p.pod == nil && p.pool.Spec.Cache != nil
}

// applyFate keeps, blames or deletes the claim.
func (p pass) applyFate(ctx context.Context, x PoolClaim, fate claims.Fate, why string) error {
	switch fate {
	case claims.Keep:
		if spec := p.pool.Spec.Cache; spec != nil && p.Now().Sub(x.Taken) >= spec.GetTimeToLive()/2 {
			return p.claims().renew(ctx, x, p.runner, p.Now())
		}
	case claims.Condemn:
		return p.claims().blame(ctx, x, v1alpha1.CauseCache, p.Now())
	case claims.Suspect:
		return p.claims().blame(ctx, x, v1alpha1.CauseSlow, p.Now())
	case claims.Delete:
		return p.claims().delete(ctx, x, p.Reporter, p.runner, why)
	}
	return nil
}

// giveUpClaim handles a claim that the API server refuses to change or delete. It waits until orphanAfter. After that, it
// removes the holder from a claim that should be deleted, so that no runner takes the claim. If the API server refuses that
// too, no runner can take the claim either, because taking it needs the same right.
func (p pass) giveUpClaim(ctx context.Context, x PoolClaim, fate claims.Fate, refused error) error {
	if !kube.IsRefused(refused) || p.Now().Sub(p.runner.DeletionTimestamp.Time) < orphanAfter {
		return refused
	}
	if fate != claims.Delete {
		return nil
	}
	if err := p.claims().disown(ctx, x); err != nil && !kube.IsRefused(err) {
		return err
	}
	p.Event(p.runner, corev1.EventTypeWarning, cacheKept, fmt.Sprintf("Corral is not allowed to delete cache claim %s, and no runner uses it: %s. To delete it: kubectl delete pvc -n %s %s",
		x.Name, wording.TruncateRunes(refused.Error(), 300), p.runner.Namespace, x.Name))
	return nil
}

// ending returns the facts about the runner's end that decide its claim's fate.
func (p pass) ending(o observation, state poolstatus.Assessment) claims.Ending {
	s := &p.runner.Status
	letGo := p.memory.end.deregistered || s.DeregisteredAt != nil
	jobGone := p.runner.Persists() && letGo && o.EndedAt.IsZero() // GitHub never removes the registration of a runner with a job
	return claims.Ending{
		Known:   p.pod != nil || s.StartedAt != nil || p.memory.claim.neverUsed(),
		Started: !o.StartedAt.IsZero(), Ended: !o.EndedAt.IsZero(), Clean: o.EndedClean,
		HasJob: o.Job != nil && !jobGone, JobOver: (p.jobOver() || o.Job != nil && o.Job.CompletedAt != nil) && !p.memory.claim.died && !p.jobOutlived(o),
		Crashed: o.Exit != nil && o.Exit.Code != 0,
		LetGo:   letGo, Cause: state.Cause,
	}
}

// jobOutlived reports whether the job ended long after the container did. In that case the runner died during its job, and
// GitHub ended the job later. Unlike claim.died, which a restart of the controller loses, this result follows from the
// status.
func (p pass) jobOutlived(o observation) bool {
	at := p.completion().at
	if o.Job != nil && o.Job.CompletedAt != nil {
		at = o.Job.CompletedAt.Time
	}
	return !o.EndedAt.IsZero() && at.After(o.EndedAt.Add(poolstatus.Settle))
}
