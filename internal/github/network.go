// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
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

// Hash identifies the network without revealing it; empty for that of the process.
func (n Network) Hash() string {
	if n.isDefault() {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %t", n.HTTPProxy, n.HTTPSProxy, n.NoProxy, n.CA, n.RunnersUseProxy))
	return hex.EncodeToString(sum[:16])
}

// Validate says what can't be used. Its errors hold no credentials.
func (n Network) Validate() error {
	for _, proxy := range []string{n.HTTPProxy, n.HTTPSProxy} {
		if _, err := url.Parse(proxy); err != nil {
			return errors.New("the proxy's URL is malformed")
		}
	}
	return CheckCertificates(n.CA)
}

// CheckCertificates returns an error unless PEM data holds certificates and nothing else; empty data is fine.
func CheckCertificates(data []byte) error {
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return errors.New("there is something that is no PEM block")
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("there is a %.40q: only certificates may be here", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("reading a certificate: %w", err)
		}
	}
	return nil
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
