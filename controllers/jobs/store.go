// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;patch

const (
	// partLabel is the label that contains the purpose of a ConfigMap: jobs or deliveries.
	partLabel = "corral.dev/part"
	// jobsKey and boostsKey are the keys of a pool's reservations and boosts in its ConfigMap.
	jobsKey, boostsKey = "jobs", "boosts"
	// writerKey is the key of the identity of the process that wrote the ConfigMap. A process does not restore its own data,
	// because it may have dropped jobs since it wrote them.
	writerKey = "writer"
	// manyFailures is the number of consecutive failed writes after which durable no longer waits for a pool of another
	// namespace.
	manyFailures = 3
)

// ConfigMapName returns the name of the ConfigMap with the jobs of a pool.
func ConfigMapName(pool string) string { return pool + "-jobs" }

// reconcileJobs reads a pool's stored jobs, drops expired ones, and stores changes.
func (k *JobTracker) reconcileJobs(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	p := k.lock(key)
	if p == nil {
		return reconcile.Result{}, nil
	}
	now := k.Now()
	next := p.space.expire(p, now)
	wanted, pending, wait := p.wanted(), !p.saved.loaded || !p.saved.unwritten.IsZero(), p.saved.next.Sub(now)
	p.space.mu.Unlock()
	switch {
	case !wanted:
		return reconcile.Result{}, nil
	case pending && wait > 0:
		return reconcile.Result{RequeueAfter: min(next, wait)}, nil
	case pending:
		err := k.save(ctx, p)
		if apierrors.IsNotFound(err) { // if only the ConfigMap was deleted, the next attempt creates it; otherwise the pool was deleted, too
			return reconcile.Result{RequeueAfter: minBackoff}, nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// save reads a pool's stored state, unless it is known, and stores changes.
func (k *JobTracker) save(ctx context.Context, p *pool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	began := k.Now()
	err := k.read(ctx, p)
	if err == nil {
		err = k.write(ctx, p)
	}
	p.space.mu.Lock()
	defer p.space.mu.Unlock()
	s := &p.saved
	if !s.writing.IsZero() && err != nil {
		s.unwritten = s.writing
	}
	s.writing, s.next = time.Time{}, began.Add(writeInterval)
	if err == nil {
		s.failed = 0
		return nil
	}
	s.failed++
	s.next = k.Now().Add(min(minBackoff<<min(s.failed-1, 10), maxBackoff)) // changes in the meantime wait, too
	return err
}

// errTaken means that the name of the pool's ConfigMap is taken by a ConfigMap that does not belong to the pool.
var errTaken = errors.New("it does not belong to this pool, so Corral does not change it, and loses the pool's jobs on a restart: rename or delete it")

// read restores the stored state, unless it was read already.
func (k *JobTracker) read(ctx context.Context, p *pool) error {
	if p.saved.version != "" {
		return nil
	}
	p.space.mu.Lock()
	owner := p.owner.UID
	p.space.mu.Unlock()
	config := &corev1.ConfigMap{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: ConfigMapName(p.key.Name)}, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", ConfigMapName(p.key.Name), err)
	}
	var jobs *reservation.Ledger
	var boosts *reservation.Boosts
	ours := err == nil && isOwnedBy(config, owner)
	if ours && string(config.BinaryData[writerKey]) != k.writer {
		jobs, boosts = k.decode(p.key, config.BinaryData)
	}
	p.space.mu.Lock()
	p.space.restore(p, jobs, boosts, k.Now())
	p.space.mu.Unlock()
	if ours {
		p.saved.version = config.ResourceVersion // only the worker that saves the pool accesses it
	}
	if err == nil && !ours {
		return fmt.Errorf("writing ConfigMap %s: %w", config.Name, errTaken)
	}
	return nil
}

func isOwnedBy(obj metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(obj)
	return owner != nil && owner.UID == uid
}

// decode parses the stored state. It logs and ignores damaged parts.
func (k *JobTracker) decode(pool types.NamespacedName, data map[string][]byte) (*reservation.Ledger, *reservation.Boosts) {
	log := ctrl.Log.WithName("demand").WithValues("pool", pool)
	var jobs *reservation.Ledger
	var boosts *reservation.Boosts
	var err error
	if text := data[jobsKey]; len(text) > 0 {
		if jobs, err = reservation.Decode(text, k.Now()); err != nil {
			log.Error(err, "The stored jobs of a pool can't be read; starting with none")
		}
	}
	if text := data[boostsKey]; len(text) > 0 {
		if boosts, err = reservation.DecodeBoosts(text); err != nil {
			log.Error(err, "The stored boosts of a pool can't be read; starting with none")
		}
	}
	return jobs, boosts
}

// write stores all of a pool's jobs and boosts, if there are changes to write. It fails if another process has changed the
// ConfigMap since it was last read or written.
func (k *JobTracker) write(ctx context.Context, p *pool) error {
	p.space.mu.Lock()
	if p.saved.unwritten.IsZero() {
		p.space.mu.Unlock()
		return nil
	}
	owner := p.owner
	p.saved.writing, p.saved.unwritten = p.saved.unwritten, time.Time{}
	content := map[string][]byte{jobsKey: p.ledger.Encode(), boostsKey: p.boosts.Encode(), writerKey: []byte(k.writer)}
	p.space.mu.Unlock()

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: ConfigMapName(p.key.Name)}}
	err := k.put(ctx, config, p.saved.version, owner, "jobs", p.key.Name, content)
	if err != nil {
		p.saved.version = "" // the next attempt reads the ConfigMap first
		return err
	}
	p.saved.version = config.ResourceVersion
	writes.WithLabelValues("jobs").Inc()
	return nil
}

// put creates a ConfigMap if version is empty. Otherwise it updates the ConfigMap, and fails if it has another version.
func (k *JobTracker) put(ctx context.Context, config *corev1.ConfigMap, version string, owner metav1.OwnerReference, part, pool string, content map[string][]byte) error {
	config.BinaryData = content
	config.Labels = map[string]string{partLabel: part}
	if pool != "" && len(validation.IsValidLabelValue(pool)) == 0 {
		config.Labels[v1alpha1.PoolLabel] = pool
	}
	config.OwnerReferences = []metav1.OwnerReference{owner}
	return kube.PutConfigMap(ctx, k.Client, config, version)
}
