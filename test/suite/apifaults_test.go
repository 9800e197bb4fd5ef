// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/recorder"
)

// throughProxy runs the controller behind a proxy of the API server.
func (w *story) throughProxy(t *testing.T) *apiproxy.Proxy {
	t.Helper()
	proxy, err := apiproxy.Start(w.Cluster.Config)
	must(t, err)
	t.Cleanup(proxy.Close)
	c, err := w.RunControllerThrough(t.Context(), proxy, w.Binary, w.flags...)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		harness.ShowLog(t, c)
	})
	return proxy
}

// The watch of Runners stays open but delivers no events while jobs arrive, as behind a proxy that lost its
// upstream connection.
func TestASilentWatchOfRunners(t *testing.T) {
	w := newStory(t, "silent")
	must(t, w.Connect(t.Context(), "silent", "acme", "silent-org"))
	proxy := w.throughProxy(t)
	must(t, w.Client.Create(t.Context(), newPool("silent", "linux", "acme", atMost(4))))
	w.listens(t, "silent", 1)
	opened := proxy.Count(apiproxy.Watch, "runners")
	proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch, Resource: "runners", Times: 1}) // the open watch
	ids := w.addJobs(t, "silent-org", "linux", 4, harness.LongJob)
	eventually(t, func(context.Context) error {
		if n := proxy.Count(apiproxy.Watch, "runners"); n == opened {
			return fmt.Errorf("the watch is not restarted")
		}
		return nil
	})
	harness.CutShort(t, w.GitHub, ids...)
	if n := w.GitHub.Report().RunnersMade; n > 4 {
		t.Errorf("%d runners were registered for 4 jobs", n)
	}
	t.Logf("watches of runners: %d, of pods: %d", proxy.Count(apiproxy.Watch, "runners"), proxy.Count(apiproxy.Watch, "pods"))
	w.cleanUp(t, "silent")
}

// An admission policy refuses to delete Runners. Jobs continue to run. Corral keeps the session and reopens it
// when GitHub ends it. The pool's status names the policy and the refused operation.
func TestDeletesOfRunnersAreRefused(t *testing.T) {
	const namespace, why = "undeletable", "frozen by change-control"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "undeletable-org"))
	proxy := w.throughProxy(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", atMost(4))))
	w.listens(t, namespace, 1)
	refusal := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "runners"}, "a", errors.New(why)).ErrStatus
	began := time.Now()
	mend := proxy.Inject(apiproxy.Fault{Kind: apiproxy.Refuse, Resource: "runners", Verbs: []apiproxy.Verb{apiproxy.Delete}, Answer: &refusal})
	const jobs = 20
	for range jobs { // one after the other, so that each has messages of its own
		w.allDone(t, w.addJobs(t, "undeletable-org", "linux", 1, time.Millisecond))
	}
	if set := w.GitHub.Report().ScaleSets[0]; !w.GitHub.ExpireSession(set.ID) {
		t.Error("no session was open")
	}
	w.listens(t, namespace, 1)
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, key(namespace, "linux"), p); err != nil {
			return err
		}
		ready := conditions.Get(p, v1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != v1alpha1.DeletionRefusedReason || !strings.Contains(recorder.Facts(p, v1alpha1.ReadyCondition), why) {
			return fmt.Errorf("the pool says %+v", ready)
		}
		return nil
	})
	tries, minutes := proxy.Count(apiproxy.Delete, "runners"), time.Since(began).Minutes()
	if most := jobs * (6 + int(4*minutes)); tries > most {
		t.Errorf("%d attempts to delete %d runners in %.1f minutes, more than %d", tries, jobs, minutes, most)
	}
	mend()
	eventually(t, func(ctx context.Context) error { return w.noRunners(ctx, namespace) })
	eventually(t, func(context.Context) error {
		if left := w.GitHub.Report().ScaleSets[0].Messages; left > 0 {
			return fmt.Errorf("%d messages are left", left)
		}
		return nil
	})
	w.cleanUp(t, namespace)
}
