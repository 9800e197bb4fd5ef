// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify posts events to Flux's notification-controller, or to another receiver of the same format, eventv1.Event as
// JSON: see https://fluxcd.io/flux/components/notification/events/. It never blocks its callers.
package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/neterr"
	"github.com/corral-dev/corral/internal/share"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// queueLength is the maximum number of queued events. A namespace may use a quarter of it, and further events of the
	// namespace are dropped. If the queue is full, the namespace with the most events loses its oldest event to a namespace
	// with fewer.
	queueLength = 1000
	// timeout limits one attempt. Flux's own controllers have the same timeout.
	timeout = 5 * time.Second
	// retries is the maximum number of retries of one event.
	retries = 2
	// maxMessage is the maximum size of a message in bytes: notification-controller accepts 39,000 characters.
	maxMessage = 39_000
	// controllerName is the reporting controller in events.
	controllerName = "corral"
)

// Results of posting an event, which are the values of the metric's label.
const (
	sent      = "sent"
	duplicate = "duplicate"
	failed    = "failed"
	leftOut   = "dropped"
)

var posts = meter.CountersOf("corral_notifications_total",
	"Events for --events-addr, by outcome: sent, duplicate (the receiver already had it), failed, or dropped because too many were waiting.",
	"result", sent, duplicate, failed, leftOut)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{posts} }

// Options of a Poster.
type Options struct {
	// URL to post to, http:// or https://.
	URL string
	// Scheme contains the kinds of the objects that events are about.
	Scheme *runtime.Scheme
	// Instance is the name of this process; may be empty.
	Instance string
	// Now is the clock for the times of events.
	Now func() time.Time
	// Backoff is the time before the first retry. The second retry waits twice as long. Default: 1s.
	Backoff time.Duration
}

// Poster posts events one after another: namespaces take turns, and the events of a namespace are posted in the order
// of their arrival.
type Poster struct {
	options Options
	client  *retryablehttp.Client

	mu      sync.Mutex
	queue   *share.Map[*eventv1.Event, struct{}]
	waiting chan struct{} // signals to Start that the queue may have events
}

// New returns a Poster. The caller adds it to a manager, which starts it.
func New(o Options) (*Poster, error) {
	location, err := url.Parse(o.URL)
	if err != nil || location.Host == "" || (location.Scheme != "http" && location.Scheme != "https") {
		return nil, errors.New("reading the address for events: it is not an http URL") // it is not shown, because it may contain a secret
	}
	o.Backoff = cmp.Or(o.Backoff, time.Second)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Poster{
		options: o, waiting: make(chan struct{}, 1),
		queue: share.New[*eventv1.Event, struct{}](queueLength, func(string, *eventv1.Event) { posts.WithLabelValues(leftOut).Inc() }),
		client: &retryablehttp.Client{
			HTTPClient: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: timeout, CheckRedirect: stay},
			CheckRetry: retriesFaults, RetryMax: retries, ErrorHandler: retryablehttp.PassthroughErrorHandler,
			Backoff: retryablehttp.LinearJitterBackoff, RetryWaitMin: o.Backoff, RetryWaitMax: o.Backoff, // it ignores Retry-After, because other events wait
		},
	}, nil
}

// retriesFaults is retryablehttp.ErrorPropagatedRetryPolicy, except that it does not retry after status 429, which
// notification-controller returns for an event that it already has.
func retriesFaults(ctx context.Context, response *http.Response, err error) (bool, error) {
	if response != nil && response.StatusCode == http.StatusTooManyRequests {
		return false, nil
	}
	return retryablehttp.ErrorPropagatedRetryPolicy(ctx, response, err)
}

// Notify queues an event. The type is one of corev1.EventType…; the keys of metadata must have Corral's group as prefix.
// Events about objects without a namespace are dropped, because a Flux Alert selects objects in namespaces.
func (p *Poster) Notify(object client.Object, eventType, reason, message string, metadata map[string]string) {
	involved, err := reference.GetReference(p.options.Scheme, object)
	if err != nil || involved.Namespace == "" {
		return
	}
	event := &eventv1.Event{
		InvolvedObject: *involved, Severity: eventv1.EventSeverityInfo, Timestamp: metav1.NewTime(p.options.Now()),
		Message: wording.Truncate(message, maxMessage), Reason: reason, Metadata: withAnnotations(metadata, object.GetAnnotations()),
		ReportingController: controllerName, ReportingInstance: p.options.Instance,
	}
	if eventType == corev1.EventTypeWarning {
		event.Severity = eventv1.EventSeverityError
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.queue.Put(involved.Namespace, event, struct{}{}) {
		posts.WithLabelValues(leftOut).Inc()
	}
	select {
	case p.waiting <- struct{}{}:
	default:
	}
}

// maxAnnotations limits the annotations of an object in an event, in bytes, because events wait in memory.
const maxAnnotations = 4 << 10

// withAnnotations adds the annotations of an object that are meant for notification-controller, as Flux's own controllers
// do.
func withAnnotations(metadata, annotations map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, metadata)
	left := maxAnnotations
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		size := len(key) + len(annotations[key])
		if strings.HasPrefix(key, eventv1.Group+"/") && size <= left {
			all[key] = annotations[key]
			left -= size
		}
	}
	return all
}

// NeedLeaderElection returns false, because controllers on every replica may emit events.
func (*Poster) NeedLeaderElection() bool { return false }

// Start posts events until the context ends. Events that are still queued then are lost.
func (p *Poster) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.waiting:
		}
		for event := p.next(); event != nil && ctx.Err() == nil; event = p.next() {
			result, err := p.deliver(ctx, event)
			posts.WithLabelValues(result).Inc()
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Posting an event", "reason", event.Reason, "kind", event.InvolvedObject.Kind,
					"namespace", event.InvolvedObject.Namespace, "name", event.InvolvedObject.Name)
			}
		}
	}
}

// next returns the next event to post, or nil if there is none.
func (p *Poster) next() *eventv1.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	event, _, _ := p.queue.Take()
	return event
}

// deliver posts an event, and retries if the receiver is unreachable or responds with a server error. result is a value of
// the metric's label.
func (p *Poster) deliver(ctx context.Context, event *eventv1.Event) (result string, err error) {
	body, err := json.Marshal(event)
	if err != nil {
		return failed, fmt.Errorf("encoding an event: %w", err)
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, p.options.URL, body)
	if err != nil {
		return failed, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if response == nil {
		return failed, errors.New(neterr.NoAnswer(err)) // without the address, which may contain a secret
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	switch {
	case response.StatusCode/100 == 2:
		return sent, nil
	case response.StatusCode == http.StatusTooManyRequests:
		return duplicate, nil
	}
	return failed, fmt.Errorf("the receiver answers with status %d", response.StatusCode)
}
