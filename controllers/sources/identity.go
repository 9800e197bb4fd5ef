// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
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
	"github.com/corral-dev/corral/internal/kube"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate

const (
	// identities is how many clients of service accounts are kept.
	identities = 256
	// rightsRetry is the longest time to the next attempt after a service account was refused: nobody tells when a role is bound.
	rightsRetry = 30 * time.Second
)

// Impersonator makes clients that act as service accounts. It is safe for concurrent use.
type Impersonator struct {
	config  *rest.Config
	options client.Options
	known   *lru.Cache // of types.NamespacedName to client.Client
}

// NewImpersonator returns an Impersonator for who has the config and may impersonate service accounts. The options need a mapper, which
// all clients share.
func NewImpersonator(config *rest.Config, options client.Options) *Impersonator {
	return &Impersonator{config: config, options: options, known: lru.New(identities)}
}

// As returns a client that acts as a service account. It reads nothing from a cache: what an account may not see, it doesn't.
func (i *Impersonator) As(account types.NamespacedName) (client.Client, error) {
	if known, ok := i.known.Get(account); ok {
		return known.(client.Client), nil
	}
	config := rest.CopyConfig(i.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: username(account)}
	c, err := client.New(config, i.options)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", username(account), err)
	}
	i.known.Add(account, c)
	return c, nil
}

// username of a service account: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens
func username(account types.NamespacedName) string {
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}

// identify says as whom the source's objects are applied, bound and deleted: the service account that it names, else the default one,
// else the controller. What the source itself is, and what it is fetched with, is read and written by the controller.
func (x *run) identify(context.Context) error {
	x.actor = x.Client
	said, name := "spec.serviceAccountName", x.source.Spec.ServiceAccountName
	if name == "" {
		said, name = "--default-service-account of the controller", x.DefaultServiceAccount
	}
	if name == "" {
		return nil
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return kube.Stall(v1alpha1.InvalidSpecReason, "%s: %q is no name of a ServiceAccount: %s", said, name, errs[0])
	}
	x.account = types.NamespacedName{Namespace: x.source.Namespace, Name: name}
	var err error
	x.actor, err = x.Impersonate(x.account)
	return err
}

// isRefused says whether the service account may not do something, or the controller may not act as it.
func (x *run) isRefused(err error) bool {
	return x.account.Name != "" && apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ")
}

// refusal is the outcome of what the service account may not do.
func (x *run) refusal(err error) error {
	if !x.isRefused(err) {
		return err
	}
	return kube.Wait(v1alpha1.AccessDeniedReason, x.rightsRetry(), "%w\n%s", err, x.advice(err.Error()))
}

// rightsRetry is the time to the next attempt after the service account was refused.
func (x *run) rightsRetry() time.Duration {
	return min(x.retryAfter(), x.jitter(rightsRetry))
}

// advice is what can be done about a refusal.
func (x *run) advice(refused string) string {
	if strings.Contains(refused, "cannot impersonate") {
		return "The controller may not act as service accounts: set impersonation.enabled of the chart"
	}
	return fmt.Sprintf("Bind a role with this right to ServiceAccount %s, and see that it is there: kubectl get serviceaccount -n %s %s",
		x.account, x.account.Namespace, x.account.Name)
}
