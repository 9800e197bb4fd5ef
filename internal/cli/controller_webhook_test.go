// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"strings"
	"testing"
)

func TestFlagsOfTheWebhookServer(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		flags webhookOptions
		podIP string
		host  string // the address at which other replicas reach this one
		err   string
	}{
		"none":             {},
		"one address":      {flags: webhookOptions{address: "127.0.0.1:0"}, podIP: "10.1.2.3", host: "127.0.0.1"},
		"the pod's":        {flags: webhookOptions{address: ":0"}, podIP: "10.1.2.3", host: "10.1.2.3"},
		"given":            {flags: webhookOptions{address: ":0", advertise: "fd00::1"}, podIP: "10.1.2.3", host: "fd00::1"},
		"not known":        {flags: webhookOptions{address: ":0"}},
		"no network":       {flags: webhookOptions{address: ":0", proxies: []string{"10.0.0.1"}}, err: "reading --webhook-trusted-proxies: netip.ParsePrefix"},
		"no IP":            {flags: webhookOptions{address: ":0", advertise: "here"}, err: "reading --webhook-advertise-ip: ParseAddr"},
		"no IP of the pod": {flags: webhookOptions{address: ":0"}, podIP: "here", err: "reading $POD_IP: ParseAddr"},
		"port taken":       {flags: webhookOptions{address: taken.Addr().String()}, err: "listening at --webhook-addr: listen tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(podIP, tc.podIP)
			of := &controllerOptions{}
			of.manager.LeaderElectionNamespace, of.manager.Namespaces = "corral-system", []string{"team"}
			err := tc.flags.listen(of)
			if err != nil || tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("got %v; want %s", err, tc.err)
				}
				return
			}
			if tc.flags.address == "" {
				if of.controllers.Webhook != nil {
					t.Error("it listens")
				}
				return
			}
			w := of.controllers.Webhook
			defer w.Listener.Close()
			if got := of.manager.WebhookAddress; got.IsValid() != (tc.host != "") || got.IsValid() && got.Addr().String() != tc.host {
				t.Errorf("others find it at %s; want %s", got, tc.host)
			}
			if w.Lease.String() != "corral-system/corral.corral.dev" || len(w.Namespaces) != 1 {
				t.Errorf("lease %s, namespaces %v", w.Lease, w.Namespaces)
			}
		})
	}
}
