// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package rest calls GitHub's REST API. It verifies a connection's credentials, registers runners without a scale set,
// and reads and reports data that webhooks and messages do not cover. go-github's package name collides with the parent
// package, so it is imported as gogithub.
package rest

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gogithub "github.com/google/go-github/v89/github"
	"golang.org/x/sync/semaphore"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

// payloadsAtOnce is how many payloads of deliveries the clients of NewClients may read at once. The clients of one
// namespace may use a quarter.
const payloadsAtOnce = 8

// payloads limits concurrent reads of payloads, for one namespace and for all.
type payloads struct{ own, all *semaphore.Weighted }

func newPayloads() payloads {
	return payloads{semaphore.NewWeighted(payloadsAtOnce / 4), semaphore.NewWeighted(payloadsAtOnce)}
}

// enter waits until a payload may be read.
func (p payloads) enter(ctx context.Context) error {
	if err := p.own.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := p.all.Acquire(ctx, 1); err != nil {
		p.own.Release(1)
		return err
	}
	return nil
}

func (p payloads) leave() {
	p.all.Release(1)
	p.own.Release(1)
}

// Client calls GitHub's REST API for one connection. It is safe for concurrent use. Every call has a deadline, and
// every error is a *github.Error. The client does not retry, except once with a new token when GitHub refuses the
// current one: callers are responsible for back-off.
//
// When too many calls are in flight, calls wait for their turn. Calls that remove a runner go first, then calls that
// register one, then redeliveries of webhook events, then lookups, then listings and placeholders. Calls of the same rank
// take turns among flows (see github.InFlow). As GitHub's limits come near, listings and placeholders stop first, and calls
// that remove or register a runner stop last.
type Client struct {
	creds   github.Credentials
	target  github.Target
	options github.Options
	gate    *github.Gate
	tokens  tokens

	payloads payloads

	// regular registers runners: it is the token's user or the App's installation. asApp is the App itself, which alone
	// can access its webhook. With a token, the client of asApp is nil. GitHub limits the two identities separately.
	regular, asApp identity

	runners shared[RunnerList]
	groups  shared[[]Group]
	visible shared[[]Group]
	repos   shared[repositoryList]
	jobs    shared[JobList]

	releases shared[published]
}

// identity is an account with its own rate limit on GitHub.
type identity struct {
	client *gogithub.Client
	budget *budget
}

// NewClient returns a client and does not call GitHub. It fails on invalid credentials and URLs.
func NewClient(creds github.Credentials, o github.Options) (*Client, error) {
	return newClient("", creds, o, newPayloads())
}

// NewClients returns the clients of connections. They share the transport in the options.
func NewClients(connections *github.Connections, o github.Options) *github.Clients[*Client] {
	o = o.WithDefaults(turns.First)
	all := newPayloads().all
	var byNamespace sync.Map // payloads by namespace; a sync.Map, because clients are created concurrently
	return github.NewClients(connections, func(key string, creds github.Credentials) (*Client, error) {
		namespace, _, _ := strings.Cut(key, "/")
		places, _ := byNamespace.LoadOrStore(namespace, payloads{newPayloads().own, all})
		return newClient(key, creds, connections.Watch(o, key), places.(payloads))
	}, func(key string) { remainingCalls.DeleteLabelValues(key) })
}

// newClient creates the client of a connection, NAMESPACE/NAME. The connection is a label in metrics, unless it is
// empty.
func newClient(connection string, creds github.Credentials, o github.Options, places payloads) (*Client, error) {
	if err := creds.Validate(); err != nil {
		return nil, err
	}
	target, err := github.ParseURL(creds.ConfigURL)
	if err != nil {
		return nil, err
	}
	o = o.WithDefaults(turns.First).For(creds)
	c := &Client{creds: creds, target: target, options: o, gate: github.NewGate(o), payloads: places}
	c.runners.options, c.groups.options, c.visible.options = o, o, o
	c.repos.options, c.jobs.options, c.releases.options = o, o, o
	if c.regular, err = c.identity(connection); err != nil {
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
	b := newBudget(c.options.Theirs, !c.target.Server, name)
	transport := &transport{options: c.options, budget: b, base: c.target.API}
	client, err := gogithub.NewClient(gogithub.WithTransport(transport), gogithub.WithURLs(&c.target.API, nil),
		gogithub.WithUserAgent("corral/"+c.options.Version), gogithub.WithDisableRateLimitCheck())
	if err != nil {
		return identity{}, fmt.Errorf("using the URL: %w", err)
	}
	return identity{client: client, budget: b}, nil
}

// Target returns what the connection's URL points to.
func (c *Client) Target() github.Target { return c.target }

// Network returns the connection's network.
func (c *Client) Network() github.Network { return c.creds.Network }

// Budget returns GitHub's hourly limit of calls, and how many remain; 0 if they are not known yet.
func (c *Client) Budget() (limit, left int) {
	b := c.regular.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.hours[core]; h != nil {
		return h.limit, h.remaining
	}
	return 0, 0
}

// kind is a class of calls. It has a metric label, a rank and a cost.
type kind struct {
	name string
	rank turns.Rank
	// keep caches the answer for conditional requests.
	keep bool
	// writes is true for calls that change something, whatever their rank.
	writes bool
	// asApp is true for calls that only an App can make, with its own identity.
	asApp bool
	// bounds limits the answer; answerBounds if zero.
	bounds github.Bounds
}

var (
	kindToken    = kind{name: "token", rank: turns.Removing, asApp: true}
	kindRemove   = kind{name: "runner_remove", rank: turns.Removing}
	kindJIT      = kind{name: "runner_jit", rank: turns.Registering}
	kindRegister = kind{name: "registration_token", rank: turns.Registering}
	// kindPlaceholder and kindUnplace are the same calls as kindJIT and kindRemove, for placeholders. No job waits for
	// them, so they leave as much of GitHub's limits as listings do.
	kindPlaceholder = kind{name: kindJIT.name, rank: turns.Listing, writes: true}
	kindUnplace     = kind{name: kindRemove.name, rank: turns.Listing, writes: true}
	kindRunner      = kind{name: "runner", rank: turns.Looking}
	kindGroups      = kind{name: "groups", rank: turns.Looking, keep: true}
	kindJob         = kind{name: "job", rank: turns.Looking, keep: true}
	kindRunners     = kind{name: "runners", rank: turns.Listing, keep: true}
	kindRepos       = kind{name: "repositories", rank: turns.Listing, keep: true}
	kindRuns        = kind{name: "runs", rank: turns.Listing, keep: true}
	kindJobs        = kind{name: "jobs", rank: turns.Listing, keep: true, bounds: jobsBounds}
	kindReleases    = kind{name: "releases", rank: turns.Looking, keep: true}
	kindDeliveries  = kind{name: "deliveries", rank: turns.Looking}
	kindPayload     = kind{name: "delivery", rank: turns.Looking, bounds: payloadBounds}
	kindRedeliver   = kind{name: "redelivery", rank: turns.Changing}
)

// operation is one call of go-github.
type operation func(context.Context, *gogithub.Client) (*gogithub.Response, error)

// do makes a call in its turn and with a deadline. If GitHub refuses the token, do makes the call once more with a new
// one.
func (c *Client) do(ctx context.Context, k kind, doing string, op operation) error {
	token, err := c.bearer(ctx, k)
	if err != nil {
		return err
	}
	err = c.once(ctx, k, token, doing, op)
	if !github.IsUnauthorized(err) || k.asApp || c.creds.App == nil { // a personal access token cannot be renewed
		return err
	}
	c.tokens.discard(token)
	if token, err = c.bearer(ctx, k); err != nil {
		return err
	}
	return c.once(ctx, k, token, doing, op)
}

// ask makes a call that returns a decoded answer.
func ask[T any](ctx context.Context, c *Client, k kind, doing string, op func(context.Context, *gogithub.Client) (T, *gogithub.Response, error)) (read T, err error) {
	err = c.do(ctx, k, doing, func(ctx context.Context, gh *gogithub.Client) (resp *gogithub.Response, err error) {
		read, resp, err = op(ctx, gh)
		return resp, err
	})
	return read, err
}

// elements reads a list page by page and yields the converted elements. It stops at the first error. If the converted
// elements need more memory than the room has, it yields an error.
func elements[L, G, T any](
	ctx context.Context, c *Client, k kind, doing string, r *room, of func(L) []G, as func(G) T,
	op func(context.Context, *gogithub.Client, gogithub.ListOptions) (L, *gogithub.Response, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for page, next := 1, 0; page != 0; page, next = next, 0 {
			if page > mostPages {
				yield(none, large(doing, github.TooLarge{Most: mostPages, Unit: "pages"}))
				return
			}
			read, err := ask(ctx, c, k, doing, func(ctx context.Context, gh *gogithub.Client) (L, *gogithub.Response, error) {
				read, resp, err := op(ctx, gh, gogithub.ListOptions{PerPage: pageSize, Page: page})
				if err == nil {
					next = resp.NextPage
				}
				return read, resp, err
			})
			if err != nil {
				yield(none, err)
				return
			}
			for _, element := range of(read) {
				kept, err := fitting(doing, as(element), r)
				if !yield(kept, err) || err != nil {
					return
				}
			}
		}
	}
}

// room limits the memory of a listing, in bytes.
type room struct{ taken atomic.Int64 }

func (r *room) isFull() bool { return r.taken.Load() > mostListed }

// fitting returns a decoded value after checking its texts against GitHub's maximum sizes and its size against the
// room.
func fitting[T any](doing string, value T, r *room) (T, error) {
	size, err := github.Fit(&value)
	if err == nil && r.taken.Add(int64(size)) > mostListed {
		err = github.TooLarge{Most: mostListed, Unit: "bytes"}
	}
	if err != nil {
		return value, large(doing, err)
	}
	return value, nil
}

// large returns the error of an answer that is too large.
func large(doing string, err error) error {
	return github.NewError(github.KindUnexpected, doing, http.StatusOK, 0, err.Error(), err)
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
	round, err := c.gate.Enter(ctx, k.rank, doing)
	if err != nil {
		return err
	}
	began, err := who.budget.spend(k, doing)
	if err != nil { // the call may have waited for long
		c.gate.Abandon(round)
		return err
	}
	err = c.gate.Do(context.WithValue(ctx, exchangeKey{}, exchange{token: token, kind: k}), func(ctx context.Context) error {
		resp, err := op(ctx, who.client)
		return c.classify(k, doing, resp, err)
	})
	c.gate.Leave(ctx, round, err)
	if ctx.Err() == nil {
		who.budget.learn(k, err, began)
	}
	who.budget.end(k, began)
	return err
}

// pace lets a listing wait for points of the budget, up to the timeout of a call, so that a listing of many pages
// continues slowly. So does a series of placeholders. Other calls fail at once, and their callers retry them.
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
