// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// maxGone is how many pools are named that are gone since a revision.
const maxGone = 10

// goneSince warns of pools that a revision of the folder declares and w doesn't, or says why the two can't be compared.
func (w *workspace) goneSince(ctx context.Context, d *definitions, folder, revision string) ([]report.Finding, error) {
	if revision == "" {
		return nil, errors.New("--base is empty; does git merge-base find the commit? Fetch more history")
	}
	base, err := revisionTree(ctx, folder, revision)
	if err != nil || base.absent {
		return nil, err
	}
	result, err := compileTree(ctx, w.compiler, base.tree, compile.Options{Tags: d.tags, AllowEmpty: true})
	if err != nil {
		return nil, err
	}
	finding := func(message string) []report.Finding {
		return []report.Finding{warning(ruleGone, "Pools are gone", v1alpha1.Diagnostic{Message: message})}
	}
	if problems := result.Diagnostics; len(problems) > 0 {
		return finding(fmt.Sprintf("which pools are gone since %s isn't known, as it doesn't compile: %s", base.name, compile.Format(problems[0]))), nil
	}
	fillNamespace(result.Objects, w.options.namespace)
	gone := poolNames(result.Objects)
	before := len(gone)
	for name := range poolNames(w.Objects) {
		delete(gone, name)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	return finding(fmt.Sprintf("%d of %s gone since %s: %s", len(gone), wording.Count(before, "pool"), base.name,
		wording.List(slices.Sorted(maps.Keys(gone)), maxGone))), nil
}

// poolNames are the names of the pools among objects.
func poolNames(objects []compile.Object) map[string]bool {
	names := map[string]bool{}
	for _, o := range objects {
		if o.Manifest.GetKind() == "RunnerPool" {
			names[wording.Qualified(o.Manifest.GetNamespace(), o.Manifest.GetName())] = true
		}
	}
	return names
}
