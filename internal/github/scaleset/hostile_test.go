// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// hostile returns a client of a GitHub in which answer replaces some answers. answer returns a status of 0 for the others.
func hostile(t *testing.T, answer func(*http.Request) (status int, body string)) *Client {
	t.Helper()
	sim := githubsim.New(githubsim.Options{})
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("secret")
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := answer(r)
		if status == 0 {
			sim.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	c, err := NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: inMemory(server)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serviceToken returns an unsigned token of the Actions service with claims.
func serviceToken(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("x"))
}

// The official client reads some fields of answers without a check, and the goroutine of a session does not recover from a
// panic.
func TestHostileAnswersAreErrors(t *testing.T) {
	const registrationToken, registration = "/actions/runners/registration-token", "/actions/runner-registration"
	good := serviceToken(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(time.Hour).Unix()))
	for name, answers := range map[string]map[string]string{
		"an empty registration token": {registrationToken: `{}`},
		"no registration token":       {registrationToken: `null`},
		"a token that never expires":  {registration: fmt.Sprintf(`{"url":"http://github.test/x","token":%q}`, serviceToken(`{}`))},
		"a list without its element": {
			registration:                     fmt.Sprintf(`{"url":"http://github.test/_apis/x","token":%q}`, good),
			"/_apis/runtime/runnerscalesets": `{"count":1,"value":[]}`, "/_apis/runtime/runnergroups": `{"count":1,"value":[]}`,
			"/agents": `{"count":1,"value":[]}`, "/sessions": `null`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, func(r *http.Request) (int, string) {
				for path, body := range answers {
					if strings.Contains(r.URL.Path, path) {
						return http.StatusOK, body
					}
				}
				return 0, ""
			})
			ctx := testContext(t)
			for call, do := range map[string]func() error{
				"finding a scale set": func() error { _, err := c.Find(ctx, 1, "linux"); return err },
				"finding a runner":    func() error { _, err := c.RunnerByName(ctx, "linux-1"); return err },
				"finding a group":     func() error { _, err := c.RunnerGroupID(ctx, "big"); return err },
				"opening a session":   func() error { _, _, err := c.OpenSession(ctx, 1, owner); return err },
			} {
				e := new(github.Error)
				if err := do(); !errors.As(err, &e) || e.Kind != github.KindUnavailable {
					t.Errorf("%s: %v", call, err)
				}
			}
		})
	}
}

func TestAPanicOfTheOfficialClientIsAnError(t *testing.T) {
	c := hostile(t, func(*http.Request) (int, string) { return 0, "" })
	err := c.observe(testContext(t), &exchange{}, "testing", nil, func(context.Context, *official.Client) error { panic("a nil pointer") })
	e := new(github.Error)
	if !errors.As(err, &e) || e.Kind != github.KindUnavailable {
		t.Error(err)
	}
}

// A session keeps its last error and what GitHub answered when it was opened.
func TestASessionKeepsLittleOfLongAnswers(t *testing.T) {
	status, session := http.StatusBadRequest, `{"sessionId":"11111111-1111-1111-1111-111111111111","messageQueueUrl":"http://github.test/q","messageQueueAccessToken":"x"}`
	c := hostile(t, func(r *http.Request) (int, string) {
		switch {
		case r.URL.Path == "/q":
			return status, strings.Repeat("\x01", 2<<20-100)
		case strings.HasSuffix(r.URL.Path, "/sessions"):
			return http.StatusOK, session
		}
		return 0, ""
	})
	ctx := testContext(t)
	s, _, err := c.OpenSession(ctx, 1, owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, status = range []int{http.StatusCreated, http.StatusBadRequest, http.StatusConflict} {
		err := s.Poll(ctx, patience)
		for ; err != nil; err = errors.Unwrap(err) {
			if text := err.Error(); len(text) > 2<<10 {
				t.Errorf("%d: an error of %d bytes: %T", status, len(text), err)
			}
		}
	}
	session = strings.Replace(session, "/q", "/q?"+strings.Repeat("x", 40<<10), 1)
	if _, _, err := c.OpenSession(ctx, 1, owner); !isTooLarge(err) {
		t.Errorf("a session with a long URL: %v", err)
	}
}

func TestALargeMessageIsFollowedByAPause(t *testing.T) {
	for size, want := range map[int]time.Duration{0: 0, 50 << 10: 0, 64<<10 + 512<<10: time.Second} {
		if got := pauseAfter(size); got != want {
			t.Errorf("after %d bytes: %s, want %s", size, got, want)
		}
	}
}
