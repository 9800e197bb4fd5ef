// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

// checkServer refuses to show credentials to another server than they are for: the one that they name. If they name none, and connections
// of the namespace lead them to different servers, only the one gets them that has them already. Or who may push a connection could have
// the key of one that isn't his sent to a server of his own. Who came first tells nothing: a connection may name another Secret later.
func (r *Reconciler) checkServer(ctx context.Context, conn *v1alpha1.GitHubConnection, creds github.Credentials, named string) error {
	if err := checkNamed(conn, named); err != nil {
		return err
	}
	all := &v1alpha1.GitHubConnectionList{}
	if err := r.Client.List(ctx, all, client.InNamespace(conn.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	for i := range all.Items {
		switch o := &all.Items[i]; {
		case o.UID == conn.UID || !sharesCredentials(o, conn) || serverOf(o) == serverOf(conn):
		case named != "" && originOf(o.Spec.URL) != originOf(conn.Spec.URL): // it is refused them
		case has(o, creds):
			return kube.Stall(catalog.CredentialsOfAnother.With(o.Name, serverOf(o), serverOf(conn), apart(o, conn)))
		case !has(conn, creds):
			return kube.Stall(catalog.CredentialsShared.With(o.Name, serverOf(o), apart(o, conn)))
		}
	}
	return nil
}

// checkNamed refuses credentials that say that they are for another server.
func checkNamed(conn *v1alpha1.GitHubConnection, named string) error {
	if want := originOf(named); named != "" && want != originOf(conn.Spec.URL) {
		return kube.Stall(catalog.CredentialsForServer.With(v1alpha1.ServerKey, want, originOf(conn.Spec.URL)))
	}
	return nil
}

// apart says what helps two connections with the same credentials that lead to different servers.
func apart(a, b *v1alpha1.GitHubConnection) string {
	if originOf(a.Spec.URL) == originOf(b.Spec.URL) {
		return "Give both the same spec.proxy and spec.ca, or each a Secret or folder of its own"
	}
	return fmt.Sprintf("Give each a Secret or folder of its own, or say under %s in the credentials which server they are for", v1alpha1.ServerKey)
}

// has says whether a connection was verified with credentials, or with those that were there before them: by what it says now.
func has(c *v1alpha1.GitHubConnection, creds github.Credentials) bool {
	creds.ConfigURL = c.Spec.URL
	ready := conditions.Get(c, v1alpha1.ReadyCondition)
	return c.Status.CredentialsHash == creds.Hash() || ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == c.Generation
}

// sharesCredentials says whether two connections of a namespace name the same Secret or folder.
func sharesCredentials(a, b *v1alpha1.GitHubConnection) bool {
	s, t := &a.Spec, &b.Spec
	return s.SecretRef != nil && t.SecretRef != nil && s.SecretRef.Name == t.SecretRef.Name ||
		s.Mount != nil && t.Mount != nil && s.Mount.Name == t.Mount.Name
}

// serverOf is where a connection leads, without what it is for there: by another proxy, or with other certificates, another may answer.
func serverOf(c *v1alpha1.GitHubConnection) string {
	where := originOf(c.Spec.URL)
	if p := c.Spec.Proxy; p != nil {
		for _, server := range []*v1alpha1.ProxyServer{p.HTTP, p.HTTPS} {
			if server != nil {
				where += " by " + originOf(server.URL)
			}
		}
	}
	if ca := c.Spec.CA; ca != nil {
		from, ref := "Secret", ca.SecretRef
		if ref == nil {
			from, ref = "ConfigMap", cmp.Or(ca.ConfigMapRef, &v1alpha1.LocalObjectReference{})
		}
		where += fmt.Sprintf(" with the certificates of %s %s, %s", from, ref.Name, ca.GetKey())
	}
	return where
}

// originOf returns scheme, host and port of a URL; a host alone is of https.
func originOf(server string) string {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}
