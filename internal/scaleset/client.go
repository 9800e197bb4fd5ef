// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

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
)

// Options of a Client. The zero value has sensible defaults.
type Options struct {
	// Parallel is how many calls may be under way at once; 8 if 0. A call of the
	// official client holds the client's lock, so this is how many of them there are.
	Parallel int
	// Version of Corral, told to GitHub in the User-Agent.
	Version string
	// Timeout of a call, time to wait for a free client included; 30 s if 0. It also
	// bounds each token call. Message polls have Config.Hold instead.
	Timeout time.Duration
	// Transport is the network; NewTransport() if nil. It may be shared by clients.
	Transport http.RoundTripper
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
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
type Client struct {
	creds   Credentials
	options Options
	tokens  *tokenSource
	network http.RoundTripper
	idle    chan *member

	mu      sync.Mutex
	limited map[endpoint]time.Time // until when GitHub asked not to be called
}

// member is an official client that is used by one call at a time.
type member struct {
	client     *official.Client
	generation uint64 // of the tokens it may hold
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
		idle: make(chan *member, options.Parallel), limited: map[endpoint]time.Time{},
	}
	for range options.Parallel {
		m, err := c.newMember(subsystemController, 0)
		if err != nil {
			return nil, err
		}
		c.idle <- m
	}
	return c, nil
}

// Hash is the Hash of the credentials in use.
func (c *Client) Hash() string { return c.creds.Hash() }

// What part of Corral calls, as told to GitHub in the User-Agent.
const (
	subsystemController = "controller"
	subsystemListener   = "listener"
)

// newMember makes an official client whose retries are off and which returns GitHub's
// answer, whatever its status, instead of "giving up".
func (c *Client) newMember(subsystem string, setID int64) (*member, error) {
	generation := c.tokens.current()
	retrying := retryablehttp.NewClient()
	retrying.HTTPClient = &http.Client{Transport: c.network}
	retrying.RetryMax = 0
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

// do runs an operation with a free official client and a deadline. When GitHub refuses
// the tokens, it is tried once more with new ones. The class, if any, is the endpoint
// whose rate limit the call obeys.
func (c *Client) do(ctx context.Context, class endpoint, doing string, op operation) error {
	if err := c.obeyLimit(class, doing); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	m, err := c.acquire(ctx)
	if err != nil {
		return &Error{Kind: KindUnavailable, Doing: doing, err: fmt.Errorf("waiting for other calls: %w", err)}
	}
	defer func() { c.idle <- m }()
	err = c.heal(m, subsystemController, 0, func() error { return c.observe(ctx, &exchange{}, doing, m.client, op) })
	c.noteLimit(class, err)
	return err
}

func (c *Client) acquire(ctx context.Context) (*member, error) {
	select {
	case m := <-c.idle:
		if m.generation == c.tokens.current() {
			return m, nil
		}
		if err := c.renew(m, subsystemController, 0); err != nil {
			c.idle <- m
			return nil, err
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
	return &Error{Kind: KindRateLimited, Doing: doing, RetryAfter: left, message: "GitHub asked to wait; not called"}
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
