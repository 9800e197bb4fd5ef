// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// Network is the way to a connection's server. The zero value is that of the process: the proxies of its environment, and
// the certificates of its system.
type Network struct {
	// HTTPProxy and HTTPSProxy are the proxies for URLs of either kind, as URLs that hold the credentials; empty for none.
	HTTPProxy, HTTPSProxy string
	// NoProxy lists what is reached without them, separated by commas.
	NoProxy string
	// CA holds certificates, PEM, that are trusted beside the system's.
	CA []byte
	// RunnersUseProxy is true if runners need the proxies, too.
	RunnersUseProxy bool
}

// isDefault says whether it is the process' own.
func (n Network) isDefault() bool { return n.HTTPProxy == "" && n.HTTPSProxy == "" && len(n.CA) == 0 }

// NetworkHash identifies the network without revealing it; empty for that of the process. It is sealed, as a proxy's password may be weak.
func (c Credentials) NetworkHash() string {
	n := c.Network
	if n.isDefault() {
		return ""
	}
	return c.Seal(fmt.Sprintf("network %q %q %q %q %t", n.HTTPProxy, n.HTTPSProxy, n.NoProxy, n.CA, n.RunnersUseProxy))
}

// Validate says what can't be used. Its errors hold no credentials.
func (n Network) Validate() error {
	for _, proxy := range []string{n.HTTPProxy, n.HTTPSProxy} {
		if _, err := url.Parse(proxy); err != nil {
			return errors.New("the proxy's URL is malformed")
		}
	}
	_, err := Certificates(n.CA)
	return err
}

// Certificates returns those of PEM data, encoded anew: what stands around them, most often a comment, is left out. It fails on anything
// else that is PEM, such as a private key.
func Certificates(data []byte) ([]byte, error) {
	var all []byte
	decoded := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a %.40q: only certificates may be here", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		decoded++
	}
	switch begun := bytes.Count(data, []byte("-----BEGIN ")); {
	case begun != decoded:
		return nil, fmt.Errorf("%d of %d PEM blocks can't be read", begun-decoded, begun)
	case decoded == 0 && len(data) > 0:
		return nil, errors.New("there is no PEM certificate")
	}
	return all, nil
}

// over returns the network that the credentials are used over: the one of all, or one with proxies and certificates of its own.
func (n Network) over(all http.RoundTripper) http.RoundTripper {
	if n.isDefault() {
		return all
	}
	t := NewTransport()
	if cmp.Or(n.HTTPProxy, n.HTTPSProxy) != "" {
		proxies := (&httpproxy.Config{HTTPProxy: n.HTTPProxy, HTTPSProxy: n.HTTPSProxy, NoProxy: n.NoProxy}).ProxyFunc()
		t.Proxy = func(req *http.Request) (*url.URL, error) { return proxies(req.URL) }
	}
	if len(n.CA) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // a system without certificates
		}
		roots.AppendCertsFromPEM(n.CA)
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return t
}
