// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
)

// maxCA limits certificates, in bytes, because they are copied into the Secret of each runner.
const maxCA = 64 << 10

// network reads the settings for reaching the connection's server. It returns a Stall that names the value that is missing
// or unusable.
func (r *Reconciler) network(ctx context.Context, conn *v1alpha1.GitHubConnection) (n github.Network, err error) {
	if p := conn.Spec.Proxy; p != nil {
		n.NoProxy, n.RunnersUseProxy = strings.Join(p.NoProxy, ","), p.GetScope() == v1alpha1.ProxyControllerAndRunners
		if n.HTTPProxy, err = r.proxy(ctx, conn.Namespace, "spec.proxy.http", p.HTTP); err != nil {
			return n, err
		}
		if n.HTTPSProxy, err = r.proxy(ctx, conn.Namespace, "spec.proxy.https", p.HTTPS); err != nil {
			return n, err
		}
	}
	if conn.Spec.CA != nil {
		n.CA, err = r.certificates(ctx, conn.Namespace, conn.Spec.CA)
	}
	return n, err
}

// proxy returns a proxy's URL with its credentials; empty if there is no proxy.
func (r *Reconciler) proxy(ctx context.Context, namespace, field string, server *v1alpha1.ProxyServer) (string, error) {
	if server == nil {
		return "", nil
	}
	u, err := url.Parse(server.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return "", kube.Stall(catalog.ProxyURLInvalid.With(field))
	}
	if server.SecretRef == nil {
		return u.String(), nil
	}
	data, err := r.read(ctx, field+".secretRef: "+server.SecretRef.Name, types.NamespacedName{Namespace: namespace, Name: server.SecretRef.Name}, &corev1.Secret{})
	if err != nil {
		return "", err
	}
	if address := strings.TrimSpace(data[v1alpha1.AddressKey]); address == "" || originOf(address) != originOf(server.URL) {
		// Otherwise anyone who can create a GitHubConnection could send any Secret's password to their own proxy.
		return "", kube.Stall(catalog.ProxyNotNamed.With(field, server.SecretRef.Name, v1alpha1.AddressKey, originOf(server.URL)))
	}
	user, password := strings.TrimSpace(data[v1alpha1.UsernameKey]), strings.TrimSpace(data[v1alpha1.PasswordKey])
	if user == "" {
		return "", kube.Stall(catalog.ProxyUserMissing.With(field, server.SecretRef.Name, v1alpha1.UsernameKey))
	}
	u.User = url.UserPassword(user, password)
	return u.String(), nil
}

// certificates reads the trusted certificates.
func (r *Reconciler) certificates(ctx context.Context, namespace string, ca *v1alpha1.ConnectionCA) ([]byte, error) {
	var from client.Object = &corev1.Secret{}
	field, ref := "spec.ca.secretRef", ca.SecretRef
	if ref == nil {
		from, field, ref = &corev1.ConfigMap{}, "spec.ca.configMapRef", ca.ConfigMapRef
	}
	if ref == nil {
		return nil, kube.Stall(catalog.CANotNamed.With())
	}
	data, err := r.read(ctx, field+": "+ref.Name, types.NamespacedName{Namespace: namespace, Name: ref.Name}, from)
	if err != nil {
		return nil, err
	}
	value, err := github.Certificates([]byte(data[ca.GetKey()]))
	switch {
	case len(data[ca.GetKey()]) == 0:
		return nil, kube.Stall(catalog.CAKeyMissing.With(field, ref.Name, ca.GetKey()))
	case len(value) > maxCA:
		return nil, kube.Stall(catalog.CATooLarge.With(field, ca.GetKey(), ref.Name, maxCA))
	case err != nil:
		return nil, kube.Stall(catalog.CAInvalid.With(field, ca.GetKey(), ref.Name).Wrap(err))
	}
	return value, nil
}

// read returns the data of a Secret or ConfigMap of a connection. what describes it in errors.
func (r *Reconciler) read(ctx context.Context, what string, name types.NamespacedName, object client.Object) (map[string]string, error) {
	switch err := r.Secrets.Get(ctx, name, object); {
	case apierrors.IsNotFound(err):
		return nil, kube.Stall(catalog.ReferenceMissing.With(what))
	case apierrors.IsForbidden(err):
		return nil, kube.Stall(catalog.ReferenceForbidden.With(what).Wrap(err))
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	if config, ok := object.(*corev1.ConfigMap); ok {
		return config.Data, nil
	}
	data := map[string]string{}
	for key, value := range object.(*corev1.Secret).Data {
		data[key] = string(value)
	}
	return data, nil
}
