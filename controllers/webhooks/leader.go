// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/webhook"
)

// Labels of the leader election lease with the address and the key of the leader's webhook server. The leader writes them
// together with its name, so they never belong to a previous leader. A replica that forwards an event sends the key, which
// proves to the leader that the request comes from a replica. The leader then counts the request for the namespace of the
// event, and not for the replica's address.
const (
	HostLabel = "corral.dev/webhook-host"
	PortLabel = "corral.dev/webhook-port"
	KeyLabel  = "corral.dev/webhook-key"
)

const (
	// leaseFor is how long the result of a successful read of the lease is cached.
	leaseFor = 2 * time.Second
	// failedFor is how long a failure is cached: the lease could not be read, or the leader could not be reached. Events
	// are not forwarded during that time.
	failedFor = time.Second
)

// Labels returns the labels for the address and the key of a leader's server. If the leader has no server, the values are
// empty, so that they replace the labels of an earlier leader.
func Labels(address netip.AddrPort, key string) map[string]string {
	if !address.IsValid() {
		return map[string]string{HostLabel: "", PortLabel: "", KeyLabel: ""}
	}
	// A label's value may not contain colons.
	host := strings.ReplaceAll(address.Addr().Unmap().WithZone("").StringExpanded(), ":", "-")
	return map[string]string{HostLabel: host, PortLabel: strconv.Itoa(int(address.Port())), KeyLabel: key}
}

// addressOf returns the address from labels that the function Labels returned.
func addressOf(labels map[string]string) (netip.AddrPort, error) {
	host, err := netip.ParseAddr(strings.ReplaceAll(labels[HostLabel], "-", ":"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the address of the leader: %w", err)
	}
	port, err := strconv.ParseUint(labels[PortLabel], 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the address of the leader: %w", err)
	}
	return netip.AddrPortFrom(host, uint16(port)), nil
}

// Advertised returns the address at which other replicas reach a server that listens at address. If the server listens at
// all addresses of the pod, this is ip with the server's port. The zero value means that the address is unknown.
func Advertised(address net.Addr, ip netip.Addr) netip.AddrPort {
	listens, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.AddrPort{}
	}
	if !listens.Addr().IsUnspecified() {
		return listens
	}
	if !ip.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, listens.Port())
}

// Leader finds the replica that accepts events by reading the lease. The server calls Peer only for signed events, so that
// other requests do not cause reads.
type Leader struct {
	// Elected is closed once this process leads.
	Elected <-chan struct{}
	// Live reads the lease, whose name is Lease, from the API server.
	Live  client.Reader
	Lease types.NamespacedName
	Now   func() time.Time

	mu    sync.Mutex
	peer  webhook.Peer
	err   error
	until time.Time
}

// Leads implements webhook.Leader.
func (l *Leader) Leads() bool {
	select {
	case <-l.Elected:
		return true
	default:
		return false
	}
}

// Peer implements webhook.Leader.
func (l *Leader) Peer(ctx context.Context) (webhook.Peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.Now(); !now.Before(l.until) {
		l.peer, l.err = l.read(ctx)
		l.until = now.Add(leaseFor)
		if l.err != nil {
			l.until = now.Add(failedFor)
		}
	}
	return l.peer, l.err
}

// Failed implements webhook.Leader.
func (l *Leader) Failed(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer.Address == address {
		l.peer, l.err, l.until = webhook.Peer{}, errors.New("the leader didn't answer"), l.Now().Add(failedFor)
	}
}

func (l *Leader) read(ctx context.Context) (webhook.Peer, error) {
	// Other requests wait for the result, so the read is not canceled with this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	lease := &coordinationv1.Lease{}
	if err := l.Live.Get(ctx, l.Lease, lease); err != nil {
		return webhook.Peer{}, fmt.Errorf("reading the lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return webhook.Peer{}, errors.New("the lease has no holder")
	}
	address, err := addressOf(lease.Labels)
	if err != nil {
		return webhook.Peer{}, err
	}
	return webhook.Peer{Address: address.String(), Key: lease.Labels[KeyLabel]}, nil
}
