// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/corral-dev/corral/sim/apiproxy"
)

func TestDelayHoldsRequestsUntilCleared(t *testing.T) {
	b := newBench(t)
	remove := b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.Delay, Resource: "configmaps", Verbs: apiproxy.Writes, For: time.Hour})
	brief, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "early"}}
	if _, err := b.api.CoreV1().ConfigMaps(b.namespace).Create(brief, object, metav1.CreateOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	created := make(chan error, 1)
	go func() { created <- b.create(b.api, "a") }()
	b.watch() // opens at once: only writes are delayed
	if b.exists("a") || b.exists("early") {
		t.Error("a delayed request was forwarded")
	}
	remove()
	must(t, <-created)
}

func TestDelayIsAsLongAsSaid(t *testing.T) {
	const delay = 50 * time.Millisecond
	b := newBench(t)
	w := b.watch()
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.Delay, Resource: "configmaps", Verbs: []apiproxy.Verb{apiproxy.Get, apiproxy.Watch}, For: delay})
	began := time.Now()
	must(t, b.create(b.api, "a"))
	must(t, b.create(b.api, "b"))
	b.sees(w, "ADDED a", "ADDED b")
	if took := time.Since(began); took < delay {
		t.Errorf("events came after %s", took)
	}
	began = time.Now()
	_, err := b.api.CoreV1().ConfigMaps(b.namespace).Get(b.ctx, "a", metav1.GetOptions{})
	must(t, err)
	if took := time.Since(began); took < delay {
		t.Errorf("an answer came after %s", took)
	}
}

func TestRefuse(t *testing.T) {
	b := newBench(t)
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("exceeded quota: few")).ErrStatus
	for _, c := range []struct {
		name  string
		fault apiproxy.Fault
		is    func(error) bool
		text  string
	}{
		{"quota", apiproxy.Fault{Answer: &quota}, apierrors.IsForbidden, `configmaps "a" is forbidden: exceeded quota: few`},
		{"500", apiproxy.Fault{Status: http.StatusInternalServerError}, apierrors.IsInternalError, ""},
		{"503", apiproxy.Fault{Status: http.StatusServiceUnavailable}, apierrors.IsServiceUnavailable, ""},
		{"409", apiproxy.Fault{Status: http.StatusConflict}, apierrors.IsAlreadyExists, ""},
		{"429", apiproxy.Fault{Status: http.StatusTooManyRequests}, apierrors.IsTooManyRequests, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.fault
			f.Kind, f.Resource, f.Verbs, f.Times = apiproxy.Refuse, "configmaps", []apiproxy.Verb{apiproxy.Create}, 1
			defer b.proxy.Inject(f)()
			err := b.create(b.api, "a")
			if !c.is(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
			if b.exists("a") {
				t.Error("a refused request was forwarded")
			}
		})
	}
	if got := b.proxy.Count(apiproxy.Create, "configmaps", http.StatusForbidden); got != 1 {
		t.Errorf("counted %d", got)
	}
	must(t, b.create(b.api, "a"))
}

func TestFaultsSelectSubresources(t *testing.T) {
	b := newBench(t)
	pods, pod := b.api.CoreV1().Pods(b.namespace), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "missing"}}
	refused := apierrors.IsServiceUnavailable
	for _, c := range []struct {
		subresource    string
		object, status bool // whether requests for it are refused
	}{
		{"", true, true}, {"status", false, true}, {apiproxy.NoSubresource, true, false},
	} {
		remove := b.proxy.Inject(apiproxy.Fault{
			Kind: apiproxy.Refuse, Resource: "pods", Subresource: c.subresource, Verbs: apiproxy.Writes, Status: http.StatusServiceUnavailable,
		})
		if _, err := pods.Update(b.ctx, pod, metav1.UpdateOptions{}); refused(err) != c.object {
			t.Errorf("with subresource %q, updating the object: %v", c.subresource, err)
		}
		if _, err := pods.UpdateStatus(b.ctx, pod, metav1.UpdateOptions{}); refused(err) != c.status {
			t.Errorf("with subresource %q, updating the status: %v", c.subresource, err)
		}
		if _, err := pods.Get(b.ctx, pod.Name, metav1.GetOptions{}); refused(err) {
			t.Errorf("with subresource %q, reading: %v", c.subresource, err)
		}
		remove()
	}
	if got := b.proxy.Count(apiproxy.Update, "pods/status", http.StatusServiceUnavailable); got != 2 {
		t.Errorf("counted %d", got)
	}
}

// refusals returns the indexes, among 20 creations, of those that a fault refuses.
func refusals(b *bench, f apiproxy.Fault) []int {
	f.Kind, f.Resource, f.Status = apiproxy.Refuse, "configmaps", http.StatusServiceUnavailable
	defer b.proxy.Inject(f)()
	var all []int
	for i := range 20 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		if _, err := b.api.CoreV1().ConfigMaps(b.namespace).Create(b.ctx, object, metav1.CreateOptions{}); err != nil {
			all = append(all, i)
		}
	}
	return all
}

func TestFaultsStrikeBySeedAndCount(t *testing.T) {
	b := newBench(t)
	first, again := refusals(b, apiproxy.Fault{Probability: 0.5, Seed: 1}), refusals(b, apiproxy.Fault{Probability: 0.5, Seed: 1})
	if !slices.Equal(first, again) || len(first) == 0 || len(first) == 20 {
		t.Errorf("the same seed refused %v and %v", first, again)
	}
	if other := refusals(b, apiproxy.Fault{Probability: 0.5, Seed: 2}); slices.Equal(first, other) {
		t.Errorf("another seed refused %v as well", other)
	}
	if got := refusals(b, apiproxy.Fault{Skip: 2, Times: 3}); !slices.Equal(got, []int{2, 3, 4}) {
		t.Errorf("refused %v", got)
	}
	if got := b.proxy.Struck(apiproxy.Refuse); got != b.proxy.Count(apiproxy.Create, "configmaps", http.StatusServiceUnavailable) {
		t.Errorf("struck %d times", got)
	}
}

func TestLoseAnswer(t *testing.T) {
	b := newBench(t)
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.LoseAnswer, Resource: "configmaps", Verbs: apiproxy.Writes, Times: 1})
	err := b.create(b.api, "a")
	if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("got %v", err)
	}
	if !b.exists("a") {
		t.Error("the request was not forwarded")
	}
	if err := b.create(b.api, "a"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
	if got := b.proxy.Count(apiproxy.Create, "configmaps", apiproxy.NoAnswer); got != 1 {
		t.Errorf("counted %d", got)
	}
}

func TestCutRefusesConnectionsWhileItLasts(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	must(t, b.create(b.api, "a"))
	b.sees(w, "ADDED a")
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.Cut})
	b.sees(w, "end")
	for i := range 3 {
		if err := b.create(b.api, fmt.Sprintf("lost-%d", i)); err == nil || b.exists(fmt.Sprintf("lost-%d", i)) {
			t.Errorf("created although the connection is cut: %v", err)
		}
	}
	b.proxy.ClearFaults()
	must(t, b.create(b.api, "b"))
	b.sees(b.watch(), "ADDED a", "ADDED b")
}
