// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trustedServers lists the files whose transports reach no server that a tenant chooses.
var trustedServers = []string{
	"internal/github/scaleset/transport.go", // passes requests to the transport of internal/github
	"internal/notify/notify.go",             // the address of --events-addr
	"internal/webhook/forward.go",           // the leader
}

// Go accepts 10 MiB of headers in an answer. No limit on bodies covers them.
func TestTransportsBoundTheHeadersOfAnswers(t *testing.T) {
	for _, pkg := range deps(t, "cmd/corral") {
		folder, ours := strings.CutPrefix(pkg, module)
		if !ours {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			short, _ := filepath.Rel(filepath.Join("..", ".."), name)
			if strings.HasSuffix(name, "_test.go") || slices.Contains(trustedServers, short) {
				continue
			}
			made := strings.Count(string(text), "http.DefaultTransport") + strings.Count(string(text), "http.Transport{") + strings.Count(string(text), "http.DefaultClient")
			if made > strings.Count(string(text), "MaxResponseHeaderBytes = ") {
				t.Errorf("%s has an http.Transport without MaxResponseHeaderBytes", short)
			}
		}
	}
}
