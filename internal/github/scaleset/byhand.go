// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"time"
)

// Session is a message session that is used by hand, to learn how GitHub behaves. A Listener keeps its own.
type Session struct{ *session }

// OpenSession opens a scale set's message session; the statistics that came with it may be nil. Another has it: KindSessionConflict.
func (c *Client) OpenSession(ctx context.Context, setID int64, owner string) (Session, *Statistics, error) {
	s, statistics, err := c.openSession(ctx, setID, owner)
	return Session{s}, statistics, err
}

// ResumeSession goes on with an owner's session that another process opened.
func (c *Client) ResumeSession(ctx context.Context, setID int64, owner, id string) (Session, error) {
	s, _, err := c.resumeSession(ctx, setID, owner, id)
	return Session{s}, err
}

// ID of the session.
func (s Session) ID() string { return s.id() }

// Poll waits for a message, which it leaves there, and takes no jobs; no answer within so long is an error.
func (s Session) Poll(ctx context.Context, within time.Duration) error {
	_, err := s.poll(ctx, within, 0, 0, time.Now)
	return err
}

// Close ends the session.
func (s Session) Close(ctx context.Context) error { return s.close(ctx) }
