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

// publicCaches warns about pools with a cache whose runner group takes jobs of public repositories, because the author of
// any pull request to these repositories could write files that later jobs read. It also warns if it cannot determine
// whether a runner group takes such jobs.
func (w *workspace) publicCaches(ctx context.Context, c client.Reader, own, version string) (warnings []report.Finding) {
	messages := map[string]string{} // by connection and group, because many pools have the same group
	for i := range w.pools {
		p := &w.pools[i]
		if p.Spec.Cache == nil {
			continue
		}
		group, connection := p.Spec.GetRunnerGroup(), p.Spec.ConnectionRef.From(cmp.Or(p.Namespace, own))
		key := connection.String() + "\n" + group
		if _, known := messages[key]; !known {
			public, err := allowsPublic(ctx, c, connection, group, version)
			if err != nil {
				messages[key] = fmt.Sprintf("cannot determine whether runner group %q takes jobs of public repositories: %v", group, err)
			} else if public {
				messages[key] = fmt.Sprintf("runner group %q takes jobs of public repositories: the author of any pull request there can change what later jobs read; use a runner group without public repositories", group)
			}
		}
		if messages[key] != "" {
			warnings = append(warnings, p.warning(ruleCache, "A cache for public repositories", ".spec.cache", messages[key]))
		}
	}
	return warnings
}

// allowsPublic asks GitHub whether a runner group takes jobs of public repositories. It reads the credentials of the
// connection from the cluster.
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
