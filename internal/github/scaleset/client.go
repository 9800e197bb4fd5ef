// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaleset speaks GitHub's runner scale-set protocol: an adapter over the
// official client that adds deadlines, typed errors, parallel calls, one token
// source per connection and metrics; and a message session that does not end
// (Listener).
//
// The official client decides what goes over the wire. It sees the network through
// transports of ours, where tokens are cached, requests counted and bodies bounded,
// and where messages that it would fail on are made harmless.
package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	official "github.com/actions/scaleset"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

// Client calls GitHub for one connection. It is safe for concurrent use; every call
// has a deadline, and every error is a *github.Error. Nothing is retried, except once with
// fresh tokens when GitHub refuses those in use: back-off belongs to the caller.
//
// Calls wait for their turn while GitHub has enough of them: first those that remove a
// runner, then those that register one, then changes of sessions and scale sets, then
// lookups, each in turn among scale sets. What doesn't answer is not called, but for a
// probe: such calls fail at once with KindUnavailable.
type Client struct {
	creds   github.Credentials
	options github.Options
	tokens  *tokenSource
	network http.RoundTripper
	gate    *github.Gate
	health  *health
	idle    clientPool

	mu      sync.Mutex
	limited map[endpoint]limit
}

// NewClient returns a client that has not called GitHub yet. It fails on credentials
// and URLs that can't work.
func NewClient(creds github.Credentials, options github.Options) (*Client, error) {
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	options = options.WithDefaults(turns.Most).For(creds)
	tokens := newTokenSource(metered{options}, options.Theirs, options.Timeout)
	tokens.app = creds.App
	c := &Client{
		creds: creds, options: options, tokens: tokens, network: asTransport(&observer{next: tokens, options: options}),
		gate: github.NewGate(options), health: newHealth(options.Now), limited: map[endpoint]limit{},
	}
	if _, err := c.newPooledClient(subsystemController, 0); err != nil {
		return nil, err
	}
	return c, nil
}

// Target is what the connection's URL points to.
func (c *Client) Target() github.Target {
	target, _ := github.ParseURL(c.creds.ConfigURL) // it was parsed before
	return target
}

// Seal is that of the client's credentials.
func (c *Client) Seal(text string) string { return c.creds.Seal(text) }

// holds takes in that GitHub holds a message poll: it is answered much later, and what went wrong with those before is over.
func (c *Client) holds() {
	c.options.Note(context.Background(), string(endpointMessagePoll), &http.Response{StatusCode: http.StatusOK}, nil)
}

// Network is the way to GitHub.
func (c *Client) Network() github.Network { return c.creds.Network }

// What part of Corral calls, as told to GitHub in the User-Agent.
const (
	subsystemController = "controller"
	subsystemListener   = "listener"
)

// newPooledClient makes an official client whose retries are off and which returns GitHub's
// answer, whatever its status, instead of "giving up".
func (c *Client) newPooledClient(subsystem string, setID int64) (*pooledClient, error) {
	generation := c.tokens.current()
	// Every call has a deadline. A time-out of the HTTP client, 5 min unless it is set,
	// would cost two goroutines for each held poll; a negative one is none.
	retrying := &retryablehttp.Client{HTTPClient: &http.Client{Transport: c.network, Timeout: -1}, Backoff: retryablehttp.DefaultBackoff}
	// The official client sets its own CheckRetry on a token call and never takes it back,
	// so ours is set before each request.
	retrying.RequestLogHook = func(retryablehttp.Logger, *http.Request, int) { retrying.CheckRetry = neverRetry }
	options := []official.HTTPOption{official.WithRetryableHTTPClint(retrying), official.WithRetryMax(0)}
	info := official.SystemInfo{System: "corral", Version: c.options.Version, Subsystem: subsystem, ScaleSetID: int(setID)}

	client, err := c.newOfficial(info, options)
	if err != nil {
		return nil, fmt.Errorf("using the URL: %w", err)
	}
	return &pooledClient{client: client, generation: generation}, nil
}

// neverRetry passes answers and errors on as they are.
func neverRetry(context.Context, *http.Response, error) (bool, error) { return false, nil }

func (c *Client) newOfficial(info official.SystemInfo, options []official.HTTPOption) (*official.Client, error) {
	app := c.creds.App
	if app == nil {
		return official.NewClientWithPersonalAccessToken(official.NewClientWithPersonalAccessTokenConfig{
			GitHubConfigURL: c.creds.ConfigURL, PersonalAccessToken: c.creds.Token, SystemInfo: info,
		}, options...)
	}
	return official.NewClientWithGitHubApp(official.ClientWithGitHubAppConfig{
		GitHubConfigURL: c.creds.ConfigURL, SystemInfo: info, GitHubAppAuth: official.GitHubAppAuth{
			ClientID: app.ID, InstallationID: app.InstallationID, PrivateKey: string(app.PrivateKey),
		},
	}, options...)
}

// operation is one call of the official client.
type operation func(context.Context, *official.Client) error

// do runs an operation with an official client, when it may, in its turn, and with a
// deadline. When GitHub refuses the tokens, it is tried once more with new ones.
func (c *Client) do(ctx context.Context, class endpoint, doing string, op operation) error {
	return c.admitted(ctx, class, doing, func(ctx context.Context) error {
		m := c.idle.get()
		defer func() { c.idle.put(m) }()
		if err := c.refreshed(&m); err != nil {
			return err
		}
		return c.heal(m, subsystemController, 0, func() error { return c.observe(ctx, &exchange{}, doing, m.client, op) })
	})
}

// refreshed makes the client one that holds no dead tokens.
func (c *Client) refreshed(m **pooledClient) error {
	if *m != nil && (*m).generation == c.tokens.current() {
		return nil
	}
	fresh, err := c.newPooledClient(subsystemController, 0)
	if err == nil {
		*m = fresh
	}
	return err
}

// admitted makes a call of an endpoint, unless GitHub asked to wait or doesn't answer.
// It may wait for its turn before that; a probe needs none, as it may hang.
func (c *Client) admitted(ctx context.Context, class endpoint, doing string, call func(context.Context) error) error {
	p, err := c.admit(class, doing)
	if err != nil {
		return err
	}
	if p.isProbe() {
		return c.report(ctx, class, p, c.gate.Do(ctx, call))
	}
	c.health.giveBack(p)
	round, err := c.gate.Enter(ctx, class.rank(), doing)
	if err != nil {
		return err
	}
	if p, err = c.admit(class, doing); err != nil || p.isProbe() { // much may have happened
		c.gate.Abandon(round)
		if err != nil {
			return err
		}
		return c.report(ctx, class, p, c.gate.Do(ctx, call))
	}
	err = c.gate.Do(ctx, call)
	c.gate.Leave(ctx, round, err)
	return c.report(ctx, class, p, err)
}

// admit says whether an endpoint may be called.
func (c *Client) admit(class endpoint, doing string) (*pass, error) {
	if err := c.obeyLimit(class, doing); err != nil {
		return nil, err
	}
	p, refusal := c.health.admit(class)
	if refusal != nil {
		refusal.Doing = doing
		return nil, refusal
	}
	return p, nil
}

// report learns from a call's end.
func (c *Client) report(ctx context.Context, class endpoint, p *pass, err error) error {
	c.noteLimit(class, err)
	e := new(github.Error)
	typed := errors.As(err, &e)
	switch {
	case err == nil, typed && !e.Silent:
		c.health.answered(p)
	case !typed, ctx.Err() != nil:
		c.health.giveBack(p)
	default:
		if dead := c.health.unanswered(p, e.Message); dead != nil {
			dead.Doing, dead.Err, dead.Silent = e.Doing, err, true
			return dead
		}
	}
	return err
}

// renew replaces an official client that may hold dead tokens: it has no way to drop them.
func (c *Client) renew(m *pooledClient, subsystem string, setID int64) error {
	fresh, err := c.newPooledClient(subsystem, setID)
	if err == nil {
		*m = *fresh
	}
	return err
}

// heal tries once more, with new tokens, what GitHub refused with 401: the official
// client renews them only when their time is over, not when they are revoked.
func (c *Client) heal(m *pooledClient, subsystem string, setID int64, try func() error) error {
	err := try()
	if !github.IsUnauthorized(err) || !c.tokens.discard(m.generation) {
		return err
	}
	if renewErr := c.renew(m, subsystem, setID); renewErr != nil {
		return errors.Join(err, renewErr)
	}
	return try()
}

// observe runs an operation and types its error by what GitHub answered.
func (c *Client) observe(ctx context.Context, x *exchange, doing string, client *official.Client, op operation) error {
	defer x.close()
	if err := op(withExchange(ctx, x), client); err != nil {
		return newError(doing, x, err, c.options.Theirs())
	}
	return nil
}

// defaultLimit is waited for when GitHub limits calls without saying for how long.
const defaultLimit = 5 * time.Second

// maxLimit bounds how long GitHub's word to wait is taken for.
const maxLimit = 10 * time.Minute

// limit is until when GitHub asked not to be called, and how it said so.
type limit struct {
	until   time.Time
	status  int
	message string
}

// obeyLimit fails without a request while GitHub asked not to be called. The error says what the call said that GitHub answered so: for both
// there is one cause.
func (c *Client) obeyLimit(class endpoint, doing string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.limited[class]
	left := l.until.Sub(c.options.Now())
	if left <= 0 {
		return nil
	}
	return &github.Error{Kind: github.KindRateLimited, Doing: doing, Status: l.status, RetryAfter: left, Message: l.message, Next: l.until}
}

func (c *Client) noteLimit(class endpoint, err error) {
	after, limited := github.IsRateLimited(err)
	e := new(github.Error)
	if !limited || !errors.As(err, &e) {
		return
	}
	if after <= 0 {
		after = defaultLimit
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited[class] = limit{c.options.Now().Add(min(after, maxLimit)), e.Status, e.Message}
}

// NewClients returns the clients of connections. They share the options' transport.
func NewClients(connections *github.Connections, options github.Options) *github.Clients[*Client] {
	options = options.WithDefaults(turns.Most)
	return github.NewClients(connections, func(key string, creds github.Credentials) (*Client, error) {
		return NewClient(creds, connections.Watch(options, key))
	}, func(string) {})
}
