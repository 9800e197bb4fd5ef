// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate

const (
	// identities is the maximum number of cached clients of service accounts.
	identities = 256
	// rightsRetry is the maximum delay before the next attempt after the API server refused a service account. It is short,
	// because no watch reports a new role binding.
	rightsRetry = 30 * time.Second
)

// Impersonator creates clients that act as service accounts. It is safe for concurrent use.
type Impersonator struct {
	config  *rest.Config
	options client.Options
	known   *lru.Cache // of types.NamespacedName to client.Client
}

// NewImpersonator returns an Impersonator. The identity in config must have the right to impersonate service accounts. The
// options need a mapper, which all clients share.
func NewImpersonator(config *rest.Config, options client.Options) *Impersonator {
	return &Impersonator{config: config, options: options, known: lru.New(identities)}
}

// As returns a client that acts as a service account. The client has no cache, so it never returns an object that the
// account may not read.
func (i *Impersonator) As(account types.NamespacedName) (client.Client, error) {
	if known, ok := i.known.Get(account); ok {
		return known.(client.Client), nil
	}
	config := rest.CopyConfig(i.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: username(account)}
	c, err := client.New(config, i.options)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", username(account), err)
	}
	i.known.Add(account, c)
	return c, nil
}

// username returns the user name of a service account:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens
func username(account types.NamespacedName) string {
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}

// actor is the identity with which a pass applies, binds and deletes objects: a service account, or the controller if
// account has no name.
type actor struct {
	client.Client
	account types.NamespacedName
}

// identify returns the actor of a source: the service account in its spec, otherwise the default one, otherwise the
// controller. The controller always reads and writes the source itself and fetches its files.
func (r *Reconciler) identify(source *v1alpha1.PoolSource) (actor, error) {
	field, name := "spec.serviceAccountName", source.Spec.ServiceAccountName
	if name == "" {
		field, name = "--default-service-account of the controller", r.DefaultServiceAccount
	}
	if name == "" {
		return actor{Client: r.Client}, nil
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return actor{}, kube.Stall(catalog.AccountNameInvalid.With(field, name).Detailed(errs[0]))
	}
	account := types.NamespacedName{Namespace: source.Namespace, Name: name}
	c, err := r.Impersonate(account)
	return actor{c, account}, err
}

// isRefused reports whether an error means that the service account has insufficient rights, or that the controller may not
// impersonate it.
func (a actor) isRefused(err error) bool {
	return a.account.Name != "" && apierrors.IsForbidden(err) &&
		(strings.Contains(err.Error(), " cannot ") || strings.Contains(err.Error(), "attempting to grant RBAC permissions"))
}

// advice returns a cause that explains how to fix a refusal.
func (a actor) advice(refused error) catalog.Cause {
	if strings.Contains(refused.Error(), "cannot impersonate") {
		return catalog.ControllerMayNotImpersonate.With()
	}
	return catalog.BindRole.With(a.account, a.account.Namespace, a.account.Name)
}

// refusal converts an error into a Wait with advice if the service account has insufficient rights. It returns other errors
// unchanged.
func (p *pass) refusal(err error) error {
	if !p.actor.isRefused(err) {
		return err
	}
	return kube.Wait(p.rightsRetry(), catalog.RightMissing.With().Wrap(err), p.actor.advice(err))
}

// rightsRetry returns the delay before the next attempt after the service account was refused.
func (p *pass) rightsRetry() time.Duration {
	return min(p.retryAfter(), p.jitter(rightsRetry))
}
