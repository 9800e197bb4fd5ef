// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/webhook"
)

// GitHub never sends an event twice by itself. So a Desk lists the deliveries of each webhook now and then, and reads those that failed
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
	// cursorInterval is the least time between two writes of a cursor while events come; cursorIdle when none does that matters.
	cursorInterval, cursorIdle = 5 * time.Second, 10 * time.Minute
	// cursorKey holds the cursor in its ConfigMap.
	cursorKey = "cursor"
)

// cursor says up to when the deliveries of a webhook are done with.
type cursor struct {
	// Looked is when the last look at all deliveries began: those that failed before were taken in.
	Looked metav1.Time `json:"looked"`
	// Durable is up to when all that was taken in is written down.
	Durable metav1.Time `json:"durable"`
}

// DeliveriesName is the name of the ConfigMap that says up to when a connection's deliveries are done with.
func DeliveriesName(connection string) string { return connection + "-deliveries" }

// errTooMany is when there are more deliveries than are gone through.
var errTooMany = fmt.Errorf("more than %d deliveries", maxPages*100)

// errNotReady is when a connection has no client yet.
var errNotReady = errors.New("the connection is not ready")

// catchUp takes in what was lost, as far as GitHub tells.
func (k *Desk) catchUp(ctx context.Context, c *connection) {
	err := k.lookBack(ctx, c)
	k.mu.Lock()
	defer k.mu.Unlock()
	now, e := k.Now(), &c.catching
	e.busy = false
	if err == nil {
		e.failed, e.trouble, e.next = 0, "", now.Add(jittered(c.pause()))
		return
	}
	e.failed++
	e.next = now.Add(jittered(pauseAfter(err, e.failed)))
	if text := github.Summary(err); ctx.Err() == nil && text != e.trouble && !errors.Is(err, errNotReady) {
		e.trouble = text
		ctrl.Log.WithName("demand").Error(err, "Lost deliveries can't be asked for", "connection", c.key)
	}
}

// pause is the time to the next look at a connection's deliveries.
func (c *connection) pause() time.Duration {
	least := catchInterval
	if c.found > 0 {
		least = troubled
	}
	return min(max(least, time.Duration(c.pages)*perPage), catchMost)
}

// pauseAfter is how long to wait after an error of GitHub's.
func pauseAfter(err error, failed int) time.Duration {
	if errors.Is(err, errNotReady) {
		return noClient
	}
	if after, away := github.ComeBack(err); away {
		return max(after, backoff(failed))
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return backoff(failed)
	}
	return hopeless
}

// window is which deliveries a look is about.
type window struct {
	hook int64
	// installations of the App that connections of the namespace are for; nil if the webhook isn't an App's.
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
func (k *Desk) lookBack(ctx context.Context, c *connection) error {
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
		n, err := k.takeMissed(ctx, gh, c, list, w)
		if err != nil {
			return err
		}
		found += n
		next = after
		ended = next == "" || (len(list) > 0 && list[len(list)-1].DeliveredAt.Before(w.begin()))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c.passed, c.pages, c.found = [2]time.Time{began, k.Now()}, pages, found
	return nil
}

func (k *Desk) page(ctx context.Context, gh GitHub, w window, next string) ([]rest.Delivery, string, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	list, after, err := gh.Deliveries(ctx, w.hook, next)
	if err != nil {
		return nil, "", fmt.Errorf("looking for lost deliveries: %w", err)
	}
	return list, after, nil
}

// window of a look that begins now.
func (k *Desk) window(c *connection, gh GitHub, now time.Time) window {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.learn(gh)
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
	looked := c.inherited.Looked.Time
	if !c.passed[0].IsZero() {
		looked = c.passed[0]
	}
	// Once a look has seen all that others accepted, this process knows what it accepted itself.
	w := window{hook: c.hookID, failed: since(looked, lag), accepted: since(c.inherited.Durable.Time, durableLag), acceptedC: c.since.Add(durableLag)}
	if c.passed[0].After(w.acceptedC.Add(lag)) {
		w.accepted = w.acceptedC
	}
	if c.speaker == appSpeaker {
		w.installations = k.installations(c.key.Namespace)
	}
	return w
}

// installations of Apps that the connections of a namespace are for. An App's list of deliveries tells of all of its
// installations; what others are told is not for this namespace.
func (k *Desk) installations(namespace string) map[int64]bool {
	all := map[int64]bool{}
	for key, c := range k.conns {
		if gh, ok := k.GitHub(key); ok && key.Namespace == namespace {
			c.learn(gh)
			all[c.installation] = true
		}
	}
	return all
}

// takeMissed takes in those deliveries of a page that were lost, and returns how many there were.
func (k *Desk) takeMissed(ctx context.Context, gh GitHub, c *connection, list []rest.Delivery, w window) (int, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	found := 0
	for _, d := range list {
		if !k.isMissed(c, d, w) {
			continue
		}
		found++
		g.Go(func() error { return k.takeAgain(ctx, gh, c, w.hook, d) })
	}
	return found, g.Wait()
}

func (k *Desk) isMissed(c *connection, d rest.Delivery, w window) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	accepted := d.StatusCode >= 200 && d.StatusCode < 300
	switch {
	case !k.concerns(c.key.Namespace, d.Event), k.known(c.key.Namespace, d.GUID):
		return false
	case w.installations != nil && d.InstallationID != 0 && !w.installations[d.InstallationID]:
		return false
	case accepted && d.DeliveredAt.Before(w.acceptedC):
		return !d.DeliveredAt.Before(w.accepted)
	}
	return !d.DeliveredAt.Before(w.failed) && (!accepted || c.remembers(d.DeliveredAt))
}

// known says whether a delivery came in for any connection of the namespace: they have the same pools.
func (k *Desk) known(namespace, guid string) bool {
	for key, c := range k.conns {
		if key.Namespace == namespace && c.knows(guid) {
			return true
		}
	}
	return false
}

// concerns says whether events of a kind may concern a pool on a connection of the namespace.
func (k *Desk) concerns(namespace, event string) bool {
	return slices.ContainsFunc(k.spacesOf(namespace), func(s *space) bool { return s.concerns(event) })
}

// durable is up to when all that was taken in for connections of a namespace is written down.
func (k *Desk) durable(namespace string) time.Time {
	spaces := k.spacesOf(namespace)
	first := spaces[0].durable
	for _, s := range spaces[1:] {
		if s.durable.Before(first) {
			first = s.durable
		}
	}
	return first
}

// concerns says whether events of a kind may concern a pool of the space.
func (s *space) concerns(event string) bool {
	if event == webhook.WorkflowJobEvent {
		return len(s.active.pools)+len(s.observing.pools) > 0
	}
	for _, p := range s.members {
		for i := range p.triggers {
			if string(p.triggers[i].Event) == event {
				return true
			}
		}
	}
	return false
}

// takeAgain reads a delivery and takes it in. Where GitHub doesn't show what it carried, it is to send it again.
func (k *Desk) takeAgain(ctx context.Context, gh GitHub, c *connection, hook int64, listed rest.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	event, payload, err := gh.Payload(ctx, hook, listed.ID)
	switch {
	case github.IsNotFound(err): // it is too old
		return k.giveUp(c, listed.GUID)
	case github.KindOf(err) == github.KindUnexpected: // it is too large, or makes no sense
		return k.giveUp(c, listed.GUID)
	case err != nil:
		return fmt.Errorf("reading a lost delivery: %w", err)
	case len(payload) == 0:
		caught.WithLabelValues("redelivered").Inc()
		if err := gh.Redeliver(ctx, hook, listed.ID); err != nil {
			return fmt.Errorf("asking for a lost delivery: %w", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		c.know(listed.GUID, k.Now())
		return nil
	}
	d, err := webhook.Parse(event, payload)
	d.GUID, d.Connection, d.At = listed.GUID, c.key, listed.DeliveredAt
	if err == nil {
		caught.WithLabelValues("read").Inc()
		runners := k.runnersOf(ctx, d)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.take(c, d, runners)
		return nil
	}
	return k.giveUp(c, listed.GUID)
}

// giveUp asks for a delivery no more: it won't get better.
func (k *Desk) giveUp(c *connection, guid string) error {
	caught.WithLabelValues("bad").Inc()
	k.mu.Lock()
	defer k.mu.Unlock()
	c.know(guid, k.Now())
	return nil
}

// readCursor reads up to when the deliveries were done with before this process.
func (k *Desk) readCursor(ctx context.Context, c *connection) error {
	if c.cursorRead {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	config := &corev1.ConfigMap{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: DeliveriesName(c.key.Name)}, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", DeliveriesName(c.key.Name), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c.cursorRead = true
	if err != nil || !isOwnedBy(config, c.owner.UID) {
		return nil
	}
	c.version = config.ResourceVersion
	if err := json.Unmarshal(config.BinaryData[cursorKey], &c.cursor); err != nil {
		c.cursor = cursor{} // the first look goes back as far as without one
	}
	c.written, c.inherited = c.cursor, c.cursor
	return nil
}

// advance moves the cursor on, given up to when everything is durable, and says whether it is to be written.
func (c *connection) advance(durable, now time.Time) bool {
	if !c.cursorRead || durable.IsZero() || c.passed[0].IsZero() {
		return false
	}
	c.cursor.Durable = metav1.Time{Time: durable}
	if durable.After(c.passed[1]) {
		c.cursor.Looked = metav1.Time{Time: c.passed[0]}
	}
	since := now.Sub(c.writtenAt)
	if c.writtenAt.IsZero() {
		since = now.Sub(c.since)
	}
	matters := c.relevant.After(c.written.Durable.Time)
	return c.cursor != c.written && (since >= cursorInterval && matters || since >= cursorIdle && c.version != "")
}

// writeCursor writes the cursor down.
func (k *Desk) writeCursor(ctx context.Context, c *connection) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	k.mu.Lock()
	at, version, owner := c.cursor, c.version, c.owner
	k.mu.Unlock()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: DeliveriesName(c.key.Name)}}
	text, err := json.Marshal(at)
	if err == nil {
		err = k.put(ctx, config, version, owner, "deliveries", "", map[string][]byte{cursorKey: text})
	}
	if err != nil {
		version = k.cursorVersion(ctx, c.key, owner.UID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e, now := &c.writing, k.Now()
	e.busy = false
	if err == nil {
		writes.WithLabelValues("deliveries").Inc()
		c.version, c.written, c.writtenAt = config.ResourceVersion, at, now
		e.failed, e.trouble = 0, ""
		return
	}
	e.failed++
	e.next = now.Add(backoff(e.failed))
	c.version = version
	if text := err.Error(); ctx.Err() == nil && text != e.trouble {
		e.trouble = text
		ctrl.Log.WithName("demand").Error(err, "It isn't written down which deliveries are done with", "connection", c.key)
	}
}

// cursorVersion finds out which version there is to change; "" if there is none of ours.
func (k *Desk) cursorVersion(ctx context.Context, key types.NamespacedName, owner types.UID) string {
	config := &corev1.ConfigMap{}
	if k.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: DeliveriesName(key.Name)}, config) != nil || !isOwnedBy(config, owner) {
		return ""
	}
	return config.ResourceVersion
}

// closeCursors writes down what is durable when the process ends, so that the next has little to look back to.
func (k *Desk) closeCursors(ctx context.Context) {
	k.mu.Lock()
	now := k.Now()
	for _, s := range k.spaces {
		s.settle(now, k.seq) // all that was marked before is written,
		s.settle(now, k.seq) // and all that was taken in since
	}
	var due []*connection
	for _, c := range k.conns {
		if c.hook && c.advance(k.durable(c.key.Namespace), now.Add(cursorIdle)) {
			due = append(due, c)
		}
	}
	k.mu.Unlock()
	for _, c := range due {
		k.writeCursor(ctx, c)
	}
}
