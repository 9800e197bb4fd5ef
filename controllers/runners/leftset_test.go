// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim"
)

// counted returns sessions in which GitHub counts a fixed number of registrations.
type counted struct {
	Sets
	registered int
}

func (c counted) Snapshot(types.NamespacedName) (scaleset.Snapshot, bool) {
	return scaleset.Snapshot{Known: true, Statistics: scaleset.Statistics{RegisteredRunners: c.registered}}, true
}

// Registrations of a scale set have no Runner, as after a restore of etcd. GitHub's list is read only while GitHub counts
// more registrations than there are Runners.
func TestRegistrationsThatAreLeftInAScaleSet(t *testing.T) {
	b := newBench(t)
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	gh, err := rest.NewClient(github.Credentials{ConfigURL: b.github.ConfigURL("acme"), Token: "t"}, github.Options{Transport: network, Now: b.Now})
	if err != nil {
		t.Fatal(err)
	}
	b.REST = restRegistry{gh}
	sets, _ := b.Clients.Get("ci/acme")
	other, err := sets.Create(t.Context(), scaleset.Set{Name: "other", GroupID: 1, Labels: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	record := &v1alpha1.RunnerScaleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux"}, Status: v1alpha1.RunnerScaleSetStatus{ID: b.set.ID}}
	b.create(record)
	stem := podspec.NameStem("linux", testPoolUID)
	owned := b.runner()
	owned.Name, owned.UID, owned.ResourceVersion = stem+"4", "u4", ""
	b.create(owned)
	for name, set := range map[string]int64{
		stem + "1": b.set.ID, stem + "2": b.set.ID, stem + "3": other.ID, stem + "4": b.set.ID, "linux-1": b.set.ID, podspec.NameStem("linux", "another") + "1": b.set.ID,
	} {
		if _, err := sets.GenerateJIT(t.Context(), set, name); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name, id string) {
		b.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, Annotations: map[string]string{v1alpha1.RunnerIDAnnotation: id}}})
	}
	for _, r := range b.github.Report().Runners {
		switch r.Name {
		case stem + "1", stem + "4":
			pod(r.Name, strconv.Itoa(r.ID))
		case stem + "2":
			pod(r.Name, strconv.Itoa(r.ID+1)) // of another registration
		}
	}
	left := func() (names []string) {
		for _, r := range b.github.Report().Runners {
			names = append(names, r.Name)
		}
		return slices.Sorted(slices.Values(names))
	}
	all := left()
	c := b.newCollector()
	b.collect(c, time.Minute)
	b.collect(c, leakAfter)
	if n := b.github.Report().Requests[githubsim.EndpointRunners]; n != 0 {
		t.Errorf("the list was read %d times although GitHub counts no more than there are", n)
	}
	c.Sessions = counted{b.Sets, 6}
	b.collect(c, time.Minute)
	if got := left(); !slices.Equal(got, all) {
		t.Errorf("removed at once: %v are left", got)
	}
	restore := b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
	b.collect(c, leakAfter)
	if got := left(); !slices.Equal(got, all) {
		t.Errorf("removed although GitHub says that they have jobs: %v are left", got)
	}
	restore()
	b.collect(c, time.Minute)
	want := slices.DeleteFunc(all, func(name string) bool { return name == stem+"1" || name == stem+"2" })
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
	for name, stays := range map[string]bool{stem + "1": false, stem + "2": true, stem + "4": true} {
		if err := b.Client.Get(t.Context(), types.NamespacedName{Namespace: "ci", Name: name}, &corev1.Pod{}); (err == nil) != stays {
			t.Errorf("pod %s stays: %t, want %t; %v", name, err == nil, stays, err)
		}
	}
	c.Sessions = counted{&holder{}, 6}
	b.collect(c, time.Minute)
	if len(c.memories) != 0 {
		t.Errorf("the scale set is another's, and is looked at: %+v", c.memories)
	}
}

// If an action of this process was undone, it repeats the action once the cache has had time to show it.
func TestARunnerThatIsBackIsEndedAgain(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	key, pod := types.NamespacedName{Namespace: "ci", Name: "linux-a"}, b.pod()
	b.Memory.setDeleted(key, "u1")
	known := b.Memory.of(key, "u1")
	known.pod.deleted, known.pod.asked = pod.UID, time.Now()
	if !b.Memory.isDeleted(key, "u1") || !b.Memory.isPodDeleted(key, pod.UID) {
		t.Error("forgotten at once")
	}
	past := time.Now().Add(-podShown)
	known.end.deleted, known.end.released, known.pod.asked = past, past, past
	if b.Memory.isDeleted(key, "u1") || b.Memory.isPodDeleted(key, pod.UID) {
		t.Error("believed for good")
	}
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Time{Time: b.now}}})
	if after := b.reconcile().RequeueAfter; after == 0 || after > podShown {
		t.Errorf("looked at again after %s", after)
	}
	if r := b.runner(); r.DeletionTimestamp.IsZero() {
		t.Error("not ended again")
	}
	b.reconcile()
	if b.runner() != nil || b.pod() != nil || b.registered() != 0 {
		t.Errorf("runner %v, pod %v, %d registrations", b.runner(), b.pod(), b.registered())
	}
}
