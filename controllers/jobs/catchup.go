// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/webhook"
)

// GitHub never sends an event twice by itself. So a JobTracker lists the deliveries of each webhook now and then, and reads those that failed
// or that it doesn't know: somebody between GitHub and here may have accepted them. After a start it reads those too that the process
// before had taken in and may not have written down.
const (
	// catchInterval is the time between two looks at a webhook's deliveries, and catchMost where there are many: a look takes a call for each
	// hundred, for which it is perPage later.
	catchInterval, catchMost, perPage = time.Minute, 5 * time.Minute, 6 * time.Second
	// troubled is that time after a look that found some lost: likely there are more to come.
	troubled = 15 * time.Second
	// noClient is when a connection is looked at again that isn't ready.
	noClient = 5 * time.Second
	// hopeless is when it is looked at again if GitHub has no deliveries to show.
	hopeless = 10 * time.Minute
	// lag is how late a failed delivery may show up, or by how much clocks may differ: GitHub waits 10 s for an answer.
	lag = 90 * time.Second
	// durableLag is the same for those that were taken in.
	durableLag = time.Minute
	// firstLook is how far back the first look goes, where nothing is known of earlier ones.
	firstLook = 10 * time.Minute
	// furthest is how far back any look goes: GitHub keeps deliveries for three days.
	furthest = 72 * time.Hour
	// maxPages bounds a look, in pages of a hundred deliveries.
	maxPages = 500
	// readers is how many deliveries are read at once.
	readers = 8
)

// errTooMany is when there are more deliveries than are gone through.
var errTooMany = fmt.Errorf("more than %d deliveries", maxPages*100)

// errNotReady is when a connection has no client yet.
var errNotReady = errors.New("the connection is not ready")

// lookBack is what is known of looks at a connection's deliveries.
type lookBack struct {
	passed   [2]time.Time // begin and end of the last look at all deliveries
	pages    int          // that it had
	found    int          // how many lost ones it found
	relevant time.Time    // when an event last had something new
	since    time.Time    // when this process, which leads, learned of the connection
}

// pause is the time to the next look at a connection's deliveries.
func (l *lookBack) pause() time.Duration {
	least := catchInterval
	if l.found > 0 {
		least = troubled
	}
	return min(max(least, time.Duration(l.pages)*perPage), catchMost)
}

// reconcileDeliveries takes in a connection's deliveries that were lost, as far as GitHub tells.
func (k *JobTracker) reconcileDeliveries(ctx context.Context, c *connection) (reconcile.Result, error) {
	if err := k.lookBack(ctx, c); err != nil {
		return retry(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return after(c.lookBack.pause()), nil
}

// retry is what a reconciler returns after an error of GitHub's. A short wait is left to the rate limiter: calls that are refused in a row
// have to come slower.
func retry(ctx context.Context, err error) (reconcile.Result, error) {
	wait := pauseAfter(err)
	if wait < minBackoff {
		return reconcile.Result{}, err
	}
	switch {
	case errors.Is(err, errNotReady):
	case github.KindOf(err) == github.KindForbidden: // what a connection may not is in its status
		log.FromContext(ctx).V(1).Info("GitHub is asked again later", "after", wait.String(), "error", err.Error())
	default:
		kube.Warn(ctx, "GitHub is asked again later", "after", wait.String(), "error", err.Error())
	}
	return after(wait), nil
}

// pauseAfter is how long to wait after an error of GitHub's; 0 to leave it to the rate limiter.
func pauseAfter(err error) time.Duration {
	if errors.Is(err, errNotReady) {
		return noClient
	}
	if after, away := github.ComeBack(err); away {
		return after
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return 0
	}
	if github.KindOf(err) == "" { // it is not GitHub's
		return 0
	}
	return hopeless
}

// window is which deliveries a look is about.
type window struct {
	hook int64
	// connections of the namespace. They have the same pools.
	connections []*connection
	// installations of the App that they are for; nil if the webhook isn't an App's.
	installations map[int64]bool

	failed    time.Time // those that failed since
	accepted  time.Time // those that were accepted since,
	acceptedC time.Time // and before this process did that itself: of those, it knows which it has
}

func (w window) begin() time.Time {
	if w.accepted.Before(w.failed) && w.accepted.Before(w.acceptedC) {
		return w.accepted
	}
	return w.failed
}

// lookBack goes through the deliveries from the newest to the oldest that may be lost. So the end of a job is met before its beginning, and no
// runner is started for a job that has ended.
func (k *JobTracker) lookBack(ctx context.Context, c *connection) error {
	gh, ok := k.GitHub(c.key)
	if !ok {
		return errNotReady
	}
	if err := k.readCursor(ctx, c); err != nil {
		return err
	}
	began := k.Now()
	w := k.window(c, gh, began)
	next, pages, found := "", 0, 0
	for ended := false; !ended; pages++ {
		if pages == maxPages {
			ctrl.Log.WithName("demand").Error(errTooMany, "Lost deliveries are left out", "connection", c.key, "since", w.begin())
			break
		}
		list, after, err := k.page(ctx, gh, w, next)
		if err != nil {
			return err
		}
		n, err := k.acceptMissed(ctx, gh, c, list, w)
		if err != nil {
			return err
		}
		found += n
		next = after
		ended = next == "" || (len(list) > 0 && list[len(list)-1].DeliveredAt.Before(w.begin()))
	}
	c.do(func() {
		c.lookBack.passed, c.lookBack.pages, c.lookBack.found = [2]time.Time{began, k.Now()}, pages, found
	})
	return nil
}

func (k *JobTracker) page(ctx context.Context, gh GitHub, w window, next string) ([]rest.Delivery, string, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	list, after, err := gh.Deliveries(ctx, w.hook, next)
	if err != nil {
		return nil, "", fmt.Errorf("looking for lost deliveries: %w", err)
	}
	return list, after, nil
}

// window of a look that begins now.
func (k *JobTracker) window(c *connection, gh GitHub, now time.Time) window {
	c.mu.Lock()
	c.learnSender(gh)
	floor := now.Add(-furthest)
	since := func(t time.Time, lag time.Duration) time.Time {
		if t.IsZero() {
			t = now.Add(-firstLook)
		}
		if t = t.Add(-lag); t.Before(floor) {
			return floor
		}
		return t
	}
	looked := c.cursor.inherited.Looked.Time
	if !c.lookBack.passed[0].IsZero() {
		looked = c.lookBack.passed[0]
	}
	// Once a look has seen all that others accepted, this process knows what it accepted itself.
	w := window{hook: c.hookID, failed: since(looked, lag), accepted: since(c.cursor.inherited.Durable.Time, durableLag), acceptedC: c.lookBack.since.Add(durableLag)}
	if c.lookBack.passed[0].After(w.acceptedC.Add(lag)) {
		w.accepted = w.acceptedC
	}
	isApps := c.sender == appSender
	c.mu.Unlock()
	w.connections = k.connectionsOf(c.key.Namespace)
	if isApps {
		w.installations = k.installations(w.connections)
	}
	return w
}

// installations of Apps that the connections of a namespace are for. An App's list of deliveries tells of all of its
// installations; what others are told is not for this namespace.
func (k *JobTracker) installations(connections []*connection) map[int64]bool {
	all := map[int64]bool{}
	for _, c := range connections {
		if gh, ok := k.GitHub(c.key); ok {
			c.do(func() { c.learnSender(gh) })
			all[gh.InstallationID()] = true
		}
	}
	return all
}

// acceptMissed accepts those deliveries of a page that were lost, and returns how many there were.
func (k *JobTracker) acceptMissed(ctx context.Context, gh GitHub, c *connection, list []rest.Delivery, w window) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	found := 0
	for _, d := range list {
		if !k.isMissed(c, d, w) {
			continue
		}
		found++
		g.Go(func() error { return k.acceptAgain(ctx, gh, c, w.hook, d) })
	}
	return found, g.Wait()
}

func (k *JobTracker) isMissed(c *connection, d rest.Delivery, w window) bool {
	accepted := d.StatusCode >= 200 && d.StatusCode < 300
	switch {
	case !k.concerns(c.key.Namespace, d.Event), w.knows(d.GUID):
		return false
	case w.installations != nil && d.InstallationID != 0 && !w.installations[d.InstallationID]:
		return false
	case accepted && d.DeliveredAt.Before(w.acceptedC):
		return !d.DeliveredAt.Before(w.accepted)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !d.DeliveredAt.Before(w.failed) && (!accepted || c.seen.complete(d.DeliveredAt))
}

// knows reports whether a delivery came in for any connection of the namespace. A look reads the list of them once: it is as long as the namespace
// wants, and reading it takes the lock of all.
func (w window) knows(guid string) bool {
	return slices.ContainsFunc(w.connections, func(c *connection) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.seen.has(guid)
	})
}

// concerns reports whether events of a kind may concern a pool on a connection of the namespace.
func (k *JobTracker) concerns(namespace, event string) bool {
	return slices.ContainsFunc(k.spacesOf(namespace), func(s *space) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.index[asked{event: event}]) > 0
	})
}

// acceptAgain reads a delivery and accepts it. Where GitHub doesn't show what it carried, it is to send it again.
func (k *JobTracker) acceptAgain(ctx context.Context, gh GitHub, c *connection, hook int64, listed rest.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	event, payload, err := gh.Payload(ctx, hook, listed.ID)
	switch {
	case github.IsNotFound(err), github.KindOf(err) == github.KindUnexpected: // it is too old; or too large, or makes no sense
		k.giveUp(c, listed.GUID)
		return nil
	case err != nil:
		return fmt.Errorf("reading a lost delivery: %w", err)
	case len(payload) == 0:
		caught.WithLabelValues("redelivered").Inc()
		if err := gh.Redeliver(ctx, hook, listed.ID); err != nil {
			return fmt.Errorf("asking for a lost delivery: %w", err)
		}
		c.do(func() { c.seen.add(listed.GUID, k.Now()) })
		return nil
	}
	d, err := webhook.Parse(event, payload)
	d.GUID, d.Connection, d.At = listed.GUID, c.key, listed.DeliveredAt
	if err != nil {
		k.giveUp(c, listed.GUID)
		return nil
	}
	caught.WithLabelValues("read").Inc()
	k.accept(c, d, k.ownersOf(ctx, d))
	return nil
}

// giveUp asks for a delivery no more: it won't get better.
func (k *JobTracker) giveUp(c *connection, guid string) {
	caught.WithLabelValues("bad").Inc()
	c.do(func() { c.seen.add(guid, k.Now()) })
}
