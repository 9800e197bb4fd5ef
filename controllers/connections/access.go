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

// afterwards is how long clean-up on GitHub may use a connection after this process last saw that the connection allowed a
// namespace. A deleted connection stays usable for as long.
const afterwards = time.Hour

// Access decides which namespaces may use which connections. A namespace may always use its own connections, and
// connections of other namespaces if their spec.allowedNamespaces contains it. Access is safe for concurrent use. A nil
// Access allows no connections of other namespaces.
type Access struct {
	// Connections reads GitHubConnections, from a cache.
	Connections client.Reader
	// Namespaces are the watched namespaces; all if empty. Connections of unwatched namespaces may not be used.
	Namespaces []string
	Now        func() time.Time

	mu   sync.Mutex
	last map[consent]time.Time
}

// consent is a connection's permission for a namespace.
type consent struct {
	connection types.NamespacedName
	namespace  string
}

// Allows reports whether objects of a namespace may use a connection now. A missing connection allows no other namespaces.
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

// Check returns the result of Allows as an outcome: a Stall if the connection may not be used. A missing connection has the
// same outcome, so that a tenant cannot find out which connections other namespaces have.
func (a *Access) Check(ctx context.Context, connection types.NamespacedName, namespace string) error {
	allowed, err := a.Allows(ctx, connection, namespace)
	if err == nil && !allowed {
		return kube.Stall(a.Denial(connection, namespace))
	}
	return err
}

// unwatched reports whether the connections of a namespace are not watched.
func (a *Access) unwatched(namespace string) bool {
	return len(a.Namespaces) > 0 && !slices.Contains(a.Namespaces, namespace)
}

// Denial returns the cause if a connection of another namespace may not be used.
func (a *Access) Denial(connection types.NamespacedName, namespace string) catalog.Cause {
	c := catalog.ConsentMissing.With(v1alpha1.NoConsent(connection.String(), namespace))
	if a != nil && a.unwatched(connection.Namespace) {
		c = catalog.NamespaceNotWatched.With(connection, connection.Namespace)
	}
	return c.About("GitHubConnection", connection.Namespace, connection.Name)
}

// CleansUp reports whether a namespace may use a connection to clean up what it has on GitHub. This is the case if the
// connection allows the namespace, or if this process saw within the last hour that it did. Otherwise withdrawn consent
// would leave runners behind.
func (a *Access) CleansUp(ctx context.Context, connection types.NamespacedName, namespace string) bool {
	if allowed, err := a.Allows(ctx, connection, namespace); allowed || err != nil || a == nil {
		return allowed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.last[consent{connection, namespace}]
	return known && a.Now().Sub(last) < afterwards
}

// forgotten is how many recorded consents are checked, and forgotten if they are old, for each new one.
const forgotten = 8

// remember records a consent. If it is new, remember also forgets a few old consents, in random order.
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
