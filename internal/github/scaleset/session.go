// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// Session is an open message session. It has its own official client, because its calls hold that client's lock. Its
// methods are for one goroutine. A Listener uses sessions, and so does `corral conformance`, which examines how GitHub
// behaves.
type Session struct {
	client  *Client
	wire    *official.MessageSessionClient
	timeout time.Duration
	rest    time.Time // when the allowance of the namespace permits the next poll
}

// message is the answer to one poll.
type message struct {
	id         int
	statistics *Statistics
	events     []JobEvent
	available  []int64 // request ids of offered jobs, to acquire them; none on github.com
	unknown    []unknownPart
	size       int           // the number of events in the message, including offered jobs and unknown parts
	pause      time.Duration // before the next poll, because the message was large
}

// OpenSession opens the scale set's message session. It returns the first statistics, which may be nil. If the scale
// set already has a session, it returns KindSessionConflict.
func (c *Client) OpenSession(ctx context.Context, setID int64, owner string) (*Session, *Statistics, error) {
	return c.newSession(ctx, endpointSessionCreate, fmt.Sprintf("opening the message session of scale set %d", setID), setID, owner, "")
}

// errOtherOwner is the error for a resumed session that belongs to another owner.
var errOtherOwner = errors.New("it belongs to another owner on GitHub")

// ResumeSession continues a session that another process of the same owner opened.
func (c *Client) ResumeSession(ctx context.Context, setID int64, owner, id string) (*Session, *Statistics, error) {
	doing := fmt.Sprintf("resuming the message session of scale set %d", setID)
	s, statistics, err := c.newSession(ctx, endpointSessionRefresh, doing, setID, owner, id)
	if err == nil && s.wire.Session().OwnerName != owner {
		return nil, nil, fmt.Errorf("%s: %w", doing, errOtherOwner)
	}
	return s, statistics, err
}

// newSession opens a session, or resumes the session with the given id.
func (c *Client) newSession(ctx context.Context, by endpoint, doing string, setID int64, owner, resumes string) (*Session, *Statistics, error) {
	s := &Session{client: c, timeout: c.options.Timeout}
	err := c.admitted(ctx, by, doing, func(ctx context.Context) error {
		ctx, done := finishing(ctx)
		defer done()
		m, err := c.newPooledClient(subsystemListener, setID)
		if err != nil {
			return err
		}
		return c.heal(m, subsystemListener, setID, func() error {
			return c.observe(ctx, &exchange{resumes: resumes}, doing, m.client, func(ctx context.Context, oc *official.Client) (err error) {
				s.wire, err = oc.MessageSessionClient(ctx, int(setID), owner)
				return err
			})
		})
	})
	if err != nil {
		return nil, nil, err
	}
	s.charge(sessionCost)
	opened := s.wire.Session()
	if opened.MessageQueueURL == "" {
		err := &github.Error{Kind: github.KindUnavailable, Doing: doing, Status: http.StatusOK, Message: "GitHub gave no message queue URL"}
		if resumes != "" {
			return nil, nil, err
		}
		return nil, nil, errors.Join(err, s.Close(ctx))
	}
	return s, statisticsOf(opened.Statistics), nil
}

// finishTime is how long a call continues after its caller has left.
const finishTime = 5 * time.Second

// finishing returns a context with the deadline of ctx. If ctx is canceled, the context ends finishTime later, so that
// a call can still receive its answer. A session whose opening was abandoned would block the next one until it expires.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour) // each request has an earlier deadline
	}
	going, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishTime, cancel) })
	return going, func() {
		stop()
		cancel()
	}
}

// ID returns the id of the session, with which another process can resume it.
func (s *Session) ID() string { return s.wire.Session().SessionID.String() }

// Poll waits for a message without acknowledging it and without accepting jobs. It fails if there is no answer in time.
func (s *Session) Poll(ctx context.Context, within time.Duration) error {
	_, err := s.poll(ctx, within, 0, 0, time.Now)
	return err
}

// poll announces the capacity and waits for the message after the given one. It returns nil if there was none within
// GitHub's holding time, and an error if there was no answer before the deadline.
func (s *Session) poll(ctx context.Context, deadline time.Duration, after, capacity int, now func() time.Time) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	x := &exchange{mode: endpointMessagePoll}
	var got *official.RunnerScaleSetMessage
	err := s.client.observe(ctx, x, "polling for messages", nil, func(ctx context.Context, _ *official.Client) (err error) {
		got, err = s.wire.GetMessage(ctx, after, capacity)
		return err
	})
	if x.status != 0 || x.size > 0 {
		s.charge(answerCost)
	}
	if err != nil || got == nil {
		return nil, err
	}
	m := &message{id: got.MessageID, statistics: statisticsOf(got.Statistics), unknown: x.unknown, pause: x.pause}
	for _, event := range eventsOf(got, now(), s.client.options.Ours) {
		if _, err := github.Fit(&event); err != nil {
			m.unknown = append(m.unknown, unknownPart{partEvent, err.Error()})
			continue
		}
		m.events = append(m.events, event)
	}
	m.size = len(m.events) + len(got.JobAvailableMessages) + len(m.unknown)
	s.charge(m.size * eventCost)
	for _, job := range got.JobAvailableMessages {
		m.available = append(m.available, job.RunnerRequestID)
	}
	return m, nil
}

// charge takes bytes out of the allowance of the namespace. If nothing is left, the session rests for its turn.
func (s *Session) charge(bytes int) {
	now := time.Now()
	s.rest = now.Add(s.client.options.Charge(bytes, now))
}

// acknowledge deletes a message. A missing message is not an error, because an earlier answer may have been lost.
func (s *Session) acknowledge(ctx context.Context, id int) error {
	err := s.call(ctx, endpointMessageAck, fmt.Sprintf("acknowledging message %d", id), func(ctx context.Context) error {
		return s.wire.DeleteMessage(ctx, id)
	})
	if github.IsNotFound(err) {
		err = nil
	}
	if err != nil {
		acknowledgements.WithLabelValues("failed").Inc()
		return err
	}
	acknowledgements.WithLabelValues("ok").Inc()
	return nil
}

// acquire accepts jobs that GitHub offered (GitHub Enterprise Server; github.com assigns jobs itself). It is not an
// error if another session took some of the jobs in the meantime: the statistics show which jobs are assigned.
func (s *Session) acquire(ctx context.Context, requests []int64) error {
	return s.call(ctx, "", fmt.Sprintf("acquiring %d jobs", len(requests)), func(ctx context.Context) error {
		_, err := s.wire.AcquireJobs(ctx, requests)
		return err
	})
}

// Close ends the session.
func (s *Session) Close(ctx context.Context) error {
	return s.call(ctx, "", "closing the message session", s.wire.Close)
}

func (s *Session) call(ctx context.Context, mode endpoint, doing string, op func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.client.observe(ctx, &exchange{mode: mode}, doing, nil, func(ctx context.Context, _ *official.Client) error { return op(ctx) })
}
