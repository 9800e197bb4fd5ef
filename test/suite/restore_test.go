// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/sim/world"
)

// newStoryOfItsOwn begins a story in its own cluster, because it would disturb other stories.
func newStoryOfItsOwn(t *testing.T, namespace string) *story {
	t.Helper()
	t.Parallel()
	own, err := world.Start(t.Context(), world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}})
	must(t, err)
	w := &story{World: &harness.World{World: own, Binary: shared.Binary}, flags: []string{"--watch-namespaces=" + namespace, "--leader-elect=false"}}
	t.Cleanup(func() {
		w.checkGitHub(t)
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// registrations returns a check that GitHub has n registrations.
func (w *story) registrations(n int) func(context.Context) error {
	return func(context.Context) error {
		if list := w.GitHub.Report().Runners; len(list) != n {
			return fmt.Errorf("GitHub has %d runners; want %d", len(list), n)
		}
		return nil
	}
}

// Etcd is restored from a backup while the controller runs. A Runner that was being deleted is deleted again.
// Registrations of Runners that were created after the backup are removed.
func TestARestoreOfEtcd(t *testing.T) {
	const namespace = "restored"
	w := newStoryOfItsOwn(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "restored-org"))
	w.start(t)
	pool := newPool(namespace, "linux", "acme")
	must(t, w.Client.Create(t.Context(), pool))
	heal := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.HangsAfterJob, Times: 1})
	defer heal()
	job := w.addJobs(t, "restored-org", "linux", 1, harness.LongJob)
	ended := w.busyRunners(t, namespace, 1)[0]
	backup, err := w.Cluster.Backup()
	must(t, err)

	must(t, w.Client.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"scale":{"idle":2}}}`))))
	eventually(t, w.registrations(3))
	harness.CutShort(t, w.GitHub, job...)
	r := &v1alpha1.Runner{}
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(&ended), r); err != nil || r.DeletionTimestamp.IsZero() {
			return fmt.Errorf("runner %s is not being deleted: %w", ended.Name, err)
		}
		return nil
	})
	must(t, w.Cluster.Restore(backup))
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(&ended), r))
	if r.UID != ended.UID || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("the restored runner has the UID %s, deleted at %s", r.UID, r.DeletionTimestamp)
	}
	eventually(t, func(ctx context.Context) error { return w.noRunners(ctx, namespace) })
	eventually(t, w.registrations(0))
	w.allDone(t, w.addJobs(t, "restored-org", "linux", 2, time.Millisecond))
	w.cleanUp(t, namespace)
}
