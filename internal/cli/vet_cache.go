// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/report"
)

// publicCaches warns of pools with a cache whose runner group takes jobs of public repositories: whoever opens a pull request there may
// write what later jobs read. And of those of which that can't be told.
func (w *workspace) publicCaches(ctx context.Context, o *clusterOptions) ([]report.Finding, error) {
	c, own, err := o.connect()
	if err != nil {
		return nil, err
	}
	type question struct {
		connection types.NamespacedName
		group      string
	}
	type answer struct {
		public bool
		err    error
	}
	answers := map[question]answer{} // many pools ask the same
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		if p.Spec.Cache == nil {
			continue
		}
		group := p.Spec.GetRunnerGroup()
		q := question{p.Spec.ConnectionRef.From(cmp.Or(p.Namespace, own)), group}
		if _, asked := answers[q]; !asked {
			public, err := allowsPublic(ctx, c, q.connection, group, o.version)
			answers[q] = answer{public, err}
		}
		switch public, err := answers[q].public, answers[q].err; {
		case err != nil:
			warnings = append(warnings, p.warning(ruleCache, "Cache not judged", ".spec.cache",
				fmt.Sprintf("whether runner group %q takes jobs of public repositories can't be told: %v", group, err)))
		case public:
			warnings = append(warnings, p.warning(ruleCache, "A cache for public repositories", ".spec.cache",
				fmt.Sprintf("runner group %q takes jobs of public repositories: whoever opens a pull request there may write what later jobs read; use a runner group without them", group)))
		}
	}
	return warnings, nil
}

// allowsPublic asks GitHub about a runner group, with the credentials of a connection of the cluster.
func allowsPublic(ctx context.Context, c client.Reader, connection types.NamespacedName, group, version string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	credentials, err := credentialsOf(ctx, c, connection, "")
	if err != nil {
		return false, err
	}
	gh, err := rest.NewClient(credentials, github.Options{Version: version})
	if err != nil {
		return false, err
	}
	return gh.AllowsPublic(ctx, group)
}
