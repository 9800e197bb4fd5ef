// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A server may advertise endless references. The list is read up to a maximum size and takes less memory than a worker
// has.
func TestAnEndlessListOfReferencesTakesLittleMemory(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
		hash := strings.Repeat("1", 40)
		_, err := fmt.Fprint(w, line("# service=git-upload-pack\n"), "0000", line(hash+" HEAD\x00shallow\n"))
		for i := 0; err == nil && sent.Load() < 64<<20; i++ {
			var n int
			n, err = fmt.Fprint(w, line(fmt.Sprintf("%s %x", hash, i))) // as short as possible
			sent.Add(int64(n))
		}
	}))
	defer server.Close()
	client := &Client{AllowHTTP: true}
	var err error
	took := allocated(func() { // includes garbage and the server's allocations
		_, err = client.Resolve(t.Context(), Request{URL: server.URL, Ref: Ref{Branch: "main"}})
	})
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "16777216") {
		t.Errorf("got %v", err)
	}
	t.Logf("%d MiB were sent, and %d MiB taken", sent.Load()>>20, took>>20)
	if sent.Load() > 32<<20 || took > FetchBytes {
		t.Errorf("%d MiB were sent, and %d MiB taken", sent.Load()>>20, took>>20)
	}
}
