// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// maxPlaceholderStem keeps the name of a placeholder within GitHub's limit of 64 characters.
	maxPlaceholderStem = 40
	// placeholderLife is the minimum time between two replacements of a pool's placeholder. A replacement costs 10 of the
	// 900 points that GitHub allows a minute to all users of a connection, and labels rarely change.
	placeholderLife = time.Hour
	// placeholdersAtOnce is the maximum number of a namespace's placeholders that one visit registers or replaces. So a
	// namespace that changes its pools, or replaces them by new ones, uses about a fifth of GitHub's points at most.
	placeholdersAtOnce = 20
	// placeholdersTime limits the part of a visit that keeps placeholders. Calls of one namespace may have to wait until calls
	// of others end, and the collector does not compare the connection's runners again before the visit ends.
	placeholdersTime = time.Minute
)

// wantsPlaceholder reports whether the pool needs a placeholder: a registration without a pod, which therefore never gets a
// job. Some GitHub servers fail jobs for which no runner is registered. With a placeholder, these jobs wait instead.
func wantsPlaceholder(p *v1alpha1.RunnerPool) bool {
	return p.Spec.GetPlaceholder() == v1alpha1.PlaceholderAlways && p.DeletionTimestamp.IsZero() && !p.Spec.Stops()
}

// placeholderName returns the name of a pool's placeholder, which never changes. It differs from the names of Runners,
// which end in a number.
func placeholderName(cluster string, p *v1alpha1.RunnerPool) string {
	mark := v1alpha1.OwnerLabel(cluster, string(p.UID))
	stem := strings.TrimRight(p.Name[:min(len(p.Name), maxPlaceholderStem)], "-.")
	return stem + mark[strings.LastIndex(mark, "-"):] + "-placeholder"
}

// keepPlaceholders registers missing placeholders, because GitHub removes a runner that does not connect for about a day.
// It replaces a placeholder whose labels or group differ from the pool's. removeLeaks removes placeholders that are no
// longer needed.
//
// The namespaces that use a connection share GitHub's limits, so keepPlaceholders makes few calls for one namespace. When
// GitHub's limits are near, or after placeholdersTime, it stops until the next visit. The order of the pools is random, so
// that the same pools are not always the last.
func (v *visit) keepPlaceholders(ctx context.Context, listed []rest.Runner) {
	ctx, cancel := context.WithTimeout(ctx, placeholdersTime)
	defer cancel()
	known := make(map[string]rest.Runner, len(listed))
	for _, r := range listed {
		known[r.Name] = r
	}
	changed := map[string]int{} // placeholders by namespace
	for _, i := range rand.Perm(len(v.pools)) {
		p := v.pools[i]
		if !wantsPlaceholder(p) || changed[p.Namespace] >= placeholdersAtOnce {
			continue
		}
		ctx := github.InFlow(ctx, p.Namespace+"/"+p.Name)
		called, err := v.keepPlaceholder(ctx, p, known)
		if called {
			changed[p.Namespace]++
		}
		if err != nil {
			kube.Warn(ctx, "The placeholder of a pool can't be registered", "pool", p.Name, "reason", github.Summary(err))
		}
		if _, limited := github.IsRateLimited(err); limited || ctx.Err() != nil {
			return
		}
	}
}

// keepPlaceholder registers or replaces the placeholder of a pool if necessary. It reports whether it called GitHub to
// change something.
func (v *visit) keepPlaceholder(ctx context.Context, p *v1alpha1.RunnerPool, known map[string]rest.Runner) (called bool, err error) {
	want := rest.Registration{
		Name: placeholderName(v.Cluster, p), Group: p.Spec.GetRunnerGroup(),
		Labels: p.GetMarkedLabels(v.Cluster),
	}
	if old, ok := known[want.Name]; ok {
		if !v.Memory.mayReplacePlaceholder(p.UID, v.Now()) {
			return false, nil
		}
		group, err := v.gh.GroupID(ctx, want.Group)
		if err != nil || isCurrent(old, want, group) {
			return false, err
		}
		if err := v.gh.RemovePlaceholder(ctx, old.ID); err != nil && !github.IsNotFound(err) {
			return true, err
		}
		v.Memory.notePlaceholderReplaced(p.UID, v.Now())
	}
	err = v.gh.RegisterPlaceholder(ctx, want)
	if github.IsRunnerExists(err) {
		err = nil // GitHub created it after the list was read
	}
	return true, err
}

// isCurrent reports whether a registered placeholder has the labels and the group that its pool needs.
func isCurrent(old rest.Runner, want rest.Registration, group int64) bool {
	return sameLabels(old.Labels, want.Labels) && (old.GroupID == group || old.GroupID == 0)
}

// sameLabels reports whether two lists contain the same labels, ignoring order and case. GitHub spells some labels with
// capital letters, such as Linux and X64.
func sameLabels(a, b []string) bool {
	sorted := func(labels []string) []string {
		lower := make([]string, 0, len(labels))
		for _, l := range labels {
			lower = append(lower, strings.ToLower(l))
		}
		slices.Sort(lower)
		return lower
	}
	return slices.Equal(sorted(a), sorted(b))
}
