// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"cmp"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// Network configures how Corral reaches a connection's server. The zero value uses the process's settings: the proxies
// from its environment and the certificates of its system.
type Network struct {
	// HTTPProxy and HTTPSProxy are proxy URLs, which can contain credentials; empty for none.
	HTTPProxy, HTTPSProxy string
	// NoProxy lists the hosts that are reached without a proxy, separated by commas.
	NoProxy string
	// CA holds PEM certificates that are trusted in addition to the system's.
	CA []byte
	// RunnersUseProxy is true if runners use the proxies, too.
	RunnersUseProxy bool
}

// isDefault reports whether Corral uses the process's own settings.
func (n Network) isDefault() bool { return n.HTTPProxy == "" && n.HTTPSProxy == "" && len(n.CA) == 0 }

// NetworkHash returns a keyed hash of the network's settings, which does not reveal them; empty for the process's own
// settings. The key is the credentials. Without it, the weak password of a proxy could be guessed from the hash.
func (c Credentials) NetworkHash() string {
	n := c.Network
	if n.isDefault() {
		return ""
	}
	return c.Seal(fmt.Sprintf("network %q %q %q %q %t", n.HTTPProxy, n.HTTPSProxy, n.NoProxy, n.CA, n.RunnersUseProxy))
}

// Validate checks the network. Its errors contain no credentials.
func (n Network) Validate() error {
	for _, proxy := range []string{n.HTTPProxy, n.HTTPSProxy} {
		if _, err := url.Parse(proxy); err != nil {
			return errors.New("the proxy's URL is malformed")
		}
	}
	_, err := Certificates(n.CA)
	return err
}

// maxCABits is the maximum size of a trusted certificate's RSA key. crypto/tls has the same limit, but only for the
// certificates that a server sends. The time to check a signature grows with the square of the size, and a check cannot be
// canceled.
const maxCABits = 8192

// Certificates returns the certificates in PEM data, encoded again without the text between them, which is usually
// comments. It fails if the data has any other PEM block, such as a private key, or an RSA key above maxCABits.
func Certificates(data []byte) ([]byte, error) {
	var all []byte
	decoded := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("found a PEM block %.40q: only certificates are allowed", block.Type)
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		if key, ok := parsed.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxCABits {
			return nil, fmt.Errorf("a certificate has an RSA key of %d bits, more than %d", key.N.BitLen(), maxCABits)
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

// over returns the transport for the network: the shared one (all) if the network is the default, or else a new one
// with the network's proxies and certificates.
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
			roots = x509.NewCertPool() // if the system has no certificates
		}
		roots.AppendCertsFromPEM(n.CA)
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return t
}
