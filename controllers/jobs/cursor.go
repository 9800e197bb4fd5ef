// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// cursorLook is the interval between two checks of whether a cursor needs to be written.
	cursorLook = time.Second
	// cursorInterval is the minimum interval between two writes of a cursor while relevant events arrive, and cursorIdle the
	// interval otherwise.
	cursorInterval, cursorIdle = 5 * time.Second, 10 * time.Minute
	// cursorKey is the key of the cursor in its ConfigMap.
	cursorKey = "cursor"
)

// cursor records the time up to which the deliveries of a webhook have been processed.
type cursor struct {
	// Looked is when the last check of all deliveries began. All deliveries that failed before then have been recovered.
	Looked metav1.Time `json:"looked"`
	// Durable is the time before which everything received has been stored.
	Durable metav1.Time `json:"durable"`
}

// DeliveriesName returns the name of the ConfigMap that holds a connection's cursor.
func DeliveriesName(connection string) string { return connection + "-deliveries" }

// cursorFile is a cursor and the state of its ConfigMap.
type cursorFile struct {
	now       cursor
	inherited cursor // from the previous process
	written   cursor // last written
	writtenAt time.Time
	read      bool
	version   string // of the ConfigMap; empty if unknown or if there is none
}

// getCursor reads the ConfigMap of a connection; nil if there is none, or if the connection does not own it.
func (k *JobTracker) getCursor(ctx context.Context, key types.NamespacedName, owner types.UID) (*corev1.ConfigMap, error) {
	config := &corev1.ConfigMap{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: DeliveriesName(key.Name)}, config)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no ConfigMap is no error
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", DeliveriesName(key.Name), err)
	case !isOwnedBy(config, owner):
		return nil, nil //nolint:nilnil // treated as missing: another object owns it
	}
	return config, nil
}

// readCursor reads the cursor of earlier processes from its ConfigMap, if it has not been read yet.
func (k *JobTracker) readCursor(ctx context.Context, c *connection) error {
	if c.cursor.read {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c.mu.Lock()
	owner := c.owner.UID
	c.mu.Unlock()
	config, err := k.getCursor(ctx, c.key, owner)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.cursor
	if f.read = true; config == nil {
		return nil
	}
	f.version = config.ResourceVersion
	if err := json.Unmarshal(config.BinaryData[cursorKey], &f.now); err != nil {
		f.now = cursor{} // the first check then looks back as far as if there were no cursor
	}
	f.written, f.inherited = f.now, f.now
	return nil
}

// advance moves the cursor forward, given the time before which everything is stored, and reports whether it needs to be
// written.
func (f *cursorFile) advance(l *lookBack, durable, now time.Time) bool {
	if !f.read || durable.IsZero() || l.passed[0].IsZero() {
		return false
	}
	f.now.Durable = metav1.Time{Time: durable}
	if durable.After(l.passed[1]) {
		f.now.Looked = metav1.Time{Time: l.passed[0]}
	}
	since := now.Sub(f.writtenAt)
	if f.writtenAt.IsZero() {
		since = now.Sub(l.since)
	}
	matters := l.relevant.After(f.written.Durable.Time)
	return f.now != f.written && (since >= cursorInterval && matters || since >= cursorIdle && f.version != "")
}

// reconcileCursor writes a connection's cursor if a write is due.
func (k *JobTracker) reconcileCursor(ctx context.Context, c *connection) (reconcile.Result, error) {
	if k.isCursorDue(c, 0) {
		if err := k.writeCursor(ctx, c); err != nil {
			return reconcile.Result{}, err
		}
	}
	return after(cursorLook), nil
}

// isCursorDue advances a cursor, and reports whether it will need to be written when the given duration has passed.
func (k *JobTracker) isCursorDue(c *connection, ahead time.Duration) bool {
	now := k.Now()
	durable := k.durable(c.key.Namespace, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursor.advance(&c.lookBack, durable, now.Add(ahead))
}

// writeCursor writes the cursor to its ConfigMap.
func (k *JobTracker) writeCursor(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c.mu.Lock()
	at, version, owner := c.cursor.now, c.cursor.version, c.owner
	c.mu.Unlock()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: DeliveriesName(c.key.Name)}}
	text, err := json.Marshal(at)
	if err == nil {
		err = k.put(ctx, config, version, owner, "deliveries", "", map[string][]byte{cursorKey: text})
	}
	version = config.ResourceVersion
	if err != nil {
		version = ""
		if there, failed := k.getCursor(ctx, c.key, owner.UID); failed == nil && there != nil {
			version = there.ResourceVersion // another process wrote it
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cursor.version = version; err != nil {
		return err
	}
	writes.WithLabelValues("deliveries").Inc()
	c.cursor.written, c.cursor.writtenAt = at, k.Now()
	return nil
}

// closeCursors writes the cursors when the process ends, so that the next process has little to check.
func (k *JobTracker) closeCursors(ctx context.Context) {
	for _, c := range k.allConnections() {
		if c.isUsable(true) && k.isCursorDue(c, cursorIdle) {
			_ = k.writeCursor(ctx, c) // on an error, the next process checks further back
		}
	}
}
