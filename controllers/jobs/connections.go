// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// Visible says whether jobs of a repository may use a runner group.
	Visible(ctx context.Context, group, repository string) (bool, error)
	// InstallationID of the App whose credentials the connection has; 0 with a token.
	InstallationID() int64
}

const (
	// maxSeen is how many deliveries of a connection are remembered twice over.
	maxSeen = 32_768
	// maxViews is of how many repositories of a connection it is remembered which groups they may use; maxLooks is how many wait to be looked
	// up, by lookers.
	maxViews, maxLooks, lookers = 20_000, 256, 2
	// viewFor is how long that is believed, and doubtFor how long it isn't asked again after a failure.
	viewFor, viewRetry = 10 * time.Minute, time.Minute
	// maxSuspects is how many repositories wait to be compared with GitHub.
	maxSuspects = 1_000
)

// connection is what a Desk knows of a GitHubConnection.
type connection struct {
	key    types.NamespacedName
	owner  metav1.OwnerReference
	scope  jobmatch.Scope
	placed bool // scope is known
	hook   bool // events come in for it
	hookID int64
	// speaker is who sends the events, and installation the App's that the credentials are of.
	speaker      speaker
	installation int64

	// seen are deliveries that were taken in, by their GUID's hash, the newer and the older half; begun is when each was.
	seen  [2]map[uint64]struct{}
	begun [2]time.Time

	cursor     cursor
	inherited  cursor // of the process before
	cursorRead bool
	version    string       // of the cursor's ConfigMap
	written    cursor       // last
	writtenAt  time.Time    // when
	relevant   time.Time    // when an event last told something new
	since      time.Time    // when this process began to lead
	passed     [2]time.Time // begin and end of the last look at all deliveries
	pages      int          // that it had
	found      int          // how many lost ones it found

	catching, writing, comparing errand
	views                        map[uint64]view
	looks                        []look               // to come
	looking                      int                  // lookers at work
	suspects                     map[string]time.Time // repositories to compare, and when
	shunned                      map[string]shunned   // repositories that can't be compared
}

// speaker is whose webhook a connection's events come from.
type speaker int

const (
	unknownSpeaker speaker = iota
	ownSpeaker             // that of what the connection is for: its repository's, organization's or enterprise's
	appSpeaker             // the App's, which tells of all that it is installed on
)

// learn finds out who speaks, from the credentials.
func (c *connection) learn(gh GitHub) {
	c.installation, c.speaker = gh.InstallationID(), ownSpeaker
	if c.hookID == 0 && c.installation != 0 {
		c.speaker = appSpeaker
	}
}

// errand is something that is done now and then, and not twice at once.
type errand struct {
	busy    bool
	next    time.Time
	failed  int
	trouble string // told last
}

func (e *errand) due(now time.Time) bool { return !e.busy && !now.Before(e.next) }

// jittered is a time that isn't the same for all.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1)) //nolint:gosec // it guards nothing
}

// view is whether a repository may use a runner group.
type view struct {
	seen   jobmatch.Visibility
	until  time.Time // when it is to be looked up again
	asking bool
}

// look is a runner group to look up.
type look struct{ group, repository string }

// meetConnection makes a connection known, or what changed of it.
func (k *Desk) meetConnection(obj *v1alpha1.GitHubConnection) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.conns[key]
	if c == nil || c.owner.UID != obj.UID {
		c = &connection{key: key, views: map[uint64]view{}, suspects: map[string]time.Time{}, shunned: map[string]shunned{}}
		k.conns[key] = c
		if k.leading {
			c.leading(k.Now())
		}
	}
	c.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("GitHubConnection"))
	c.owner.BlockOwnerDeletion = nil // that would take a right on the connection's finalizers, where such rights are enforced
	c.scope, c.placed = jobmatch.ScopeOf(obj.Spec.URL)
	c.hook, c.hookID, c.speaker = obj.Spec.Webhook != nil, 0, unknownSpeaker
	if c.hook {
		c.hookID = obj.Spec.Webhook.HookID
	}
	k.replace(key)
}

// replace places the pools of a connection anew.
func (k *Desk) replace(conn types.NamespacedName) {
	k.space(spaceKey{conn.Namespace, conn.Namespace})
	for _, p := range k.pools {
		if p.conn != conn {
			continue
		}
		was := p.placed
		if k.place(p); p.placed && !was {
			k.enlist(p)
		}
	}
	for _, s := range k.spacesOf(conn.Namespace) {
		s.order(k.pools)
		k.claimAll(s, k.Now())
		k.desert(s)
	}
}

// forgetConnection drops a connection that is gone.
func (k *Desk) forgetConnection(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, key)
	k.replace(key)
}

func (c *connection) leading(now time.Time) { c.since = now }

// know remembers a delivery that was taken in.
func (c *connection) know(guid string, now time.Time) {
	if c.seen[0] == nil || len(c.seen[0]) >= maxSeen {
		c.seen[0], c.seen[1] = map[uint64]struct{}{}, c.seen[0]
		c.begun[0], c.begun[1] = now, c.begun[0]
	}
	c.seen[0][hash(guid)] = struct{}{}
}

func (c *connection) knows(guid string) bool {
	h := hash(guid)
	_, newer := c.seen[0][h]
	_, older := c.seen[1][h]
	return newer || older
}

// remembers says whether all deliveries of a time, which this process took in, are still known. Before the first there was none.
func (c *connection) remembers(at time.Time) bool {
	return c.begun[1].IsZero() || at.After(c.begun[1].Add(durableLag))
}

// attendConnection does what is due of a connection.
func (k *Desk) attendConnection(ctx context.Context, c *connection, now time.Time) {
	if !c.placed {
		return
	}
	if c.hook && c.catching.due(now) {
		c.catching.busy = true
		k.work.Go(func() { k.catchUp(ctx, c) })
	}
	if c.hook && c.writing.due(now) && c.advance(k.durable(c.key.Namespace), now) {
		c.writing.busy = true
		k.work.Go(func() { k.writeCursor(ctx, c) })
	}
	if c.comparing.due(now) {
		c.comparing.next = now.Add(jittered(compareInterval))
		if repositories := k.doubtful(c, now); len(repositories) > 0 {
			c.comparing.busy = true
			k.work.Go(func() { k.compare(ctx, c, repositories) })
		}
	}
}

// visible says whether a repository may use a pool's runner group, as far as that is known. What isn't is looked up.
func (k *Desk) visible(p *pool, repository string) jobmatch.Visibility {
	c := k.conns[p.conn]
	if p.any.Scope.Kind == jobmatch.Repository || c == nil {
		return jobmatch.Visible
	}
	key, now := hash(p.any.Group+"\x00"+repository), k.Now()
	v, known := c.views[key]
	if !v.asking && !now.Before(v.until) {
		v.asking = k.lookFor(c, look{group: p.any.Group, repository: repository})
		if !known && len(c.views) >= maxViews {
			clear(c.views)
		}
		c.views[key] = v
	}
	return v.seen
}

// lookFor has a group looked up; false if too many wait for it. Then it is asked for with the next event.
func (k *Desk) lookFor(c *connection, l look) bool {
	if len(c.looks) >= maxLooks || k.ctx == nil {
		return false
	}
	c.looks = append(c.looks, l)
	if c.looking < lookers {
		c.looking++
		k.work.Go(func() { k.lookUp(k.ctx, c) })
	}
	return true
}

// lookUp looks up which repositories may use which groups, until nobody asks.
func (k *Desk) lookUp(ctx context.Context, c *connection) {
	for {
		k.mu.Lock()
		if len(c.looks) == 0 || ctx.Err() != nil {
			c.looking--
			k.mu.Unlock()
			return
		}
		l := c.looks[0]
		c.looks = c.looks[1:]
		k.mu.Unlock()
		k.see(ctx, c, l)
	}
}

func (k *Desk) see(ctx context.Context, c *connection, l look) {
	v := view{until: k.Now().Add(viewRetry)}
	if gh, ok := k.GitHub(c.key); ok {
		ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
		defer cancel()
		switch visible, err := gh.Visible(ctx, l.group, l.repository); {
		case err != nil:
		case visible:
			v = view{seen: jobmatch.Visible, until: k.Now().Add(jittered(viewFor))}
		default:
			v = view{seen: jobmatch.Hidden, until: k.Now().Add(jittered(viewFor))}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := hash(l.group + "\x00" + l.repository)
	before := c.views[key]
	if v.seen == jobmatch.Unknown {
		v.seen = before.seen // what was known holds
	}
	c.views[key] = v
	if v.seen == jobmatch.Hidden && before.seen != v.seen {
		c.suspect(l.repository, k.Now()) // jobs may have been given to the wrong pool
	}
}

// suspect has a repository compared with GitHub, when its lists have caught up.
func (c *connection) suspect(repository string, now time.Time) {
	if repository != "" && len(c.suspects) < maxSuspects {
		c.suspects[repository] = now.Add(suspectAfter)
	}
}

func (k *Desk) suspect(p *pool, repository string) {
	if c := k.conns[p.conn]; c != nil {
		c.suspect(repository, k.Now())
	}
}

// suspectAll has all repositories of a pool's jobs compared with GitHub.
func (k *Desk) suspectAll(p *pool) {
	for _, repository := range p.ledger.Doubtful(k.Now().Add(time.Minute), time.Time{}, maxSuspects) {
		k.suspect(p, repository)
	}
}
