// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/harness"
)

// Of every five pools, one has fewer claims than runners, and one has runners that wait for a claim.
func cacheOf(i int) *v1alpha1.CacheSpec {
	switch i % 5 {
	case 0:
		return &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 2}
	case 1:
		return &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 6, OnMissing: v1alpha1.WaitForClaim}
	}
	return nil
}

// mounts maps each claim to the pods that use it, according to a watch.
type mounts map[string]map[types.UID]string

// see processes an event. It returns the claim if two pods use it at the same time, and "" otherwise.
func (m mounts) see(event watch.EventType, pod *corev1.Pod) (claim string) {
	claim = pod.Annotations[v1alpha1.CacheClaimAnnotation]
	if claim == "" {
		return ""
	}
	if m[claim] == nil {
		m[claim] = map[types.UID]string{}
	}
	m[claim][pod.UID] = pod.Name
	if event == watch.Deleted {
		delete(m[claim], pod.UID)
	}
	if len(m[claim]) > 1 {
		return claim
	}
	return ""
}

// watchClaims fails the storm if two pods use the same claim at once, until the test ends.
func (s *storm) watchClaims() {
	c, err := client.NewWithWatch(w.Cluster.Config, client.Options{Scheme: kube.Scheme()})
	harness.Must(s.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		users := map[string]map[types.UID]bool{}
		for ctx.Err() == nil { // a busy API server closes watches
			follow, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.namespace))
			if err != nil {
				continue
			}
			s.followClaims(follow, users)
		}
		s.tellClaims(users)
	})
	s.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// followClaims processes the events of one watch, which starts with the existing pods. It records all pods that
// used each claim in users.
func (s *storm) followClaims(follow watch.Interface, users map[string]map[types.UID]bool) {
	held := mounts{}
	for event := range follow.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		if claim := pod.Annotations[v1alpha1.CacheClaimAnnotation]; claim != "" {
			if users[claim] == nil {
				users[claim] = map[types.UID]bool{}
			}
			users[claim][pod.UID] = true
		}
		if claim := held.see(event.Type, pod); claim != "" {
			s.complain("claim %s is held twice: %v", claim, held[claim])
		}
	}
}

// tellClaims logs how many pods reused a claim.
func (s *storm) tellClaims(users map[string]map[types.UID]bool) {
	again := 0
	for _, pods := range users {
		again += len(pods) - 1
	}
	s.log.add("", "claims", "%d pods reused a claim of an earlier pod", again)
	s.Logf("seed %d: %d pods reused a claim of an earlier pod", s.seed, again)
	if again == 0 && !s.Failed() {
		s.complain("no claim was ever taken over")
	}
}
