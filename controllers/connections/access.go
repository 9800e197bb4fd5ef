// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// afterwards is how long clean-up on GitHub goes on with a connection after it allowed a namespace last: as
// long as a connection that was deleted serves.
const afterwards = time.Hour

// Access tells which namespaces may use which connections: their own namespace's always, those of others where spec.allowedNamespaces of
// the connection has the namespace. It is safe for concurrent use. A nil one allows none of other namespaces.
type Access struct {
	// Connections reads GitHubConnections, from a cache.
	Connections client.Reader
	// Namespaces that are watched; all if empty. No connection of another one may be used.
	Namespaces []string
	Now        func() time.Time

	mu   sync.Mutex
	last map[consent]time.Time
}

// consent of a connection to a namespace.
type consent struct {
	connection types.NamespacedName
	namespace  string
}

// Allows reports whether objects of a namespace may use a connection now. A connection that isn't there allows nobody else's.
func (a *Access) Allows(ctx context.Context, connection types.NamespacedName, namespace string) (bool, error) {
	if connection.Namespace == namespace {
		return true, nil
	}
	if a == nil || a.unwatched(connection.Namespace) {
		return false, nil
	}
	found := &v1alpha1.GitHubConnection{}
	if err := a.Connections.Get(ctx, connection, found); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the connection: %w", err)
	} else if err != nil || !found.Allows(namespace) {
		return false, nil
	}
	a.remember(consent{connection, namespace})
	return true, nil
}

// Check is Allows as an outcome: a Stall if the connection may not be used. It answers the same for one that isn't there, so that nobody
// learns what other namespaces have.
func (a *Access) Check(ctx context.Context, connection types.NamespacedName, namespace string) error {
	allowed, err := a.Allows(ctx, connection, namespace)
	if err == nil && !allowed {
		return kube.Stall(a.Denial(connection, namespace))
	}
	return err
}

// unwatched reports whether nobody looks at a namespace's connections.
func (a *Access) unwatched(namespace string) bool {
	return len(a.Namespaces) > 0 && !slices.Contains(a.Namespaces, namespace)
}

// Denial says that a connection of another namespace may not be used.
func (a *Access) Denial(connection types.NamespacedName, namespace string) catalog.Cause {
	c := catalog.ConsentMissing.With(v1alpha1.NoConsent(connection.String(), namespace))
	if a != nil && a.unwatched(connection.Namespace) {
		c = catalog.NamespaceNotWatched.With(connection, connection.Namespace)
	}
	return c.About("GitHubConnection", connection.Namespace, connection.Name)
}

// CleansUp reports whether what a namespace has on GitHub may be removed there with a connection: if it may be used, or might be
// within the last hour, as far as this process saw it. Consent that is withdrawn must not leave runners behind.
func (a *Access) CleansUp(ctx context.Context, connection types.NamespacedName, namespace string) bool {
	if allowed, err := a.Allows(ctx, connection, namespace); allowed || err != nil || a == nil {
		return allowed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.last[consent{connection, namespace}]
	return known && a.Now().Sub(last) < afterwards
}

// forgotten is how many consents may be forgotten, if they are old, for each new one.
const forgotten = 8

// remember notes a consent, and forgets a few old ones: they are looked at in no order.
func (a *Access) remember(c consent) {
	now := a.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[consent]time.Time{}
	}
	if _, known := a.last[c]; !known {
		looked := 0
		for other, last := range a.last {
			if now.Sub(last) >= afterwards {
				delete(a.last, other)
			}
			if looked++; looked == forgotten {
				break
			}
		}
	}
	a.last[c] = now
}
