// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// maxGone is the maximum number of pool names in the warning of goneSince.
const maxGone = 10

// goneSince warns about pools that the folder declares at a revision and that w does not have. It also warns if the revision
// does not compile.
func (w *workspace) goneSince(ctx context.Context, d *definitions, folder, revision string) ([]report.Finding, error) {
	if revision == "" {
		return nil, errors.New("--base is empty: if git merge-base finds no commit, fetch more history")
	}
	base, err := revisionTree(ctx, folder, revision)
	if err != nil || base.absent {
		return nil, err
	}
	result, err := compileTree(ctx, base.tree, compile.Options{Tags: d.tags, AllowEmpty: true})
	diagnostics := result.Diagnostics // as they were before assign adds its own
	if err == nil && w.isAssigned {   // the definitions are in the namespaces of the sources that apply them
		err = d.assign(ctx, &result)
	}
	if err != nil {
		return nil, err
	}
	fillNamespace(result.Objects, w.options.namespace)
	before, now := poolNames(result.Objects), poolNames(w.Objects)
	removed := slices.DeleteFunc(slices.Clone(before), func(name string) bool { _, is := slices.BinarySearch(now, name); return is })
	message := ""
	switch {
	case len(diagnostics) > 0:
		message = fmt.Sprintf("cannot determine which pools are gone since %s, because it does not compile: %s", base.name, compile.Format(diagnostics[0]))
	case len(removed) == 0:
		return nil, nil
	default:
		message = fmt.Sprintf("%d of %s gone since %s: %s", len(removed), wording.Count(len(before), "pool"), base.name, wording.List(removed, maxGone))
	}
	return []report.Finding{warning(ruleGone, "Pools are gone", v1alpha1.Diagnostic{Message: message})}, nil
}

// poolNames returns the sorted names of the pools among objects.
func poolNames(objects []compile.Object) (names []string) {
	for _, o := range objects {
		if o.Manifest.GetKind() == "RunnerPool" {
			names = append(names, wording.Qualified(o.Manifest.GetNamespace(), o.Manifest.GetName()))
		}
	}
	slices.Sort(names)
	return names
}
