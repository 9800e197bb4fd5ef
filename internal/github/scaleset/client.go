// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaleset implements GitHub's runner scale-set protocol. It wraps the official client and adds deadlines,
// typed errors, parallel calls, metrics and one token source per connection. Its Listener keeps a message session open,
// and opens another one when a session ends.
//
// The official client creates the requests. It sends them through Corral's own transports, which cache tokens, count
// requests, limit bodies and rewrite messages that the official client cannot decode.
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

// Client calls GitHub for one connection. It is safe for concurrent use. Every call has a deadline, and every error is
// a *github.Error. The client does not retry, except once with new tokens when GitHub refuses the current ones: callers
// are responsible for back-off.
//
// When too many calls are in flight, calls wait for their turn. Calls that remove a runner go first, then calls that
// register one, then changes of sessions and scale sets, then lookups. Calls of the same rank take turns among scale
// sets. If an endpoint does not answer, it gets one probe at a time, and other calls to it fail at once with
// KindUnavailable.
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

// NewClient returns a client and does not call GitHub. It fails on invalid credentials and URLs.
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

// Target returns what the connection's URL points to.
func (c *Client) Target() github.Target {
	target, _ := github.ParseURL(c.creds.ConfigURL) // parsed successfully before
	return target
}

// Seal signs a text with the client's credentials.
func (c *Client) Seal(text string) string { return c.creds.Seal(text) }

// holds records that GitHub holds a message poll open. The answer comes much later, but a held poll already proves that
// earlier trouble is over.
func (c *Client) holds() {
	c.options.Note(context.Background(), string(endpointMessagePoll), &http.Response{StatusCode: http.StatusOK}, nil)
}

// Network returns the connection's network.
func (c *Client) Network() github.Network { return c.creds.Network }

// Subsystems of Corral, which the User-Agent contains.
const (
	subsystemController = "controller"
	subsystemListener   = "listener"
)

// newPooledClient creates an official client without retries. Calls return GitHub's answer, whatever its status,
// instead of a "giving up" error.
func (c *Client) newPooledClient(subsystem string, setID int64) (*pooledClient, error) {
	generation := c.tokens.current()
	// Every call has its own deadline. The HTTP client's default timeout of 5 min would cost two goroutines for each
	// held poll; a negative value disables it.
	retrying := &retryablehttp.Client{HTTPClient: &http.Client{Transport: c.network, Timeout: -1}, Backoff: retryablehttp.DefaultBackoff}
	// The official client sets its own CheckRetry during a token call and never restores it, so neverRetry is set
	// before each request.
	retrying.RequestLogHook = func(retryablehttp.Logger, *http.Request, int) { retrying.CheckRetry = neverRetry }
	options := []official.HTTPOption{official.WithRetryableHTTPClint(retrying), official.WithRetryMax(0)}
	info := official.SystemInfo{System: "corral", Version: c.options.Version, Subsystem: subsystem, ScaleSetID: int(setID)}

	client, err := c.newOfficial(info, options)
	if err != nil {
		return nil, fmt.Errorf("using the URL: %w", err)
	}
	return &pooledClient{client: client, generation: generation}, nil
}

// neverRetry returns answers and errors unchanged.
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

// do runs an operation with an official client, in its turn and with a deadline. If GitHub refuses the tokens, do tries
// once more with new ones.
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

// refreshed replaces the client if there is none, or if it may hold revoked tokens.
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

// admitted makes a call, unless GitHub asked to wait or the endpoint does not answer. The call may wait for its turn. A
// probe skips the queue, because it may hang and would hold a turn meanwhile.
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
	if p, err = c.admit(class, doing); err != nil || p.isProbe() { // the call may have waited for long
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

// admit returns an error if the endpoint must not be called now.
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

// report records the result of a call.
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

// renew replaces an official client that may hold revoked tokens, because an official client cannot drop its tokens.
func (c *Client) renew(m *pooledClient, subsystem string, setID int64) error {
	fresh, err := c.newPooledClient(subsystem, setID)
	if err == nil {
		*m = *fresh
	}
	return err
}

// heal tries once more with new tokens after a 401. The official client renews tokens only when they expire, not when
// they are revoked.
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

// observe runs an operation, and charges the namespace for the answers that were read. It converts an error to a
// *github.Error, based on GitHub's last answer.
func (c *Client) observe(ctx context.Context, x *exchange, doing string, client *official.Client, op operation) error {
	defer x.close()
	defer func() { c.options.Charge(x.size, time.Now()) }()
	if err := guarded(withExchange(ctx, x), client, op); err != nil {
		return newError(doing, x, err, c.options.Theirs())
	}
	return nil
}

// guarded runs an operation and returns a panic as an error. The official client reads some fields of answers without a
// check. Answers come from a server that a user chose, and a panic in a session's goroutine would end the process.
func guarded(ctx context.Context, client *official.Client, op operation) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: the client of GitHub's protocol panicked: %v", errPartial, r)
		}
	}()
	return op(ctx, client)
}

// defaultLimit is the wait if GitHub limits calls without saying for how long.
const defaultLimit = 5 * time.Second

// maxLimit is the longest wait that Corral accepts from GitHub.
const maxLimit = 10 * time.Minute

// limit records that GitHub asked to wait, with the status and the message of its answer.
type limit struct {
	until   time.Time
	status  int
	message string
}

// obeyLimit returns an error while GitHub asks to wait. The error repeats the status and the message of the answer that
// asked for the wait.
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

// NewClients returns the clients of connections. They share the transport in the options.
func NewClients(connections *github.Connections, options github.Options) *github.Clients[*Client] {
	options = options.WithDefaults(turns.Most)
	return github.NewClients(connections, func(key string, creds github.Credentials) (*Client, error) {
		return NewClient(creds, connections.Watch(options, key))
	}, func(string) {})
}
