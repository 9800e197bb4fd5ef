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

// Mode says whose GitHub the server behaves as.
type Mode string

const (
	// AutoAssign is github.com: jobs are assigned without being asked for,
	// every runnerRequestId is 0 and acquirejobs answers 404.
	AutoAssign Mode = "auto-assign"
	// Acquire is GitHub Enterprise Server: a job is offered with JobAvailable
	// and assigned once it is acquired.
	Acquire Mode = "acquire"
)

// Options set up a [Server]. The zero value behaves as github.com.
type Options struct {
	// Mode is AutoAssign when empty.
	Mode Mode
	// Address to listen on, for [Start] only; 127.0.0.1 with a free port when empty.
	Address string
	// PublicURL is put into answers that carry URLs. When empty, it is the
	// address by which the caller came.
	PublicURL string
	// Hold is how long a poll is held when nothing happens; 50 s when 0.
	Hold time.Duration
	// SessionExpiry frees a session that nobody polled for so long; 91 s when 0.
	SessionExpiry time.Duration
	// AdminTokenTTL is the life of the Actions service's admin token; 15 min when 0.
	AdminTokenTTL time.Duration
	// QueueTokenTTL is the life of a message queue token; 15 min when 0.
	QueueTokenTTL time.Duration
	// RegistrationTokenTTL is the life of registration tokens and of
	// installation tokens; 1 h when 0.
	RegistrationTokenTTL time.Duration
	// LostAfter is how long a busy runner may be silent until its job fails;
	// 9.5 min when 0.
	LostAfter time.Duration
	// PickupTimeout takes an assigned job back that no runner started in time,
	// three times at most and each time later; never when 0.
	PickupTimeout time.Duration
	// OfflineTTL removes the registration of a runner that the REST API made and that
	// never connected, as github.com does after a day; never when 0.
	OfflineTTL time.Duration
	// FailWithoutRunner fails a job at once when neither a scale set nor a registered
	// runner, online or not, may have it, as releases of GitHub Enterprise Server do.
	FailWithoutRunner bool
	// DeliveryTimeout is how long a webhook's receiver may take to answer; 10 s when 0.
	DeliveryTimeout time.Duration
	// SecondaryPoints is how many points an identity may spend in a minute, one for a GET and
	// five for anything else; github.com's are 900. No such limit when 0.
	SecondaryPoints int
	// Latency is added to every answer but those of the admin API.
	Latency time.Duration
	// RateLimit is the number of REST calls per identity and hour; 5000 when 0.
	RateLimit int
	// SessionOwners names the owner of a session that is in another's way, as github.com did before its broker.
	SessionOwners bool
	// IdleUncounted tells 0 as the number of idle runners, as github.com does at times (actions-runner-controller's issue 3546).
	IdleUncounted bool
	// SingleLabel drops all labels of a scale set but the first, silently, as
	// releases of GitHub Enterprise Server before 3.21 do.
	SingleLabel bool
	// LabelsFixed keeps the labels that a scale set was made with, whatever an update asks for, as some servers are reported to do
	// (actions-runner-controller's issue 4424).
	LabelsFixed bool
	// ServerVersion is told by /meta; "3.21.0" when empty and the mode is
	// Acquire. github.com tells none.
	ServerVersion string
	// RunnerVersion is what runners that connected say they are, "2.331.0" when empty; servers in the mode Acquire tell none.
	RunnerVersion string
	// OldestRunner is the oldest version of runners that gets jobs; any does when empty. Simulated runners tell none.
	OldestRunner string
	// Releases of the runner program that can be listed. None: their repository isn't there, as on GitHub Enterprise Server.
	Releases []Release
	// Seed makes ids, secrets and the probabilities of faults repeatable, but not the signatures of tokens.
	Seed uint64
	// Clock is time.Now when nil. It decides on expiry, and is the date of answers, only; holds and delays
	// take real time.
	Clock func() time.Time
}

// Release of the runner program.
type Release struct {
	// Version as 2.331.0.
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

// Server is the simulated GitHub. It is an [http.Handler]; all methods may be
// called from any goroutine.
type Server struct {
	opts    Options
	handler http.Handler
	// patterns are those of the REST API.
	patterns []string
	done     chan struct{}
	close    sync.Once
	signKey  []byte
	address  string // that it listens on, when it does

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
	idle       time.Duration // that runners were idle, those that still are not counted
}

// New makes a server that knows nobody and nothing yet. End it with [Server.Close].
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
	s.signKey = []byte(cryptorand.Text()) // whatever the seed: a GitHub that gets the address of a former one must refuse its tokens
	s.handler = s.routes()
	return s
}

// ServeHTTP answers GitHub's paths, the runners' and the admin API's.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	s.handler.ServeHTTP(w, r)
}

// Close ends held polls and stops the timer. Calls after it are still answered.
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

// secret gives n random bytes in a form that fits a header.
func (s *Server) secret(n int) string {
	b := make([]byte, n)
	_, _ = s.rng.Read(b) // never errs
	return fmt.Sprintf("%x", b)
}

// newID gives a random GUID.
func (s *Server) newID() string {
	var id uuid.UUID
	_, _ = s.rng.Read(id[:]) // never errs
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// baseURL is where the caller of r, and whoever it hands a URL to, finds the server.
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
	// URL is the server's base, without a slash at the end.
	URL  string
	http *http.Server
}

// Start makes a server and lets it listen on opts.Address.
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
		http:   &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second},
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
	_ = r.http.Close() // the listener is gone either way
}
