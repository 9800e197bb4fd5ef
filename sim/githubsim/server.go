// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Mode is the kind of GitHub that the server simulates.
type Mode string

const (
	// AutoAssign is github.com: jobs are assigned without a request, every runnerRequestId is 0, and acquirejobs
	// answers 404.
	AutoAssign Mode = "auto-assign"
	// Acquire is GitHub Enterprise Server: a job is offered with JobAvailable and assigned once it is acquired.
	Acquire Mode = "acquire"
)

// Options configures a [Server]. The zero value simulates github.com.
type Options struct {
	// Mode is AutoAssign if empty.
	Mode Mode
	// Address to listen on, for [Start] only; 127.0.0.1 with a free port if empty.
	Address string
	// PublicURL is the base of URLs in answers. If empty, it is the address that the caller used.
	PublicURL string
	// Hold is how long a poll is held if nothing happens; 50 s if 0.
	Hold time.Duration
	// SessionExpiry is the time without polls after which a session ends; 91 s if 0.
	SessionExpiry time.Duration
	// AdminTokenTTL is the lifetime of the Actions service's admin token; 15 min if 0.
	AdminTokenTTL time.Duration
	// QueueTokenTTL is the lifetime of a message queue token; 15 min if 0.
	QueueTokenTTL time.Duration
	// RegistrationTokenTTL is the lifetime of registration tokens and of installation tokens; 1 h if 0.
	RegistrationTokenTTL time.Duration
	// LostAfter is how long a busy runner may be silent before its job fails; 9.5 min if 0.
	LostAfter time.Duration
	// PickupTimeout is the time within which a runner must start an assigned job. Otherwise the job returns to the
	// queue, three times at most and later each time; never if 0.
	PickupTimeout time.Duration
	// OfflineTTL is the time after which the registration of a runner from the REST API that never connected is
	// removed, as github.com does after a day; never if 0.
	OfflineTTL time.Duration
	// FailWithoutRunner fails a job at once if neither a scale set nor a registered runner, online or not, may have it,
	// as some releases of GitHub Enterprise Server do.
	FailWithoutRunner bool
	// DeliveryTimeout is how long a webhook's receiver may take to answer; 10 s if 0.
	DeliveryTimeout time.Duration
	// SecondaryPoints is how many points an identity may spend per minute, one for a GET and five for anything else;
	// 900 on github.com. No limit if 0.
	SecondaryPoints int
	// Latency is added to every response, except in the admin API.
	Latency time.Duration
	// RateLimit is the number of REST calls per identity and hour; 5000 if 0.
	RateLimit int
	// SessionOwners names the owner of a conflicting session, as github.com did before its broker.
	SessionOwners bool
	// IdleUncounted reports 0 idle runners, as github.com sometimes does (actions-runner-controller's issue 3546).
	IdleUncounted bool
	// SingleLabel silently drops all labels of a scale set but the first, as releases of GitHub Enterprise Server
	// before 3.21 do.
	SingleLabel bool
	// LabelsFixed ignores changes of a scale set's labels, as reported for some servers (actions-runner-controller's
	// issue 4424).
	LabelsFixed bool
	// ServerVersion is returned by /meta; "3.21.0" if empty and the mode is Acquire. github.com returns none.
	ServerVersion string
	// RunnerVersion is the reported version of connected runners, "2.331.0" if empty; servers in mode Acquire report
	// none.
	RunnerVersion string
	// OldestRunner is the oldest runner version that gets jobs; any if empty. Simulated runners send no version.
	OldestRunner string
	// Releases of the runner program that can be listed. If empty, their repository does not exist, as on GitHub
	// Enterprise Server.
	Releases []Release
	// Seed makes ids, secrets and the probabilities of faults reproducible, but not the signatures of tokens.
	Seed uint64
	// Clock is the clock; time.Now if nil. It only determines expiry and the date of answers; holds and delays take
	// real time.
	Clock func() time.Time
}

// Release of the runner program.
type Release struct {
	// Version, for example 2.331.0.
	Version   string
	Published time.Time
}

func (o *Options) setDefaults() {
	orElse := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	orElse(&o.Hold, 50*time.Second)
	orElse(&o.SessionExpiry, 91*time.Second)
	orElse(&o.AdminTokenTTL, 15*time.Minute)
	orElse(&o.QueueTokenTTL, 15*time.Minute)
	orElse(&o.RegistrationTokenTTL, time.Hour)
	orElse(&o.DeliveryTimeout, 10*time.Second)
	orElse(&o.LostAfter, 9*time.Minute+30*time.Second)
	if o.Mode == "" {
		o.Mode = AutoAssign
	}
	if o.RateLimit == 0 {
		o.RateLimit = 5000
	}
	if o.ServerVersion == "" && o.Mode == Acquire {
		o.ServerVersion = "3.21.0"
	}
	if o.RunnerVersion == "" && o.Mode == AutoAssign {
		o.RunnerVersion = "2.331.0"
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
}

// Server is the simulated GitHub. It is an [http.Handler]; all methods are safe for concurrent use.
type Server struct {
	opts    Options
	handler http.Handler
	// patterns are the paths of the REST API.
	patterns []string
	done     chan struct{}
	close    sync.Once
	signKey  []byte
	address  string // that it listens on, if it does

	sending                    context.Context // of webhooks; ends with Close
	stopSending                context.CancelFunc
	hookClient, insecureClient *http.Client

	mu        sync.Mutex // guards everything below
	rng       *rand.ChaCha8
	deadlines deadlineHeap
	timer     *time.Timer
	changed   chan struct{}

	began      time.Time // by the clock
	world      world
	identities identities
	commits    commits
	scaleSets  scaleSetIndex
	runners    runnerIndex
	jobs       jobIndex
	faults     faultList
	hooks      hookIndex
	excused    map[string]bool // runners by name
	requests   map[Endpoint]int
	broken     []string
	made       int           // runners ever registered
	idle       time.Duration // of runners, without current idle periods
}

// New returns an empty server. The caller must call [Server.Close].
func New(opts Options) *Server {
	opts.setDefaults()
	var seed [32]byte
	for i := range 8 {
		seed[i] = byte(opts.Seed >> (8 * i))
	}
	s := &Server{
		opts:       opts,
		done:       make(chan struct{}),
		rng:        rand.NewChaCha8(seed),
		changed:    make(chan struct{}),
		began:      opts.Clock(),
		world:      newWorld(),
		identities: newIdentities(),
		commits:    newCommits(),
		scaleSets:  newScaleSetIndex(),
		runners:    newRunnerIndex(),
		jobs:       newJobIndex(),
		requests:   map[Endpoint]int{},
		excused:    map[string]bool{},
		faults:     faultList{random: rand.New(rand.NewPCG(opts.Seed, 1))},
	}
	s.sending, s.stopSending = context.WithCancel(context.Background())
	s.hookClient, s.insecureClient = newHookClients()
	s.signKey = []byte(cryptorand.Text()) // independent of the seed: a GitHub with the address of a previous one must refuse its tokens
	s.handler = s.routes()
	return s
}

// ServeHTTP serves GitHub's, the runners' and the admin API's paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	s.handler.ServeHTTP(w, r)
}

// Close ends held polls and stops the timer. Later calls are still answered.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.done)
		s.stopSending()
		s.hookClient.CloseIdleConnections()
		s.insecureClient.CloseIdleConnections()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// secret returns n random bytes in a form that fits a header.
func (s *Server) secret(n int) string {
	b := make([]byte, n)
	_, _ = s.rng.Read(b) // never fails
	return fmt.Sprintf("%x", b)
}

// newID returns a random GUID.
func (s *Server) newID() string {
	var id uuid.UUID
	_, _ = s.rng.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// baseURL returns the server's address from the caller's point of view.
func (s *Server) baseURL(r *http.Request) string {
	switch {
	case s.opts.PublicURL != "":
		return s.opts.PublicURL
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// Running is a server that listens.
type Running struct {
	*Server
	// URL is the server's base URL, without a trailing slash.
	URL  string
	http *http.Server
}

// Start creates a server that listens on opts.Address.
func Start(opts Options) (*Running, error) {
	address := opts.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	s := New(opts)
	s.address = "http://" + listener.Addr().String()
	r := &Running{
		Server: s,
		URL:    s.address,
		// Clients use a connection long after they opened it, if another one was free first. On a busy machine that takes seconds.
		http: &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Minute},
	}
	if s.opts.PublicURL != "" {
		r.URL = s.opts.PublicURL
	}
	go func() { _ = r.http.Serve(listener) }() // ends with Close, always with an error
	return r, nil
}

// ConfigURL is the URL of an organization ("acme"), a repository ("acme/app")
// or an enterprise ("enterprises/acme").
func (r *Running) ConfigURL(path string) string { return r.URL + "/" + path }

// Close ends held polls and every connection.
func (r *Running) Close() {
	r.Server.Close()
	_ = r.http.Close() // the listener is closed either way
}
