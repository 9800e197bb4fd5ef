// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
)

// maxPlaceholderStem keeps the name of a placeholder within GitHub's limit of 64 characters.
const maxPlaceholderStem = 40

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
func (v *visit) keepPlaceholders(ctx context.Context, listed []rest.Runner) {
	for _, p := range v.pools {
		if !wantsPlaceholder(p) {
			continue
		}
		ctx := github.InFlow(ctx, p.Namespace+"/"+p.Name)
		want := rest.Registration{
			Name: placeholderName(v.Cluster, p), Group: p.Spec.GetRunnerGroup(),
			Labels: p.GetMarkedLabels(v.Cluster),
		}
		if err := v.keepPlaceholder(ctx, want, listed); err != nil {
			kube.Warn(ctx, "The placeholder of a pool can't be registered", "pool", p.Name, "reason", github.Summary(err))
		}
	}
}

func (v *visit) keepPlaceholder(ctx context.Context, want rest.Registration, listed []rest.Runner) error {
	i := slices.IndexFunc(listed, func(r rest.Runner) bool { return r.Name == want.Name })
	if i >= 0 {
		group, err := v.gh.GroupID(ctx, want.Group)
		if err != nil {
			return err
		}
		if sameLabels(listed[i].Labels, want.Labels) && (listed[i].GroupID == group || listed[i].GroupID == 0) {
			return nil
		}
		if err := v.gh.RemoveRunner(ctx, listed[i].ID); err != nil && !github.IsNotFound(err) {
			return err
		}
	}
	_, err := v.gh.GenerateJIT(ctx, want)
	if github.IsRunnerExists(err) {
		return nil // GitHub created it after the list was read
	}
	return err
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
