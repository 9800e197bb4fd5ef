// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhooks runs the server for GitHub's webhooks in each replica. It provides the server with the secrets of
// GitHubConnections and the address of the leader. It only reads from the cluster.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
)

const (
	// secretFor is how long a Secret is cached, and missingFor how long the error of a failed read is.
	secretFor, missingFor = time.Minute, 5 * time.Second
	// freshAfter is the minimum delay before a Secret is read again because of a wrong signature, which limits reads caused by
	// forged events.
	freshAfter = 10 * time.Second
	// readWithin is the timeout of a request to the API server.
	readWithin = 3 * time.Second
)

// Secrets reads the webhook Secrets of connections by name, and caches them for a short time. It has at most one entry per
// existing connection.
type Secrets struct {
	// Connections reads GitHubConnections, from a cache.
	Connections client.Reader
	// Live reads Secrets from the API server, because the manager's cache does not contain them.
	Live client.Reader
	// Namespaces are the watched namespaces; all if empty.
	Namespaces []string
	// Signatures holds the results of signature checks. Secrets removes the entries of deleted connections from it.
	Signatures *webhook.Signatures
	Now        func() time.Time

	mu    sync.Mutex
	known map[types.NamespacedName]*entry
}

// entry is the cached Secret of a connection. Concurrent readers wait while one of them reads the Secret.
type entry struct {
	mu      sync.Mutex
	name    string
	secrets [][]byte
	err     error
	read    time.Time
}

// Of implements webhook.Secrets.
func (s *Secrets) Of(ctx context.Context, connection types.NamespacedName, fresh bool) ([][]byte, error) {
	if len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, connection.Namespace) {
		return nil, webhook.ErrUnknownConnection
	}
	conn := &v1alpha1.GitHubConnection{}
	err := s.Connections.Get(ctx, connection, conn)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the connection: %w", err)
	}
	if err != nil || conn.Spec.Webhook == nil {
		s.Forget(connection)
		return nil, webhook.ErrUnknownConnection
	}
	return s.entry(connection).of(ctx, s, types.NamespacedName{Namespace: connection.Namespace, Name: conn.Spec.Webhook.SecretRef.Name}, fresh)
}

// Forget drops the data about a connection that was deleted or no longer has spec.webhook.
func (s *Secrets) Forget(connection types.NamespacedName) {
	s.mu.Lock()
	_, known := s.known[connection]
	delete(s.known, connection)
	s.mu.Unlock()
	if known {
		webhook.Forget(connection)
	}
	s.Signatures.Forget(connection)
}

func (s *Secrets) entry(connection types.NamespacedName) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.NamespacedName]*entry{}
	}
	e := s.known[connection]
	if e == nil {
		e = &entry{}
		s.known[connection] = e
	}
	return e
}

// of returns the secrets. It reads the Secret unless the cached value is recent enough. While the API server does not
// answer, the previous value stays valid.
func (e *entry) of(ctx context.Context, s *Secrets, secret types.NamespacedName, fresh bool) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.Now()
	if e.name == secret.Name && now.Sub(e.read) < e.lasts(fresh) {
		return e.secrets, e.err
	}
	if e.name != secret.Name {
		e.name, e.secrets, e.err = secret.Name, nil, nil
	}
	// Other requests wait for the result, so the read is not canceled with this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	secrets, err := readSecrets(ctx, s.Live, secret)
	e.read = now
	if err == nil || len(e.secrets) == 0 || errors.Is(err, webhook.ErrNoSecret) {
		e.secrets, e.err = secrets, err
	}
	return e.secrets, e.err
}

// lasts returns how long the cached value may be used. If fresh is true, a Secret may be used only for freshAfter.
func (e *entry) lasts(fresh bool) time.Duration {
	switch {
	case e.err != nil:
		return missingFor
	case fresh:
		return freshAfter
	}
	return secretFor
}

// readSecrets reads a webhook's Secret.
func readSecrets(ctx context.Context, live client.Reader, name types.NamespacedName) ([][]byte, error) {
	secret := &corev1.Secret{}
	if err := live.Get(ctx, name, secret); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: Secret %s not found", webhook.ErrNoSecret, name.Name)
	} else if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w: reading Secret %s: %w", webhook.ErrNoSecret, name.Name, err)
	} else if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name.Name, err)
	}
	var secrets [][]byte
	for _, key := range []string{v1alpha1.WebhookSecretKey, v1alpha1.WebhookPreviousKey} {
		switch value := webhook.SecretOf(secret.Data, key); {
		case len(value) > webhook.MaxSecretBytes:
			return nil, fmt.Errorf("%w: the key %s of Secret %s has %d bytes, more than %d", webhook.ErrNoSecret, key, name.Name, len(value), webhook.MaxSecretBytes)
		case len(value) > 0:
			secrets = append(secrets, slices.Clone(value))
		}
	}
	if len(webhook.SecretOf(secret.Data, v1alpha1.WebhookSecretKey)) == 0 {
		return nil, fmt.Errorf("%w: Secret %s has no value for the key %s", webhook.ErrNoSecret, name.Name, v1alpha1.WebhookSecretKey)
	}
	return secrets, nil
}
