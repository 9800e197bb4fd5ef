// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v89/github"
	"golang.org/x/sync/semaphore"

	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/turns"
)

// ClientOptions of a Client. The zero value has sensible defaults.
type ClientOptions struct {
	// Name of the connection, as NAMESPACE/NAME, in metrics; none if empty.
	Name string
	// Version of Corral, told to GitHub in the User-Agent.
	Version string
	// Timeout of a call, and of the wait for its turn before it; 15 s if 0.
	Timeout time.Duration
	// Parallel is the most calls that may be under way at once; 32 if 0.
	Parallel int
	// Transport is the network; scaleset.NewTransport() if nil. It may be shared by clients.
	Transport http.RoundTripper
	// Now is the clock; time.Now if nil.
	Now func() time.Time

	payloads *semaphore.Weighted // bounds how many payloads of deliveries are read at once
}

// payloadsAtOnce is how many payloads of deliveries are read at once by the clients of a Registry.
const payloadsAtOnce = 8

func (o ClientOptions) withDefaults() ClientOptions {
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = turns.First
	}
	if o.Transport == nil {
		o.Transport = scaleset.NewTransport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.payloads == nil {
		o.payloads = semaphore.NewWeighted(payloadsAtOnce)
	}
	return o
}

// Client calls GitHub's REST API for one connection. It is safe for concurrent use; every call has
// a deadline, and every error is a *scaleset.Error. Nothing is retried, except once with a fresh
// token when GitHub refuses that in use: back-off belongs to the caller.
//
// Calls wait for their turn while enough are under way: first those that remove a runner, then
// those that register one, then lookups, then listings, each in turn among flows (see InFlow).
// When GitHub's limits come near, they stop in the opposite order.
type Client struct {
	creds   scaleset.Credentials
	target  Target
	options ClientOptions
	turns   *turns.Limiter
	tokens  tokens

	// regular is who registers runners: the token's user or the App's installation. asApp is the App
	// itself, which alone may look at its webhook; its client is nil with a token. GitHub limits
	// them separately.
	regular, asApp identity

	runners shared[RunnerList]
	groups  shared[[]Group]
	visible shared[[]Group]
	repos   shared[repositoryList]
	jobs    shared[JobList]
}

// identity is one that GitHub counts the calls of.
type identity struct {
	client *github.Client
	budget *budget
}

// NewClient returns a client that has not called GitHub yet. It fails on credentials and URLs that
// can't work.
func NewClient(creds scaleset.Credentials, o ClientOptions) (*Client, error) {
	target, err := ParseURL(creds.ConfigURL)
	if err != nil {
		return nil, err
	}
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := &Client{creds: creds, target: target, options: o, turns: turns.New(o.Parallel)}
	if c.regular, err = c.identity(c.options.Name); err != nil {
		return nil, err
	}
	if creds.App != nil {
		if c.asApp, err = c.identity(""); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Client) identity(name string) (identity, error) {
	b := newBudget(c.options.Now, !c.target.Server, name)
	transport := &transport{network: c.options.Transport, budget: b, base: c.target.API}
	client, err := github.NewClient(github.WithTransport(transport), github.WithURLs(&c.target.API, nil),
		github.WithUserAgent("corral/"+c.options.Version), github.WithDisableRateLimitCheck())
	if err != nil {
		return identity{}, fmt.Errorf("using the URL: %w", err)
	}
	return identity{client: client, budget: b}, nil
}

// Target is what the connection's URL points to.
func (c *Client) Target() Target { return c.target }

// kind is a class of calls: a metric label, who is served first, and what it costs.
type kind struct {
	name string
	rank turns.Rank
	// keep the answer, to ask later whether it changed.
	keep bool
	// writes is true of calls that change something although others go before them.
	writes bool
	// asApp is true of calls that only an App may make, as itself.
	asApp bool
	// most is the size of an answer in bytes; mostAnswer if 0.
	most int64
}

var (
	kindToken      = kind{name: "token", rank: turns.Removing, asApp: true}
	kindRemove     = kind{name: "runner_remove", rank: turns.Removing}
	kindJIT        = kind{name: "runner_jit", rank: turns.Registering}
	kindRunner     = kind{name: "runner", rank: turns.Looking}
	kindGroups     = kind{name: "groups", rank: turns.Looking, keep: true}
	kindJob        = kind{name: "job", rank: turns.Looking, keep: true}
	kindRunners    = kind{name: "runners", rank: turns.Listing, keep: true}
	kindRepos      = kind{name: "repositories", rank: turns.Listing, keep: true}
	kindRuns       = kind{name: "runs", rank: turns.Listing, keep: true}
	kindJobs       = kind{name: "jobs", rank: turns.Listing, keep: true}
	kindDeliveries = kind{name: "deliveries", rank: turns.Looking}
	kindPayload    = kind{name: "delivery", rank: turns.Looking, most: mostPayload}
	kindRedeliver  = kind{name: "redelivery", rank: turns.Changing}
)

// flowKey is the context key of whom a call is made for.
type flowKey struct{}

// InFlow says for whom calls are made, such as NAMESPACE/POOL. Calls that wait for their turn are
// served one flow after the other.
func InFlow(ctx context.Context, flow string) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

func flowOf(ctx context.Context) string {
	flow, _ := ctx.Value(flowKey{}).(string)
	return flow
}

// operation is one call of go-github.
type operation func(context.Context, *github.Client) (*github.Response, error)

// do makes a call when it may, in its turn, and with a deadline. When GitHub refuses the token, it
// is made once more with a new one.
func (c *Client) do(ctx context.Context, k kind, doing string, op operation) error {
	token, err := c.bearer(ctx, k)
	if err != nil {
		return err
	}
	err = c.once(ctx, k, token, doing, op)
	if !scaleset.IsUnauthorized(err) || k.asApp || !c.tokens.discard(token) {
		return err
	}
	if token, err = c.bearer(ctx, k); err != nil {
		return err
	}
	return c.once(ctx, k, token, doing, op)
}

func (c *Client) once(ctx context.Context, k kind, token, doing string, op operation) error {
	who := c.regular
	if k.asApp {
		who = c.asApp
	}
	c.pace(ctx, who.budget, k)
	if err := who.budget.admit(k, doing); err != nil {
		return err
	}
	round, err := c.awaitTurn(ctx, k, doing)
	if err != nil {
		return err
	}
	if err := who.budget.spend(k, doing); err != nil { // much may have happened
		c.turns.Leave(round, turns.Unknown)
		return err
	}
	began := c.options.Now()
	err = c.timed(ctx, exchange{token: token, kind: k}, doing, who.client, op)
	c.turns.Leave(round, bearingOf(ctx, err))
	who.budget.end()
	if ctx.Err() == nil {
		who.budget.learn(k, err, began)
	}
	return err
}

// pace lets a listing wait for points, for the time of a call at most: one of many pages goes on,
// slowly. Others fail, and come back.
func (c *Client) pace(ctx context.Context, b *budget, k kind) {
	for left := c.options.Timeout; k.rank == turns.Listing; {
		wait := b.pause(k)
		if wait <= 0 || wait > left {
			return
		}
		left -= wait
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (c *Client) awaitTurn(ctx context.Context, k kind, doing string) (round int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if round, err = c.turns.Enter(ctx, k.rank, flowOf(ctx)); err != nil {
		return 0, scaleset.NewError(scaleset.KindUnavailable, doing, 0, 0, "other calls to GitHub took too long", err)
	}
	return round, nil
}

func (c *Client) timed(ctx context.Context, x exchange, doing string, client *github.Client, op operation) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	resp, err := op(context.WithValue(ctx, exchangeKey{}, x), client)
	if err == nil {
		return nil
	}
	return c.judge(x.kind, doing, resp, err)
}

// bearingOf says what a call's end tells of GitHub's load.
func bearingOf(ctx context.Context, err error) turns.Bearing {
	_, away := scaleset.ComeBack(err)
	switch {
	case err == nil:
		return turns.Good
	case ctx.Err() != nil:
		return turns.Unknown
	case away:
		return turns.Overloaded
	}
	return turns.Good
}
