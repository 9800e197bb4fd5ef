// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	official "github.com/actions/scaleset"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/corral-dev/corral/internal/turns"
)

// Options of a Client. The zero value has sensible defaults.
type Options struct {
	// Parallel is the most calls that may be under way at once; 96 if 0. How many are
	// allowed follows GitHub's answers: 32 to begin with, more while it answers well,
	// down to 1 while it is overloaded.
	Parallel int
	// Version of Corral, told to GitHub in the User-Agent.
	Version string
	// Timeout of a call, token calls included, and of the wait for its turn before it;
	// 15 s if 0. Message polls have Pace.Hold instead.
	Timeout time.Duration
	// Transport is the network; NewTransport() if nil. It may be shared by clients.
	Transport http.RoundTripper
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = turns.Most
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Transport == nil {
		o.Transport = NewTransport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Client calls GitHub for one connection. It is safe for concurrent use; every call
// has a deadline, and every error is an *Error. Nothing is retried, except once with
// fresh tokens when GitHub refuses those in use: back-off belongs to the caller.
//
// Calls wait for their turn while GitHub has enough of them: first those that remove a
// runner, then those that register one, then changes of sessions and scale sets, then
// lookups, each in turn among scale sets. What doesn't answer is not called, but for a
// probe: such calls fail at once with KindUnavailable.
type Client struct {
	creds   Credentials
	options Options
	tokens  *tokenSource
	network http.RoundTripper
	turns   *turns.Limiter
	health  *health
	members members

	mu      sync.Mutex
	limited map[endpoint]time.Time // until when GitHub asked not to be called
}

// NewClient returns a client that has not called GitHub yet. It fails on credentials
// and URLs that can't work.
func NewClient(creds Credentials, options Options) (*Client, error) {
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	options = options.withDefaults()
	tokens := newTokenSource(Instrument(options.Transport), options.Now, options.Timeout)
	c := &Client{
		creds: creds, options: options, tokens: tokens, network: asTransport(&observer{next: tokens}),
		turns: turns.New(options.Parallel), health: newHealth(options.Now), limited: map[endpoint]time.Time{},
	}
	if _, err := c.newMember(subsystemController, 0); err != nil {
		return nil, err
	}
	return c, nil
}

// Hash is the Hash of the credentials in use.
func (c *Client) Hash() string { return c.creds.Hash() }

// Credentials are those in use.
func (c *Client) Credentials() Credentials { return c.creds }

// What part of Corral calls, as told to GitHub in the User-Agent.
const (
	subsystemController = "controller"
	subsystemListener   = "listener"
)

// newMember makes an official client whose retries are off and which returns GitHub's
// answer, whatever its status, instead of "giving up".
func (c *Client) newMember(subsystem string, setID int64) (*member, error) {
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
	return &member{client: client, generation: generation}, nil
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
		m := c.members.take()
		defer func() { c.members.put(m) }()
		if err := c.refreshed(&m); err != nil {
			return err
		}
		return c.heal(m, subsystemController, 0, func() error { return c.observe(ctx, &exchange{}, doing, m.client, op) })
	})
}

// refreshed makes the member one that holds no dead tokens.
func (c *Client) refreshed(m **member) error {
	if *m != nil && (*m).generation == c.tokens.current() {
		return nil
	}
	fresh, err := c.newMember(subsystemController, 0)
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
		return c.report(ctx, class, p, c.timed(ctx, call))
	}
	c.health.giveBack(p)
	round, err := c.awaitTurn(ctx, class, doing)
	if err != nil {
		return err
	}
	if p, err = c.admit(class, doing); err != nil || p.isProbe() { // much may have happened
		c.turns.Leave(round, turns.Unknown)
		if err != nil {
			return err
		}
		return c.report(ctx, class, p, c.timed(ctx, call))
	}
	err = c.timed(ctx, call)
	c.turns.Leave(round, bearingOf(ctx, err))
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

func (c *Client) awaitTurn(ctx context.Context, class endpoint, doing string) (round int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if round, err = c.turns.Enter(ctx, class.rank(), flowOf(ctx)); err != nil {
		return 0, &Error{Kind: KindUnavailable, Doing: doing, message: "other calls to GitHub took too long", err: err}
	}
	return round, nil
}

func (c *Client) timed(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return call(ctx)
}

// bearingOf says what a call's end tells of GitHub's load.
func bearingOf(ctx context.Context, err error) turns.Bearing {
	_, limited := IsRateLimited(err)
	switch {
	case err == nil:
		return turns.Good
	case ctx.Err() != nil:
		return turns.Unknown
	case limited, IsUnavailable(err):
		return turns.Overloaded
	}
	return turns.Good
}

// report learns from a call's end.
func (c *Client) report(ctx context.Context, class endpoint, p *pass, err error) error {
	c.noteLimit(class, err)
	e := new(Error)
	typed := errors.As(err, &e)
	switch {
	case err == nil, typed && !e.silent:
		c.health.answered(p)
	case !typed, ctx.Err() != nil:
		c.health.giveBack(p)
	default:
		if dead := c.health.unanswered(p, strings.TrimPrefix(e.message, "no answer: ")); dead != nil {
			dead.Doing, dead.err = e.Doing, err
			return dead
		}
	}
	return err
}

// renew replaces an official client that may hold dead tokens: it has no way to drop them.
func (c *Client) renew(m *member, subsystem string, setID int64) error {
	fresh, err := c.newMember(subsystem, setID)
	if err != nil {
		return err
	}
	*m = *fresh
	return nil
}

// heal tries once more, with new tokens, what GitHub refused with 401: the official
// client renews them only when their time is over, not when they are revoked.
func (c *Client) heal(m *member, subsystem string, setID int64, try func() error) error {
	err := try()
	if !IsUnauthorized(err) || !c.tokens.discard(m.generation) {
		return err
	}
	if renewErr := c.renew(m, subsystem, setID); renewErr != nil {
		return errors.Join(err, renewErr)
	}
	return try()
}

// observe runs an operation and types its error by what GitHub answered.
func (c *Client) observe(ctx context.Context, x *exchange, doing string, client *official.Client, op operation) error {
	if err := op(withExchange(ctx, x), client); err != nil {
		return newError(doing, x, err, c.options.Now())
	}
	return nil
}

// defaultLimit is waited for when GitHub limits calls without saying for how long.
const defaultLimit = 5 * time.Second

// maxLimit bounds how long GitHub's word to wait is taken for.
const maxLimit = 10 * time.Minute

// obeyLimit fails without a request while GitHub asked not to be called.
func (c *Client) obeyLimit(class endpoint, doing string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.limited[class].Sub(c.options.Now())
	if left <= 0 {
		return nil
	}
	return &Error{Kind: KindRateLimited, Doing: doing, RetryAfter: left, message: "GitHub asked to wait", uncalled: true}
}

func (c *Client) noteLimit(class endpoint, err error) {
	after, limited := IsRateLimited(err)
	if !limited {
		return
	}
	if after <= 0 {
		after = defaultLimit
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited[class] = c.options.Now().Add(min(after, maxLimit))
}
