// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// ask makes a call for a source in a namespace.
func (h *hosts) ask(namespace, server string, call func() error) error {
	location, err := url.Parse(server)
	if err != nil {
		return err
	}
	turn, err := h.enter(types.NamespacedName{Namespace: namespace, Name: "pools"}, dialled(location))
	if err != nil {
		return err
	}
	if call != nil {
		err = call()
	}
	turn.leave(err)
	return err
}

// atOnce returns how many calls to servers, each from another namespace, get a turn while the earlier ones are in progress,
// and the error of the first one without a turn. Each call ends with err.
func atOnce(h *hosts, calls int, namespace, server func(i int) string, err error) (turns int, refusal error) {
	if calls == 0 {
		return 0, nil
	}
	result := h.ask(namespace(calls), server(calls), func() error {
		turns, refusal = atOnce(h, calls-1, namespace, server, err)
		turns++
		return err
	})
	if turns == 0 {
		return 0, result
	}
	return turns, refusal
}

func each(i int) string { return fmt.Sprint("team-", i) }
func ci(int) string     { return "ci" }

func TestServersThatNeverAnswerDoNotHoldAllWorkers(t *testing.T) {
	one := func(int) string { return "https://git.example.com/pools.git" }
	many := func(i int) string { return fmt.Sprintf("https://git-%d.example.com/pools.git", i) }
	disk := func(int) string { return "file:///pools.git" }
	for name, tc := range map[string]struct {
		workers   int
		namespace func(int) string
		server    func(int) string
		late      bool
		want      int
		refusal   error
	}{
		"one server":                            {8, each, one, false, 4, errBusy},
		"one server, one namespace":             {8, ci, one, false, 1, errBusy},
		"one server, one of many workers":       {32, ci, one, false, 4, errBusy},
		"one server that did not answer lately": {32, ci, one, true, 1, errLate},
		"many servers":                          {8, ci, many, false, 8, nil},
		"many that did not answer lately":       {8, ci, many, true, 1, errLate},
		"a single worker":                       {1, ci, one, true, 1, errLate},
		"no server":                             {8, ci, disk, true, 8, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(tc.workers)
			if tc.late {
				for i := range 9 {
					_ = h.ask("ci", tc.server(i), func() error { return fmt.Errorf("asking: %w", gitsource.ErrTimeout) })
				}
			}
			got, refusal := atOnce(h, 8, tc.namespace, tc.server, nil)
			if got != tc.want || !errors.Is(refusal, tc.refusal) {
				t.Errorf("%d of 8 get a turn, not %d; the next is told %v, not %v", got, tc.want, refusal, tc.refusal)
			}
		})
	}
}

func TestAServerThatAnswersAgainIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(8)
		server := func(int) string { return "https://git.example.com/pools.git" }
		_ = h.ask("ci", server(0), func() error { return gitsource.ErrTimeout })
		_ = h.ask("ci", server(0), func() error { return gitsource.ErrNotFound })
		if got, _ := atOnce(h, 8, each, server, nil); got != 4 {
			t.Errorf("%d of 8 get a turn", got)
		}
		time.Sleep(2 * promisedFor) // for the source that waited and did not return
		synctest.Wait()
		if len(h.servers) != 0 || len(h.tries) != 0 {
			t.Errorf("turns are left: %v, %v", h.servers, h.tries)
		}
	})
}

// A tenant chooses how long its sources wait, and can make any server late for itself.
func TestAServerThatIsLateForOneNamespaceIsNotForOthers(t *testing.T) {
	h := newHosts(8)
	server := func(int) string { return "https://git.example.com/pools.git" }
	_ = h.ask("impatient", server(0), func() error { return gitsource.ErrTimeout })
	err := h.ask("impatient", server(0), func() error {
		if got, refusal := atOnce(h, 8, each, server, nil); got != 3 || !errors.Is(refusal, errBusy) {
			t.Errorf("%d others get a turn, not the 3 that are left; the next is told %v", got, refusal)
		}
		if err := h.ask("impatient", server(0), nil); !errors.Is(err, errLate) {
			t.Errorf("another of the namespace is told %v", err)
		}
		return gitsource.ErrTimeout
	})
	if !errors.Is(err, gitsource.ErrTimeout) {
		t.Error(err)
	}
}

// The controller's connection target is what may be slow.
func TestASourceTakesTurnsAtItsProxy(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "Proxy.example.com:3128"}
	for name, tc := range map[string]struct {
		revision revision
		want     string
	}{
		"server":      {revision{request: gitsource.Request{URL: "https://github.com/acme/pools"}}, "github.com:443"},
		"spelling":    {revision{request: gitsource.Request{URL: "https://GitHub.com.:443/acme/pools"}}, "github.com:443"},
		"ssh":         {revision{request: gitsource.Request{URL: "ssh://git@github.com/acme/pools"}}, "github.com:22"},
		"proxy":       {revision{request: gitsource.Request{URL: "https://github.com/acme/pools", Auth: gitsource.Auth{Proxy: proxy}}}, "proxy.example.com:3128"},
		"artifact":    {revision{artifact: &meta.Artifact{URL: "http://source-controller.flux-system/pools.tar.gz"}}, "source-controller.flux-system:80"},
		"disk":        {revision{request: gitsource.Request{URL: "file:///pools.git"}}, ""},
		"no location": {revision{request: gitsource.Request{URL: "https://a b/%"}}, ""},
	} {
		if got := tc.revision.dials(); got != tc.want {
			t.Errorf("%s: turns are taken at %q, not %q", name, got, tc.want)
		}
	}
}

// noted is a queue that records the added keys.
type noted struct {
	kube.Queue
	add func(types.NamespacedName)
}

func (n noted) Add(r reconcile.Request) { n.add(r.NamespacedName) }

// A source in line is woken when it is its turn. Namespaces take turns, however many sources they have. A turn that its
// source does not begin goes to the next one.
func TestNamespacesTakeTurnsAtAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "git.example.com:443"
		h := newHosts(8)
		var woken []string
		if err := h.turns.Start(t.Context(), noted{add: func(key types.NamespacedName) { woken = append(woken, key.String()) }}); err != nil {
			t.Fatal(err)
		}
		source := func(namespace, name string) types.NamespacedName {
			return types.NamespacedName{Namespace: namespace, Name: name}
		}
		var turns []*turn
		for i := range 4 { // each uses all its turns
			turn, err := h.enter(source(fmt.Sprint("greedy-", i), "first"), host)
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, turn)
		}
		for i := range 4 {
			for k := range 3 {
				if _, err := h.enter(source(fmt.Sprint("greedy-", i), fmt.Sprint("source-", k)), host); !errors.Is(err, errBusy) {
					t.Fatalf("a namespace has a second turn: %v", err)
				}
			}
		}
		quiet := source("quiet", "pools")
		if _, err := h.enter(quiet, host); !errors.Is(err, errBusy) {
			t.Fatalf("a fifth turn: %v", err)
		}
		turns[0].leave(nil)
		turns[1].leave(nil)
		turns[2].leave(nil)
		if diff := cmp.Diff([]string{"greedy-0/source-0", "greedy-1/source-0", "greedy-2/source-0"}, woken); diff != "" {
			t.Error(diff)
		}
		if _, err := h.enter(source("late", "pools"), host); !errors.Is(err, errBusy) {
			t.Errorf("a turn that is promised is given to another: %v", err)
		}
		first, err := h.enter(source("greedy-0", "source-0"), host)
		if err != nil {
			t.Fatal(err)
		}
		first.leave(nil)
		if want := "quiet/pools"; woken[len(woken)-1] != want {
			t.Errorf("the next one is %s, not %s", woken[len(woken)-1], want)
		}
		time.Sleep(2*promisedFor + time.Second) // the others are gone, and two of them were before it in line
		synctest.Wait()
		if !slices.Contains(woken, "late/pools") {
			t.Errorf("a source that is gone keeps its turn: %v", woken)
		}
		turns[3].leave(nil)
		time.Sleep(20 * promisedFor)
		synctest.Wait()
		if len(h.servers) != 0 {
			t.Errorf("turns are left: %v", h.servers)
		}
	})
}

// Servers of one namespace that do not answer leave room for other namespaces to retry a server that was late once.
func TestTriesOfLateServersLeaveRoomForOthers(t *testing.T) {
	h := newHosts(8)
	enter := func(namespace, host string) (*turn, error) {
		return h.enter(types.NamespacedName{Namespace: namespace, Name: host}, host)
	}
	late := func(namespace, host string) {
		turn, err := enter(namespace, host)
		if err != nil {
			t.Fatal(err)
		}
		turn.leave(gitsource.ErrTimeout)
	}
	late("victim", "github.com:443")
	for i := range 8 {
		host := fmt.Sprintf("hangs-%d.example.com:443", i)
		late("greedy", host)
		if _, err := enter("greedy", host); (err == nil) != (i == 0) {
			t.Errorf("try %d: %v", i+1, err)
		}
	}
	if _, err := enter("victim", "github.com:443"); err != nil {
		t.Errorf("the victim: %v", err)
	}
}

type panicking struct{ *forge }

func (panicking) Resolve(context.Context, gitsource.Request) (string, error) { panic("a library") }

// controller-runtime recovers from a panic of a reconciler. The turn must not stay taken until the controller restarts.
func TestAPanicEndsTheTurn(t *testing.T) {
	w := newWorld(t, us())
	w.reconciler.Fetcher = panicking{}
	p := &pass{Reconciler: w.reconciler, source: us()}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the call does not panic")
			}
		}()
		_, _ = p.fetchAndBuild(t.Context())
	}()
	if p.turn != nil {
		t.Error("the source still has its turn")
	}
}
