// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"sync"
	"time"

	gogithub "github.com/google/go-github/v89/github"
	"golang.org/x/sync/singleflight"

	"github.com/corral-dev/corral/internal/github"
)

// tokenMargin is how long before its expiry a token is replaced, because a listing can take a while.
const tokenMargin = 5 * time.Minute

// tokens caches the installation's token. Concurrent requests for a token share one call.
type tokens struct {
	flights singleflight.Group

	mu    sync.Mutex
	token string
	until time.Time
}

// discard forgets a token that GitHub refused, unless another call has already replaced it.
func (t *tokens) discard(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token, t.until = "", time.Time{}
	}
}

func (t *tokens) kept(now time.Time) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token, t.token != "" && now.Before(t.until)
}

// errNoApp is the error for a call that needs an App when the connection has a token.
var errNoApp = errors.New("the connection has no App's credentials")

// bearer returns the token or assertion for a call.
func (c *Client) bearer(ctx context.Context, k kind) (string, error) {
	app := c.creds.App
	switch {
	case k.asApp && app == nil:
		return "", github.NewError(github.KindForbidden, "asking as an App", 0, 0, errNoApp.Error(), errNoApp)
	case k.asApp:
		assertion, err := app.Assertion(c.options.Theirs())
		if err != nil {
			return "", github.NewError(github.KindUnauthorized, "signing as an App", 0, 0, "the private key can't be used", err)
		}
		return assertion, nil
	case app == nil:
		return c.creds.Token, nil
	}
	if token, fresh := c.tokens.kept(c.options.Theirs()); fresh {
		return token, nil
	}
	// The call continues if the caller that began it leaves, because other callers may wait for its result.
	flight := c.tokens.flights.DoChan("", func() (any, error) { return c.newToken(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return "", github.NewError(github.KindUnavailable, "getting a token", 0, 0, "GitHub took too long", ctx.Err())
	case landed := <-flight:
		token, _ := landed.Val.(string)
		return token, landed.Err
	}
}

func (c *Client) newToken(ctx context.Context) (string, error) {
	if token, fresh := c.tokens.kept(c.options.Theirs()); fresh { // from a call that finished in the meantime
		return token, nil
	}
	made, err := ask(ctx, c, kindToken, "getting a token", func(ctx context.Context, gh *gogithub.Client) (*gogithub.InstallationToken, *gogithub.Response, error) {
		return something(gh.Apps.CreateInstallationToken(ctx, c.creds.App.InstallationID, &gogithub.InstallationTokenOptions{}))
	})
	if err != nil {
		return "", err
	}
	now, expires := c.options.Theirs(), made.GetExpiresAt().Time
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.tokens.token = made.GetToken()
	c.tokens.until = expires.Add(-min(tokenMargin, expires.Sub(now)/2))
	return c.tokens.token, nil
}
