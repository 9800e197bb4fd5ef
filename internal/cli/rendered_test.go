// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// vet checks objects that another program rendered, such as helm template, and reports each problem at its line.
func TestVetReadsWhatAnotherProgramRendered(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n"
	const pool = "apiVersion: corral.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\nspec:\n  connectionRef: {name: acme}\n" +
		"  template: {spec: {containers: [{name: runner, image: 'runner:1'}]}}\n"
	const deny = "---\napiVersion: corral.dev/v1alpha1\nkind: RunnerPolicy\nmetadata: {name: guard}\nspec: {library: {images: {allowed: [ghcr.io/acme/]}}}\n"
	for name, tc := range map[string]struct {
		text, stdout, stderr string
		code                 int
		args                 string
	}{
		"well":                {service + pool, "ok: 1 pool, 0 connections\n", "", exitOK, ""},
		"an unknown field":    {service + pool + "  scael: {max: 1}\n", "", "pools.yaml:11:3: spec.scael: the field is not known; did you mean scale?\n", exitError, ""},
		"a pod":               {service + strings.Replace(pool, "name: runner,", "name: runer,", 1), "", "pools.yaml:10:", exitError, ""},
		"another kind":        {strings.Replace(pool, "RunnerPool", "RunnerPol", 1), "", "pools.yaml:2:1: kind: there is no kind RunnerPol in corral.dev", exitError, ""},
		"a policy beside":     {pool + deny, "", "denied", exitDenied, ""},
		"rules of a folder":   {pool, "", "pools.yaml:1:1: RunnerPool/linux.spec.template: denied: nothing may run", exitDenied, "--policy rules"},
		"nothing of Corral's": {service, "", "Error: pools.yaml has no object of corral.dev\n", exitError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			writeFile(t, filepath.Join(folder, "pools.yaml"), tc.text)
			writeFile(t, filepath.Join(folder, "rules/deny.rego"), denyAll)
			got := corral(t, folder, strings.Fields("vet -f pools.yaml "+tc.args)...)
			if got.code != tc.code || !strings.Contains(got.stdout, tc.stdout) || !strings.Contains(got.stderr, tc.stderr) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
