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
	// partLabel says what an object of ours is for.
	partLabel = "corral.dev/part"
	// jobsKey and boostsKey hold the reservations and the boosts of a pool, in its ConfigMap.
	jobsKey, boostsKey = "jobs", "boosts"
	// writerKey says which process has written them: what it has dropped since must not come back from there.
	writerKey = "writer"
	// manyFailures to write down a pool's jobs are that pool's matter: durable waits for it no more.
	manyFailures = 3
)

// ConfigMapName is the name of the ConfigMap that holds the jobs of a pool.
func ConfigMapName(pool string) string { return pool + "-jobs" }

// reconcileJobs reads what was written down of a pool's jobs, forgets those that expired, and writes down what changed.
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
		if err := k.save(ctx, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// save reads what was written down of a pool, unless that is known, and writes down what changed.
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
	s.next = k.Now().Add(min(minBackoff<<min(s.failed-1, 10), maxBackoff)) // also for what changes meanwhile
	return err
}

// errTaken is when a ConfigMap is in the way that isn't the pool's.
var errTaken = errors.New("it is not of this pool: it is left alone, and a restart forgets the pool's jobs; rename or delete it")

// read takes over what was written down, unless it was read already.
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
		p.saved.version = config.ResourceVersion // only who saves the pool looks at it
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

// decode reads what is there; what is damaged is as if it weren't.
func (k *JobTracker) decode(pool types.NamespacedName, data map[string][]byte) (*reservation.Ledger, *reservation.Boosts) {
	log := ctrl.Log.WithName("demand").WithValues("pool", pool)
	var jobs *reservation.Ledger
	var boosts *reservation.Boosts
	var err error
	if text := data[jobsKey]; len(text) > 0 {
		if jobs, err = reservation.Decode(text, k.Now()); err != nil {
			log.Error(err, "The account of a pool's jobs begins anew")
		}
	}
	if text := data[boostsKey]; len(text) > 0 {
		if boosts, err = reservation.DecodeBoosts(text); err != nil {
			log.Error(err, "The account of a pool's boosts begins anew")
		}
	}
	return jobs, boosts
}

// write writes a pool's jobs down as a whole, if nobody else has changed them since they were read or written.
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
		p.saved.version = "" // look first, next time
		return err
	}
	p.saved.version = config.ResourceVersion
	writes.WithLabelValues("jobs").Inc()
	return nil
}

// put creates a ConfigMap, or changes the version of it that is known.
func (k *JobTracker) put(ctx context.Context, config *corev1.ConfigMap, version string, owner metav1.OwnerReference, part, pool string, content map[string][]byte) error {
	config.BinaryData = content
	config.Labels = map[string]string{partLabel: part}
	if pool != "" && len(validation.IsValidLabelValue(pool)) == 0 {
		config.Labels[v1alpha1.PoolLabel] = pool
	}
	config.OwnerReferences = []metav1.OwnerReference{owner}
	return kube.PutConfigMap(ctx, k.Client, config, version)
}
