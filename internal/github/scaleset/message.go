// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"encoding/json"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// jobMessages is the one type of message the official client takes.
const jobMessages = "RunnerScaleSetJobMessages"

// Parts of a message that may be unknown.
const (
	partMessage = "message"
	partBody    = "body"
	partEvent   = "event"
)

var (
	// messageBounds are those of a message, whose events are one string: they are decoded twice.
	messageBounds = github.Bounds{Bytes: 2 << 20, List: 100, Values: 1_000, Text: 2 << 20, Times: 6}
	// eventBounds are those of its events. GitHub puts fullMessage into one at most, which are some 50 kB. Each may have a hundred labels.
	eventBounds = github.Bounds{Bytes: 2 << 20, List: 4 * fullMessage, Inner: 100, Values: 4 * fullMessage * 102}
)

// unknownPart is something in a message that is acknowledged without being understood.
type unknownPart struct {
	part string // partMessage, partBody or partEvent
	name string // its type as GitHub calls it
}

// wireMessage is a message as the queue sends it.
type wireMessage struct {
	MessageID   int             `json:"messageId"`
	MessageType string          `json:"messageType"`
	Body        string          `json:"body"`
	Statistics  json.RawMessage `json:"statistics,omitempty"`
}

// harmless rewrites a message so that the official client, which fails on a type of
// message it doesn't know and on an event that doesn't decode, returns what is left
// with the id to acknowledge and the statistics. One odd message would be delivered
// again for ever otherwise. What isn't even a message is returned as it is. Events that are too many are an error: all of them are
// delivered again.
func harmless(raw []byte) ([]byte, []unknownPart, error) {
	var m wireMessage
	if err := json.Unmarshal(trimBOM(raw), &m); err != nil {
		return raw, nil, nil
	}
	if err := eventBounds.Check([]byte(m.Body)); err != nil {
		return nil, nil, err
	}
	var unknown []unknownPart
	if m.MessageType != jobMessages {
		unknown = append(unknown, unknownPart{partMessage, github.Excerpt(m.MessageType)})
		m.MessageType, m.Body = jobMessages, ""
	}
	m.Body, unknown = harmlessBody(m.Body, unknown)
	if len(unknown) == 0 {
		return raw, nil, nil
	}
	clean, err := json.Marshal(m)
	if err != nil {
		return raw, nil, nil
	}
	return clean, unknown, nil
}

func harmlessBody(body string, unknown []unknownPart) (string, []unknownPart) {
	if body == "" {
		return "", unknown
	}
	var events []json.RawMessage
	if err := json.Unmarshal([]byte(body), &events); err != nil {
		return "", append(unknown, unknownPart{partBody, "undecodable"})
	}
	kept := make([]json.RawMessage, 0, len(events))
	for _, event := range events {
		if name, ok := knownEvent(event); !ok {
			unknown = append(unknown, unknownPart{partEvent, github.Excerpt(name)})
			continue
		}
		kept = append(kept, event)
	}
	clean, err := json.Marshal(kept)
	if err != nil {
		return "", append(unknown, unknownPart{partBody, "undecodable"})
	}
	return string(clean), unknown
}

// knownEvent says whether the official client can decode the event.
func knownEvent(event json.RawMessage) (name string, ok bool) {
	var head official.JobMessageType
	if err := json.Unmarshal(event, &head); err != nil {
		return "undecodable", false
	}
	into := map[official.MessageType]any{
		official.MessageTypeJobAvailable: &official.JobAvailable{}, official.MessageTypeJobAssigned: &official.JobAssigned{},
		official.MessageTypeJobStarted: &official.JobStarted{}, official.MessageTypeJobCompleted: &official.JobCompleted{},
	}[head.MessageType]
	return string(head.MessageType), into != nil && json.Unmarshal(event, into) == nil
}
