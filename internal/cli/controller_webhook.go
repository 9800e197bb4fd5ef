// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/corral-dev/corral/controllers"
	"github.com/corral-dev/corral/controllers/webhooks"
)

// podIP is the environment variable with the pod's IP address, which the Deployment sets.
const podIP = "POD_IP"

// webhookOptions are the flags of the server for GitHub's webhooks.
type webhookOptions struct {
	address, advertise string
	proxies            []string
}

func (f *webhookOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "webhook-addr", f.address, "address that receives GitHub's webhooks at /github/NAMESPACE/CONNECTION, such as :8081 (default: none)")
	flags.StringVar(&f.advertise, "webhook-advertise-ip", f.advertise, "IP address at which other replicas reach the webhook server of this replica (default: $"+podIP+")")
	flags.StringSliceVar(&f.proxies, "webhook-trusted-proxies", f.proxies, "networks of proxies, such as 10.0.0.0/8, whose X-Forwarded-For header is trusted")
}

// listen opens the port of the webhook server before the controllers start, so that an unusable address
// ends the process with an error.
func (f *webhookOptions) listen(of *controllerOptions) error {
	if f.address == "" {
		return nil
	}
	proxies := make([]netip.Prefix, 0, len(f.proxies))
	for _, text := range f.proxies {
		proxy, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("reading --webhook-trusted-proxies: %w", err)
		}
		proxies = append(proxies, proxy.Masked())
	}
	ip, err := f.ip()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("listening at --webhook-addr: %w", err)
	}
	of.manager.WebhookAddress, of.manager.WebhookKey = webhooks.Advertised(listener.Addr(), ip), rand.Text()
	of.controllers.Webhook = &controllers.WebhookOptions{Listener: listener, TrustedProxies: proxies, Lease: of.manager.Lease(), Key: of.manager.WebhookKey, Namespaces: of.manager.Namespaces}
	return nil
}

// ip returns the address at which other replicas reach this replica, or the zero value if neither the flag
// nor the environment sets it.
func (f *webhookOptions) ip() (netip.Addr, error) {
	text, from := f.advertise, "--webhook-advertise-ip"
	if text == "" {
		text, from = os.Getenv(podIP), "$"+podIP
	}
	if text == "" {
		return netip.Addr{}, nil
	}
	ip, err := netip.ParseAddr(text)
	return ip, wrap("reading "+from, err)
}
