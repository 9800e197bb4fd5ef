// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// fakeGitHub returns fixed answers and records the requests.
type fakeGitHub struct {
	version    string
	gone       []int64
	releases   []poolstatus.Release
	err, noCan error // for the runner and for the releases
	asked      []string
}

func (t *fakeGitHub) Runner(_ context.Context, id int64) (*rest.Runner, error) {
	t.asked = append(t.asked, fmt.Sprint("runner ", id))
	switch {
	case t.err != nil:
		return nil, t.err
	case slices.Contains(t.gone, id):
		return nil, nil
	}
	return &rest.Runner{ID: id, Version: t.version}, nil
}

func (t *fakeGitHub) Releases(context.Context) ([]poolstatus.Release, error) {
	t.asked = append(t.asked, "releases")
	if t.noCan != nil {
		return nil, t.noCan
	}
	return t.releases, nil
}

// versionBench is a pool whose runners connect, and a GitHub that reports their version.
type versionBench struct {
	*Versions
	t    *testing.T
	c    client.Client
	gh   *fakeGitHub
	now  time.Time
	pool *v1alpha1.RunnerPool
}

func newVersionBench(t *testing.T) *versionBench {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	b := &versionBench{
		t: t, now: now, gh: &fakeGitHub{version: "2.330.0", releases: []poolstatus.Release{{Version: "2.330.0", At: now.Add(-time.Hour)}, {Version: "2.331.0", At: now}}},
		pool: &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}, Status: v1alpha1.RunnerPoolStatus{Revision: "linux-1"}},
	}
	b.c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(b.pool).Build()
	b.restart()
	return b
}

// restart forgets everything that is not in the cluster.
func (b *versionBench) restart() {
	b.Versions = &Versions{Client: b.c, Now: func() time.Time { return b.now }, GitHub: func(types.NamespacedName) (VersionReader, bool) { return b.gh, true }}
}

// connect replaces all runners by connected runners of a revision.
func (b *versionBench) connect(revision string, ids ...int64) {
	b.t.Helper()
	b.must(b.c.DeleteAllOf(b.t.Context(), &v1alpha1.Runner{}, client.InNamespace("ci")))
	for _, id := range ids {
		b.must(b.c.Create(b.t.Context(), &v1alpha1.Runner{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: fmt.Sprint("linux-", id), Labels: map[string]string{v1alpha1.PoolLabel: "linux"}},
			Spec:       v1alpha1.RunnerSpec{Revision: revision}, Status: v1alpha1.RunnerStatus{State: v1alpha1.RunnerIdle, RunnerID: id},
		}))
	}
}

func (b *versionBench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// update changes the status.
func (b *versionBench) update(do func(*v1alpha1.RunnerPoolStatus)) {
	b.t.Helper()
	do(&b.pool.Status)
	b.must(b.c.Update(b.t.Context(), b.pool))
}

// passes advances the clock, reconciles, and checks the requests to GitHub. It returns the delay until the next pass.
func (b *versionBench) passes(later time.Duration, asks ...string) time.Duration {
	b.t.Helper()
	b.now, b.gh.asked = b.now.Add(later), nil
	result, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.pool)})
	if err != nil || !slices.Equal(b.gh.asked, asks) {
		b.t.Errorf("asked %v, want %v; %v", b.gh.asked, asks, err)
	}
	return result.RequeueAfter
}

// knows checks the known version, revision, latest release, and days since the beginning.
func (b *versionBench) knows(want string) {
	b.t.Helper()
	got := ""
	if s := b.Of(client.ObjectKeyFromObject(b.pool)); s != nil {
		got = strings.Join([]string{s.Version, s.Revision, s.Latest}, " ")
		if s.UpdateBy != nil {
			got += fmt.Sprint(" ", s.UpdateBy.Sub(time.Unix(0, 0)).Hours()/24)
		}
	}
	if got != want {
		b.t.Errorf("known %q, want %q", got, want)
	}
}

func TestTheVersionOfAPoolsRunnersIsAskedOncePerRevision(t *testing.T) {
	b := newVersionBench(t)
	b.connect("linux-2", 2)
	b.passes(0) // its runner has another revision
	b.connect("linux-1", 1)
	b.gh.err = github.NewError(github.KindUnavailable, "looking", 0, 0, "away", nil)
	if after := b.passes(0, "runner 1"); after != versionRetry {
		t.Errorf("again after %s", after)
	}
	b.knows("")
	b.gh.err = nil
	b.passes(versionRetry - 1) // however many connect in the meantime
	b.passes(1, "runner 1", "releases")
	b.knows("2.330.0 linux-1 2.331.0 30")
	if after := b.passes(time.Hour); after != versionInterval-time.Hour {
		t.Errorf("again after %s", after)
	}
	b.gh.version = "2.331.0" // a tag that moved
	b.passes(versionInterval, "runner 1", "releases")
	b.knows("2.331.0 linux-1 2.331.0")
	b.connect("linux-2", 2)
	b.update(func(s *v1alpha1.RunnerPoolStatus) { s.Revision = "linux-2" })
	b.gh.version = ""
	if after := b.passes(0, "runner 2"); after != versionInterval {
		t.Errorf("again after %s", after)
	}
	b.knows("") // the server reports no version
	b.must(b.c.Delete(t.Context(), b.pool))
	b.passes(0)
	b.byPool.Range(func(pool, _ any) bool {
		t.Errorf("%s is gone, and remembered", pool)
		return true
	})
}

func TestAPoolAtZeroHearsOfReleases(t *testing.T) {
	b := newVersionBench(t)
	b.gh.version = "2.331.0"
	b.connect("linux-1", 1)
	b.passes(0, "runner 1", "releases")
	b.knows("2.331.0 linux-1 2.331.0")
	b.connect("")
	b.gh.releases = append(b.gh.releases, poolstatus.Release{Version: "2.332.0", At: b.now.Add(24 * time.Hour)})
	if after := b.passes(versionInterval-1) + b.passes(1, "releases"); after != 1+versionInterval {
		t.Errorf("again after %s", after)
	}
	b.knows("2.331.0 linux-1 2.332.0 31")
	b.connect("linux-1", 2)
	b.passes(time.Hour, "runner 2", "releases") // another image may have its tag by then

	b.connect("")
	b.update(func(s *v1alpha1.RunnerPoolStatus) { s.RunnerVersion = b.Of(client.ObjectKeyFromObject(b.pool)) })
	b.restart()
	b.gh.releases = append(b.gh.releases, poolstatus.Release{Version: "2.333.0", At: b.now.Add(48 * time.Hour)})
	b.passes(0, "releases")
	b.knows("2.331.0 linux-1 2.333.0 31")
}

func TestWhatIsKnownOfAVersionStaysWhenGitHubRefuses(t *testing.T) {
	b := newVersionBench(t)
	b.connect("linux-1", 1)
	b.gh.noCan = github.NewError(github.KindNotFound, "listing", 404, 0, "no such repository", nil)
	b.passes(0, "runner 1", "releases")
	b.knows("2.330.0 linux-1 ") // nothing is claimed
	b.gh.noCan = nil
	b.passes(versionInterval, "runner 1", "releases")
	b.knows("2.330.0 linux-1 2.331.0 30")
	b.gh.noCan = github.NewError(github.KindForbidden, "listing", 403, 0, "SAML", nil)
	b.passes(versionInterval, "runner 1", "releases")
	b.knows("2.330.0 linux-1 2.331.0 30")
	b.gh.err, b.gh.noCan = b.gh.noCan, nil
	b.passes(versionInterval, "runner 1", "releases")
	b.knows("2.330.0 linux-1 2.331.0 30")
	b.gh.err, b.gh.noCan = nil, github.NewError(github.KindUnavailable, "listing", 0, time.Hour, "away", nil)
	if after := b.passes(versionInterval, "runner 1", "releases"); after != time.Hour {
		t.Errorf("again after %s", after)
	}
	b.knows("2.330.0 linux-1 2.331.0 30")
}

func TestARunnerThatIsGoneIsNoAnswer(t *testing.T) {
	b := newVersionBench(t)
	b.connect("linux-1", 1, 2, 3, 4)
	b.gh.gone = []int64{1, 2, 3}
	if after := b.passes(0, "runner 1", "runner 2", "runner 3"); after != versionGone {
		t.Errorf("again after %s", after)
	}
	b.connect("linux-1", 5)
	b.passes(versionGone - 1)
	b.gh.gone = []int64{5}
	b.connect("linux-1", 5, 6)
	b.passes(1, "runner 5", "runner 6", "releases")
	b.knows("2.330.0 linux-1 2.331.0 30")
}

func TestTheVersionIsThatOfTheRevisionInForce(t *testing.T) {
	b := newVersionBench(t)
	b.connect("linux-1", 1)
	b.passes(0, "runner 1", "releases")
	for _, phase := range []v1alpha1.UpdatePhase{v1alpha1.UpdateHeld, v1alpha1.UpdateCanary, v1alpha1.UpdateRolledBack} {
		b.update(func(s *v1alpha1.RunnerPoolStatus) {
			s.Revision, s.Update = "linux-2", &v1alpha1.UpdateStatus{From: "linux-1", To: "linux-2", Phase: phase}
		})
		b.passes(versionInterval, "runner 1", "releases")
		b.knows("2.330.0 linux-1 2.331.0 30")
	}
	b.update(func(s *v1alpha1.RunnerPoolStatus) { s.Update.Phase = v1alpha1.UpdateRolling })
	b.connect("linux-2", 2)
	b.passes(0, "runner 2", "releases")
	b.knows("2.330.0 linux-2 2.331.0 30")
}
