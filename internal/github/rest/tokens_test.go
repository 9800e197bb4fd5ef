// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
)

// revoking is a GitHub that refuses the first token that it issues. The request for the runner 1 is refused a second
// before the request for the runner 2, and a token takes two seconds.
type revoking struct{ issued int }

func (g *revoking) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/access_tokens") {
		g.issued++
		token := fmt.Sprintf(`{"token":"t%d","expires_at":%q}`, g.issued, time.Now().Add(time.Hour).Format(time.RFC3339))
		time.Sleep(2 * time.Second)
		return answerOf(r, http.StatusCreated, token), nil
	}
	if r.Header.Get("Authorization") == "Bearer t1" {
		if strings.HasSuffix(r.URL.Path, "/2") {
			time.Sleep(time.Second)
		}
		return answerOf(r, http.StatusUnauthorized, `{"message":"Bad credentials"}`), nil
	}
	return answerOf(r, http.StatusNotFound, `{"message":"Not Found"}`), nil
}

func answerOf(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// GitHub refuses the token of a call while another call is already renewing it.
func TestCallsRefusedTogetherShareANewToken(t *testing.T) {
	_, private := appKeys()
	synctest.Test(t, func(t *testing.T) {
		gh := &revoking{}
		creds := github.Credentials{ConfigURL: "https://github.com/acme", App: &github.App{ID: "7", InstallationID: 70, PrivateKey: private}}
		c, err := NewClient(creds, github.Options{Transport: gh, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		for id := range int64(2) {
			g.Go(func() error {
				_, err := c.Runner(t.Context(), id+1)
				return err
			})
		}
		if err := g.Wait(); err != nil || gh.issued != 2 {
			t.Errorf("%d tokens were issued: %v", gh.issued, err)
		}
	})
}
