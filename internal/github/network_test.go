// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOnlyCertificatesAreTaken(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	good := block("CERTIFICATE", server.Certificate().Raw)
	certified := func(bits int) string {
		template := &x509.Certificate{SerialNumber: big.NewInt(1)}
		modulus := new(big.Int).SetBit(big.NewInt(1), bits-1, 1)
		der, err := x509.CreateCertificate(rand.Reader, template, server.Certificate(), &rsa.PublicKey{N: modulus, E: 65537}, server.TLS.Certificates[0].PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		return block("CERTIFICATE", der)
	}
	large, tooLarge := certified(maxCABits), certified(maxCABits+1)
	for data, want := range map[string]string{
		large: large, tooLarge: "refused", good + tooLarge: "refused",
		"": "", good: good, good + "\n" + good + "\n": good + good, // valid certificates stay unchanged
		"# ours\n" + good + "# end of the bundle\n":                                                                                                good,
		"password: hunter2\n" + good:                                                                                                               good,
		" -----BEGIN PRIVATE KEY-----\n c2VjcmV0\n -----END PRIVATE KEY-----\n" + good:                                                             "refused",
		"-----BEGIN PRIVATE KEY-----\nc2VjcmV0!\n-----END PRIVATE KEY-----\n" + good:                                                               "refused",
		good + "-----BEGIN CERTIFICATE-----\nc2VjcmV0!\n-----END CERTIFICATE-----\n":                                                               "refused", // a damaged one would be missing without notice
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Key": "hunter2"}, Bytes: server.Certificate().Raw})): good,
		"pem": "refused", good + block("PRIVATE KEY", []byte("secret")): "refused", block("CERTIFICATE", []byte("none")): "refused",
	} {
		got, err := Certificates([]byte(data))
		if err != nil {
			got = []byte("refused")
		}
		if string(got) != want {
			t.Errorf("%.60q: %q, %v", data, got, err)
		}
	}
}

func TestNetworksAreToldApart(t *testing.T) {
	seen := map[string]Network{}
	hash := func(n Network) string { return Credentials{Token: "t", Network: n}.NetworkHash() }
	for _, n := range []Network{{}, {HTTPProxy: "a"}, {HTTPSProxy: "a"}, {HTTPSProxy: "a", NoProxy: "a"}, {CA: []byte("a")}, {HTTPProxy: "a", HTTPSProxy: "a"}, {HTTPProxy: "a", RunnersUseProxy: true}} {
		if other, ok := seen[hash(n)]; ok {
			t.Errorf("%v and %v are one", n, other)
		}
		seen[hash(n)] = n
	}
	if hash(Network{NoProxy: "a", RunnersUseProxy: true}) != "" {
		t.Error("a network without proxies and certificates isn't that of the process")
	}
	if n := (Network{HTTPProxy: "a"}); hash(n) == (Credentials{Token: "other", Network: n}).NetworkHash() {
		t.Error("who has no credentials could try passwords of the proxy")
	}
}
