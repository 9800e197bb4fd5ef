// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// access of a stage whose connection allows namespaces.
func access(s *stage, allowed ...string) *Access {
	s.Helper()
	s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.AllowedNamespaces = allowed })
	return &Access{Connections: s.cluster, Now: func() time.Time { return s.now }}
}

func TestAConnectionIsForItsNamespaceAndThoseThatItAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed   []string
		watched   []string
		namespace string
		want      bool
	}{
		"its own":                {nil, nil, "team", true},
		"another":                {nil, nil, "other", false},
		"one that is named":      {[]string{"more", "other"}, nil, "other", true},
		"all":                    {[]string{v1alpha1.AllNamespaces}, nil, "other", true},
		"part of a name":         {[]string{"other-2"}, nil, "other", false},
		"where nobody looks":     {[]string{"other"}, []string{"other"}, "other", false},
		"where somebody looks":   {[]string{"other"}, []string{"other", "team"}, "other", true},
		"its own, not looked at": {nil, []string{"other"}, "team", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			a := access(s, tc.allowed...)
			a.Namespaces = tc.watched
			if got, err := a.Allows(t.Context(), key, tc.namespace); got != tc.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if allowed, err := (*Access)(nil).Allows(t.Context(), key, "other"); allowed || err != nil {
		t.Errorf("nobody's access: %v, %v", allowed, err)
	}
}

func TestAConnectionThatIsNotThereIsDeniedAsOneThatDoesNotAllow(t *testing.T) {
	s := newStage(t)
	a := access(s)
	denied, absent := a.Check(t.Context(), key, "other"), a.Check(t.Context(), types.NamespacedName{Namespace: "team", Name: "none"}, "other")
	if !kube.IsStalled(denied) || kube.ReasonOf(denied, "") != v1alpha1.AccessDeniedReason || !kube.IsStalled(absent) {
		t.Errorf("%v; %v", denied, absent)
	}
	if want := "there is no GitHubConnection team/main that namespace other may use: its owner has to add other to its spec.allowedNamespaces"; denied.Error() != want {
		t.Errorf("got %s", denied)
	}
	if want := "there is no GitHubConnection team/none that namespace other may use: its owner has to add other to its spec.allowedNamespaces"; absent.Error() != want {
		t.Errorf("got %s", absent)
	}
}

func TestCleanUpGoesOnForAWhileAfterConsent(t *testing.T) {
	s := newStage(t)
	a := access(s, "other")
	if a.CleansUp(t.Context(), types.NamespacedName{Namespace: "team", Name: "none"}, "other") {
		t.Error("cleans up by a connection that isn't there")
	}
	if !a.CleansUp(t.Context(), key, "other") {
		t.Error("doesn't clean up though it is allowed")
	}
	access(s)
	if a.CleansUp(t.Context(), key, "third") {
		t.Error("cleans up for who was never allowed")
	}
	s.now = s.now.Add(afterwards - time.Second)
	if !a.CleansUp(t.Context(), key, "other") || kube.ReasonOf(a.Check(t.Context(), key, "other"), "") != v1alpha1.AccessDeniedReason {
		t.Error("clean-up ends with consent, or use doesn't")
	}
	s.now = s.now.Add(time.Second)
	if a.CleansUp(t.Context(), key, "other") {
		t.Error("clean-up never ends")
	}
}

func TestCredentialsAreNotShownToAnotherServer(t *testing.T) {
	thief := types.NamespacedName{Namespace: key.Namespace, Name: "thief"}
	for name, tc := range map[string]struct {
		url    string
		secret string
		age    time.Duration // more than that of the one there is
		stalls bool
	}{
		"another server":           {"https://evil.example/acme", "github", -time.Hour, true},
		"as old":                   {"https://evil.example/acme", "github", 0, true},
		"another scheme":           {"http://github.com/acme", "github", -time.Hour, true},
		"another organization":     {"https://GitHub.com/other", "github", -time.Hour, false},
		"another Secret":           {"https://evil.example/acme", "own", -time.Hour, false},
		"it was there before that": {"https://evil.example/acme", "github", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.change(func(c *v1alpha1.GitHubConnection) { c.CreationTimestamp = metav1.Time{Time: s.now} })
			conn := &v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: thief.Namespace, Name: thief.Name, UID: "thief", CreationTimestamp: metav1.Time{Time: s.now.Add(-tc.age)}},
				Spec:       v1alpha1.GitHubConnectionSpec{URL: tc.url, SecretRef: &v1alpha1.LocalObjectReference{Name: tc.secret}},
			}
			if err := s.r.checkServer(t.Context(), conn); kube.IsStalled(err) != tc.stalls {
				t.Errorf("got %v", err)
			}
		})
	}
}
