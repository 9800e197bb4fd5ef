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

// GitHub never resends an event by itself. So a JobTracker lists the deliveries of each webhook periodically. It reads the
// deliveries that failed, and those that were accepted but that it does not know: a proxy between GitHub and Corral may have
// accepted them. After a start, it also reads deliveries that the previous process received and may not have stored.
const (
	// catchInterval is the minimum interval between two checks of a webhook's deliveries, and catchMost is the maximum. In
	// between, the interval is perPage for each call of the last check, which needs one call per hundred deliveries.
	catchInterval, catchMost, perPage = time.Minute, 5 * time.Minute, 6 * time.Second
	// troubled replaces catchInterval after a check that found lost deliveries, because there are probably more to come.
	troubled = 15 * time.Second
	// noClient is the delay before the next check of a connection that is not ready.
	noClient = 5 * time.Second
	// hopeless is the delay after an error that is unlikely to pass soon, for example if GitHub cannot show the deliveries.
	hopeless = 10 * time.Minute
	// lag is how late a failed delivery may appear in GitHub's list, including differences between clocks. GitHub waits 10 s
	// for an answer.
	lag = 90 * time.Second
	// durableLag is the same for deliveries that were accepted.
	durableLag = time.Minute
	// firstLook is how far back the first check goes if nothing is known about earlier ones.
	firstLook = 10 * time.Minute
	// furthest is how far back any check goes: GitHub keeps deliveries for three days.
	furthest = 72 * time.Hour
	// maxPages limits a check, in pages of a hundred deliveries. Older deliveries are not recovered.
	maxPages = 500
	// readers is the maximum number of deliveries that are read concurrently.
	readers = 8
)

// errTooMany means that there are more deliveries than a check reads.
var errTooMany = fmt.Errorf("more than %d deliveries", maxPages*100)

// errNotReady means that a connection has no client yet.
var errNotReady = errors.New("the connection is not ready")

// lookBack is the state of the checks of a connection's deliveries.
type lookBack struct {
	passed   [2]time.Time // begin and end of the last check of all deliveries
	pages    int          // number of pages that it read
	found    int          // number of lost deliveries that it found
	relevant time.Time    // when an event last contained something new
	since    time.Time    // when this process, which leads, first saw the connection
}

// pause returns the delay until the next check of a connection's deliveries.
func (l *lookBack) pause() time.Duration {
	least := catchInterval
	if l.found > 0 {
		least = troubled
	}
	return min(max(least, time.Duration(l.pages)*perPage), catchMost)
}

// reconcileDeliveries recovers a connection's lost deliveries, if GitHub can show them.
func (k *JobTracker) reconcileDeliveries(ctx context.Context, c *connection) (reconcile.Result, error) {
	if err := k.lookBack(ctx, c); err != nil {
		return retry(ctx, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return after(c.lookBack.pause()), nil
}

// retry returns the result of a reconciler after an error from GitHub. If the wait is shorter than minBackoff, it returns
// the error, so that the rate limiter of the queue slows down calls that are refused repeatedly.
func retry(ctx context.Context, err error) (reconcile.Result, error) {
	wait := pauseAfter(err)
	if wait < minBackoff {
		return reconcile.Result{}, err
	}
	switch {
	case errors.Is(err, errNotReady):
	case github.KindOf(err) == github.KindForbidden: // the connection's status reports missing permissions
		log.FromContext(ctx).V(1).Info("Asking GitHub again later", "after", wait.String(), "error", err.Error())
	default:
		kube.Warn(ctx, "Asking GitHub again later", "after", wait.String(), "error", err.Error())
	}
	return after(wait), nil
}

// pauseAfter returns how long to wait after an error from GitHub; 0 to leave it to the rate limiter.
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
	if github.KindOf(err) == "" { // the error is not from GitHub
		return 0
	}
	return hopeless
}

// window selects the deliveries of a check.
type window struct {
	hook int64
	// connections are all connections of the namespace. Their events concern the same pools.
	connections []*connection
	// installations of the App that the connections use; nil if the webhook does not belong to an App.
	installations map[int64]bool

	failed    time.Time // start of the range of failed deliveries
	accepted  time.Time // start of the range of accepted deliveries
	acceptedC time.Time // end of that range: since then, this process knows which deliveries it has accepted
}

func (w window) begin() time.Time {
	if w.accepted.Before(w.failed) && w.accepted.Before(w.acceptedC) {
		return w.accepted
	}
	return w.failed
}

// lookBack checks the deliveries from the newest to the oldest that may be lost, and accepts the lost ones. In this order it
// sees the end of a job before its beginning, so that no runner is started for a job that has ended.
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
			ctrl.Log.WithName("demand").Error(errTooMany, "Too many lost deliveries; the oldest are skipped", "connection", c.key, "since", w.begin())
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

// window returns the window of a check that begins now.
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
	// Once a check has covered everything that earlier processes accepted, later checks can skip this range, which becomes
	// empty.
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

// installations returns the App installations that the connections of a namespace use. An App's list of deliveries
// contains the deliveries of all its installations, and the deliveries of other installations are not for this namespace.
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

// acceptMissed accepts the lost deliveries of a page, and returns their number.
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

// knows reports whether any connection of the namespace has received the delivery. A check lists the connections only once,
// because a namespace may have any number of them, and listing them takes the lock of the JobTracker.
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

// acceptAgain reads a delivery and accepts it. If GitHub does not show its payload, it asks GitHub to send the delivery
// again.
func (k *JobTracker) acceptAgain(ctx context.Context, gh GitHub, c *connection, hook int64, listed rest.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	event, payload, err := gh.Payload(ctx, hook, listed.ID)
	switch {
	case github.IsNotFound(err), github.KindOf(err) == github.KindUnexpected: // too old, too large, or invalid
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

// giveUp stops asking for a delivery that can never be read.
func (k *JobTracker) giveUp(c *connection, guid string) {
	caught.WithLabelValues("bad").Inc()
	c.do(func() { c.seen.add(guid, k.Now()) })
}
