// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The time of a signature grows with the cube of the key's size, and cannot be interrupted.
func TestALargePrivateKeyIsRefused(t *testing.T) {
	key, err := rsa.GenerateMultiPrimeKey(rand.Reader, 5, 5120) //nolint:staticcheck // quicker than two primes
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, tc := range map[string]struct {
		key  []byte
		want string
	}{
		"5,120 bits":  {text, "has 5120 bits"},
		"a long text": {[]byte(strings.Repeat("x", maxKeyBytes+1)), "bytes, more than"},
	} {
		creds := Credentials{ConfigURL: "https://github.com/acme", App: &App{ID: "1", InstallationID: 1, PrivateKey: tc.key}}
		if err := creds.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// HTTP/2 servers can send any number, and each would be a time series.
func TestStatusesHaveFewLabels(t *testing.T) {
	for status, want := range map[int]string{0: "other", 99: "other", 200: "200", 404: "404", 599: "599", 600: "other", 1_000_001: "other"} {
		if got := codeLabel(status); got != want {
			t.Errorf("%d has the label %s, want %s", status, got, want)
		}
	}
}

func TestConnectionsThatNeverWorkedAreForgotten(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewConnections(func() time.Time { return now })
	reports := 0
	c.Report = func(string, time.Duration, bool) { reports++ }
	o := c.Watch(Options{}, "ci/a")
	answers := o.clock.Wrap(network(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{"Date": {now.Format(http.TimeFormat)}}}, nil
	}))
	ask := func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://github.com/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := answers.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		o.answered("verify", http.StatusServiceUnavailable, nil, nil)
		o.refused()
	}
	ask()
	if reports == 0 || len(c.clocks)+len(c.failing)+len(c.refused) != 3 {
		t.Errorf("%d reports, %d clocks, %d failing, %d refused", reports, len(c.clocks), len(c.failing), len(c.refused))
	}
	c.Drop("ci/a")
	reports = 0
	ask() // a late answer
	if reports+len(c.clocks)+len(c.failing)+len(c.refused) != 0 {
		t.Errorf("after the connection was deleted: %d reports, %d clocks, %d failing, %d refused", reports, len(c.clocks), len(c.failing), len(c.refused))
	}
}
