// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/sim/githubsim"
)

// identities returns credentials that the bench's GitHub accepts.
func (b *bench) identities() map[string]github.Credentials {
	b.t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(b.t, err)
	b.github.AddToken("t2")
	b.github.AddApp(githubsim.App{
		ID: 7, InstallationID: 70, PublicKey: &private.PublicKey, Account: "acme", Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	return map[string]github.Credentials{
		"t": {Token: "t"}, "t2": {Token: "t2"}, "app": {App: &github.App{ID: "7", InstallationID: 70, PrivateKey: encoded}},
	}
}

// use makes the bench's controllers use other credentials.
func (b *bench) use(creds github.Credentials) {
	b.t.Helper()
	creds.ConfigURL = b.github.ConfigURL("acme")
	gh, err := scaleset.NewClient(creds, github.Options{})
	must(b.t, err)
	b.Clients.(*registry).client = gh
}

// crash kills a bench's controller, and starts another process.
func (b *bench) crash(lost *atomic.Bool, next leads) {
	b.t.Helper()
	lost.Store(true)
	b.Sessions.cancel()
	for _, x := range b.Sessions.running {
		<-x.done
	}
	b.Sessions = NewSessions(next)
	must(b.t, b.Sessions.States.Start(b.t.Context(), b.queue))
}

// A process resumes the session of the previous one, whatever credentials the connection has by then, because the seal of
// its ID uses the key of all leaders.
func TestASessionOutlivesTheCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		sealed, key   string // of the previous leader, and now
		before, after string
		down          time.Duration // since the previous leader was last alive
		resumed       bool
	}{
		"another token":                   {sealed: "k", key: "k", before: "t", after: "t2", resumed: true},
		"a token becomes an App":          {sealed: "k", key: "k", before: "t", after: "app", resumed: true},
		"an App becomes a token":          {sealed: "k", key: "k", before: "app", after: "t", resumed: true},
		"the same token":                  {sealed: "k", key: "k", before: "t", after: "t", resumed: true},
		"after an upgrade":                {sealed: "", key: "k", before: "t", after: "t", resumed: true},
		"without an election":             {before: "t", after: "t", resumed: true},
		"the key is another":              {sealed: "k", key: "other", before: "t", after: "t2"},
		"the leader was lost long before": {sealed: "k", key: "k", before: "t", after: "t2", down: scaleset.SessionLife},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			identities, lost := b.identities(), &atomic.Bool{}
			b.use(identities[tc.before])
			b.Sessions = NewSessions(leads{former: b.clock.Now(), key: tc.sealed, lost: lost})
			must(t, b.Sessions.States.Start(t.Context(), b.queue))
			before := b.settle(ready).Status.SessionID
			b.use(identities[tc.after])
			b.crash(lost, leads{former: b.clock.Now().Add(-tc.down), key: tc.key})
			if !tc.resumed {
				b.settle(stalled)
				if n := b.github.Report().Requests[githubsim.EndpointRefreshSession]; n != 0 {
					t.Errorf("%d attempts to resume", n)
				}
				return
			}
			after := b.settle(func(s *v1alpha1.RunnerScaleSet) bool {
				session, _ := b.Sessions.Snapshot(key)
				return ready(s) && session.State == scaleset.Listening && strings.HasPrefix(s.Status.SessionID, session.Session)
			}).Status.SessionID
			if id, _, _ := strings.Cut(before, "."); !strings.HasPrefix(after, id) || tc.sealed == tc.key && after != before {
				t.Errorf("the session was %s and is %s", before, after)
			}
		})
	}
}

// Credentials are replaced again before a session is open with the ones that replaced the first.
func TestCredentialsThatAreReplacedTwice(t *testing.T) {
	b := newBench(t)
	identities := b.identities()
	before := b.settle(ready).Status.SessionID
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteSession, Status: 401}) // the first ones are revoked
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRefreshSession, Status: 503})
	b.use(identities["t2"])
	b.settle(func(s *v1alpha1.RunnerScaleSet) bool {
		return conditions.GetReason(s, v1alpha1.ReadyCondition) == v1alpha1.SessionRefusedReason
	})
	b.use(identities["app"])
	b.reconcile()
	b.github.ClearFaults()
	after := b.settle(func(s *v1alpha1.RunnerScaleSet) bool {
		session, _ := b.Sessions.Snapshot(key)
		return ready(s) && session.State == scaleset.Listening && strings.HasPrefix(s.Status.SessionID, session.Session)
	}).Status.SessionID
	if id, _, _ := strings.Cut(before, "."); !strings.HasPrefix(after, id) {
		t.Errorf("the session was %s and is %s", before, after)
	}
}
