// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/webhook"
)

// GitHub is what is asked of GitHub for one connection. rest.Client does it, within GitHub's limits.
type GitHub interface {
	// Deliveries returns a page of the deliveries of a webhook, newest first, and where the next begins; "" if there is none.
	Deliveries(ctx context.Context, hookID int64, cursor string) (page []rest.Delivery, next string, err error)
	// Payload returns the event and the body of a delivery.
	Payload(ctx context.Context, hookID, id int64) (event string, payload []byte, err error)
	// Redeliver has GitHub send a delivery again.
	Redeliver(ctx context.Context, hookID, id int64) error
	// Jobs returns the jobs of a repository that haven't ended.
	Jobs(ctx context.Context, repository string, maxAge time.Duration) (rest.JobList, error)
	// Visible reports whether jobs of a repository may use a runner group.
	Visible(ctx context.Context, group, repository string) (bool, error)
	// InstallationID of the App whose credentials the connection has; 0 with a token.
	InstallationID() int64
}

const (
	// maxSeen is how many deliveries of a connection are remembered twice over.
	maxSeen = 32_768
	// maxViews is for how many repositories it is remembered which groups a namespace's pools may use; maxLookups is how many wait to be
	// looked up, lookersUp at once.
	maxViews, maxLookups, lookersUp = 20_000, 256, 2
	// viewFor is how long that is believed, and viewRetry how long it isn't asked again after a failure.
	viewFor, viewRetry = 10 * time.Minute, time.Minute
	// maxSuspects is how many repositories of a namespace's pools wait to be compared with GitHub.
	maxSuspects = 1_000
)

// connection is what is known of a GitHubConnection. Namespaces that may use it share what it remembers.
type connection struct {
	key types.NamespacedName
	uid types.UID

	mu     sync.Mutex // whoever holds it waits for nothing
	owner  metav1.OwnerReference
	scope  jobmatch.Scope
	placed bool  // scope is known
	hook   bool  // events come in for it
	hookID int64 // 0 for an App's webhook, or if it isn't known
	// sender is whose webhook sends the events, and installation the App's that the credentials are of.
	sender       sender
	installation int64

	seen       seen
	lookBack   lookBack
	cursor     cursorFile
	backingOff map[string]backingOff // repositories that can't be compared
}

func newConnection(key types.NamespacedName, uid types.UID, now time.Time) *connection {
	return &connection{key: key, uid: uid, backingOff: map[string]backingOff{}, lookBack: lookBack{since: now}}
}

// do calls f with the lock.
func (c *connection) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// learn takes over what the object says.
func (c *connection) learn(obj *v1alpha1.GitHubConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("GitHubConnection"))
	c.owner.BlockOwnerDeletion = nil // that would take a right on the connection's finalizers, where such rights are enforced
	c.scope, c.placed = jobmatch.ScopeOf(obj.Spec.URL)
	c.hook, c.hookID, c.sender = obj.Spec.Webhook != nil, 0, unknownSender
	if c.hook {
		c.hookID = obj.Spec.Webhook.HookID
	}
}

// isReady reports whether it is known what the connection is for and, for an event of what it isn't for, whose webhook sent it.
func (c *connection) isReady(d webhook.Delivery, github func(types.NamespacedName) (GitHub, bool)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sender == unknownSender && !c.scope.Covers(c.jobOf(d)) {
		gh, ok := github(c.key)
		if !ok {
			return false
		}
		c.learnSender(gh)
	}
	return c.placed
}

// isUsable reports whether it is known what the connection is for and, if asked, whether events come in for it.
func (c *connection) isUsable(hook bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placed && (c.hook || !hook)
}

// sender is whose webhook a connection's events come from.
type sender int

const (
	unknownSender sender = iota
	ownSender            // that of what the connection is for: its repository's, organization's or enterprise's
	appSender            // the App's, which sends the events of all that it is installed on
)

// learnSender finds out who sends the events, from the credentials.
func (c *connection) learnSender(gh GitHub) {
	c.installation, c.sender = gh.InstallationID(), ownSender
	if c.hookID == 0 && c.installation != 0 {
		c.sender = appSender
	}
}

// covers reports whether the connection's webhook may send events of a repository. A webhook secret of a repository or an organization
// proves that scope only. An App's webhook covers all that the App is installed on.
func (c *connection) covers(job jobmatch.Job) bool {
	return c.sender == appSender || c.scope.Covers(job)
}

// seen are deliveries that were taken in, by their GUID's hash, the newer and the older half; begun is when each was.
type seen struct {
	guids [2]map[uint64]struct{}
	begun [2]time.Time
}

// add remembers a delivery that was taken in.
func (s *seen) add(guid string, now time.Time) {
	if s.guids[0] == nil || len(s.guids[0]) >= maxSeen {
		s.guids[0], s.guids[1] = map[uint64]struct{}{}, s.guids[0]
		s.begun[0], s.begun[1] = now, s.begun[0]
	}
	s.guids[0][hash(guid)] = struct{}{}
}

func (s *seen) has(guid string) bool {
	h := hash(guid)
	_, newer := s.guids[0][h]
	_, older := s.guids[1][h]
	return newer || older
}

// complete reports whether all deliveries of a time, which this process took in, are still known. Before the first there was none.
func (s *seen) complete(at time.Time) bool {
	return s.begun[1].IsZero() || at.After(s.begun[1].Add(durableLag))
}

// view is whether a repository may use a runner group.
type view struct {
	seen   jobmatch.Visibility
	until  time.Time // when it is to be looked up again
	asking bool
}

// lookup is a runner group to look up for a repository, by a connection.
type lookup struct {
	conn              types.NamespacedName
	group, repository string
}

func (l lookup) key() uint64 { return hash(l.conn.Name + "\x00" + l.group + "\x00" + l.repository) }

// visible returns whether a repository may use a pool's runner group, as far as that is known. What isn't is looked up, unless too many
// wait for it: then the next event asks for it.
func (s *space) visible(p *pool, repository string, now time.Time) jobmatch.Visibility {
	if p.now.match.Scope.Kind == jobmatch.Repository {
		return jobmatch.Visible
	}
	l := lookup{conn: p.conn, group: p.now.match.Group, repository: repository}
	v, known := s.views[l.key()]
	if !v.asking && !now.Before(v.until) {
		if v.asking = len(s.lookups) < maxLookups; v.asking {
			s.lookups = append(s.lookups, l)
			s.tracker.workers.groups.add(s.key())
		}
		if !known && len(s.views) >= maxViews {
			clear(s.views)
		}
		s.views[l.key()] = v
	}
	return v.seen
}

// reconcileGroups looks up which repositories may use which runner groups, for the pools of a space.
func (k *JobTracker) reconcileGroups(ctx context.Context, s *space) (reconcile.Result, error) {
	s.mu.Lock()
	due := s.lookups
	s.lookups = nil
	s.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(lookersUp)
	for _, l := range due {
		g.Go(func() error {
			k.lookUp(ctx, s, l)
			return nil
		})
	}
	return reconcile.Result{}, g.Wait()
}

// lookUp finds out whether a repository may use a runner group. What was known holds if GitHub doesn't say.
func (k *JobTracker) lookUp(ctx context.Context, s *space, l lookup) {
	visible, err := false, errNotReady
	if gh, ok := k.GitHub(l.conn); ok {
		ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
		defer cancel()
		visible, err = gh.Visible(ctx, l.group, l.repository)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, before := k.Now(), s.views[l.key()]
	v := view{seen: jobmatch.Hidden, until: now.Add(after(viewFor).RequeueAfter)}
	switch {
	case err != nil:
		v = view{seen: before.seen, until: now.Add(viewRetry)}
	case visible:
		v.seen = jobmatch.Visible
	}
	s.views[l.key()] = v
	if v.seen == jobmatch.Hidden && before.seen != v.seen {
		s.suspect(suspect{l.conn, l.repository}, now) // jobs may have been given to the wrong pool
	}
}

// suspect is a repository whose jobs may be with the wrong pool, and the connection by which to find out.
type suspect struct {
	conn       types.NamespacedName
	repository string
}

// suspect has a repository compared with GitHub, when its lists have caught up.
func (s *space) suspect(r suspect, now time.Time) {
	if r.repository != "" && len(s.suspects) < maxSuspects {
		s.suspects[r] = now.Add(suspectAfter)
	}
}
