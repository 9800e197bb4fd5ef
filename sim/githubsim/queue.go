// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// firstMessageID is the first id of a message, as on github.com.
	firstMessageID = 100000001
	// maxEvents is the maximum number of job events in one message.
	maxEvents = 50
	// capacityHeader announces the total number of jobs that the poller accepts.
	capacityHeader = "X-ScaleSetMaxCapacity"
)

// jobEvent is an element of a message's body.
type jobEvent struct {
	MessageType        string    `json:"messageType"`
	AcquireJobURL      string    `json:"acquireJobUrl,omitempty"`
	RunnerRequestID    int64     `json:"runnerRequestId"`
	RepositoryName     string    `json:"repositoryName"`
	OwnerName          string    `json:"ownerName"`
	JobID              string    `json:"jobId"`
	JobWorkflowRef     string    `json:"jobWorkflowRef"`
	JobDisplayName     string    `json:"jobDisplayName"`
	WorkflowRunID      int64     `json:"workflowRunId"`
	EventName          string    `json:"eventName"`
	RequestLabels      []string  `json:"requestLabels"`
	QueueTime          time.Time `json:"queueTime"`
	ScaleSetAssignTime time.Time `json:"scaleSetAssignTime"`
	RunnerAssignTime   time.Time `json:"runnerAssignTime"`
	FinishTime         time.Time `json:"finishTime"`
	RunnerID           int       `json:"runnerId,omitempty"`
	RunnerName         string    `json:"runnerName,omitempty"`
	Result             string    `json:"result,omitempty"`
}

type message struct {
	id     int
	events []jobEvent
}

type messageBody struct {
	MessageID   int         `json:"messageId"`
	MessageType string      `json:"messageType"`
	Body        string      `json:"body"`
	Statistics  *Statistics `json:"statistics"`
}

// queue belongs to a scale set and outlives its sessions. Pending events become messages when a client polls; a message
// stays until it is deleted.
type queue struct {
	pending  []jobEvent
	messages []message // by id
	last     int
	offered  map[string]*job
	wake     chan struct{}
}

func newQueue() queue {
	return queue{last: firstMessageID - 1, offered: map[string]*job{}, wake: make(chan struct{})}
}

// wakeAll makes held polls check again.
func (q *queue) wakeAll() {
	close(q.wake)
	q.wake = make(chan struct{})
}

func (q *queue) push(e jobEvent) {
	q.pending = append(q.pending, e)
	q.wakeAll()
}

// next returns the first message after the cursor, or creates one from pending events; nil if nothing happened. A fault
// may select another one.
func (q *queue) next(after int, how Alteration) *message {
	if how == AlterRedeliver && len(q.messages) > 0 {
		return &q.messages[0]
	}
	at, _ := slices.BinarySearchFunc(q.messages, after+1, func(m message, id int) int { return m.id - id })
	if at < len(q.messages) {
		return &q.messages[at]
	}
	if len(q.pending) == 0 {
		return nil
	}
	n := min(len(q.pending), maxEvents)
	if older := n / 2; how == AlterOutOfOrder && older > 0 {
		n -= older
		newer := slices.Clone(q.pending[older : older+n])
		copy(q.pending[n:], q.pending[:older])
		copy(q.pending, newer)
	}
	q.append(slices.Clone(q.pending[:n]))
	q.pending = slices.Delete(q.pending, 0, n)
	if after >= q.last { // a cursor beyond the end sees nothing
		return nil
	}
	return &q.messages[len(q.messages)-1]
}

func (q *queue) append(events []jobEvent) {
	q.last++
	q.messages = append(q.messages, message{id: q.last, events: events})
}

// delete removes a message and reports whether it existed.
func (q *queue) delete(id int) (message, bool) {
	at, found := slices.BinarySearchFunc(q.messages, id, func(m message, id int) int { return m.id - id })
	if !found {
		return message{}, false
	}
	m := q.messages[at]
	q.messages = slices.Delete(q.messages, at, at+1)
	return m, true
}

// queueCaller returns the session of a queue token. The token of an ended session is refused like an expired one.
func (s *Server) queueCaller(r *http.Request) (*session, answer) {
	claims, valid := s.verify(r, queueAudience, s.identities.queueEpoch)
	refused := serviceError(http.StatusUnauthorized, "InvalidTokenException", "The token is not valid or has expired.")
	if !valid {
		return nil, refused
	}
	id := pathID(r, "id")
	if id == 0 {
		id, _ = strconv.Atoi(r.URL.Query().Get("scaleSetId")) // 0 is no scale set
	}
	ss := s.scaleSets.byID[id]
	if ss == nil || ss.session == nil || ss.session.id != claims.Session {
		return nil, refused
	}
	return ss.session, answer{}
}

// versionedCaller is queueCaller for calls that name the API version, which is all calls except the deletion of a
// message.
func (s *Server) versionedCaller(r *http.Request) (*session, answer) {
	se, refusal := s.queueCaller(r)
	if se == nil {
		return nil, refusal
	}
	if refusal, named := versioned(r); !named {
		return nil, refusal
	}
	return se, answer{}
}

// getMessage holds the poll until there is a message after the cursor.
func (s *Server) getMessage(r *http.Request) answer {
	after, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("lastMessageId"), "0")) // absent: from the start
	if err != nil {
		return serviceError(http.StatusBadRequest, "ArgumentException", "lastMessageId is not a number")
	}
	capacity, err := strconv.Atoi(r.Header.Get(capacityHeader))
	if err != nil || capacity < 0 {
		return serviceError(http.StatusBadRequest, "ArgumentException", "%s is not a number", capacityHeader)
	}
	se, wake, a, done := s.beginPoll(r, after, capacity)
	if done {
		return a
	}
	defer s.endPoll(se)
	hold := time.NewTimer(s.opts.Hold)
	defer hold.Stop()
	for {
		select {
		case <-wake:
		case <-hold.C:
			return accepted()
		case <-r.Context().Done():
			return answer{}
		case <-s.done:
			return accepted()
		}
		if wake, a, done = s.lookAgain(r, se, after); done {
			return a
		}
	}
}

// beginPoll records the announced capacity and checks the queue once.
func (s *Server) beginPoll(r *http.Request, after, capacity int) (*session, chan struct{}, answer, bool) {
	s.lock()
	defer s.unlock()
	se, refusal := s.versionedCaller(r)
	if se == nil {
		return nil, nil, refusal, true
	}
	se.lastSeen = s.now()
	se.scaleSet.capacity = capacity
	s.dispatch(se.scaleSet)
	if a, found := s.deliver(r, se.scaleSet, after); found {
		return nil, nil, a, true
	}
	se.polls++
	return se, se.scaleSet.queue.wake, answer{}, false
}

func (s *Server) lookAgain(r *http.Request, se *session, after int) (chan struct{}, answer, bool) {
	s.rlock()
	defer s.mu.Unlock()
	if se.scaleSet.session != se {
		a := serviceError(http.StatusUnauthorized, "InvalidTokenException", "The session has ended.")
		return nil, a, true
	}
	a, found := s.deliver(r, se.scaleSet, after)
	return se.scaleSet.queue.wake, a, found
}

func (s *Server) endPoll(se *session) {
	s.lock()
	defer s.unlock()
	se.polls--
	se.lastSeen = s.now()
}

// deliver returns the next message with current statistics.
func (s *Server) deliver(r *http.Request, ss *scaleSet, after int) (answer, bool) {
	how := alteration(r)
	m := ss.queue.next(after, how)
	if m == nil {
		return answer{}, false
	}
	stats := s.shown(ss)
	body := messageBody{MessageID: m.id, MessageType: "RunnerScaleSetJobMessages", Statistics: &stats}
	events := slices.Clone(m.events)
	alterMessage(how, &body, &events)
	encoded, err := json.Marshal(events)
	if err != nil {
		panic(err) // cannot fail for an event
	}
	body.Body = string(encoded)
	return ok(body), true
}

// alterMessage applies a fault to a message.
func alterMessage(how Alteration, body *messageBody, events *[]jobEvent) {
	switch how {
	case AlterUnknownOuterType:
		body.MessageType = "RunnerScaleSetNewsMessages"
	case AlterUnknownInnerType:
		*events = append(*events, jobEvent{MessageType: "JobDreamt", JobID: "unknown"})
	case AlterReorder:
		slices.Reverse(*events)
	case AlterDuplicate:
		*events = append(*events, *events...)
	case AlterZeroStatistics:
		body.Statistics = &Statistics{}
	case AlterNoStatistics:
		body.Statistics = nil
	}
}

func (s *Server) deleteMessage(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	se, refusal := s.queueCaller(r)
	if se == nil {
		return refusal
	}
	se.lastSeen = s.now()
	q := &se.scaleSet.queue
	m, found := q.delete(pathID(r, "message"))
	if found && alteration(r) == AlterDuplicate {
		q.append(m.events)
		q.wakeAll()
	}
	return noContent()
}
