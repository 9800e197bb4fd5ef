// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"slices"
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

// fakeGitHub says what GitHub would, and lists what it was asked.
type fakeGitHub struct {
	version    string
	releases   []poolstatus.Release
	err, noCan error // of the runner, and of the releases
	asked      []string
}

func (t *fakeGitHub) Runner(_ context.Context, id int64) (*rest.Runner, error) {
	t.asked = append(t.asked, fmt.Sprint("runner ", id))
	return &rest.Runner{ID: id, Version: t.version}, t.err
}

func (t *fakeGitHub) Releases(context.Context) ([]poolstatus.Release, error) {
	t.asked = append(t.asked, "releases")
	return t.releases, t.noCan
}

func TestTheVersionOfAPoolsRunnersIsAskedOncePerRevision(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	key, now := types.NamespacedName{Namespace: "ci", Name: "linux"}, time.Unix(0, 0)
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Status: v1alpha1.RunnerPoolStatus{Revision: "linux-1"}}
	online := func(name, revision string, id int64) client.Object {
		return &v1alpha1.Runner{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, Labels: map[string]string{v1alpha1.PoolLabel: key.Name}},
			Spec:       v1alpha1.RunnerSpec{Revision: revision}, Status: v1alpha1.RunnerStatus{State: v1alpha1.RunnerIdle, RunnerID: id},
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool, online("linux-b", "linux-2", 2)).Build()
	gh := &fakeGitHub{version: "2.330.0", releases: []poolstatus.Release{{Version: "2.331.0", At: now}}}
	v := &Versions{Client: c, Now: func() time.Time { return now }, GitHub: func(types.NamespacedName) (VersionTeller, bool) { return gh, true }}
	pass := func(asks ...string) time.Duration {
		t.Helper()
		gh.asked = nil
		result, err := v.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil || !slices.Equal(gh.asked, asks) {
			t.Errorf("asked %v, want %v; %v", gh.asked, asks, err)
		}
		return result.RequeueAfter
	}

	pass() // its runner isn't of the revision
	if err := c.Create(t.Context(), online("linux-a", "linux-1", 1)); err != nil {
		t.Fatal(err)
	}
	gh.err = github.NewError(github.KindUnavailable, "looking", 0, 0, "away", nil)
	if after := pass("runner 1"); after != versionRetry || v.Of(key) != nil {
		t.Errorf("again after %s, known %+v", after, v.Of(key))
	}
	gh.err = nil
	pass("runner 1", "releases")
	if got, by := v.Of(key), now.Add(poolstatus.UpdateWithin); got == nil || got.Version != "2.330.0" || got.Latest != "2.331.0" || got.Revision != "linux-1" || !got.UpdateBy.Time.Equal(by) {
		t.Errorf("known %+v", got)
	}
	now = now.Add(time.Hour)
	if after := pass(); after != versionInterval-time.Hour {
		t.Errorf("again after %s", after)
	}
	now = now.Add(versionInterval)
	gh.noCan = github.NewError(github.KindNotFound, "listing", 404, 0, "no such repository", nil)
	gh.releases = nil
	pass("runner 1", "releases")
	if got := v.Of(key); got == nil || got.Latest != "" || got.UpdateBy != nil {
		t.Errorf("known without releases %+v", got)
	}
	pool.Status.Revision = "linux-2"
	if err := c.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	gh.version = ""
	pass("runner 2")
	if got := v.Of(key); got != nil {
		t.Errorf("known of a server that tells no version %+v", got)
	}
	if err := c.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if pass(); len(v.byPool) > 0 {
		t.Error("a pool that is gone is remembered")
	}
}
