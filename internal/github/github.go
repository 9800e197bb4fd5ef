// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package github holds what all clients of GitHub share: credentials, what a connection's URL
// points to, errors, the network, and whose call is next. Package scaleset below it speaks the
// runner scale-set protocol, package rest the REST API; neither knows the other.
package github

import (
	"cmp"
	"net/http"
	"time"

	"github.com/corral-dev/corral/internal/clock"
)

// Options of a client of GitHub. The zero value has sensible defaults.
type Options struct {
	// Version of Corral, told to GitHub in the User-Agent.
	Version string
	// Parallel is the most calls that may be under way at once: 96 scale-set calls, of which 32 may
	// begin before GitHub has answered any, and 32 REST calls if 0.
	Parallel int
	// Timeout of a call, token calls included, and of the wait for its turn before it; 15 s if 0.
	Timeout time.Duration
	// Transport is the network; NewTransport() if nil. Clients may share it.
	Transport http.RoundTripper
	// Guard wraps the network of each client, to keep requests from being sent; nil for none.
	Guard func(http.RoundTripper) http.RoundTripper
	// Now is the clock; time.Now if nil.
	Now func() time.Time

	memory   *memory                                                         // what answers may take
	tenant   string                                                          // the connection's namespace
	clock    *clock.Clock                                                    // GitHub's, ahead of Now
	answered func(class string, status int, header http.Header, fault error) // nil for nobody
	refused  func()                                                          // nil for nobody
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults(parallel int) Options {
	o.Parallel = cmp.Or(o.Parallel, parallel)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	if o.Transport == nil {
		o.Transport = NewTransport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// For returns the options with the network of credentials, which reaches only the connection's servers. GitHub's clock is read from the answers that come by it.
func (o Options) For(creds Credentials) Options {
	if o.memory == nil {
		o.memory = newMemory()
	}
	if o.clock == nil {
		o.clock = clock.New(o.Now, o.Now, nil)
	}
	o.Transport = onlyToOwnHosts(o.clock.Wrap(creds.Network.over(o.Transport)), creds.ConfigURL)
	if o.Guard != nil {
		o.Transport = o.Guard(o.Transport)
	}
	return o
}

// Theirs returns the time by GitHub's clock.
func (o Options) Theirs() time.Time { return o.clock.Now() }

// Ours returns what Now showed at a time by GitHub's clock; the zero time stays what it is.
func (o Options) Ours(theirs time.Time) time.Time {
	if theirs.IsZero() {
		return theirs
	}
	return theirs.Add(-o.clock.Ahead())
}

// DefaultRunnerGroupID is the id of the runner group that always is there.
const DefaultRunnerGroupID = 1

// WorkFolder is where the jobs of a runner work that is to register, by a path or below the runner's own folder; empty for GitHub's default.
func WorkFolder(declared string) string { return cmp.Or(declared, "_work") }

// JIT is the registration of a runner that is yet to start.
type JIT struct {
	// RunnerID on GitHub. The runner is registered, and offline, from now on.
	RunnerID int64
	// Encoded is the runner's --jitconfig: a secret of some 4 KiB.
	Encoded string
}
