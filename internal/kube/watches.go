// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// restartInterval is the minimum time between two restarts of the watches of a resource.
const restartInterval = 30 * time.Second

const (
	// ghostAge is how long a cache may show an object that the API server no longer has, before Ghost ends all watches. If
	// no caller reports the object again within ghostMemory, Ghost assumes that the cache no longer shows it.
	ghostAge, ghostMemory = 10 * time.Second, time.Minute
	// relistInterval is the minimum time between two restarts of all watches because of ghosts.
	relistInterval = 5 * time.Minute
)

// Watches restarts watches that deliver no events although requests work. client-go detects broken connections, but not a
// proxy or an API server that keeps the stream open without sending anything. It also makes client-go list objects again if
// resource versions decreased, because etcd was restored from a backup. The zero value is ready for use once Now is set.
type Watches struct {
	Now func() time.Time

	mu        sync.Mutex
	open      map[*watchBody]string // the resource of each watch
	restarted map[string]time.Time
	ghost     ghost
	relisted  time.Time
	expired   map[string]int // by path: how many of the next watch requests Wrap answers with 410 Gone
}

// ghost is an object that a cache shows although the API server does not have it. first and last are the times of the first
// and the last report.
type ghost struct {
	uid         types.UID
	first, last time.Time
}

// Wrap returns a transport that tracks the watches that use it. It answers 410 Gone to a watch that would miss events, so
// that client-go lists the objects again.
func (w *Watches) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		isWatch, since := r.URL.Query().Get("watch") != "", r.URL.Query().Get("resourceVersion")
		if isWatch && since != "" && since != "0" {
			if w.isExpired(r.URL.Path) {
				return expired(r)
			}
			if answer, err := wentBack(next, r, since); err != nil || answer != nil {
				return answer, err
			}
		}
		answer, err := next.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusOK || !isWatch {
			return answer, err
		}
		body := &watchBody{ReadCloser: answer.Body, watches: w, path: r.URL.Path}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open == nil {
			w.open = map[*watchBody]string{}
		}
		w.open[body] = path.Base(body.path)
		answer.Body = body
		return answer, nil
	})
}

// wentBack requests the current resource version before client-go resumes a watch. After etcd was restored from a backup,
// the current version is lower than the watch's. The API server would then accept the watch and deliver nothing until it
// reaches that version again. In this case wentBack returns a response with the status 410 Gone, so that client-go lists all
// objects again. Otherwise it returns nil.
func wentBack(next http.RoundTripper, watch *http.Request, since string) (*http.Response, error) {
	list := watch.Clone(watch.Context())
	list.URL.RawQuery = "limit=1"
	list.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	answer, err := next.RoundTrip(list)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var now struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if answer.StatusCode != http.StatusOK || json.NewDecoder(answer.Body).Decode(&now) != nil {
		return nil, nil // the watch itself reports the problem
	}
	if order, err := resourceversion.CompareResourceVersion(now.Metadata.ResourceVersion, since); err != nil || order >= 0 {
		return nil, nil
	}
	return expired(watch)
}

// expired returns the API server's response to a watch whose resource version has expired: 410 Gone.
func expired(watch *http.Request) (*http.Response, error) {
	status := apierrors.NewResourceExpired("resource versions went back").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(status)
	return &http.Response{
		StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: watch,
	}, err
}

// Ghost records that the API server does not have an object that a cache shows. If a cache still shows it after ten seconds,
// etcd was restored and reached the previous resource version again before the watch resumed, so the watch never reports the
// deletion. Ghost then makes client-go list the objects of all watches again, and returns true.
func (w *Watches) Ghost(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	if uid != w.ghost.uid && now.Sub(w.ghost.last) >= ghostMemory {
		w.ghost = ghost{uid: uid, first: now, last: now}
	}
	if uid != w.ghost.uid {
		return false // Ghost tracks one object at a time, which is enough evidence
	}
	w.ghost.last = now
	if now.Sub(w.ghost.first) < ghostAge || now.Sub(w.relisted) < relistInterval {
		return false
	}
	w.ghost, w.relisted, w.expired = ghost{}, now, map[string]int{}
	for body := range w.open {
		w.expired[body.path]++
		w.end(body)
	}
	return true
}

func (w *Watches) isExpired(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expired[path] == 0 {
		return false
	}
	w.expired[path]--
	return true
}

// end ends a watch as if the API server had ended it. The caller holds w.mu.
func (w *Watches) end(body *watchBody) {
	delete(w.open, body)
	_ = body.ReadCloser.Close() // this makes a blocked Read return
}

// Restart ends the watches of a resource, given by its plural name, so that client-go opens them again and resumes after the
// last event that it received. It does nothing within restartInterval of the previous restart, and reports whether it
// restarted the watches.
func (w *Watches) Restart(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	if last, ok := w.restarted[resource]; ok && now.Sub(last) < restartInterval {
		return false
	}
	if w.restarted == nil {
		w.restarted = map[string]time.Time{}
	}
	w.restarted[resource] = now
	for body, of := range w.open {
		if of == resource {
			w.end(body)
		}
	}
	return true
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watchBody is the stream of one watch.
type watchBody struct {
	io.ReadCloser
	watches *Watches
	path    string
}

// Read implements io.Reader. A restarted watch ends in the same way as a watch that the API server ends.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.isOpen() {
		return n, io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.watches.mu.Lock()
	delete(b.watches.open, b)
	b.watches.mu.Unlock()
	return b.ReadCloser.Close()
}

func (b *watchBody) isOpen() bool {
	b.watches.mu.Lock()
	defer b.watches.mu.Unlock()
	_, ok := b.watches.open[b]
	return ok
}
