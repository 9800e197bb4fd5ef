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

// checkServer returns a Stall if the connection would send its credentials to a server for which they are not meant.
// Credentials that name a server are only for that server. If they name none, and connections of the namespace would send
// them to different servers, only a connection that already uses them gets them. Otherwise anyone who can create a
// GitHubConnection could send another team's credentials to their own server. Being older does not entitle a connection to
// them, because its reference to a Secret may be newer.
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
		case named != "" && originOf(o.Spec.URL) != originOf(conn.Spec.URL): // checkNamed refuses o the credentials
		case has(o, creds):
			return kube.Stall(catalog.CredentialsOfAnother.With(o.Name, serverOf(o), serverOf(conn), separationAdvice(o, conn)))
		case !has(conn, creds):
			return kube.Stall(catalog.CredentialsShared.With(o.Name, serverOf(o), separationAdvice(o, conn)))
		}
	}
	return nil
}

// checkNamed refuses credentials that name another server.
func checkNamed(conn *v1alpha1.GitHubConnection, named string) error {
	if want := originOf(named); named != "" && want != originOf(conn.Spec.URL) {
		return kube.Stall(catalog.CredentialsForServer.With(v1alpha1.ServerKey, want, originOf(conn.Spec.URL)))
	}
	return nil
}

// separationAdvice returns advice for two connections with the same credentials that lead to different servers.
func separationAdvice(a, b *v1alpha1.GitHubConnection) string {
	if originOf(a.Spec.URL) == originOf(b.Spec.URL) {
		return "Give both the same spec.proxy and spec.ca, or each a Secret or folder of its own"
	}
	return fmt.Sprintf("Give each a Secret or folder of its own, or set %s in the credentials to the server for which they are meant", v1alpha1.ServerKey)
}

// has reports whether a connection already uses the credentials, according to its status: GitHub accepted these
// credentials, or it accepted earlier ones and the connection is Ready in its current generation.
func has(c *v1alpha1.GitHubConnection, creds github.Credentials) bool {
	creds.ConfigURL = c.Spec.URL
	ready := conditions.Get(c, v1alpha1.ReadyCondition)
	return c.Status.CredentialsHash == creds.Hash() || ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == c.Generation
}

// sharesCredentials reports whether two connections of a namespace refer to the same Secret or folder.
func sharesCredentials(a, b *v1alpha1.GitHubConnection) bool {
	s, t := &a.Spec, &b.Spec
	return s.SecretRef != nil && t.SecretRef != nil && s.SecretRef.Name == t.SecretRef.Name ||
		s.Mount != nil && t.Mount != nil && s.Mount.Name == t.Mount.Name
}

// serverOf returns the server to which a connection leads, without the path of the URL. It includes the proxy and the
// certificates, because a different proxy or different certificates may lead to a different server.
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

// originOf returns the scheme, host and port of a URL. A host without a scheme gets https.
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
