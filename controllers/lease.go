// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/corral-dev/corral/controllers/webhooks"
)

// The default times of the lease are the defaults of controller-runtime.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// podName is the environment variable with the name of the controller's own pod.
const podName = "POD_NAME"

// lease is the leader election lease. It records whether this process still leads, and when the previous leader was last
// alive. Without an election, this process always counts as the leader.
type lease struct {
	resourcelock.Interface
	// now is this machine's clock, which measures how long the lease is held. server is the API server's clock, which all
	// replicas share.
	now, server func() time.Time
	duration    time.Duration
	began       time.Time
	version     string

	mu      sync.Mutex
	led     bool      // this process has held the lease
	renewed time.Time // when this process last renewed the lease; zero while it does not hold it
	former  time.Time // when the previous leader last renewed the lease, by the API server's clock
	key     string    // secret that all leaders share; empty until this process has read the lease or led
}

// keyAnnotation is the annotation of the lease with a secret that all leaders share. Only Corral's replicas and
// administrators can read it. Unlike credentials, the secret never changes.
const keyAnnotation = "corral.dev/key"

// VersionAnnotation is the annotation of the lease with the leader's version.
const VersionAnnotation = "corral.dev/version"

// newLease returns the lease, which this process does not hold yet.
func newLease(config *rest.Config, o ManagerOptions, server func() time.Time) (*lease, error) {
	l := &lease{now: time.Now, server: server, duration: o.LeaseDuration, began: time.Now(), version: o.Version}
	if !o.LeaderElection {
		return l, nil
	}
	key := o.Lease()
	if key.Namespace == "" {
		return nil, errors.New("there is no namespace for the lease: set --leader-election-namespace when the controller runs outside a pod")
	}
	identity, err := identity()
	if err != nil {
		return nil, err
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election") // a copy, because the timeout below would end the manager's watches
	config.Timeout = o.RenewDeadline / 2                                   // so that one request that hangs does not make this process lose the lease
	coordination, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the lease: %w", err)
	}
	l.Interface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Client: leases{coordination.Leases(key.Namespace), l},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity}, Labels: webhooks.Labels(o.WebhookAddress, o.WebhookKey),
	}
	return l, nil
}

// leases reads and writes the lease. To each write, it adds the leaders' key, the leader's version, and the renewal time by
// the API server's clock.
type leases struct {
	coordinationclient.LeaseInterface
	of *lease
}

// Leases implements coordinationclient.LeasesGetter. All leases are in one namespace.
func (l leases) Leases(string) coordinationclient.LeaseInterface { return l }

// Get implements coordinationclient.LeaseInterface.
func (l leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	read, err := l.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		l.of.mu.Lock()
		defer l.of.mu.Unlock()
		l.of.key = cmp.Or(read.Annotations[keyAnnotation], l.of.key)
	}
	return read, err
}

// Create implements coordinationclient.LeaseInterface.
func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Create(ctx, l.of.complete(lease), o)
}

// Update implements coordinationclient.LeaseInterface.
func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseInterface.Update(ctx, l.of.complete(lease), o)
}

// complete adds to a lease the leaders' key, this process's version, and the renewal time by the API server's clock.
func (l *lease) complete(written *coordinationv1.Lease) *coordinationv1.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = cmp.Or(l.key, rand.Text())
	metav1.SetMetaDataAnnotation(&written.ObjectMeta, keyAnnotation, l.key)
	metav1.SetMetaDataAnnotation(&written.ObjectMeta, VersionAnnotation, l.version)
	written.Spec.RenewTime = &metav1.MicroTime{Time: l.server()}
	return written
}

// identity returns the name that identifies this process as a holder of the lease. In a pod, it is the pod's name, so that
// a container that restarts in place still holds the lease of the crashed container.
func identity() (string, error) {
	if name := os.Getenv(podName); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("choosing an identity for this process: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Get implements resourcelock.Interface.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.renewed.IsZero() {
			l.former = record.RenewTime.Time
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, l.now(), l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, l.now(), l.Interface.Update(ctx, record))
}

// note records the result of a write that began at the given time: if it succeeded, this process either holds the lease or
// has released it.
func (l *lease) note(record resourcelock.LeaderElectionRecord, at time.Time, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed = at; record.HolderIdentity != l.Identity() {
		l.renewed = time.Time{}
	}
	l.led = l.led || !l.renewed.IsZero()
	return nil
}

// errLeaseOver is the error for a write that guard did not send.
var errLeaseOver = errors.New("this process no longer holds the lease; another one may lead")

// guard returns a transport that refuses all writes if this process has led and no longer holds the lease. Otherwise a
// process that was suspended for longer than the lease duration, with its machine or by a debugger, would complete its work
// although another process leads.
func (l *lease) guard(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		if isRead := r.Method == http.MethodGet || r.Method == http.MethodHead; isRead || !l.isOver() {
			return next.RoundTrip(r)
		}
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errLeaseOver
	})
}

// isOver reports whether this process has led and no longer holds the lease.
func (l *lease) isOver() bool {
	if l.Held() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.led
}

// Held reports whether this process certainly leads, so that no other process can.
func (l *lease) Held() bool {
	if l.Interface == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.now().Sub(l.renewed) < l.duration
}

// Former returns when the previous leader was last alive, by the API server's clock; the zero time if there was none.
// Without an election, it returns when this process started, because the previous leader may have been alive until then.
func (l *lease) Former() time.Time {
	if l.Interface == nil {
		return l.server().Add(-time.Since(l.began))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.former
}

// Key returns the secret that all leaders share; empty without an election.
func (l *lease) Key() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.key
}
