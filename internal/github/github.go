// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package github contains what all clients of GitHub share: credentials, connection URLs, errors, the network, and the
// order of calls. Package scaleset implements the runner scale-set protocol, and package rest the REST API. Neither
// imports the other.
package github

import (
	"cmp"
	"net/http"
	"time"

	"github.com/corral-dev/corral/internal/clock"
)

// Options configures a client of GitHub. The zero value has sensible defaults.
type Options struct {
	// Version is Corral's version, which the User-Agent contains.
	Version string
	// Parallel is the maximum number of concurrent calls. If 0, it is 32 for REST calls and 96 for scale-set calls, of
	// which 32 may begin before GitHub has answered any.
	Parallel int
	// Timeout limits a call including its token calls, and also the time that the call waits for its turn; 15 s if 0.
	Timeout time.Duration
	// Transport is the network; NewTransport() if nil. Clients can share it.
	Transport http.RoundTripper
	// Guard wraps the network of each client, so that it can refuse to send requests; nil for none.
	Guard func(http.RoundTripper) http.RoundTripper
	// Now is the clock; time.Now if nil.
	Now func() time.Time

	memory     *memory                                                         // limits the memory for answers
	allowances *allowances                                                     // limits the CPU time for messages
	tenant     string                                                          // the connection's namespace
	clock      *clock.Clock                                                    // GitHub's clock, relative to Now
	answered   func(class string, status int, header http.Header, fault error) // records the result of a call; nil for none
	refused    func()                                                          // records refused credentials; nil for none
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

// For returns the options of a client with these credentials. The client's network uses the connection's proxies and
// certificates, reaches only the connection's servers, and reads GitHub's clock from their answers.
func (o Options) For(creds Credentials) Options {
	if o.memory == nil {
		o.memory = newMemory()
	}
	if o.allowances == nil {
		o.allowances = &allowances{full: map[string]time.Time{}}
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

// Theirs returns the current time by GitHub's clock.
func (o Options) Theirs() time.Time { return o.clock.Now() }

// Ours converts a time of GitHub's clock to Now's clock. It returns the zero time unchanged.
func (o Options) Ours(theirs time.Time) time.Time {
	if theirs.IsZero() {
		return theirs
	}
	return theirs.Add(-o.clock.Ahead())
}

// DefaultRunnerGroupID is the id of the runner group that always exists.
const DefaultRunnerGroupID = 1

// WorkFolder returns the folder for the jobs of a new runner: an absolute path or a path below the runner's own folder.
// An empty declaration means GitHub's default.
func WorkFolder(declared string) string { return cmp.Or(declared, "_work") }

// JIT is the registration of a runner that has not started yet.
type JIT struct {
	// RunnerID is the runner's id on GitHub. The runner is registered and offline.
	RunnerID int64
	// Encoded is the value for the runner's --jitconfig flag: a secret of about 4 KiB.
	Encoded string
}
