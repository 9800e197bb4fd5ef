// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/recorder"
)

// denials are answers in which GitHub reports no runner, or nothing at all.
var denials = []githubsim.Fault{
	{Status: http.StatusOK},
	{Status: http.StatusOK, Body: "{}"},
	{Status: http.StatusOK, Body: `{"count":0,"value":[]}`},
	{Status: http.StatusNotFound},
}

// busyRunners waits until the given number of runners in a namespace have a job, and returns them.
func (w *story) busyRunners(t *testing.T, namespace string, n int) []v1alpha1.Runner {
	t.Helper()
	list := &v1alpha1.RunnerList{}
	eventually(t, func(ctx context.Context) error {
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		list.Items = slices.DeleteFunc(list.Items, func(r v1alpha1.Runner) bool {
			return r.Status.State != v1alpha1.RunnerBusy || !r.DeletionTimestamp.IsZero()
		})
		if len(list.Items) != n {
			return fmt.Errorf("%d runners have a job; want %d", len(list.Items), n)
		}
		return nil
	})
	return list.Items
}

// The leader restarts, and a user deletes a busy Runner, while GitHub finds no runner of its name. Each runner
// keeps its pod and its job until the job is over, and Corral asks GitHub to remove the registration.
func TestGitHubFindsNothing(t *testing.T) {
	const namespace = "absent"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "absent-org"))
	c := w.start(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme")))
	ids := w.addJobs(t, "absent-org", "linux", len(denials), harness.LongJob)
	for i, r := range w.busyRunners(t, namespace, len(denials)) {
		c.Kill()
		fault := denials[i]
		fault.Endpoint = githubsim.EndpointFindAgent
		mend := w.GitHub.AddFault(fault)
		asked := w.GitHub.Report().Requests[githubsim.EndpointDeleteAgent]
		c = w.start(t)
		must(t, w.Client.Delete(t.Context(), &r))
		must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Requests[githubsim.EndpointDeleteAgent] > asked }))
		mend()
		pod := &corev1.Pod{}
		if err := w.Client.Get(t.Context(), key(namespace, r.Name), pod); err != nil || !pod.DeletionTimestamp.IsZero() {
			t.Errorf("%s %q: the pod of runner %s, which has a job, is deleted: %v", fault, fault.Body, r.Name, err)
		}
	}
	harness.CutShort(t, w.GitHub, ids...)
	w.cleanUp(t, namespace)
}

// After a restart, GitHub reports no runners for more than a minute, as during an outage. All jobs continue.
func TestAnOutageThatHidesRunnersEndsNone(t *testing.T) {
	const namespace = "hidden"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "hidden-org"))
	c := w.start(t)
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { *p.Spec.Scale.Max = 5 })))
	ids := w.addJobs(t, "hidden-org", "linux", 5, harness.LongJob)
	w.busyRunners(t, namespace, 5)
	c.Kill()
	set := w.GitHub.Report().ScaleSets[0]
	uncounted := fmt.Sprintf(`{"id":%d,"name":%q,"runnerGroupId":1,"runnerGroupName":"Default","labels":[{"type":"System","name":"linux"}],"statistics":{}}`, set.ID, set.Name)
	for e, f := range map[githubsim.Endpoint]githubsim.Fault{
		githubsim.EndpointGetScaleSet: {Status: http.StatusOK, Body: uncounted},
		githubsim.EndpointGetMessage:  {Alter: githubsim.AlterZeroStatistics},
		githubsim.EndpointFindAgent:   {Status: http.StatusOK, Body: `{"count":0,"value":[]}`},
		githubsim.EndpointGetAgent:    {Status: http.StatusNotFound},
	} {
		f.Endpoint = e
		w.GitHub.AddFault(f)
	}
	w.start(t)
	asked := func() int { return w.GitHub.Report().Requests[githubsim.EndpointGetAgent] }
	ctx, stop := context.WithTimeout(t.Context(), harness.Patience/2)
	defer stop()
	err := w.GitHub.WaitUntil(ctx, func() bool { return asked() >= 2*len(ids) }) // each runner is looked up once a minute
	isCounted := asked() > 0
	if err != nil && isCounted {
		t.Error(err)
	}
	for _, r := range w.busyRunners(t, namespace, 5) {
		want := fmt.Sprintf("id=\"%d\"", r.Status.RunnerID)
		if causes, _ := recorder.Causes(&r, v1alpha1.ReadyCondition); isCounted && (!strings.HasPrefix(causes, "RunnerUnknown") || !strings.Contains(causes, want)) {
			t.Errorf("runner %s has %s", r.Name, causes)
		}
	}
	w.GitHub.ClearFaults()
	harness.CutShort(t, w.GitHub, ids...)
	w.cleanUp(t, namespace)
	if !isCounted {
		t.Skip("GitHub sent no counts after the restart, because the controller had deleted the last message before it")
	}
}
