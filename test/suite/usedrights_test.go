// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/world"
)

// Right is a verb that the controller may use on a resource, such as patch on runnerpools/status of corral.dev.
type Right struct{ Verb, Group, Resource string }

func (r Right) String() string { return r.Verb + " " + r.Resource + "." + r.Group }

// unseen lists the permissions that no request in the suite uses, and their purposes.
var unseen = map[Right]string{
	{"update", "corral.dev", "runnerpools/finalizers"}: "owner references that block deletion, where OwnerReferencesPermissionEnforcement is on",
	{"update", "corral.dev", "runners/finalizers"}:     "owner references that block deletion, where OwnerReferencesPermissionEnforcement is on",
	{"get", "", "pods"}:              "a pod that was made and isn't in the cache, as after a restart: controllers/runners tests it",
	{"get", "corral.dev", "runners"}: "a registration without a Runner, five minutes later: controllers/runners tests it",
}

// checkRights compares the controller's requests with the permissions that the chart grants. No request was
// rejected, no request used a permission that the chart's rules do not name, and a run of all tests used every
// permission. The world must have been started with Audit.
func checkRights(ctx context.Context, w *harness.World) error {
	granted, err := grants(ctx, w.Client)
	if err != nil {
		return err
	}
	log, err := os.Open(w.Cluster.AuditLog())
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer log.Close()
	used, refused, err := usedRights(log)
	if err != nil {
		return err
	}
	complaints := compareRights(granted, used, refused, wholeRun())
	if len(complaints) > 0 {
		return fmt.Errorf("rights of the controller:\n  %s", strings.Join(complaints, "\n  "))
	}
	return nil
}

// wholeRun reports whether all tests run, without a filter.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// grants returns the permissions of the controller's ServiceAccount from the chart's roles, including those in a
// single namespace.
func grants(ctx context.Context, c client.Client) (map[Right]bool, error) {
	cluster := &rbacv1.ClusterRole{}
	if err := c.Get(ctx, client.ObjectKey{Name: "corral"}, cluster); err != nil {
		return nil, fmt.Errorf("reading the controller's ClusterRole: %w", err)
	}
	leader := &rbacv1.Role{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: world.SystemNamespace, Name: "corral-leader"}, leader); err != nil {
		return nil, fmt.Errorf("reading the Role for leader election: %w", err)
	}
	granted := map[Right]bool{}
	for _, rule := range slices.Concat(cluster.Rules, leader.Rules) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[Right{verb, group, resource}] = true
				}
			}
		}
	}
	return granted, nil
}

// usedRights returns the permissions that the controller's requests used and those that were rejected, from an
// audit log.
func usedRights(log io.Reader) (used, refused map[Right]bool, err error) {
	used, refused = map[Right]bool{}, map[Right]bool{}
	err = localcluster.ReadAudit(log, func(r *localcluster.Request) {
		for _, right := range rightsOf(r) {
			used[right] = true
			// Permissions of an account that the controller impersonates are up to the account's owner.
			if r.Forbidden() && r.ImpersonatedUser == nil {
				refused[right] = true
			}
		}
	})
	return used, refused, err
}

// rightsOf returns the permissions that a request used. An apply patch that created its object also used the
// permission to create it. A request with impersonation used only the permission to impersonate.
func rightsOf(r *localcluster.Request) []Right {
	if r.ImpersonatedUser != nil {
		return []Right{{"impersonate", "", "serviceaccounts"}}
	}
	if r.ObjectRef == nil {
		return nil
	}
	right := Right{r.Verb, r.ObjectRef.APIGroup, r.ObjectRef.Resource}
	if r.ObjectRef.Subresource != "" {
		right.Resource += "/" + r.ObjectRef.Subresource
	}
	if r.Verb == "patch" && r.ResponseStatus.Code == http.StatusCreated {
		return []Right{right, {"create", right.Group, right.Resource}}
	}
	return []Right{right}
}

// compareRights returns the violations in a fixed order. If whole is false, some tests did not run, so unused
// permissions are not reported.
func compareRights(granted, used, refused map[Right]bool, whole bool) []string {
	var complaints []string
	exercised := map[Right]bool{}
	for right := range used {
		by := right
		if !granted[by] {
			by.Resource = "*" // such as in a metrics API, in which each metric is a resource
		}
		exercised[by] = true
		if !granted[by] && right.Group != "authorization.k8s.io" { // every account may create access reviews for itself
			complaints = append(complaints, right.String()+": used, and no rule of the chart grants it")
		}
	}
	for right := range refused {
		complaints = append(complaints, right.String()+": refused by the API server")
	}
	for right := range granted {
		// An API server that does not stream lists requires list in addition to watch.
		listed := right.Verb == "list" && exercised[Right{"watch", right.Group, right.Resource}]
		if whole && !exercised[right] && !listed && unseen[right] == "" {
			complaints = append(complaints, right.String()+": granted, and no test uses it")
		}
	}
	slices.Sort(complaints)
	return complaints
}

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
