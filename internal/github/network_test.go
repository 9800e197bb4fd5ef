// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/pem"
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
	for data, want := range map[string]bool{
		"": true, good: true, good + "\n" + good + "\n": true,
		"pem": false, good + "more": false, good + block("PRIVATE KEY", []byte("secret")): false, block("CERTIFICATE", []byte("none")): false,
	} {
		if err := CheckCertificates([]byte(data)); (err == nil) != want {
			t.Errorf("%.60q: %v", data, err)
		}
	}
}

func TestNetworksAreToldApart(t *testing.T) {
	seen := map[string]Network{}
	for _, n := range []Network{{}, {HTTPProxy: "a"}, {HTTPSProxy: "a"}, {HTTPSProxy: "a", NoProxy: "a"}, {CA: []byte("a")}, {HTTPProxy: "a", HTTPSProxy: "a"}, {HTTPProxy: "a", RunnersUseProxy: true}} {
		if other, ok := seen[n.Hash()]; ok {
			t.Errorf("%v and %v are one", n, other)
		}
		seen[n.Hash()] = n
	}
	if (Network{NoProxy: "a", RunnersUseProxy: true}).Hash() != "" {
		t.Error("a network without proxies and certificates isn't that of the process")
	}
}
