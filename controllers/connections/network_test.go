// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
)

func TestAProxyGetsThePasswordThatIsForIt(t *testing.T) {
	const server = "http://proxy.example:3128"
	for name, tc := range map[string]struct{ url, address, want string }{
		"it is for it":               {server, server, "http://bot:word@proxy.example:3128"},
		"written another way":        {server + "/", " HTTP://Proxy.Example:3128\n", "http://bot:word@proxy.example:3128/"},
		"it is for another":          {"http://evil.example:3128", server, ""},
		"for another port":           {"http://proxy.example:1", server, ""},
		"for another scheme":         {"https://proxy.example:3128", server, ""},
		"it is no proxy's, as Git's": {server, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "proxy"}, Data: map[string][]byte{"username": []byte("bot"), "password": []byte("word")}}
			if tc.address != "" {
				secret.Data["address"] = []byte(tc.address)
			}
			if err := s.cluster.Create(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			conn := s.get()
			conn.Spec.Proxy = &v1alpha1.ConnectionProxy{HTTPS: &v1alpha1.ProxyServer{URL: tc.url, SecretRef: &v1alpha1.LocalObjectReference{Name: "proxy"}}}
			creds, err := s.r.credentials(t.Context(), conn)
			if (tc.want == "") != kube.IsStalled(err) || creds.Network.HTTPSProxy != tc.want && err == nil {
				t.Errorf("%q, %v", creds.Network.HTTPSProxy, err)
			}
			if err != nil && (strings.Contains(err.Error(), "word") || !strings.HasPrefix(err.Error(), "spec.proxy.https.secretRef: Secret proxy has no key address with the address of this proxy")) {
				t.Error(err)
			}
		})
	}
}

// by changes the connection's proxy.
func (s *stage) by(proxy string) {
	s.Helper()
	s.change(func(c *v1alpha1.GitHubConnection) {
		c.Generation++
		c.Spec.Proxy = &v1alpha1.ConnectionProxy{HTTPS: &v1alpha1.ProxyServer{URL: proxy}}
	})
}

func TestANewNetworkIsTriedBeforeItIsUsed(t *testing.T) {
	const first, second = "http://first.example:1", "http://second.example:1"
	for name, tc := range map[string]struct {
		do   func(s *stage)
		want string
	}{
		"it works":   {func(*stage) {}, second},
		"it doesn't": {func(s *stage) { s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason} }, first},
		"verification sleeps": {func(s *stage) {
			s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.Verification = v1alpha1.VerificationPaused })
		}, first},
		"a restart, it doesn't": {func(s *stage) { s.restart(); s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason} }, ""},
		"a restart, and the former again": {func(s *stage) {
			s.restart()
			s.by(first)
			s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason}
		}, first},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.by(first)
			s.reconcile()
			s.by(second)
			tc.do(s)
			s.reconcile()
			if got, _ := s.serving.Get(Key(key)); got.Network.HTTPSProxy != tc.want {
				t.Errorf("%q is in use", got.Network.HTTPSProxy)
			}
		})
	}
}

// Two organizations on one server share one Secret.
func TestConnectionsThatShareCredentialsAreToldWhatHelps(t *testing.T) {
	for name, tc := range map[string]struct{ url, proxy, want string }{
		"another CA":     {"https://github.com/second", "", "Give both the same spec.proxy and spec.ca"},
		"another server": {"https://ghes.example/second", "", "set github_server in the credentials"},
		"a slash":        {"https://github.com/second", "http://Proxy/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.by("http://proxy")
			conn := &v1alpha1.GitHubConnection{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "second", UID: "second", Generation: 1},
				Spec: v1alpha1.GitHubConnectionSpec{URL: tc.url, SecretRef: &v1alpha1.LocalObjectReference{Name: "github"},
					CA: &v1alpha1.ConnectionCA{ConfigMapRef: &v1alpha1.LocalObjectReference{Name: "ca"}}},
			}
			if tc.proxy != "" {
				conn.Spec.CA, conn.Spec.Proxy = nil, &v1alpha1.ConnectionProxy{HTTPS: &v1alpha1.ProxyServer{URL: tc.proxy}}
			}
			err := s.r.checkServer(t.Context(), conn, github.Credentials{ConfigURL: tc.url, Token: "one"}, "")
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Error(err)
			}
		})
	}
}
