// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// Keys of the Secret with the credentials of a Git server, which are the same as in Flux.
const (
	bearerTokenKey = "bearerToken"
	identityKey    = "identity"
	knownHostsKey  = "known_hosts"
)

// isSSH reports whether the source's repository is read over SSH.
func isSSH(source *v1alpha1.PoolSource) bool { return strings.HasPrefix(source.Spec.Git.URL, "ssh://") }

// credentials reads the credentials for the Git server, and the keys that identify the server. The source must have
// spec.git.
func (p *pass) credentials(ctx context.Context) (gitsource.Auth, error) {
	git := p.source.Spec.Git
	proxy, err := p.proxy(ctx)
	if err != nil {
		return gitsource.Auth{}, err
	}
	overSSH := isSSH(p.source)
	if git.SecretRef == nil {
		if overSSH {
			return gitsource.Auth{}, kube.Stall(catalog.GitSecretNeeded.With(identityKey, knownHostsKey))
		}
		return gitsource.Auth{Proxy: proxy}, nil
	}
	data, err := p.secret(ctx, git.SecretRef.Name)
	if err != nil {
		return gitsource.Auth{}, err
	}
	if wants := missing(data, overSSH); wants != "" {
		return gitsource.Auth{}, kube.Wait(p.retryAfter(), catalog.GitSecretIncomplete.With(git.SecretRef.Name, wants))
	}
	return gitsource.Auth{
		Username:    string(data[v1alpha1.UsernameKey]),
		Password:    string(data[v1alpha1.PasswordKey]),
		BearerToken: string(data[bearerTokenKey]),
		CAPEM:       data[v1alpha1.CAKey],
		Proxy:       proxy,
		Identity:    data[identityKey],
		KnownHosts:  data[knownHostsKey],
	}, nil
}

// proxy returns the source's proxy, with its credentials; nil if it has none.
func (p *pass) proxy(ctx context.Context) (*url.URL, error) {
	git := p.source.Spec.Git
	if git.ProxySecretRef == nil {
		return nil, nil
	}
	if !strings.HasPrefix(git.URL, "http") {
		return nil, kube.Stall(catalog.GitProxyForHTTPS.With())
	}
	data, err := p.secret(ctx, git.ProxySecretRef.Name)
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(strings.TrimSpace(string(data[v1alpha1.AddressKey])))
	if err != nil || proxy.Host == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, kube.Wait(p.retryAfter(), catalog.GitProxyInvalid.With(git.ProxySecretRef.Name, v1alpha1.AddressKey))
	}
	if user := string(data[v1alpha1.UsernameKey]); user != "" {
		proxy.User = url.UserPassword(user, string(data[v1alpha1.PasswordKey]))
	}
	return proxy, nil
}

// missing describes the keys that a Secret with credentials does not contain; empty if the Secret is complete.
func missing(data map[string][]byte, overSSH bool) string {
	if overSSH {
		for _, key := range []string{identityKey, knownHostsKey} {
			if len(data[key]) == 0 {
				return fmt.Sprintf("has no key %s; ssh:// needs %s and %s", key, identityKey, knownHostsKey)
			}
		}
		return ""
	}
	for _, key := range []string{v1alpha1.UsernameKey, v1alpha1.PasswordKey, bearerTokenKey, v1alpha1.CAKey} {
		if len(data[key]) > 0 {
			return ""
		}
	}
	return fmt.Sprintf("has none of the keys %s and %s, %s, %s", v1alpha1.UsernameKey, v1alpha1.PasswordKey, bearerTokenKey, v1alpha1.CAKey)
}

// verification returns the signatures that a revision must have; nil if it needs none.
func (p *pass) verification(ctx context.Context) (*gitsource.Verification, error) {
	verify := p.source.Spec.Git.Verify
	if verify == nil {
		return nil, nil
	}
	data, err := p.secret(ctx, verify.SecretRef.Name)
	if err != nil {
		return nil, err
	}
	signers, err := gitsource.ParseSigners(data)
	if err != nil {
		return nil, kube.Stall(catalog.GitVerifyKeysInvalid.With(verify.SecretRef.Name).Wrap(err))
	}
	mode := verify.GetMode()
	return &gitsource.Verification{
		Commit:  mode == v1alpha1.VerifyHEAD || mode == v1alpha1.VerifyTagAndHEAD,
		Tag:     mode == v1alpha1.VerifyTag || mode == v1alpha1.VerifyTagAndHEAD,
		Signers: signers,
	}, nil
}

// secret reads a Secret in the source's namespace.
func (p *pass) secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := p.Live.Get(ctx, types.NamespacedName{Namespace: p.source.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, kube.Wait(p.retryAfter(), catalog.GitSecretMissing.With(name))
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}
