// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// NewPool returns a pool with all required fields. Its label is its name, and its max is 10.
func NewPool(namespace, name, connection string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	maximum := int32(10)
	p := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: connection},
			RunnerLabels:  []string{name},
			Scale:         v1alpha1.ScaleSpec{Max: &maximum},
			Template:      runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`)},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// Key returns the key of an object.
func Key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// AddJobs adds jobs to an account on the simulated GitHub and returns their IDs.
func AddJobs(t *testing.T, github *githubsim.Running, account, label string, n int, duration time.Duration) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		id, err := github.AddJob(githubsim.Job{Repository: account + "/app", Labels: []string{label}, Duration: duration})
		Must(t, err)
		ids[i] = id
	}
	return ids
}

// LongJob is the duration of a job that runs until CutShort ends it.
const LongJob = time.Hour

// CutShort ends jobs as soon as they run, and waits until all have succeeded.
func CutShort(t *testing.T, github *githubsim.Running, ids ...string) {
	t.Helper()
	Eventually(t, func(context.Context) error {
		if !github.CutShort(ids...) {
			return errors.New("not all of the jobs run")
		}
		return nil
	})
	AllDone(t, github, ids)
}

// AllDone waits until all jobs have succeeded.
func AllDone(t *testing.T, github *githubsim.Running, ids []string) {
	t.Helper()
	Eventually(t, func(context.Context) error {
		succeeded := map[string]bool{}
		for _, j := range github.Jobs() {
			succeeded[j.ID] = j.Result == githubsim.ResultSucceeded
		}
		done := 0
		for _, id := range ids {
			if succeeded[id] {
				done++
			}
		}
		if done != len(ids) {
			return fmt.Errorf("%d of %d jobs succeeded: %v", done, len(ids), github.Report().Jobs)
		}
		return nil
	})
}

// Left returns an error that names the objects of Corral that are left in a namespace.
func (w *World) Left(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{&v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{}} {
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if items := meta.LenList(list); items > 0 {
			return fmt.Errorf("%d of %T left", items, list)
		}
	}
	return nil
}
