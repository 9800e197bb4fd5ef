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

// GitHub is the part of GitHub's API that is used for one connection. rest.Client implements it, within GitHub's limits.
type GitHub interface {
	// Deliveries returns a page of a webhook's deliveries, newest first, and the cursor of the next page; empty if there is
	// none.
	Deliveries(ctx context.Context, hookID int64, cursor string) (page []rest.Delivery, next string, err error)
	// Payload returns the event and the body of a delivery.
	Payload(ctx context.Context, hookID, id int64) (event string, payload []byte, err error)
	// Redeliver makes GitHub send a delivery again.
	Redeliver(ctx context.Context, hookID, id int64) error
	// Jobs returns the jobs of a repository that have not ended.
	Jobs(ctx context.Context, repository string, maxAge time.Duration) (rest.JobList, error)
	// Visible reports whether jobs of a repository may use a runner group.
	Visible(ctx context.Context, group, repository string) (bool, error)
	// InstallationID returns the ID of the App installation of the connection's credentials; 0 for a token.
	InstallationID() int64
}

const (
	// maxSeen is the maximum number of deliveries in each of the two generations that seen remembers.
	maxSeen = 32_768
	// maxViews is the maximum number of cached results of whether a repository may use a runner group, for the pools of a
	// space. maxLookups is the maximum number of lookups that wait, and lookersUp is how many run concurrently.
	maxViews, maxLookups, lookersUp = 20_000, 256, 2
	// viewFor is how long such a result is valid, and viewRetry is the minimum delay after a failed lookup.
	viewFor, viewRetry = 10 * time.Minute, time.Minute
	// maxSuspects is the maximum number of repositories that wait for a comparison with GitHub, for the pools of a space.
	maxSuspects = 1_000
)

// connection is the state of a GitHubConnection. The pools of all namespaces that may use the connection share this state.
type connection struct {
	key types.NamespacedName
	uid types.UID

	mu     sync.Mutex // nothing blocks while it is held
	owner  metav1.OwnerReference
	scope  jobmatch.Scope
	placed bool  // scope is known
	hook   bool  // spec.webhook is set: Corral receives events for the connection
	hookID int64 // 0 for an App's webhook, or if unknown
	// sender is the owner of the webhook that sends the events, and installation the App installation of the credentials.
	sender       sender
	installation int64

	seen       seen
	lookBack   lookBack
	cursor     cursorFile
	backingOff map[string]backingOff // repositories that cannot be compared
}

func newConnection(key types.NamespacedName, uid types.UID, now time.Time) *connection {
	return &connection{key: key, uid: uid, backingOff: map[string]backingOff{}, lookBack: lookBack{since: now}}
}

// do calls f with the lock held.
func (c *connection) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// learn updates the connection from its object.
func (c *connection) learn(obj *v1alpha1.GitHubConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("GitHubConnection"))
	c.owner.BlockOwnerDeletion = nil // true may require permission to update the finalizers
	c.scope, c.placed = jobmatch.ScopeOf(obj.Spec.URL)
	c.hook, c.hookID, c.sender = obj.Spec.Webhook != nil, 0, unknownSender
	if c.hook {
		c.hookID = obj.Spec.Webhook.HookID
	}
}

// isReady reports whether the connection can accept an event. Its scope must be known. For an event outside the scope, it
// must also be known whose webhook sends the events.
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

// isUsable reports whether the connection's scope is known and, if hook is true, whether events are received for it.
func (c *connection) isUsable(hook bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placed && (c.hook || !hook)
}

// sender is the owner of the webhook that sends a connection's events.
type sender int

const (
	unknownSender sender = iota
	ownSender            // the webhook of the repository, organization or enterprise of the connection
	appSender            // the App's webhook, which sends the events of everything on which the App is installed
)

// learnSender determines, from the credentials, whose webhook sends the events.
func (c *connection) learnSender(gh GitHub) {
	c.installation, c.sender = gh.InstallationID(), ownSender
	if c.hookID == 0 && c.installation != 0 {
		c.sender = appSender
	}
}

// covers reports whether the connection's webhook may send events of a repository. The webhook secret of a repository or an
// organization proves that scope only. An App's webhook covers everything on which the App is installed.
func (c *connection) covers(job jobmatch.Job) bool {
	return c.sender == appSender || c.scope.Covers(job)
}

// seen records received deliveries by the hash of their GUID, in two generations, the newer first. When the newer generation
// is full, the older one is dropped. begun is when each generation began.
type seen struct {
	guids [2]map[uint64]struct{}
	begun [2]time.Time
}

// add records a received delivery.
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

// complete reports whether the record still contains all deliveries that this process received at a given time. While there
// is only one generation, it contains all.
func (s *seen) complete(at time.Time) bool {
	return s.begun[1].IsZero() || at.After(s.begun[1].Add(durableLag))
}

// view is the result of looking up whether a repository may use a runner group.
type view struct {
	seen   jobmatch.Visibility
	until  time.Time // when it should be looked up again
	asking bool
}

// lookup is a runner group to look up for a repository, through a connection.
type lookup struct {
	conn              types.NamespacedName
	group, repository string
}

func (l lookup) key() uint64 { return hash(l.conn.Name + "\x00" + l.group + "\x00" + l.repository) }

// visible returns the cached result of whether a repository may use a pool's runner group, which may be Unknown. It queues a
// lookup if there is no recent result. If too many lookups wait, a later event queues it.
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

// lookUp asks GitHub whether a repository may use a runner group. If GitHub does not answer, the previous result stays
// valid.
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
		s.suspect(suspect{l.conn, l.repository}, now) // jobs of the repository may have been assigned to the wrong pool
	}
}

// suspect is a repository whose jobs may be assigned to the wrong pool or missing, and the connection through which this can
// be checked.
type suspect struct {
	conn       types.NamespacedName
	repository string
}

// suspect schedules a comparison of a repository with GitHub, at a time when GitHub's lists have caught up. If too many
// comparisons are scheduled, it does nothing.
func (s *space) suspect(r suspect, now time.Time) {
	if r.repository != "" && len(s.suspects) < maxSuspects {
		s.suspects[r] = now.Add(suspectAfter)
	}
}
