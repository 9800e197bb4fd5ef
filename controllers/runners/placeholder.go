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

// maxPlaceholderStem keeps the name of a placeholder within GitHub's bound of 64 characters.
const maxPlaceholderStem = 40

// wantsPlaceholder reports whether a runner is to be kept registered that never runs. It has no pod,
// so that no job can go to it; a server that fails jobs which nobody could ever take lets them wait.
func wantsPlaceholder(p *v1alpha1.RunnerPool) bool {
	return p.Spec.GetPlaceholder() == v1alpha1.PlaceholderAlways && p.DeletionTimestamp.IsZero() && !p.Spec.Stops()
}

// placeholderName is the same in each comparison, and no Runner's: those end in a number.
func placeholderName(cluster string, p *v1alpha1.RunnerPool) string {
	mark := v1alpha1.OwnerLabel(cluster, string(p.UID))
	stem := strings.TrimRight(p.Name[:min(len(p.Name), maxPlaceholderStem)], "-.")
	return stem + mark[strings.LastIndex(mark, "-"):] + "-placeholder"
}

// keepPlaceholders registers the placeholders that are missing, and again those whose labels are the pool's
// no more. GitHub forgets a runner that never connected after a day or so. What isn't wanted any more
// is removed as a leak.
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
		return nil // it was listed before it was there
	}
	return err
}

// sameLabels compares labels as GitHub does, which shows some in a case of its own, such as Linux and X64.
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
