// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

// access returns the Access of a stage whose connection allows namespaces.
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
		"one that a pattern has": {[]string{"o*r"}, nil, "other", true},
		"one beside a pattern":   {[]string{"other-*"}, nil, "other", false},
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

func TestAConnectionWhereNobodyLooksIsDeniedForThat(t *testing.T) {
	s := newStage(t)
	a := access(s, v1alpha1.AllNamespaces)
	a.Namespaces = []string{"other"}
	if err := a.Check(t.Context(), key, "other"); !kube.IsStalled(err) || err.Error() != "cannot use GitHubConnection team/main: namespace team is not in --watch-namespaces" {
		t.Errorf("got %v", err)
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

// States of a connection with regard to the credentials.
func fresh(*v1alpha1.GitHubConnection) {}

func verified(c *v1alpha1.GitHubConnection) {
	c.Status.CredentialsHash = github.Credentials{ConfigURL: c.Spec.URL, Token: "one"}.Hash()
}

// serving is a connection whose Secret was rotated since it was verified.
func serving(c *v1alpha1.GitHubConnection) {
	c.Status.CredentialsHash = github.Credentials{ConfigURL: c.Spec.URL, Token: "before"}.Hash()
	conditions.MarkTrue(c, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "connected")
}

// turned is a verified connection that now refers to another Secret.
func turned(c *v1alpha1.GitHubConnection) {
	serving(c)
	c.Generation++
}

func TestCredentialsAreNotShownToAnotherServer(t *testing.T) {
	const evil = "https://evil.example/acme"
	for name, tc := range map[string]struct {
		url, secret, names string
		is, other          func(*v1alpha1.GitHubConnection)
		stalls             bool
	}{
		"another server has them":            {evil, "github", "", fresh, verified, true},
		"another server serves by them":      {evil, "github", "", fresh, serving, true},
		"it turned to them":                  {evil, "github", "", turned, fresh, true},
		"it turned to them before the other": {evil, "github", "", turned, turned, true},
		"neither has them":                   {evil, "github", "", fresh, fresh, true},
		"both have them":                     {evil, "github", "", verified, verified, true},
		"it has them":                        {evil, "github", "", verified, fresh, false},
		"it serves by them":                  {evil, "github", "", serving, fresh, false},
		"another scheme":                     {"http://github.com/acme", "github", "", fresh, verified, true},
		"another organization":               {"https://GitHub.com/other", "github", "", fresh, verified, false},
		"another Secret":                     {evil, "own", "", fresh, verified, false},
		"by another proxy": {"https://github.com/acme", "github", "", func(c *v1alpha1.GitHubConnection) {
			fresh(c)
			c.Spec.Proxy = &v1alpha1.ConnectionProxy{HTTPS: &v1alpha1.ProxyServer{URL: "http://evil.example"}}
		}, verified, true},
		"with another CA, as they name its server": {"https://github.com/acme", "github", "github.com", func(c *v1alpha1.GitHubConnection) {
			fresh(c)
			c.Spec.CA = &v1alpha1.ConnectionCA{ConfigMapRef: &v1alpha1.LocalObjectReference{Name: "evil"}}
		}, verified, true},
		"they name its server":                 {evil, "github", "https://EVIL.example", fresh, verified, false},
		"they name its host":                   {evil, "github", "evil.example", fresh, verified, false},
		"they name another server":             {evil, "github", "github.com", verified, fresh, true},
		"they name another, and none has them": {evil, "own", "https://github.com/acme", fresh, fresh, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			other := s.get()
			tc.other(other)
			s.change(func(c *v1alpha1.GitHubConnection) { c.Generation = other.Generation })
			c := s.get()
			c.Status = other.Status
			if err := s.cluster.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			conn := &v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "thief", UID: "thief", Generation: 1},
				Spec:       v1alpha1.GitHubConnectionSpec{URL: tc.url, SecretRef: &v1alpha1.LocalObjectReference{Name: tc.secret}},
			}
			tc.is(conn)
			if err := s.r.checkServer(t.Context(), conn, github.Credentials{ConfigURL: tc.url, Token: "one"}, tc.names); kube.IsStalled(err) != tc.stalls {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An older connection, with credentials of its own, later refers to the credentials of a newer one.
func TestAConnectionThatWasThereFirstGetsNoCredentialsOfAnother(t *testing.T) {
	for name, named := range map[string]string{"they name no server": "", "they name theirs": "github.com"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.setSecret(map[string]string{v1alpha1.TokenKey: "one", v1alpha1.ServerKey: named})
			thief := &v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "thief", UID: "thief", Generation: 1},
				Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://evil.example/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "own"}},
			}
			own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "own"}, Data: map[string][]byte{v1alpha1.TokenKey: []byte("mine")}}
			for _, obj := range []client.Object{own, thief} {
				if err := s.cluster.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			look := func() {
				if _, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(thief)}); err != nil {
					t.Fatal(err)
				}
				if err := s.cluster.Get(t.Context(), client.ObjectKeyFromObject(thief), thief); err != nil {
					t.Fatal(err)
				}
			}
			look()
			s.wantReady(thief, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
			thief.Spec.SecretRef.Name, thief.Generation = "github", 2
			if err := s.cluster.Update(t.Context(), thief); err != nil {
				t.Fatal(err)
			}
			look()
			s.wantReady(thief, metav1.ConditionFalse, v1alpha1.InvalidSpecReason, true)
			conn, _ := s.reconcile()
			look()
			s.wantReady(thief, metav1.ConditionFalse, v1alpha1.InvalidSpecReason, true)
			if named != "" {
				s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
			}
			for _, shown := range s.asked {
				if shown.Token == "one" && shown.ConfigURL == thief.Spec.URL {
					t.Error("they were shown to the other server")
				}
			}
		})
	}
}

// However many namespaces used connections, a new consent checks a few of them. Those older than an hour are still
// forgotten.
func TestConsentsAreForgottenFewAtATime(t *testing.T) {
	now := time.Now()
	a := &Access{Now: func() time.Time { return now }}
	use := func(n int) {
		for i := range n {
			a.remember(consent{key, fmt.Sprint(now.UnixNano(), "-", i)})
		}
	}
	use(1000)
	now = now.Add(afterwards)
	use(1)
	if n := len(a.last); n != 1001-forgotten {
		t.Errorf("%d consents are left", n)
	}
	use(1000)
	if n := len(a.last); n > 1100 {
		t.Errorf("%d consents are left", n)
	}
}
