// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
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

// lease is that by which replicas agree on a leader. It knows what holding it depends on: whether this process still
// leads, and when whoever did before was last alive. Without an election it is always held.
type lease struct {
	resourcelock.Interface
	now      func() time.Time
	duration time.Duration

	mu      sync.Mutex
	renewed time.Time // when this process last had the lease; zero while it hasn't
	former  time.Time // when the leader before it last had it
}

// newLease returns the lease, not held yet.
func newLease(config *rest.Config, o ManagerOptions) (*lease, error) {
	l := &lease{now: time.Now, duration: o.LeaseDuration}
	if !o.LeaderElection {
		l.former = l.now()
		return l, nil
	}
	key := o.Lease()
	if key.Namespace == "" {
		return nil, errors.New("there is no namespace for the lease: give --leader-election-namespace, for this is no pod")
	}
	identity, err := identity()
	if err != nil {
		return nil, err
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election") // the timeout below would end the manager's watches
	config.Timeout = o.RenewDeadline / 2                                   // a request that hangs must not cost the lease
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the lease: %w", err)
	}
	coordination, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the lease: %w", err)
	}
	l.Interface, err = resourcelock.NewWithLabels(resourcelock.LeasesResourceLock, key.Namespace, key.Name, core, coordination,
		resourcelock.ResourceLockConfig{Identity: identity}, webhooks.Labels(o.WebhookAddress, o.WebhookKey))
	if err != nil {
		return nil, fmt.Errorf("making the lease: %w", err)
	}
	return l, nil
}

// identity is what the lease knows this process by. A pod's is its name, so that a container that is restarted in place goes on
// with the lease of the one that crashed.
func identity() (string, error) {
	if name := os.Getenv(podName); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("naming this process: %w", err)
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

// note takes in what was written at a time: the lease, or that it is given up.
func (l *lease) note(record resourcelock.LeaderElectionRecord, at time.Time, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed = at; record.HolderIdentity != l.Identity() {
		l.renewed = time.Time{}
	}
	return nil
}

// Held reports whether this process leads, as far as it can know: nobody else can.
func (l *lease) Held() bool {
	if l.Interface == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.now().Sub(l.renewed) < l.duration
}

// Former is when the leader before this process was last alive; the zero time if there was none.
func (l *lease) Former() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.former
}
