// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// clockBinary builds the corral command with support for a fake clock.
var clockBinary = sync.OnceValues(func() (string, error) { return harness.BuildWithClock(context.Background()) })

// withClock runs a controller with a fake clock, as a pod of the given name.
func (w *story) withClock(t *testing.T, clock *harness.Clock, pod string) *world.Controller {
	t.Helper()
	binary, err := clockBinary()
	must(t, err)
	proxy, err := apiproxy.Start(w.Cluster.Config) // its certificate is valid from one hour ago, unlike the API server's
	must(t, err)
	t.Cleanup(proxy.Close)
	c, err := w.RunReplica(t.Context(), world.Replica{Pod: pod, Proxy: proxy, Env: []string{clock.Env()}}, binary, w.flags...)
	must(t, err)
	t.Cleanup(func() {
		c.Kill()
		harness.ShowLog(t, c)
	})
	return c
}

// offsetOf returns how far a server's clock is ahead, according to the controller's metric.
func offsetOf(t *testing.T, c *world.Controller, server string) (seconds float64, isKnown bool) {
	t.Helper()
	answer, err := http.Get(c.MetricsURL)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	found := regexp.MustCompile(`(?m)^corral_clock_offset_seconds\{connection="[^"]*",server="` + server + `"\} (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0, false
	}
	seconds, err = strconv.ParseFloat(string(found[1]), 64)
	must(t, err)
	return seconds, true
}

// knowsOffset waits until the controller's metric reports how far a server's clock is ahead.
func knowsOffset(t *testing.T, c *world.Controller, server string, want time.Duration) {
	t.Helper()
	eventually(t, func(context.Context) error {
		if got, known := offsetOf(t, c, server); !known || math.Abs(got-want.Seconds()) > 5 {
			return fmt.Errorf("the clock of %s is %.1f s ahead, want %s", server, got, want)
		}
		return nil
	})
}

// peak tracks the highest number of runners registered at the same time, until the test ends.
func (w *story) peak(t *testing.T) (most func() int) {
	t.Helper()
	var mu sync.Mutex
	highest := 0
	go func() {
		_ = w.GitHub.WaitUntil(t.Context(), func() bool {
			n := len(w.GitHub.Report().Runners)
			mu.Lock()
			defer mu.Unlock()
			highest = max(highest, n)
			return false
		})
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return highest
	}
}

// noFailures fails the test if a runner of the pool failed.
func noFailures(t *testing.T, namespace string) {
	t.Helper()
	p := &v1alpha1.RunnerPool{}
	must(t, shared.Client.Get(t.Context(), key(namespace, "linux"), p))
	for _, f := range p.Status.Failures {
		t.Errorf("runner %s failed: %s: %s", f.Runner, f.Cause, f.Reason)
	}
	list := &eventsv1.EventList{}
	must(t, shared.Client.List(t.Context(), list, client.InNamespace(namespace)))
	for _, e := range list.Items {
		if e.Reason == string(v1alpha1.RunnerFailed) {
			t.Errorf("%s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Note)
		}
	}
}

// The clock of the controller's machine is an hour ahead or behind. Each job still gets its runner, and no
// additional runner starts.
func TestAControllerWhoseClockIsWrong(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -59 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			namespace := "clock-" + name
			w := newStory(t, namespace)
			must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
			most := w.peak(t)
			c := w.withClock(t, harness.NewClock(t, ahead), "")
			must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", atMost(5))))
			w.allDone(t, w.addJobs(t, namespace+"-org", "linux", 20, 50*time.Millisecond))
			knowsOffset(t, c, "kubernetes", -ahead)
			noFailures(t, namespace)
			if n := w.GitHub.Report().RunnersMade; n > 24 || most() > 6 {
				t.Errorf("%d runners were registered for 20 jobs, %d of them at once", n, most())
			}
			w.cleanUp(t, namespace)
		})
	}
}

// The clock of the controller's machine jumps forward and back while jobs run.
func TestAControllerWhoseClockJumps(t *testing.T) {
	w := newStory(t, "jumps")
	must(t, w.Connect(t.Context(), "jumps", "acme", "jumps-org"))
	most := w.peak(t)
	clock := harness.NewClock(t, 0)
	c := w.withClock(t, clock, "")
	must(t, w.Client.Create(t.Context(), newPool("jumps", "linux", "acme", atMost(2))))
	ids := w.addJobs(t, "jumps-org", "linux", 6, harness.LongJob)
	running := func(n int) {
		must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Jobs[githubsim.JobRunning] == n }))
	}
	running(2)
	for i, ahead := range []time.Duration{time.Hour, -59 * time.Minute, 0} {
		clock.Set(ahead)
		knowsOffset(t, c, "kubernetes", -ahead)
		patchScale(t, "jumps", fmt.Sprintf(`{"max":%d}`, 3+i)) // triggers a reconciliation
		running(3 + i)
	}
	harness.CutShort(t, w.GitHub, ids[:5]...)
	harness.CutShort(t, w.GitHub, ids...)
	noFailures(t, "jumps")
	if n := w.GitHub.Report().RunnersMade; n > 7 || most() > 6 {
		t.Errorf("%d runners were registered for 6 jobs, %d of them at once", n, most())
	}
	w.cleanUp(t, "jumps")
}

// patchScale changes the scale of the pool.
func patchScale(t *testing.T, namespace, change string) {
	t.Helper()
	p := &v1alpha1.RunnerPool{}
	p.Namespace, p.Name = namespace, "linux"
	must(t, shared.Client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"scale":`+change+`}}`))))
}

// GitHub's clock is an hour ahead of the cluster's. GitHub still accepts the App's tokens, and the connection
// reports the difference.
func TestAGitHubWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	w := newStoryOn(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second, Clock: func() time.Time { return time.Now().Add(time.Hour) }},
		"--watch-namespaces=theirs", "--leader-elect=false")
	w.connectApp(t, "theirs", "theirs-org")
	c := w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool("theirs", "linux", "acme", atMost(5))))
	w.allDone(t, w.addJobs(t, "theirs-org", "linux", 10, 50*time.Millisecond))
	knowsOffset(t, c, "github", time.Hour)
	eventually(t, func(ctx context.Context) error {
		conn := &v1alpha1.GitHubConnection{}
		if err := w.Client.Get(ctx, key("theirs", "acme"), conn); err != nil {
			return err
		}
		causes, _ := recorder.Causes(conn, v1alpha1.ReadyCondition)
		if !conditions.IsReady(conn) || !strings.Contains(causes, `ClockDiffers span="1h0m`) && !strings.Contains(causes, `ClockDiffers span="59m5`) {
			return fmt.Errorf("the connection has %s", causes)
		}
		return nil
	})
	noFailures(t, "theirs")
	w.cleanUp(t, "theirs")
}

// A node's clock is wrong by an hour. Corral measures the duration of events on the node from the time when it
// observed them.
func TestANodeWhoseClockIsWrong(t *testing.T) {
	t.Run("behind", func(t *testing.T) {
		w := newStory(t, "node-behind")
		must(t, w.Connect(t.Context(), "node-behind", "acme", "node-behind-org"))
		w.controller(t)
		defer w.Node.Inject(nodeplay.Fault{Kind: nodeplay.KilledInJob, Namespace: "node-behind", Clock: -time.Hour})()
		must(t, w.Client.Create(t.Context(), newPool("node-behind", "linux", "acme")))
		w.addJobs(t, "node-behind-org", "linux", 1, harness.LongJob)
		must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Jobs[githubsim.JobCompleted] == 1 })) // GitHub fails the job some time later
		if n := w.GitHub.Report().RunnersMade; n != 1 {
			t.Errorf("%d runners for a job whose runner was killed, and that no other gets", n)
		}
		w.cleanUp(t, "node-behind")
	})
	t.Run("ahead", func(t *testing.T) {
		w := newStory(t, "node-ahead")
		must(t, w.Connect(t.Context(), "node-ahead", "acme", "node-ahead-org"))
		w.controller(t)
		defer w.Node.Inject(nodeplay.Fault{Kind: nodeplay.ClockWrong, Namespace: "node-ahead", Clock: time.Hour})()
		must(t, w.Client.Create(t.Context(), newPool("node-ahead", "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(2)) })))
		w.allDone(t, w.addJobs(t, "node-ahead-org", "linux", 5, 50*time.Millisecond))
		eventually(t, func(ctx context.Context) error {
			_, err := settled(ctx, "node-ahead", 0, 2)
			return err
		})
		noFailures(t, "node-ahead")
		patchScale(t, "node-ahead", `{"idle":0}`)
		eventually(t, func(ctx context.Context) error { // once their protection has ended, after half a minute
			_, err := settled(ctx, "node-ahead", 0, 0)
			return err
		})
		w.cleanUp(t, "node-ahead")
	})
}

// The leader is lost, and its credentials are replaced before another replica leads. The pool resumes with its
// session at once, although GitHub does not report the owner of the session that blocks a new one.
func TestCredentialsThatAreReplacedWhileNobodyLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		credentials func(*story, *testing.T, string) map[string][]byte // credentials after the leader is lost; nil to keep them
		ahead       time.Duration                                      // offset of the next leader's clock
		standby     bool                                               // the next leader already runs while the first one leads
	}{
		"another-token":         {credentials: (*story).anotherToken},
		"an-app":                {credentials: (*story).anApp},
		"an-app-at-a-failover":  {credentials: (*story).anApp, standby: true},
		"a-clock-ahead":         {ahead: 3 * time.Minute},
		"a-clock-ahead-standby": {ahead: 3 * time.Minute, standby: true},
		"a-clock-behind":        {ahead: -3 * time.Minute},
		"both-at-a-failover":    {credentials: (*story).anotherToken, ahead: 3 * time.Minute, standby: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := "lost-" + name
			w := newStoryOn(t, githubsim.Options{}, "--watch-namespaces="+namespace)
			w.elect(t, namespace+"-lease")
			must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
			first := w.withClock(t, harness.NewClock(t, 0), "corral-0")
			must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme")))
			before := w.sessionOf(t, namespace)
			follow := func(pod string) *world.Controller {
				return w.withClock(t, harness.NewClock(t, tc.ahead), pod)
			}
			if tc.standby {
				follow("corral-1")
			}
			first.Kill()
			if tc.credentials != nil {
				secret := w.CredentialsSecret(namespace, "acme")
				must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
				secret.Data, secret.StringData = tc.credentials(w, t, namespace+"-org"), nil
				must(t, w.Client.Update(t.Context(), secret))
			}
			ids := w.addJobs(t, namespace+"-org", "linux", 3, time.Millisecond)
			began := time.Now()
			if !tc.standby {
				follow("corral-0")
			}
			w.allDone(t, ids)
			t.Logf("three jobs were done %s after the leader was lost", time.Since(began).Round(time.Second))
			if after := w.sessionOf(t, namespace); after != before {
				t.Errorf("the session was %s and is %s", before, after)
			}
			list := &eventsv1.EventList{}
			must(t, w.Client.List(t.Context(), list, client.InNamespace(namespace)))
			for _, e := range list.Items {
				if slices.Contains([]string{v1alpha1.OwnedElsewhereReason, v1alpha1.SessionRefusedReason}, e.Reason) {
					t.Errorf("%s %s: %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
				}
			}
			noFailures(t, namespace)
			w.cleanUp(t, namespace)
		})
	}
}

// sessionOf waits until a pool's scale set is ready, and returns the ID of its session.
func (w *story) sessionOf(t *testing.T, namespace string) (id string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		set := &v1alpha1.RunnerScaleSet{}
		if err := w.Client.Get(ctx, key(namespace, "linux"), set); err != nil {
			return err
		}
		if id, _, _ = strings.Cut(set.Status.SessionID, "."); !conditions.IsReady(set) || id == "" {
			return fmt.Errorf("the scale set isn't ready: %+v", set.Status)
		}
		return nil
	})
	return id
}

func (w *story) anotherToken(*testing.T, string) map[string][]byte {
	w.GitHub.AddToken("ghp_another")
	w.GitHub.RevokeToken(world.Token)
	return map[string][]byte{v1alpha1.TokenKey: []byte("ghp_another")}
}

func (w *story) anApp(t *testing.T, organization string) map[string][]byte {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	w.GitHub.AddApp(githubsim.App{
		ID: 31, InstallationID: 310, Account: organization, PublicKey: &private.PublicKey, Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	w.GitHub.RevokeToken(world.Token)
	return map[string][]byte{
		v1alpha1.AppIDKey: []byte("31"), v1alpha1.AppInstallationIDKey: []byte("310"),
		v1alpha1.AppPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}),
	}
}
