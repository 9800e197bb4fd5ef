// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
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

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;patch

const (
	// partLabel says what an object of ours is for.
	partLabel = "corral.dev/part"
	// jobsKey and slackKey hold the reservations and the slack of a pool, in its ConfigMap.
	jobsKey, slackKey = "jobs", "slack"
	// writerKey says which process has written them: what it has dropped since must not come back from there.
	writerKey = "writer"
	// maxBackoff is the longest time to the next attempt of what failed.
	maxBackoff = 30 * time.Second
)

// ConfigMapName is the name of the ConfigMap that holds the jobs of a pool.
func ConfigMapName(pool string) string { return pool + "-jobs" }

// backoff is how long to wait after a row of failures.
func backoff(failed int) time.Duration {
	return min(time.Second<<min(failed, 10), maxBackoff)
}

// store reads what was written down of a pool, if that is due, and writes down what changed.
func (k *Desk) store(ctx context.Context, p *pool) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	began := k.Now()
	err := k.read(ctx, p)
	if err == nil {
		err = k.write(ctx, p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.busy = false
	if p.flying != 0 && err != nil {
		p.dirty = p.flying
	}
	p.flying = 0
	p.next = began.Add(writeInterval)
	if err == nil {
		p.failed, p.trouble = 0, ""
		return
	}
	p.failed++
	p.next = k.Now().Add(backoff(p.failed))
	if ctx.Err() == nil && p.trouble != err.Error() {
		p.trouble = err.Error()
		ctrl.Log.WithName("demand").Error(err, "The jobs of a pool aren't written down", "pool", p.key)
	}
}

// errTaken is when a ConfigMap is in the way that isn't the pool's.
var errTaken = errors.New("it is not of this pool: it is left alone, and a restart forgets the pool's jobs; rename or delete it")

// read takes over what was written down, unless it was read already.
func (k *Desk) read(ctx context.Context, p *pool) error {
	if p.version != "" {
		return nil
	}
	k.mu.Lock()
	owner := p.owner.UID
	k.mu.Unlock()
	config := &corev1.ConfigMap{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: ConfigMapName(p.key.Name)}, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", ConfigMapName(p.key.Name), err)
	}
	var jobs *reservation.Ledger
	var slack *reservation.Slack
	ours := err == nil && isOwnedBy(config, owner)
	if ours && string(config.BinaryData[writerKey]) != k.writer {
		jobs, slack = k.decode(p.key, config.BinaryData)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if jobs != nil {
		p.ledger.Merge(jobs)
		k.enlist(p)
	}
	if slack != nil {
		p.slack.Merge(slack)
	}
	if ours {
		p.version = config.ResourceVersion
	}
	if !p.loaded {
		p.loaded = true
		k.wake(p, k.Now())
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
func (k *Desk) decode(pool types.NamespacedName, data map[string][]byte) (*reservation.Ledger, *reservation.Slack) {
	log := ctrl.Log.WithName("demand").WithValues("pool", pool)
	var jobs *reservation.Ledger
	var slack *reservation.Slack
	var err error
	if text := data[jobsKey]; len(text) > 0 {
		if jobs, err = reservation.Decode(text, k.Now()); err != nil {
			log.Error(err, "The account of a pool's jobs begins anew")
		}
	}
	if text := data[slackKey]; len(text) > 0 {
		if slack, err = reservation.DecodeSlack(text); err != nil {
			log.Error(err, "The account of a pool's slack begins anew")
		}
	}
	return jobs, slack
}

// write writes a pool's jobs down as a whole, if nobody else has changed them since they were read or written.
func (k *Desk) write(ctx context.Context, p *pool) error {
	k.mu.Lock()
	if p.dirty == 0 {
		k.mu.Unlock()
		return nil
	}
	owner := p.owner
	p.flying, p.dirty = p.dirty, 0
	content := map[string][]byte{jobsKey: p.ledger.Encode(), slackKey: p.slack.Encode(), writerKey: []byte(k.writer)}
	k.mu.Unlock()

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: ConfigMapName(p.key.Name)}}
	err := k.put(ctx, config, p.version, owner, "jobs", p.key.Name, content)
	if err != nil {
		p.version = "" // look first, next time
		return err
	}
	p.version = config.ResourceVersion
	writes.WithLabelValues("jobs").Inc()
	return nil
}

// put creates a ConfigMap, or changes the version of it that is known.
func (k *Desk) put(ctx context.Context, config *corev1.ConfigMap, version string, owner metav1.OwnerReference, part, pool string, content map[string][]byte) error {
	if version != "" {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": version}, "binaryData": content})
		if err != nil {
			return fmt.Errorf("encoding ConfigMap %s: %w", config.Name, err)
		}
		if err := k.Client.Patch(ctx, config, client.RawPatch(types.MergePatchType, patch), kube.FieldOwner); err != nil {
			return fmt.Errorf("writing ConfigMap %s: %w", config.Name, err)
		}
		return nil
	}
	config.BinaryData = content
	config.Labels = map[string]string{partLabel: part}
	if pool != "" && len(validation.IsValidLabelValue(pool)) == 0 {
		config.Labels[v1alpha1.PoolLabel] = pool
	}
	config.OwnerReferences = []metav1.OwnerReference{owner}
	if err := k.Client.Create(ctx, config, kube.FieldOwner); err != nil {
		return fmt.Errorf("making ConfigMap %s: %w", config.Name, err)
	}
	return nil
}
