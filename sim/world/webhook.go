// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

// WebhookSecret is the secret that the world's webhooks are signed with.
const WebhookSecret = "shared with GitHub"

// Ports below the range of ephemeral ports.
const firstPort, ports = 20_000, 12_000

// Each process starts at a random port and uses the next ones in turn.
var portOffset, portsTaken = rand.Uint32N(ports), atomic.Uint32{}

// FreeAddress returns an unused address of the loopback interface for the --webhook-addr flag of a controller. No other
// caller gets it before the controller listens.
func FreeAddress() (string, error) {
	for range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+(portOffset+portsTaken.Add(1))%ports))
		if err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("finding a free port: there is none")
}

// WebhookURL returns the URL for events of a connection, for a controller that listens at an address.
func WebhookURL(address, namespace, connection string) string {
	return fmt.Sprintf("http://%s/github/%s/%s", address, namespace, connection)
}

// HookSecret returns the Secret for a connection's spec.webhook.
func HookSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{"secret": WebhookSecret},
	}
}

// AddHook creates a webhook of an organization, a repository or an enterprise that delivers to the controller that
// listens at an address. It returns the ID of the webhook.
func (w *World) AddHook(owner, address, namespace, connection string) (int64, error) {
	id, err := w.GitHub.AddHook(githubsim.Hook{
		Owner: owner, URL: WebhookURL(address, namespace, connection), Secret: WebhookSecret,
		Events: []string{"workflow_job", "check_run", "pull_request", "push"},
	})
	if err != nil {
		return 0, fmt.Errorf("making the webhook: %w", err)
	}
	return id, nil
}

// ConnectHook is Connect for a connection that receives an organization's events at an address and requests redelivery
// of lost ones. It returns the ID of the webhook.
func (w *World) ConnectHook(ctx context.Context, namespace, name, organization, address string) (int64, error) {
	if err := w.Connect(ctx, namespace, name, organization); err != nil {
		return 0, err
	}
	id, err := w.AddHook(organization, address, namespace, name)
	if err != nil {
		return 0, err
	}
	secret := HookSecret(namespace, name+"-webhook")
	if err := w.Client.Create(ctx, secret); err != nil {
		return 0, fmt.Errorf("making the webhook's Secret: %w", err)
	}
	connection := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := fmt.Sprintf(`{"spec":{"webhook":{"secretRef":{"name":%q},"hookID":%d}}}`, secret.Name, id)
	if err := w.Client.Patch(ctx, connection, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return 0, fmt.Errorf("naming the webhook's Secret: %w", err)
	}
	return id, nil
}
