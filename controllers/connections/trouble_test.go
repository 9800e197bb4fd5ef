// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

// answers makes calls for a pool of the stage's connection. GitHub answers with a status, or cuts the connection if it is
// 0.
func (s *stage) answers(status int, body string, calls int) {
	s.Helper()
	network := roundTripper(func(req *http.Request) (*http.Response, error) {
		if status == 0 {
			return nil, http.ErrServerClosed
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: req}, nil
	})
	gh, _ := scaleset.NewClients(s.r.Connections, github.Options{Transport: network, Now: func() time.Time { return s.now }}).Get(Key(key))
	for range calls {
		s.now = s.now.Add(6 * time.Second)
		_, _ = gh.Get(s.Context(), 7) // it fails
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A connection whose calls GitHub answers with 500 is not connected, whatever GitHub answered about its credentials ten
// minutes ago.
func TestAConnectionIsNotConnectedWhileGitHubAnswersNothingGood(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		says   string
		gone   string // message of a pool without a client
	}{
		"500": {500, "", "GitHub responded with 500 to requests made for pools; next try by ", `GitHubConnection "main": GitHub answers 500`},
		"429": {429, "", "GitHub responded with 429 to requests made for pools; next try by ", `GitHubConnection "main": GitHub answers 429`},
		"too large": {200, `{"expires_at":"2030-01-01T00:00:00Z","token":"x","labels":["x"` + strings.Repeat(`,"x"`, 100) + `]}`,
			`GitHub's responses to requests made for pools are too large: "labels" has more than 100 elements; next try by `, `GitHubConnection "main": GitHub's answer can't be used`},
		"another server": {201, `{"expires_at":"2030-01-01T00:00:00Z","token":"eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.YQ","url":"http://10.0.0.1:6443"}`,
			`cannot use GitHub's responses: an answer contains a URL at "10.0.0.1:6443", which is not a server of github.com: no request was sent; next try by `,
			`GitHubConnection "main": GitHub's answer can't be used`},
		"no answer": {0, "", "GitHub did not respond to requests made for pools; next try by ", `GitHubConnection "main": GitHub doesn't answer`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.reconcile()
			if s.answers(tc.status, tc.body, 2); conditions.IsFalse(s.get(), v1alpha1.ReadyCondition) {
				t.Error("two calls make no trouble")
			}
			s.answers(tc.status, tc.body, 1)
			conn, after := s.reconcile()
			s.wantReady(conn, metav1.ConditionFalse, v1alpha1.GitHubUnavailableReason, false)
			message := conditions.GetMessage(conn, v1alpha1.ReadyCondition)
			code := int32(tc.status)
			if code == http.StatusCreated {
				code = http.StatusOK
			}
			if !strings.HasPrefix(message, tc.says) || after != troubleLook || conn.Status.Outage.Code != code || len(s.asked) != 1 {
				t.Errorf("%q, %+v, asked %d times, again after %s", message, conn.Status.Outage, len(s.asked), after)
			}
			err := NotReady(t.Context(), s.cluster, key)
			if err.Error() != tc.gone || kube.ReasonOf(err, "") != v1alpha1.GitHubUnavailableReason {
				t.Errorf("a pool says %s: %v", kube.ReasonOf(err, ""), err)
			}
			s.now = s.now.Add(2 * time.Minute)
			conn, _ = s.reconcile()
			s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
			if conn.Status.Outage != nil {
				t.Errorf("it is over, and the status has %+v", conn.Status.Outage)
			}
		})
	}
}

// Credentials that GitHub refuses for a pool are verified at once, and then again without another refusal.
func TestARefusalIsLookedIntoAtOnce(t *testing.T) {
	s := newStage(t)
	s.reconcile()
	woken := 0
	s.r.Connections.OnTrouble(func(string) { woken++ })
	s.answer = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}
	for i, after := range []time.Duration{time.Second, 30 * time.Second, 30 * time.Second} {
		s.now = s.now.Add(after)
		s.refuses()
		conn, _ := s.reconcile()
		s.wantReady(conn, metav1.ConditionFalse, v1alpha1.CredentialsRefusedReason, true)
		if want := 1 + i/2; woken != want || len(s.asked) != 2+i {
			t.Errorf("%d: woken %d times, asked %d times", i, woken, len(s.asked))
		}
	}
}

// refuses makes a call for a pool of the stage's connection whose token GitHub refuses.
func (s *stage) refuses() {
	s.Helper()
	network := roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	gh, _ := scaleset.NewClients(s.r.Connections, github.Options{Transport: network, Now: func() time.Time { return s.now }}).Get(Key(key))
	if _, err := gh.Get(s.Context(), 7); !github.IsUnauthorized(err) {
		s.Fatal(err)
	}
}

// If the current token does not work, pools keep using an earlier one. The status must warn before the controller is
// restarted.
func TestFormerCredentialsAreSaid(t *testing.T) {
	const says = "; pools continue with the previous credentials: a restart of the controller would stop them"
	for name, tc := range map[string]struct {
		change func(*stage)
		want   bool
	}{
		"the token of now is revoked": {change: func(s *stage) {
			s.answer, s.now = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}, s.now.Add(2*verifyInterval)
		}},
		"a new one is refused": {want: true, change: func(s *stage) {
			s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
			s.answer = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}
		}},
		"a new one can't be verified": {want: true, change: func(s *stage) {
			s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
			s.answer = &rest.Error{Reason: v1alpha1.GitHubUnavailableReason, Code: 500}
		}},
		"there is none": {want: true, change: func(s *stage) { s.setSecret(nil) }},
		"a new one isn't verified, as it is suspended": {want: true, change: func(s *stage) {
			s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
			s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.Verification, c.Generation = v1alpha1.VerificationPaused, 2 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.reconcile()
			tc.change(s)
			conn, _ := s.reconcile()
			if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); conn.Status.FormerCredentials != tc.want || strings.HasSuffix(message, says) != tc.want || conditions.IsReady(conn) {
				t.Errorf("%t: %q", conn.Status.FormerCredentials, message)
			}
			s.restart()
			if conn, _ = s.reconcile(); conn.Status.FormerCredentials || (s.token() == "") != tc.want {
				t.Errorf("after a restart %t, serving %q", conn.Status.FormerCredentials, s.token())
			}
			s.answer = nil
			s.setSecret(map[string]string{v1alpha1.TokenKey: "three"})
			s.change(func(c *v1alpha1.GitHubConnection) { c.Spec.Verification = v1alpha1.VerificationActive; c.Generation++ })
			if conn, _ = s.reconcile(); conn.Status.FormerCredentials || !conditions.IsReady(conn) {
				t.Errorf("with good ones %t: %+v", conn.Status.FormerCredentials, conn.Status.Conditions)
			}
		})
	}
}

func TestATokenThatEndsIsSaidTwoWeeksAhead(t *testing.T) {
	s := newStage(t)
	s.expires = s.now.Add(15 * 24 * time.Hour).UTC()
	conn, _ := s.reconcile()
	if end := conn.Status.TokenExpires; end == nil || !end.Time.Equal(s.expires) || strings.Contains(conditions.GetMessage(conn, v1alpha1.ReadyCondition), "ends") {
		t.Errorf("%v: %q", end, conditions.GetMessage(conn, v1alpha1.ReadyCondition))
	}
	s.now = s.now.Add(25 * time.Hour)
	conn, _ = s.reconcile()
	if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); !strings.HasSuffix(message, "as octocat; its token expires on "+s.expires.Format(time.DateOnly)) {
		t.Errorf("%q", message)
	}
	s.expires = time.Time{}
	s.setSecret(map[string]string{v1alpha1.TokenKey: "two"})
	if conn, _ = s.reconcile(); conn.Status.TokenExpires != nil {
		t.Errorf("a token without an end ends at %s", conn.Status.TokenExpires)
	}
}
