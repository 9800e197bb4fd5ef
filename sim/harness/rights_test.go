// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRightsAreReadFromAnAuditLog(t *testing.T) {
	log := strings.Join([]string{
		`{"auditID":"1","verb":"get","requestURI":"/api","responseStatus":{"code":200}}`,
		`{"auditID":"2","verb":"patch","objectRef":{"apiGroup":"corral.dev","resource":"runnerpools","namespace":"a","name":"p"},"responseStatus":{"code":201},"annotations":{"authorization.k8s.io/decision":"allow"}}`,
		`{"auditID":"3","verb":"patch","objectRef":{"apiGroup":"corral.dev","resource":"runners","subresource":"status"},"responseStatus":{"code":200}}`,
		`{"auditID":"4","verb":"create","objectRef":{"resource":"pods"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"allow"}}`,
		`{"auditID":"5","verb":"list","objectRef":{"resource":"secrets"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}`,
		`{"auditID":"6","verb":"delete","impersonatedUser":{"username":"system:serviceaccount:a:b"},"objectRef":{"resource":"secrets"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}`,
	}, "\n")
	used, refused, err := usedRights(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := map[Right]bool{
		{"patch", "corral.dev", "runnerpools"}: true, {"create", "corral.dev", "runnerpools"}: true,
		{"patch", "corral.dev", "runners/status"}: true, {"create", "", "pods"}: true, {"list", "", "secrets"}: true,
		{"impersonate", "", "serviceaccounts"}: true,
	}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Errorf("used:\n%s", diff)
	}
	if diff := cmp.Diff(map[Right]bool{{"list", "", "secrets"}: true}, refused); diff != "" {
		t.Errorf("refused:\n%s", diff)
	}
}

func TestComplaintsAboutRights(t *testing.T) {
	set := func(rights ...Right) map[Right]bool {
		all := map[Right]bool{}
		for _, r := range rights {
			all[r] = true
		}
		return all
	}
	pods := Right{"get", "", "pods"}
	secrets := Right{"list", "", "secrets"}
	for name, tc := range map[string]struct {
		granted, used, refused map[Right]bool
		part                   bool
		want                   []string
	}{
		"as it should be": {granted: set(pods), used: set(pods)},
		"a metric of an API of metrics": {
			granted: set(Right{"list", "external.metrics.k8s.io", "*"}), used: set(Right{"list", "external.metrics.k8s.io", "queue-depth"}),
		},
		"everybody may ask what he may do": {used: set(Right{"create", "authorization.k8s.io", "selfsubjectaccessreviews"})},
		"too much":                         {granted: set(pods, secrets), used: set(pods), want: []string{"list secrets.: granted, and no test uses it"}},
		"too much, perhaps":                {granted: set(pods, secrets), used: set(pods), part: true},
		"without a request":                {granted: set(Right{"update", "corral.dev", "runners/finalizers"})},
		"too little": {
			used: set(secrets), refused: set(secrets),
			want: []string{"list secrets.: refused by the API server", "list secrets.: used, and no rule of the chart grants it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := compareRights(tc.granted, tc.used, tc.refused, !tc.part)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
