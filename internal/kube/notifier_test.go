// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// fakeNotifier records the events that it receives.
type fakeNotifier struct{ events []string }

func (n *fakeNotifier) Notify(object client.Object, eventType, reason, message string, metadata map[string]string) {
	n.events = append(n.events, strings.Join([]string{object.GetName(), eventType, reason, message, metadata["corral.dev/revision"]}, " "))
}

func TestANotifierIsToldOfEventsButNotOfRunners(t *testing.T) {
	b, n := newBench(t), &fakeNotifier{}
	b.reporter.Notifier = n
	attempt := b.reporter.Begin(b.pool(t))
	attempt.About(map[string]string{"corral.dev/revision": "main@sha1:1"})
	if _, err := attempt.Finish(t.Context(), kube.Done{}, kube.Stall(catalog.DefinitionsInvalid.With("wrong"))); err != nil {
		t.Fatal(err)
	}
	b.reporter.Event(b.pool(t), corev1.EventTypeNormal, "Pruned", "gone")
	b.reporter.Event(&v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Name: "linux-1"}}, corev1.EventTypeWarning, "Failed", "over")
	if diff := cmp.Diff([]string{"linux Warning BuildFailed wrong main@sha1:1", "linux Normal Pruned gone "}, n.events); diff != "" {
		t.Error(diff)
	}
	if len(b.events) != 3 {
		t.Errorf("%d events are recorded", len(b.events))
	}
}
