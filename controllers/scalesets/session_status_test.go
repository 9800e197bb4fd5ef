// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

func TestHowASessionStandsDecidesTheCondition(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, tc := range map[string]struct {
		session     scaleset.Snapshot
		status      metav1.ConditionStatus
		reason, err string
		isStalled   bool
	}{
		"open":      {session: scaleset.Snapshot{State: scaleset.Listening}, status: metav1.ConditionTrue, reason: v1alpha1.SucceededReason},
		"another's": {scaleset.Snapshot{State: scaleset.OwnedElsewhere}, metav1.ConditionFalse, v1alpha1.OwnedElsewhereReason, `the scale set "linux" is owned by them: use another spec.scaleSetName or stop the owner`, true},
		"unknown":   {scaleset.Snapshot{State: scaleset.Refused, Since: now}, metav1.ConditionFalse, v1alpha1.SessionRefusedReason, "an earlier session with an unknown owner has not expired yet: Corral starts no runners until it expires, usually 92 s after its last poll", false},
		"a copy's": {scaleset.Snapshot{State: scaleset.Refused, Owner: "them", Since: now.Add(-5 * time.Minute)}, metav1.ConditionFalse, v1alpha1.OwnedElsewhereReason,
			`the scale set "linux" is owned by another controller with the same identity: stop it, or give a copied cluster another --cluster-id`, true},
		"not expired": {scaleset.Snapshot{State: scaleset.Refused, Owner: "them", Since: now}, metav1.ConditionFalse, v1alpha1.SessionRefusedReason, "an earlier session of this pool has not expired yet; Corral serves jobs in the meantime", false},
		"opening":     {scaleset.Snapshot{}, metav1.ConditionUnknown, v1alpha1.ProgressingReason, "opening a session", false},
		"revoked":     {scaleset.Snapshot{Err: &github.Error{Kind: github.KindUnauthorized, Doing: "polling", Status: 401, ActivityID: "1"}}, metav1.ConditionFalse, v1alpha1.CredentialsRefusedReason, "listening: polling: GitHub answered 401", false},
		"failing":     {scaleset.Snapshot{Err: &github.Error{Kind: github.KindUnavailable, Doing: "polling", Status: 503, ActivityID: "1"}}, metav1.ConditionFalse, v1alpha1.GitHubUnavailableReason, "listening: polling: GitHub answered 503", false},
	} {
		c, err := listening("linux", tc.session, "them", false, now)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if c.Status != tc.status || c.Reason != tc.reason || said != tc.err || kube.IsStalled(err) != tc.isStalled {
			t.Errorf("%s: %s %s, %q", name, c.Status, c.Reason, said)
		}
	}
}

func TestLabelsAreAcceptedInAnyOrderAndCase(t *testing.T) {
	for kept, want := range map[[2]string]metav1.ConditionStatus{{"X64", "linux"}: metav1.ConditionTrue, {"linux", "linux"}: metav1.ConditionFalse} {
		if c := labelsAccepted(kept[:], []string{"linux", "x64"}); c.Status != want {
			t.Errorf("%v: %s", kept, c.Status)
		}
	}
}
