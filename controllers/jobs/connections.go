// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
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
	// maxViews is for how many repositories of a connection it is remembered which groups they may use; maxLookups is how many wait to be
	// looked up, lookersUp at once.
	maxViews, maxLookups, lookersUp = 20_000, 256, 2
	// viewFor is how long that is believed, and viewRetry how long it isn't asked again after a failure.
	viewFor, viewRetry = 10 * time.Minute, time.Minute
	// maxSuspects is how many repositories wait to be compared with GitHub.
	maxSuspects = 1_000
)

// connection is what the account knows of a GitHubConnection.
type connection struct {
	key    types.NamespacedName
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
	views      map[uint64]view
	lookups    []lookup              // to come
	suspects   map[string]time.Time  // repositories to compare with GitHub, and when
	backingOff map[string]backingOff // repositories that can't be compared
}

func newConnection(key types.NamespacedName, now time.Time) *connection {
	return &connection{
		key: key, views: map[uint64]view{}, suspects: map[string]time.Time{}, backingOff: map[string]backingOff{}, lookBack: lookBack{since: now},
	}
}

// learn takes over what the object says.
func (c *connection) learn(obj *v1alpha1.GitHubConnection) {
	c.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("GitHubConnection"))
	c.owner.BlockOwnerDeletion = nil // that would take a right on the connection's finalizers, where such rights are enforced
	c.scope, c.placed = jobmatch.ScopeOf(obj.Spec.URL)
	c.hook, c.hookID, c.sender = obj.Spec.Webhook != nil, 0, unknownSender
	if c.hook {
		c.hookID = obj.Spec.Webhook.HookID
	}
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

// lookup is a runner group to look up for a repository.
type lookup struct{ group, repository string }

func (l lookup) key() uint64 { return hash(l.group + "\x00" + l.repository) }

// visible returns whether a repository may use a pool's runner group, as far as that is known. What isn't is looked up, unless too many
// wait for it: then the next event asks for it.
func (a *account) visible(p *pool, repository string, now time.Time) jobmatch.Visibility {
	c := a.conns[p.conn]
	if p.any.Scope.Kind == jobmatch.Repository || c == nil {
		return jobmatch.Visible
	}
	l := lookup{group: p.any.Group, repository: repository}
	v, known := c.views[l.key()]
	if !v.asking && !now.Before(v.until) {
		if v.asking = len(c.lookups) < maxLookups; v.asking {
			c.lookups = append(c.lookups, l)
			a.pending.lookUp = append(a.pending.lookUp, c.key)
		}
		if !known && len(c.views) >= maxViews {
			clear(c.views)
		}
		c.views[l.key()] = v
	}
	return v.seen
}

// reconcileGroups looks up which repositories may use which runner groups of a connection.
func (k *JobTracker) reconcileGroups(ctx context.Context, c *connection) (reconcile.Result, error) {
	k.mu.Lock()
	due := c.lookups
	c.lookups = nil
	k.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(lookersUp)
	for _, l := range due {
		g.Go(func() error {
			k.lookUp(ctx, c, l)
			return nil
		})
	}
	return reconcile.Result{}, g.Wait()
}

// lookUp finds out whether a repository may use a runner group. What was known holds if GitHub doesn't say.
func (k *JobTracker) lookUp(ctx context.Context, c *connection, l lookup) {
	visible, err := false, errNotReady
	if gh, ok := k.GitHub(c.key); ok {
		ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
		defer cancel()
		visible, err = gh.Visible(ctx, l.group, l.repository)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, before := k.Now(), c.views[l.key()]
	v := view{seen: jobmatch.Hidden, until: now.Add(after(viewFor).RequeueAfter)}
	switch {
	case err != nil:
		v = view{seen: before.seen, until: now.Add(viewRetry)}
	case visible:
		v.seen = jobmatch.Visible
	}
	c.views[l.key()] = v
	if v.seen == jobmatch.Hidden && before.seen != v.seen {
		c.suspect(l.repository, now) // jobs may have been given to the wrong pool
	}
}

// suspect has a repository compared with GitHub, when its lists have caught up.
func (c *connection) suspect(repository string, now time.Time) {
	if repository != "" && len(c.suspects) < maxSuspects {
		c.suspects[repository] = now.Add(suspectAfter)
	}
}

func (a *account) suspect(p *pool, repository string, now time.Time) {
	if c := a.conns[p.conn]; c != nil {
		c.suspect(repository, now)
	}
}
