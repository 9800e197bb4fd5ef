// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// event is one line of a watch response.
type event struct {
	Type   watch.EventType              `json:"type"`
	Object metav1.PartialObjectMetadata `json:"object"`

	lines []byte // the line as received; a duplicated event has two
}

// parseEvent parses a line. A line that cannot be parsed becomes an event without a type.
func parseEvent(line []byte) event {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		e = event{}
	}
	e.lines = line
	return e
}

// isChange reports whether the event is about an object, not about the watch.
func (e event) isChange() bool {
	return e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted
}

// collection holds the events of a watch that ReorderEvents has collected so far.
type collection struct {
	fault  *injected
	due    time.Time
	events []event
}

// reordered groups the events by object and returns the groups in reverse order of each object's first event.
func reordered(events []event) []byte {
	var objects [][]byte
	at := map[types.NamespacedName]int{}
	for _, e := range events {
		key := types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name}
		i, seen := at[key]
		if !seen {
			i = len(objects)
			at[key] = i
			objects = append(objects, nil)
		}
		objects[i] = slices.Concat(objects[i], e.lines)
	}
	slices.Reverse(objects)
	return bytes.Join(objects, nil)
}

// bookmarks tracks whether the proxy may add a bookmark to a watch.
type bookmarks struct {
	allowed bool
	initial bool // the objects that exist are still being sent, in any order
}

// bookmarksOf derives the initial state from the query that opened the watch.
func bookmarksOf(query url.Values) bookmarks {
	from := query.Get("resourceVersion")
	return bookmarks{
		allowed: query.Get("allowWatchBookmarks") == "true",
		initial: query.Get("sendInitialEvents") == "true" || from == "" || from == "0",
	}
}

// see updates the state when e is the bookmark that ends the initial events.
func (b *bookmarks) see(e event) {
	if e.Type == watch.Bookmark && e.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		b.initial = false
	}
}

// after returns a bookmark for the last event, or nil if no bookmark may be added now.
func (b *bookmarks) after(last event) []byte {
	if !b.allowed || b.initial {
		return nil
	}
	mark := event{Type: watch.Bookmark}
	mark.Object.TypeMeta = last.Object.TypeMeta
	mark.Object.ResourceVersion = last.Object.ResourceVersion
	line, err := json.Marshal(mark)
	if err != nil {
		return nil
	}
	return append(line, '\n')
}
