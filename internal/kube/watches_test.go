// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/kube"
)

// silentServer starts an API server with empty lists, whose watches deliver nothing.
func silentServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"50"}}`)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server
}

func TestASilentWatchIsRestarted(t *testing.T) {
	server := silentServer(t)
	now := time.Unix(1000, 0)
	watches := &kube.Watches{Now: func() time.Time { return now }}
	c := &http.Client{Transport: watches.Wrap(http.DefaultTransport)}
	watch := func(resource string) chan error {
		answer, err := c.Get(server.URL + "/apis/corral.dev/v1alpha1/namespaces/ci/" + resource + "?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, answer.Body)
			ended <- err
		}()
		return ended
	}
	runners, pods := watch("runners"), watch("pods")
	if !watches.Restart("runners") {
		t.Error("not restarted")
	}
	if err := <-runners; err != nil {
		t.Errorf("the watch ended with %v, unlike a watch that the API server closes", err)
	}
	again := watch("runners")
	if watches.Restart("runners") {
		t.Error("restarted twice within seconds")
	}
	now = now.Add(time.Minute)
	if !watches.Restart("runners") {
		t.Error("not restarted again")
	}
	<-again
	select {
	case err := <-pods:
		t.Errorf("the watch of pods ended, too: %v", err)
	default:
	}
}

// After a restore of etcd, resource versions go back. A watch must not resume at a version that the API server has
// not reached yet.
func TestAWatchOfVersionsThatWentBackExpires(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"50"}}`)
		}
	}))
	t.Cleanup(server.Close)
	c := &http.Client{Transport: (&kube.Watches{Now: time.Now}).Wrap(http.DefaultTransport)}
	for since, want := range map[string]int{"": 200, "0": 200, "9": 200, "50": 200, "51": 410, "100": 410} {
		answer, err := c.Get(server.URL + "/api/v1/pods?watch=true&resourceVersion=" + since)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || err != nil {
			t.Errorf("since %q: %d, %v", since, answer.StatusCode, err)
		}
		status := &metav1.Status{}
		if want == http.StatusGone && (json.Unmarshal(text, status) != nil || !apierrors.IsResourceExpired(&apierrors.StatusError{ErrStatus: *status})) {
			t.Errorf("since %q: %s", since, text)
		}
	}
}

// Etcd was restored, and reached the version of a watch again before the watch resumed. The only evidence is an object that
// the cache shows and the API server does not have.
func TestAGhostHasAllObjectsReadAgain(t *testing.T) {
	server := silentServer(t)
	now := time.Unix(1000, 0)
	watches := &kube.Watches{Now: func() time.Time { return now }}
	c := &http.Client{Transport: watches.Wrap(http.DefaultTransport)}
	watch := func() (status int, body io.Reader) {
		answer, err := c.Get(server.URL + "/apis/corral.dev/v1alpha1/runners?watch=true&resourceVersion=9")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer.StatusCode, answer.Body
	}
	_, open := watch()
	for _, step := range []struct {
		uid  types.UID
		at   time.Duration
		want bool
	}{
		{"a", 0, false}, {"b", 5 * time.Second, false}, {"a", 9 * time.Second, false}, {"a", 12 * time.Second, true},
		{"b", 20 * time.Second, false}, {"c", time.Minute, false}, {"b", time.Minute, false}, // not again so soon
	} {
		now = time.Unix(1000, 0).Add(step.at)
		if got := watches.Ghost(step.uid); got != step.want {
			t.Errorf("%s after %s: %t", step.uid, step.at, got)
		}
	}
	if _, err := io.Copy(io.Discard, open); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	for _, want := range []int{http.StatusGone, http.StatusOK} {
		if got, _ := watch(); got != want {
			t.Errorf("the next watch is answered %d, want %d", got, want)
		}
	}
}
