// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// Keys of the Secret with the credentials of a Git server: the ones Flux uses.
const (
	usernameKey    = "username"
	passwordKey    = "password"
	bearerTokenKey = "bearerToken"
	caKey          = "ca.crt"
)

// credentials reads what the Git server asks for. Only spec.git has any.
func (x *run) credentials(ctx context.Context) (gitsource.Auth, error) {
	ref := x.source.Spec.Git.SecretRef
	if ref == nil {
		return gitsource.Auth{}, nil
	}
	secret := &corev1.Secret{}
	err := x.Live.Get(ctx, types.NamespacedName{Namespace: x.source.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return gitsource.Auth{}, kube.Wait(v1alpha1.CredentialsMissingReason, x.retryAfter(), "Secret %s is not there", ref.Name)
	}
	if err != nil {
		return gitsource.Auth{}, fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}
	auth := gitsource.Auth{
		Username:    string(secret.Data[usernameKey]),
		Password:    string(secret.Data[passwordKey]),
		BearerToken: string(secret.Data[bearerTokenKey]),
		CAPEM:       secret.Data[caKey],
	}
	if auth.Username+auth.Password+auth.BearerToken == "" && len(auth.CAPEM) == 0 {
		return gitsource.Auth{}, kube.Wait(v1alpha1.CredentialsMissingReason, x.retryAfter(),
			"Secret %s has none of the keys %s and %s, %s, %s", ref.Name, usernameKey, passwordKey, bearerTokenKey, caKey)
	}
	return auth, nil
}
