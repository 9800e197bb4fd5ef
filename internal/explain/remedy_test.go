// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// Fewer runners do not help against a quota on claims.
func TestAQuotaOnClaimsHasItsOwnRemedy(t *testing.T) {
	for row, want := range map[*catalog.Row]string{
		catalog.PodQuota:   "lower spec.scale.max",
		catalog.ClaimQuota: "lower spec.cache.maxClaims",
	} {
		reason, cause := row.With().String(), row.With().Cause
		r := runnerOf("linux-1", v1alpha1.RunnerPending, v1alpha1.CauseQuota, reason)
		cause.Condition = v1alpha1.ReadyCondition
		r.Object.Status.Causes = []v1alpha1.Cause{cause}
		r.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: row.Reason}}
		pool, err := Pool(facts(func(f *PoolFacts) {
			f.ready(metav1.ConditionFalse, v1alpha1.QuotaExceededReason, reason)
			f.Pool.Status.Causes = []v1alpha1.Cause{cause}
			f.Runners = []Runner{r}
		}))
		if n := len(pool.Changes); err != nil || n != 1 || !strings.Contains(pool.Changes[0], want) || !strings.Contains(RunnerRemedy(&r), want) {
			t.Errorf("%s: %v, %q", reason, err, pool.Changes)
		}
	}
}

// If a revision is not signed, the advice is not to add a key.
func TestWhoDidNotSignAddsNoKey(t *testing.T) {
	for row, want := range map[*catalog.Row]string{
		catalog.RevisionUnsigned: "Sign the revision with a key in spec.git.verify",
		catalog.SignerUnknown:    "Add the signer's key",
	} {
		c := &Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.VerificationFailedReason, Causes: []v1alpha1.Cause{row.With().Cause}}
		if got := RemedyFor(sourceKind, nil, c); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", row.Code, got)
		}
	}
}

// If an object cannot be decoded, statements about its state do not apply, and its creator is unknown.
func TestWhatCannotBeReadIsToBeCorrected(t *testing.T) {
	for unread, want := range map[string]struct{ pool, runner string }{
		"":       {"Correct the fields of spec that the message names.", "Delete the Runner"},
		"spec.x": {"Until then Corral makes no decisions for the pool", "Correct the field that the message names."},
	} {
		r := runnerOf("linux-1", v1alpha1.RunnerPending, "", "")
		r.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.InvalidSpecReason}}
		f := facts(func(f *PoolFacts) { f.ready(metav1.ConditionFalse, v1alpha1.InvalidSpecReason, "spec.x: no") })
		if unread != "" {
			r.Object.Fields, f.Pool.Fields = []string{unread}, []string{unread}
		}
		pool, err := Pool(f)
		if runner := OfRunner(RunnerFacts{Runner: r, Now: noon}); err != nil || len(runner.Changes) != 1 || !strings.Contains(runner.Changes[0], want.runner) {
			t.Errorf("%q: %v, runner: %q", unread, err, runner.Changes)
		}
		if len(pool.Changes) != 1 || !strings.Contains(pool.Changes[0], want.pool) {
			t.Errorf("%q: pool: %q", unread, pool.Changes)
		}
	}
}

// If GitHub is unavailable or limits requests, the advice is not to edit the connection. If GitHub refuses the
// credentials, the advice is to fix them.
func TestTheAdviceFitsGitHubsAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		outage *v1alpha1.GitHubOutage
		pool   string // advice of explain pool
		runner string // advice of explain runner
	}{
		"500":                          {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{Code: 500}, "githubstatus.com). Editing the connection does not help", "githubstatus.com"},
		"429":                          {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{Code: 429}, "with another GitHub App", "with another GitHub App"},
		"403":                          {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{Code: 403}, "limits the requests", "limits the requests"},
		"no answer":                    {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{}, "the controller cannot connect to GitHub", "the controller cannot connect to GitHub"},
		"unknown":                      {v1alpha1.GitHubUnavailableReason, nil, "Editing the connection helps only if", "Editing the connection helps only if"},
		"401":                          {v1alpha1.CredentialsRefusedReason, nil, "GitHubConnection ci/acme (CredentialsRefused: GitHub said so): Put valid credentials into", "Put valid credentials into the connection's Secret"},
		"401, first seen by a session": {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{Code: 401}, "Put valid credentials into the connection's Secret", "Put valid credentials into the connection's Secret"},
		"200, of no use":               {v1alpha1.GitHubUnavailableReason, &v1alpha1.GitHubOutage{Code: 200}, "githubstatus.com", "githubstatus.com"},
		"made by hand":                 {v1alpha1.InvalidSpecReason, nil, "Correct the fields of spec", "Delete the Runner"},
		"403, lack":                    {v1alpha1.PermissionMissingReason, nil, "GitHubConnection ci/acme (PermissionMissing: GitHub said so): Grant the GitHub App", "Grant the GitHub App or the token the permission"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runnerOf("linux-1", v1alpha1.RunnerPending, v1alpha1.CauseGitHub, "GitHub said so")
			r.Object.Status.Outage = tc.outage
			r.Object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: tc.reason}}
			f := facts(func(f *PoolFacts) {
				f.ready(metav1.ConditionFalse, tc.reason, "GitHub said so")
				f.ScaleSet, f.Runners = &v1alpha1.RunnerScaleSet{Status: v1alpha1.RunnerScaleSetStatus{Outage: tc.outage}}, []Runner{r}
			})
			pool, err := Pool(f)
			if n := len(pool.Changes); err != nil || n == 0 || !strings.Contains(pool.Changes[0], tc.pool) || !strings.Contains(pool.Changes[n-1], tc.runner) {
				t.Errorf("%v, pool: %q", err, pool.Changes)
			}
			if runner := OfRunner(RunnerFacts{Runner: r, Now: noon}); len(runner.Changes) != 1 || !strings.Contains(runner.Changes[0], tc.runner) {
				t.Errorf("runner: %q", runner.Changes)
			}
		})
	}
}
