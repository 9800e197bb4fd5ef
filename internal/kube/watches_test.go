// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/kube"
)

func TestASilentWatchIsRestarted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
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
		t.Errorf("the watch ends with %v, not as one that the API server ends", err)
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
