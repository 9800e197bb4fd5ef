// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/notify"
)

var now = time.Unix(1_700_000_000, 0).UTC()

// receiver records posts and returns the queued answers; it repeats the last one.
type receiver struct {
	posts   chan post
	answers chan int
}

type post struct {
	event       eventv1.Event
	contentType string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	p := post{contentType: request.Header.Get("Content-Type")}
	decoder := json.NewDecoder(request.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p.event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusAccepted
	select {
	case status = <-r.answers:
	default:
	}
	w.Header().Set("Retry-After", "3600") // must not delay other events
	w.WriteHeader(status)
	r.posts <- p
}

// start runs a poster that posts to a receiver with the given answers.
func start(t *testing.T, answers ...int) (*notify.Poster, *receiver) {
	t.Helper()
	r := &receiver{posts: make(chan post, 2000), answers: make(chan int, len(answers))}
	for _, answer := range answers {
		r.answers <- answer
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	p := poster(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, r
}

func poster(t *testing.T, url string) *notify.Poster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p, err := notify.New(notify.Options{
		URL: url, Scheme: scheme, Instance: "corral-0", Now: func() time.Time { return now }, Backoff: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func source() *v1alpha1.PoolSource {
	return &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: "pools", UID: "uid", ResourceVersion: "7",
		Annotations: map[string]string{"event.toolkit.fluxcd.io/team": "build", "other": "left out"},
	}}
}

func (r *receiver) next(t *testing.T) post {
	t.Helper()
	select {
	case p := <-r.posts:
		return p
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing was posted")
		return post{}
	}
}

func TestAnEventHasTheFormOfNotificationController(t *testing.T) {
	p, r := start(t)
	p.Notify(source(), corev1.EventTypeWarning, "BuildFailed", "a.cue:1:2: wrong", map[string]string{"corral.dev/revision": "main@sha1:1"})
	got := r.next(t)
	want := post{contentType: "application/json", event: eventv1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "corral.dev/v1alpha1", Kind: "PoolSource", Namespace: "ci", Name: "pools", UID: "uid", ResourceVersion: "7",
		},
		Severity: "error", Timestamp: metav1.NewTime(now), Message: "a.cue:1:2: wrong", Reason: "BuildFailed",
		Metadata:            map[string]string{"corral.dev/revision": "main@sha1:1", "event.toolkit.fluxcd.io/team": "build"},
		ReportingController: "corral", ReportingInstance: "corral-0",
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(post{})); diff != "" {
		t.Error(diff)
	}
}

func TestWhatBecomesOfAnEvent(t *testing.T) {
	cases := map[string]struct {
		answers []int
		posts   int
		result  string
	}{
		"taken":                     {[]int{202}, 1, "sent"},
		"known already":             {[]int{429}, 1, "duplicate"},
		"refused":                   {[]int{400}, 1, "failed"},
		"sent elsewhere":            {[]int{307}, 1, "failed"},
		"taken after two faults":    {[]int{500, 503, 202}, 3, "sent"},
		"the receiver stays broken": {[]int{500, 500, 500}, 3, "failed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := count(t, tc.result)
			p, r := start(t, tc.answers...)
			p.Notify(source(), corev1.EventTypeNormal, "Succeeded", "fine", nil)
			p.Notify(source(), corev1.EventTypeNormal, "Last", "fine", nil)
			for i := range tc.posts {
				if got := r.next(t); got.event.Reason != "Succeeded" || got.event.Severity != "info" {
					t.Errorf("post %d is %s %s", i, got.event.Severity, got.event.Reason)
				}
			}
			if got := r.next(t); got.event.Reason != "Last" {
				t.Errorf("there is one post more: %s", got.event.Reason)
			}
			// The last of two may not be counted yet; the first is.
			if got := count(t, tc.result) - before; got < 1 {
				t.Errorf("%s is counted %v times", tc.result, got)
			}
		})
	}
}

func count(t *testing.T, result string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(notify.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == result {
			return m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric for %s", result)
	return 0
}

func TestNobodyWaitsForAReceiver(t *testing.T) {
	p := poster(t, "http://127.0.0.1:1") // never started: nothing leaves the queue
	before := count(t, "dropped")
	for range 1100 {
		p.Notify(source(), corev1.EventTypeNormal, "Succeeded", "fine", nil)
	}
	if got := count(t, "dropped") - before; got != 850 {
		t.Errorf("%v were dropped, want 850: a namespace has a quarter of the places", got)
	}
}

// Events about one namespace, however many, leave room for events about another, and take turns with them.
func TestEventsOfOneNamespaceLeaveRoomForOthers(t *testing.T) {
	r := &receiver{posts: make(chan post, 2000), answers: make(chan int)}
	server := httptest.NewServer(r)
	defer server.Close()
	p := poster(t, server.URL)
	for range 1100 {
		p.Notify(source(), corev1.EventTypeNormal, "Succeeded", "fine", nil)
	}
	other := source()
	other.Namespace = "other"
	before := count(t, "dropped")
	for _, reason := range []string{"First", "Second"} {
		p.Notify(other, corev1.EventTypeNormal, reason, "fine", nil)
	}
	if got := count(t, "dropped") - before; got != 0 {
		t.Errorf("%v were dropped", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	var got []string
	for range 4 {
		got = append(got, r.next(t).event.Reason)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"Succeeded", "First", "Succeeded", "Second"}, got); diff != "" {
		t.Errorf("posted (-want +got):\n%s", diff)
	}
}

func TestAMessageIsCut(t *testing.T) {
	p, r := start(t)
	p.Notify(source(), corev1.EventTypeNormal, "Succeeded", strings.Repeat("ä", 30_000), nil)
	if got := r.next(t).event.Message; len(got) > 39_000 || len(got) < 38_900 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-5:])
	}
}

func TestLongAnnotationsAreLeftOut(t *testing.T) {
	p, r := start(t)
	object, long := source(), strings.Repeat("x", 3000)
	object.Annotations = map[string]string{"event.toolkit.fluxcd.io/a": long, "event.toolkit.fluxcd.io/b": long, "event.toolkit.fluxcd.io/c": "short", "other": "x"}
	p.Notify(object, corev1.EventTypeNormal, "Succeeded", "fine", nil)
	if diff := cmp.Diff(map[string]string{"event.toolkit.fluxcd.io/a": long, "event.toolkit.fluxcd.io/c": "short"}, r.next(t).event.Metadata); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatHasNoNamespaceIsLeftOut(t *testing.T) {
	p, r := start(t)
	for _, object := range []client.Object{&v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}, source()} {
		p.Notify(object, corev1.EventTypeNormal, "Succeeded", "fine", nil)
	}
	if got := r.next(t); got.event.InvolvedObject.Kind != "PoolSource" {
		t.Errorf("posted %v", got.event.InvolvedObject)
	}
}

// The addresses of receivers such as chats contain secrets.
func TestLogsHoldNoAddress(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(broken.Close)
	for name, host := range map[string]string{"no answer": "127.0.0.1:1", "a fault": strings.TrimPrefix(broken.URL, "http://")} {
		t.Run(name, func(t *testing.T) {
			p := poster(t, "http://user:s3cret@"+host+"/hook/s3cret?token=s3cret")
			logged := make(chan string, 1)
			ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged <- line }, funcr.Options{})))
			done := make(chan error, 1)
			go func() { done <- p.Start(ctx) }()
			p.Notify(source(), corev1.EventTypeNormal, "Succeeded", "fine", nil)
			if line := <-logged; strings.Contains(line, "s3cret") || !strings.Contains(line, "Succeeded") {
				t.Errorf("logged %s", line)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	for _, url := range []string{"", "notification-controller", "ftp://host", "http://", "chat.test/hook/s3cret", "https://s3cret:x@"} {
		_, err := notify.New(notify.Options{URL: url})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
