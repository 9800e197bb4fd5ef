// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// checkServer refuses to show credentials to another server than they are for: those that an older connection of the namespace uses
// for one; of two that are as old, neither is taken. Or who may push a connection could have the key of one that isn't his sent to a server of his own.
func (r *Reconciler) checkServer(ctx context.Context, conn *v1alpha1.GitHubConnection) error {
	all := &v1alpha1.GitHubConnectionList{}
	if err := r.Client.List(ctx, all, client.InNamespace(conn.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.UID != conn.UID && !o.CreationTimestamp.After(conn.CreationTimestamp.Time) && sharesCredentials(o, conn) && serverOf(o) != serverOf(conn) {
			return kube.Stall(v1alpha1.InvalidSpecReason, "the credentials are those of GitHubConnection %s, for %s: they are not shown to %s. A connection to another server needs its own", o.Name, serverOf(o), serverOf(conn))
		}
	}
	return nil
}

// sharesCredentials says whether two connections of a namespace name the same Secret or folder.
func sharesCredentials(a, b *v1alpha1.GitHubConnection) bool {
	s, t := &a.Spec, &b.Spec
	return s.SecretRef != nil && t.SecretRef != nil && s.SecretRef.Name == t.SecretRef.Name ||
		s.MountRef != nil && t.MountRef != nil && s.MountRef.Name == t.MountRef.Name
}

// serverOf is where a connection leads, without what it is for there.
func serverOf(c *v1alpha1.GitHubConnection) string {
	u, err := url.Parse(c.Spec.URL)
	if err != nil {
		return c.Spec.URL
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}
