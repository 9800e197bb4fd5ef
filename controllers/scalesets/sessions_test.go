// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

// woken records the keys of changed sessions, each once.
type woken struct {
	kube.Queue
	keys []string
}

func (w *woken) Add(r reconcile.Request) {
	if !slices.Contains(w.keys, r.String()) {
		w.keys = append(w.keys, r.String())
	}
}

// refusing answers 404 to each request that passes the gate.
type refusing struct{ gate chan struct{} }

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	<-r.gate
	return &http.Response{StatusCode: http.StatusNotFound, Request: req, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestOneNamespacesManySessionsGetNoMoreTurnsThanAnothersOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, got := make(chan struct{}), &woken{}
		gh, err := scaleset.NewClient(github.Credentials{ConfigURL: "https://github.com/acme", Token: "t"}, github.Options{Parallel: 1, Transport: refusing{gate}})
		must(t, err)
		s := NewSessions(leads{})
		must(t, s.States.Start(t.Context(), got))
		for i, name := range []string{"a", "b", "c", "d"} {
			key := types.NamespacedName{Namespace: "greedy", Name: name}
			if name == "d" {
				key.Namespace = "quiet"
			}
			s.Ensure(key, key, scaleset.Config{Client: gh, SetID: int64(i + 1), Owner: name}, "")
			synctest.Wait()
		}
		for range 100 { // one request after the other, each handled before the next
			select {
			case gate <- struct{}{}:
			default:
			}
			synctest.Wait()
		}
		s.cancel()
		if diff := cmp.Diff([]string{"greedy/a", "greedy/b", "quiet/d", "greedy/c"}, got.keys); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// leads is the lease of a leading process, unless it is lost. former is when the previous leader was last alive, and key
// the key of all leaders.
type leads struct {
	former time.Time
	key    string
	lost   *atomic.Bool
}

func (l leads) Held() bool        { return l.lost == nil || !l.lost.Load() }
func (l leads) Former() time.Time { return l.former }
func (l leads) Key() string       { return l.key }
