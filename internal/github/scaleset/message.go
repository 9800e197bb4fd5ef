// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"encoding/json"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// jobMessages is the only message type that the official client accepts.
const jobMessages = "RunnerScaleSetJobMessages"

// The parts of a message that may be unknown.
const (
	partMessage = "message"
	partBody    = "body"
	partEvent   = "event"
)

var (
	// messageBounds is for a message. Its events are one string and are decoded twice.
	messageBounds = github.Bounds{Bytes: 2 << 20, List: 100, Values: 1_000, Text: 2 << 20, Times: 6}
	// eventBounds is for the events of a message. GitHub sends up to fullMessage events in one, which have about 50 kB.
	// Each event can have a hundred labels.
	eventBounds = github.Bounds{Bytes: 2 << 20, List: 4 * fullMessage, Inner: 100, Values: 4 * fullMessage * 102}
)

// unknownPart is a part of a message that Corral acknowledges without understanding it.
type unknownPart struct {
	part string // partMessage, partBody or partEvent
	name string // GitHub's name of its type
}

// wireMessage is a message in GitHub's format.
type wireMessage struct {
	MessageID   int             `json:"messageId"`
	MessageType string          `json:"messageType"`
	Body        string          `json:"body"`
	Statistics  json.RawMessage `json:"statistics,omitempty"`
}

// harmless rewrites a message for the official client, which fails on an unknown message type and on an event that it
// cannot decode. GitHub would then deliver the same message forever. The result contains the id to acknowledge, the
// statistics and the events that can be decoded. harmless returns text that is not a message unchanged. It returns an
// error if there are too many events; the message then stays in the queue, and GitHub delivers it again.
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

// knownEvent reports whether the official client can decode the event.
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
